"""The shell that runs cells: IPython's, with compact tracebacks and no terminal."""

from __future__ import annotations

import contextlib
import functools
import os
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


class CellCompiler(compiler.XCachingCompiler):
    """Compiler that names cells by their number, so that a traceback says which one."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """Return the file name of a cell."""
        return f"{compact_tracebacks.CELL_PREFIX}{number}>"


class DisplayHook(displayhook.ZMQShellDisplayHook):
    """Display hook for the value of a cell's last line; `Out` keeps the newest values only."""

    def cull_cache(self) -> None:
        """Drop the oldest values of `Out`, without a warning in the middle of an answer."""
        values = self.shell.user_ns["_oh"]
        before = set(values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().cull_cache()
        # IPython leaves them in its hidden namespace, where they would stay in memory.
        for number in before.difference(values):
            self.shell.user_ns_hidden.pop(f"_{number}", None)

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Keep no copy of displays: it would never be freed. `%history -o` has none."""


class Exit(autocall.ZMQExitAutocall):
    """`exit` and `quit`: they end the cell, as they end a script."""

    def __call__(self, code: Any = None) -> None:
        """End the cell."""
        raise SystemExit(code)

    def __repr__(self) -> str:
        """Return a hint, as Python does."""
        return "Use exit() to end the code."


class GuestShell(package_requests.InstallingShell):
    """One kernel's shell, created before the fork, so that a kernel starts with it warm."""

    displayhook_class = DisplayHook
    variables_directory = rootfs.VARIABLES
    _has_failed = False
    _saving = 0
    _transformed: tuple[str, str] | None = None
    _ending_children: ClassVar[list[int]] = []

    def init_display_formatter(self) -> None:
        """Add tables and charts to the display formats."""
        super().init_display_formatter()
        dataframe_displays.install(self.display_formatter)
        html_displays.install(self.display_formatter)

    def answer_bot(self, name: str, *arguments: Any) -> None:
        """Answer a call of the bot, whose code calls this method."""
        bot_calls.handle_call(self, name, *arguments)

    def variables(self) -> dict[str, Any]:
        """Return the names that code has defined, newest first, and how many there are."""
        variables = self.defined_variables()
        return {"names": variable_descriptions.displayable(variables), "count": len(variables)}

    def defined_variables(self) -> dict[str, Any]:
        """Return the variables that code has defined, newest first."""
        return variable_descriptions.defined_variables(self.user_ns, self.user_ns_hidden)

    def begin_saving(self, generation: int, *, seconds: float, max_bytes: int) -> None:
        """Start a child that saves all variables as a new generation; see `snapshots.begin`."""
        names = snapshots.names_of(self.user_ns, self.user_ns_hidden)
        dataframe_displays.begin_saving(self.user_ns)
        self._saving = snapshots.begin(
            *(self.user_ns, names, self.variables_directory, generation),
            seconds=seconds,
            max_bytes=max_bytes,
        )

    def end_saving(self) -> None:
        """Kill the child that saves variables, so that the next code need not wait."""
        child, self._saving = self._saving, 0
        if child:
            snapshot_children.end(child)
            # A large process takes a while to go.
            self._ending_children.append(child)
        self._ending_children[:] = [
            child for child in self._ending_children if not snapshot_children.has_ended(child)
        ]

    def transform_cell(self, raw_cell: str) -> str:
        """Turn magics into Python: once, though ipykernel and IPython both ask before a cell."""
        cached = self._transformed
        if cached is None or cached[0] != raw_cell:
            self._transformed = cached = raw_cell, super().transform_cell(raw_cell)
        return cached[1]

    async def run_cell_async(self, raw_cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell; within it and after it, the same text may mean something else."""
        self._transformed = None
        try:
            result = await super().run_cell_async(raw_cell, *args, **options)
            if isinstance(result.error_in_exec, SystemExit) and not result.error_in_exec.code:
                # A script that ends itself so has done what it was to do.
                result.error_in_exec = None
            return result
        finally:
            self._transformed = None

    def init_environment(self) -> None:
        """Set no colour variables, which ipykernel would do for every program that code starts."""
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

    def init_history(self) -> None:
        """Keep history in memory only: a database would be one open file of all kernels."""
        self.config.HistoryManager.enabled = False
        super().init_history()

    def _tee(self, channel: str) -> contextlib.AbstractContextManager[None]:
        """Keep no copy of what a cell prints; IPython would, for its `%notebook`."""
        return contextlib.nullcontext()

    def init_builtins(self) -> None:
        """Let a person's modules end a script by `exit()`, too."""
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
        # Sent as text already: formatting the user's exception may raise another.
        lines = compact_tracebacks.compact(kind, error, tb)
        lines[-1:-1] = [notice] if notice else []
        self._showtraceback(kind, compact_tracebacks.message(error), lines)

    def showsyntaxerror(self, filename: str | None = None, **_: Any) -> None:
        """Publish a syntax error compactly."""
        self.showtraceback()

    def system(self, cmd: str) -> None:
        """Run `!command` without the terminal that IPython would ask for."""
        command = self.var_expand(cmd, depth=1)
        packages = package_requests.arguments(command) if self.can_install else None
        if packages is not None:
            self.user_ns["_exit_code"] = int(not package_requests.install(self.kernel, packages))
            return
        completed = subprocess.run([_SHELL, "-c", command], stdin=subprocess.DEVNULL, check=False)
        self.user_ns["_exit_code"] = completed.returncode

    system_piped = system
    system_raw = system

    def _format_exception_for_storage(self, exception: BaseException, **_: Any) -> Any:
        """Store nothing: IPython would spend 20 ms on a traceback for a history we do not keep."""
        return {}

    def enable_matplotlib(self, gui: Any = None) -> Any:
        """Show figures in the answer, even if `%matplotlib` names another backend."""
        return super().enable_matplotlib("inline")

    def enable_gui(self, gui: Any = None) -> None:
        """Enable nothing: there is no screen to open windows on."""


def _warn_unless_exit_advice(message: Any, *args: Any, **options: Any) -> None:
    # After `sys.exit()`, IPython explains how to leave a terminal.
    if not str(message).startswith("To exit:"):
        warnings.warn(message, *args, **options)


def make(profile_directory: str) -> GuestShell:
    """Make the shell of this process, which later becomes that of each kernel."""
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
