"""The shell that runs cells: IPython's, with compact errors and no terminal to talk to."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
import subprocess
import sys
import warnings
from types import TracebackType
from typing import Any

from ipykernel import compiler, displayhook, zmqshell
from IPython.core import interactiveshell

from . import charts, pictures, tables, tracebacks

_SHELL = "/bin/sh"
_MOST_NAMES = 1000
_SHOWN_NAMES = 100
_NAME_CHARACTERS = 40


class CellCompiler(compiler.XCachingCompiler):
    """Names cells by their number, so that a traceback says which one."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """Return the file name of a cell."""
        return f"{tracebacks.CELL_PREFIX}{number}>"


class DisplayHook(displayhook.ZMQShellDisplayHook):
    """Shows what a cell's last line gives; `Out` keeps the newest values, as everywhere."""

    def cull_cache(self) -> None:
        """Forget the oldest values of `Out`, without a warning in the middle of an answer."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().cull_cache()

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Keep no copy of what was shown: it would never be let go. `%history -o` has none."""


class GuestShell(zmqshell.ZMQInteractiveShell):
    """One kernel's shell. It is made before the fork, so that a kernel begins with it warm."""

    displayhook_class = DisplayHook
    _has_failed = False

    def init_display_formatter(self) -> None:
        """Add tables and charts to what displays can carry."""
        super().init_display_formatter()
        tables.install(self.display_formatter)
        charts.install(self.display_formatter)

    def save_table(self, handle: str, name: str) -> bool:
        """Write all of a table that was shown; the bot asks for it by this name."""
        return tables.save(handle, name)

    def variables(self) -> dict[str, Any]:
        """Tell the names that code has defined, the latest first, and how many there are.

        No more is looked at than the bot would show or count, and nothing of a value but whether
        it is one that each kernel begins with.
        """
        hidden = self.user_ns_hidden
        names = [
            name
            for name in itertools.islice(reversed(self.user_ns), _MOST_NAMES)
            if type(name) is str
            and not name.startswith("_")
            and self.user_ns[name] is not hidden.get(name, self)
        ]
        shown = [name for name in names if len(name) <= _NAME_CHARACTERS]
        return {"names": shown[:_SHOWN_NAMES], "count": len(names)}

    def show_scaled(self, names: list[str], contents: list[str], **bounds: int) -> None:
        """Show pictures as small as a model looks at them; the bot asks for it by this name."""
        pictures.publish(self, names, contents, **bounds)

    def init_environment(self) -> None:
        """Leave colours off, which ipykernel would ask of every program that code starts."""
        os.environ["PAGER"] = "cat"

    def init_magics(self) -> None:
        """Let `%pip` and its kind be the programs, with no advice to start the kernel again."""
        super().init_magics()
        pip = f"{shlex.quote(sys.executable)} -m pip"
        for name in ("pip", "uv", "conda", "mamba", "micromamba"):
            program = pip if name == "pip" else name
            run = functools.partial(self._run_program, program)
            self.register_magic_function(run, magic_name=name)

    def _run_program(self, program: str, line: str) -> None:
        self.system(f"{program} {line}")

    def init_history(self) -> None:
        """Keep history in memory only: a database would be one open file of all kernels."""
        self.config.HistoryManager.enabled = False
        super().init_history()

    def _tee(self, channel: str) -> contextlib.AbstractContextManager[None]:
        """Keep nothing of what a cell prints; IPython would keep it all, for its `%notebook`."""
        return contextlib.nullcontext()

    def init_events(self) -> None:
        """Look at figures first of all that happens after a cell."""
        super().init_events()
        self.events.register("post_execute", self._drop_blank)

    def _drop_blank(self) -> None:
        if self._has_failed:
            self._has_failed = False
            charts.drop_blank()

    def showtraceback(
        self,
        exc_tuple: tuple[type[BaseException], BaseException, TracebackType | None] | None = None,
        **_: Any,
    ) -> None:
        """Publish an exception compactly."""
        try:
            kind, error, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            sys.stderr.write("No traceback available to show.\n")
            return
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, tb
        self._has_failed = True
        # What is sent is text already: an exception's own may raise another.
        self._showtraceback(kind, tracebacks.message(error), tracebacks.compact(kind, error, tb))

    def showsyntaxerror(self, filename: str | None = None, **_: Any) -> None:
        """Publish a syntax error compactly."""
        self.showtraceback()

    def system(self, cmd: str) -> None:
        """Run `!command` without the terminal that IPython would ask for."""
        command = self.var_expand(cmd, depth=1)
        done = subprocess.run([_SHELL, "-c", command], stdin=subprocess.DEVNULL, check=False)
        self.user_ns["_exit_code"] = done.returncode

    system_piped = system
    system_raw = system

    def _format_exception_for_storage(self, exception: BaseException, **_: Any) -> Any:
        """Store nothing: IPython would spend 20 ms on a traceback for a history we do not keep."""
        return {}

    def enable_gui(self, gui: Any = None) -> None:
        """Enable nothing: there is no screen to open windows on."""

    def ask_exit(self) -> None:
        """Answer `exit()`; a session ends when the person says so, not the code."""
        sys.stderr.write("The session stays open; ask for a reset to start afresh.\n")


def make(profile_directory: str) -> GuestShell:
    """Make the shell of this process, which later becomes that of each kernel."""
    from IPython.core.profiledir import ProfileDir

    os.makedirs(profile_directory, exist_ok=True)
    interactiveshell.InteractiveShell.colors.default_value = "nocolor"
    shell: GuestShell = GuestShell.instance(
        profile_dir=ProfileDir.create_profile_dir(profile_directory),
        user_ns={},
        compiler_class=CellCompiler,
    )
    return shell
