"""The shell that runs cells: IPython's, with compact tracebacks and no terminal."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import subprocess
import sys
import warnings
from types import TracebackType
from typing import Any, ClassVar

from ipykernel import compiler, displayhook
from IPython.core import autocall, interactiveshell

from . import (
    bot_calls,
    compact_tracebacks,
    dataframe_displays,
    html_displays,
    package_requests,
    rootfs,
    snapshot_children,
    snapshots,
    variable_descriptions,
)

_SHELL = "/bin/sh"
_COLOUR_PATTERN = re.compile(r"\x1b\[[\d;]*m")


class CellCompiler(compiler.XCachingCompiler):
    """Compiler that names cells by their number, for tracebacks."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """Return the file name of a cell."""
        return f"{compact_tracebacks.CELL_PREFIX}{number}>"


class DisplayHook(displayhook.ZMQShellDisplayHook):
    """Display hook for the value of a cell's last line; `Out` keeps the newest values only."""

    def cull_cache(self) -> None:
        """Drop the oldest values of `Out`, without a warning in the middle of an answer."""
        values = self.shell.user_ns["_oh"]
        old_numbers = set(values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().cull_cache()
        # IPython leaves these values in its hidden namespace, where they would stay in memory.
        for number in old_numbers.difference(values):
            self.shell.user_ns_hidden.pop(f"_{number}", None)

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Keep no copy of displays for `%history -o`, as it would never be freed."""


class Exit(autocall.ZMQExitAutocall):
    """`exit` and `quit`, which end the cell as they would end a script."""

    def __call__(self, code: Any = None) -> None:
        """End the cell."""
        raise SystemExit(code)

    def __repr__(self) -> str:
        """Return a hint, as Python does."""
        return "Use exit() to end the code."


class GuestShell(package_requests.InstallingShell):
    """One kernel's shell, created and warmed up before the kernel is forked."""

    displayhook_class = DisplayHook
    variables_directory = rootfs.VARIABLES
    _has_failed = False
    _saver_pid = 0
    _killed_savers: ClassVar[list[int]] = []

    def init_display_formatter(self) -> None:
        """Add tables and charts to the display formats."""
        super().init_display_formatter()
        dataframe_displays.install(self.display_formatter)
        html_displays.install(self.display_formatter)

    def answer_bot(self, name: str, *arguments: Any) -> None:
        """Answer a call of the bot; its code calls this method."""
        bot_calls.handle_call(self, name, *arguments)

    def describe_variables(self) -> dict[str, Any]:
        """Return the names that code has defined, newest first, and how many there are."""
        variables = self.defined_variables()
        return {
            "names": variable_descriptions.select_displayable(variables),
            "count": len(variables),
        }

    def defined_variables(self) -> dict[str, Any]:
        """Return the variables that code has defined, newest first."""
        return variable_descriptions.defined_variables(self.user_ns, self.user_ns_hidden)

    def begin_saving(self, generation: int, *, seconds: float, max_bytes: int) -> None:
        """Start a child that saves all variables; see `snapshots.start_saving`."""
        names = snapshots.select_names(self.user_ns, self.user_ns_hidden)
        self._saver_pid = snapshots.start_saving(
            *(self.user_ns, names, self.variables_directory, generation),
            seconds=seconds,
            max_bytes=max_bytes,
        )

    def end_saving(self) -> None:
        """Kill the child that saves variables, so that the next code need not wait."""
        pid, self._saver_pid = self._saver_pid, 0
        if pid:
            snapshot_children.kill_leader(pid)
            # A large process takes a while to go.
            self._killed_savers.append(pid)
        self._killed_savers[:] = [
            pid for pid in self._killed_savers if not snapshot_children.has_leader_ended(pid)
        ]

    async def run_cell_async(self, raw_cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell; a script that exits with status 0 has succeeded."""
        result = await super().run_cell_async(raw_cell, *args, **options)
        if isinstance(result.error_in_exec, SystemExit) and not result.error_in_exec.code:
            result.error_in_exec = None
        return result

    def init_environment(self) -> None:
        """Do not set ipykernel's variables, which make programs print in colour."""
        os.environ["PAGER"] = "cat"

    def init_magics(self) -> None:
        """Make `%pip` and similar run the programs, without advice to restart the kernel."""
        super().init_magics()
        pip = f"{shlex.quote(sys.executable)} -m pip"
        for name in ("pip", "uv", "conda", "mamba", "micromamba"):
            program = pip if name == "pip" else name
            run = functools.partial(self._run_program, program)
            self.register_magic_function(run, magic_name=name)

    def _run_program(self, program: str, line: str) -> None:
        self.system(f"{program} {line}")

    def payloadpage_page(
        self, strg: str | dict[str, Any], start: int = 0, *arguments: Any, **options: Any
    ) -> None:
        """Print what is meant for a pager, such as the help of `len?`: the bot has no pager."""
        super().payloadpage_page(strg, start, *arguments, **options)
        text = str(strg.get("text/plain", "") if isinstance(strg, dict) else strg)
        lines = _COLOUR_PATTERN.sub("", text).splitlines(keepends=True)
        sys.stdout.write("".join([*lines[start:], "\n"]))

    def init_history(self) -> None:
        """Keep history in memory, because all kernels would share the file of a database."""
        self.config.HistoryManager.enabled = False
        super().init_history()

    def _tee(self, channel: str) -> contextlib.AbstractContextManager[None]:
        """Keep no copy of printed text, which IPython would for `%notebook`."""
        return contextlib.nullcontext()

    def init_builtins(self) -> None:
        """Let a person's modules call `exit()`, too."""
        self.exiter = Exit(self)
        super().init_builtins()
        self.builtin_trap.auto_builtins.update(exit=self.exiter, quit=self.exiter)

    def init_events(self) -> None:
        """Drop blank figures before all other callbacks after a cell."""
        super().init_events()
        self.events.register("post_execute", self._close_blank_figures)

    def _close_blank_figures(self) -> None:
        if self._has_failed:
            self._has_failed = False
            html_displays.close_blank_figures()

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
        if isinstance(error, SystemExit) and not error.code:
            return
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, tb
        notice = self.handle_missing_import(error)
        if notice is None:
            return
        self._has_failed = True
        # Formatted here, because formatting the user's exception may raise another.
        lines = compact_tracebacks.compact(kind, error, tb)
        lines[-1:-1] = [notice] if notice else []
        self._showtraceback(kind, compact_tracebacks.message(error), lines)

    def showsyntaxerror(self, filename: str | None = None, **_: Any) -> None:
        """Publish a syntax error compactly."""
        self.showtraceback()

    def system(self, cmd: str) -> None:
        """Run `!command` without the terminal that IPython would ask for."""
        command = self.var_expand(cmd, depth=1)
        packages = package_requests.parse_install_command(command) if self.can_install else None
        if packages is not None:
            self.user_ns["_exit_code"] = int(not package_requests.install(self.kernel, packages))
            return
        completed = subprocess.run([_SHELL, "-c", command], stdin=subprocess.DEVNULL, check=False)
        self.user_ns["_exit_code"] = completed.returncode

    system_piped = system
    system_raw = system

    def _format_exception_for_storage(self, exception: BaseException, **_: Any) -> Any:
        """Store nothing, because the history is not kept; this saves 20 ms for each exception."""
        return {}

    def enable_matplotlib(self, gui: Any = None) -> Any:
        """Show figures in the answer, even if `%matplotlib` names another backend."""
        return super().enable_matplotlib("inline")

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing, because there is no screen for windows."""


def _warn_unless_exit_advice(message: Any, *args: Any, **options: Any) -> None:
    # After `sys.exit()`, IPython explains how to leave a terminal.
    if not str(message).startswith("To exit:"):
        warnings.warn(message, *args, **options)


def create_shell(profile_directory: str) -> GuestShell:
    """Create the shell in the fork server; each kernel inherits a copy."""
    from IPython.core.profiledir import ProfileDir

    os.makedirs(profile_directory, exist_ok=True)
    interactiveshell.warn = _warn_unless_exit_advice
    interactiveshell.InteractiveShell.colors.default_value = "nocolor"
    shell: GuestShell = GuestShell.instance(
        profile_dir=ProfileDir.create_profile_dir(profile_directory),
        user_ns={},
        compiler_class=CellCompiler,
    )
    return shell
