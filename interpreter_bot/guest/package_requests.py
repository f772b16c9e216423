"""Installations that code asks for: `%pip install x`, `!pip install x`, `!uv pip install x`.

The bot installs packages outside the sandbox, into a directory that the running kernel then imports
from. For modules that were not found, the bot may offer the packages that probably have them.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from ipykernel import zmqshell
from IPython import display

_INSTALLERS = ("pip", "conda", "mamba", "micromamba")
_PYTHON = re.compile(r"python[\d.]*")
_PIP = re.compile(r"pip[\d.]*")
# No installation is longer. The next pattern takes quadratic time.
_MAX_COMMAND_CHARACTERS = 4000
# People write these after a command, so that it prints less. No text matches in two ways, which
# would take exponential time with a text such as "<b>a</b>".
_OUTPUT_REDIRECTION = re.compile(
    r"(?:\s*(?:&?[12]?>>?(?!=)\s*(?:&[12]|[^\s;&|>]++)"
    r"|\|\s*(?:tail|head|grep|cat)\b[^;&|>]*+))+\s*$"
)
_MAX_REPEATS = 10
_MAX_FILES = 50_000
_SKILLS = "/skills"
_CODE_SUFFIXES = (".py", ".pyc", ".pyi", ".so", ".ipynb", ".pyx", ".zip")
_MISSING_GROUP_HINT = (
    "{module} is in the group '{group}' of libraries, which is not installed here. Whoever runs "
    "this bot can add it: `interpreter-bot libraries {group}`, and restart the bot."
)
_MODULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")


def parse_install_command(command: str) -> list[str] | None:
    """Return the arguments after `install`; None if the command does anything else."""
    if len(command) > _MAX_COMMAND_CHARACTERS:
        return None
    bare_command = _OUTPUT_REDIRECTION.sub("", command)
    if "\n" in bare_command.strip() or re.search(r"[;&|`]|\$\(", bare_command):
        return None
    try:
        words = shlex.split(bare_command)
    except ValueError:
        return None
    words = _drop_program(words)
    while words and words[0].startswith("-"):
        words = words[1:]
    return words[1:] if words[:1] == ["install"] else None


def _drop_program(words: list[str]) -> list[str]:
    """Return the words after the name of a package installer; empty for other programs."""
    program = os.path.basename(words[0]) if words else ""
    if _PYTHON.fullmatch(program) and words[1:3] == ["-m", "pip"]:
        return words[3:]
    if program == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    return words[1:] if _PIP.fullmatch(program) or program in _INSTALLERS else []


def install(kernel: Any, packages: list[str]) -> bool:
    """Request packages from the bot, and print its answer; return whether they are installed.

    `packages` are arguments of `pip install`.
    """
    notice, has_failed = _request_packages(kernel, packages)
    print(notice, file=sys.stderr if has_failed else sys.stdout)
    return not has_failed


def install_for_import(kernel: Any, error: BaseException) -> tuple[str, bool]:
    """Let the bot offer the package of a missing module.

    Returns:
        A notice, empty if no package could be installed; and whether nothing was installed.
    """
    if not isinstance(error, ModuleNotFoundError) or not isinstance(error.name, str):
        return "", True
    module = error.name.partition(".")[0]
    is_known = module in sys.stdlib_module_names or module in sys.modules
    if is_known or not _MODULE_NAME.fullmatch(module):
        return "", True
    # Code may have changed the working directory, even to a deleted one.
    if is_local_module(module, (kernel.home, os.curdir, _SKILLS)):
        return "", True
    return _request_packages(kernel, module)


def is_local_module(module: str, directories: Iterable[str]) -> bool:
    """Return whether a file in these directories has a module's name.

    No package index may learn such a name.
    """
    for directory in directories:
        remaining_files = _MAX_FILES
        for _, subdirectories, files in os.walk(directory):
            if module in subdirectories:
                return True
            if any(
                name.partition(".")[0] == module and name.endswith(_CODE_SUFFIXES) for name in files
            ):
                return True
            remaining_files -= len(files) + len(subdirectories)
            if remaining_files < 0:
                # With this many files, assume that one has the name.
                return True
    return False


def _request_packages(kernel: Any, packages_or_module: list[str] | str) -> tuple[str, bool]:
    """Ask the bot for packages, and make them importable; return its notice and `has_failed`."""
    answer = kernel.ask_bot({"install": packages_or_module})
    add_to_path(answer["paths"])
    return answer["notice"], answer["has_failed"]


class InstallingShell(zmqshell.ZMQInteractiveShell):
    """A shell that runs a cell again after the bot installed a package that the cell imports."""

    can_install = False
    """Whether the bot can be asked for packages."""
    missing_groups: Mapping[str, str] = types.MappingProxyType({})
    """By module, the group of libraries that would have it, if not installed."""
    _may_offer_packages = False
    _installation_notice = ""

    def handle_missing_import(self, error: BaseException) -> str | None:
        """Return a notice about a missing module, often empty; None if the cell shall run again."""
        if not self.can_install:
            return _group_hint(self.missing_groups, error)
        if not self._may_offer_packages:
            return ""
        notice, has_failed = install_for_import(self.kernel, error)
        if has_failed:
            return notice
        self._installation_notice = notice
        return None

    async def run_cell_async(
        self, raw_cell: str, store_history: bool = False, **options: Any
    ) -> Any:
        """Run a cell; if it runs again, the outputs of the first run are cleared."""
        could_offer, self._may_offer_packages = self._may_offer_packages, store_history
        try:
            result = await super().run_cell_async(raw_cell, store_history, **options)
            for _ in range(_MAX_REPEATS):
                if not self._installation_notice:
                    break
                display.clear_output()
                sys.stdout.write(f"{self._installation_notice}\n")
                self._installation_notice = ""
                # The same cell keeps its number.
                self.execution_count -= 1
                result = await super().run_cell_async(raw_cell, store_history, **options)
            return result
        finally:
            self._may_offer_packages, self._installation_notice = could_offer, ""


def _group_hint(missing_groups: Mapping[str, str], error: BaseException) -> str:
    """Return a hint about the group that has a missing module; empty if none has."""
    # Libraries raise their own errors if a module that they use is missing.
    for failure in (error, error.__cause__):
        if isinstance(failure, ModuleNotFoundError) and isinstance(failure.name, str):
            module = failure.name.partition(".")[0]
            if module in missing_groups:
                return _MISSING_GROUP_HINT.format(module=module, group=missing_groups[module])
    return ""


def add_to_path(paths: list[str]) -> None:
    """Append directories to the import path."""
    new_paths = [path for path in paths if path not in sys.path]
    sys.path.extend(new_paths)
    importlib.invalidate_caches()
    program_directories = [os.path.join(path, "bin") for path in new_paths]
    os.environ["PATH"] = ":".join([os.environ.get("PATH", ""), *program_directories])
