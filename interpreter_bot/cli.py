"""The command line: parse it, load the settings, and call the command's module.

Exit status: 0 success, 1 something failed, 2 nothing was run. Slow imports wait until they are
needed.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from interpreter_bot import errors, logs
from interpreter_bot.commands import exit_statuses
from interpreter_bot.commands import options as command_options

if TYPE_CHECKING:
    from interpreter_bot import settings

_GARBAGE_COLLECTION_THRESHOLD: Final = 50_000
# Commands that need seconds before they print anything.
_KERNEL_COMMANDS: Final = frozenset({"run", "ask", "execute", "doctor", "host", "mcp"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if arguments is None:
        arguments = sys.argv[1:]
    options = command_options.read(arguments)
    logs.configure("info" if options.verbose else options.log_level)
    # Collect garbage rarely: imports and the start create objects that stay, and a full collection
    # would block the event loop for a tenth of a second. At the end of the process, collect none.
    gc.set_threshold(_GARBAGE_COLLECTION_THRESHOLD)
    atexit.register(gc.freeze)
    try:
        # A host that a bot starts shares the bot's terminal.
        is_started_by_person = getattr(options, "linger", None) is None
        if options.module in _KERNEL_COMMANDS and is_started_by_person and sys.stderr.isatty():
            sys.stderr.write("Starting…\n")
        # Otherwise Pydantic searches all installed packages for plugins.
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
        from interpreter_bot.app import process_startup

        is_sandboxed = not getattr(options, "unsafe_no_sandbox", False)
        config = process_startup.load_settings(options.config, is_sandboxed=is_sandboxed)
        if _has_kernels(options):
            from interpreter_bot.kernels.libraries import kernel_environment

            kernel_environment.ensure(config, sys.stderr.write)
        if _needs_subordinate_ids(config, options):
            # Before any import that might start a thread.
            config = _with_subordinate_ids(config)
        process_startup.forbid_inspection()
        command = importlib.import_module(f"interpreter_bot.commands.{options.module}")
        status: int = command.run(config, options)
        return status
    except errors.BotError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"interpreter-bot: {line}\n")
        return exit_statuses.REFUSED
    except KeyboardInterrupt:
        return exit_statuses.INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has closed it, so Python must not flush the rest at its exit.
        sys.stdout = None
        return exit_statuses.FAILED


def _has_kernels(options: argparse.Namespace) -> bool:
    return options.module in _KERNEL_COMMANDS and getattr(options, "verb", None) in (None, "serve")


def _needs_subordinate_ids(config: settings.Settings, options: argparse.Namespace) -> bool:
    """Return whether a command starts kernels itself, or deletes files that a dead host left."""
    if options.module == "run":
        return config.host.mode == "inside"
    return options.module in _KERNEL_COMMANDS or getattr(options, "verb", None) == "forget"


def _with_subordinate_ids(config: settings.Settings) -> settings.Settings:
    """Take the user ids that the system grants for kernels, if any.

    Raises:
        SandboxError: they cannot be used.
    """
    from interpreter_bot.kernels.provisioning import subordinate_ids

    if not (count := subordinate_ids.enter(config.sandbox)):
        return config
    sandbox = config.sandbox.with_uids(config.sandbox.first_uid, count)
    return config.model_copy(update={"sandbox": sandbox})
