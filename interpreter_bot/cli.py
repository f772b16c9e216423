"""The command line: parse it, load the settings, and call the command's module.

Exit status: 0 all went well, 1 something that ran did not, 2 nothing was run. What takes long to
import is imported once it is known to be needed.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from interpreter_bot import errors, logs
from interpreter_bot.app import garbage_collection
from interpreter_bot.commands import options as command_options

if TYPE_CHECKING:
    from interpreter_bot import settings

_REFUSED: Final = 2
# Commands with kernels: they take seconds until they can print anything of their own.
_SLOW: Final = frozenset({"run", "ask", "execute", "doctor", "host", "mcp"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if arguments is None:
        arguments = sys.argv[1:]
    options = command_options.read(arguments)
    logs.configure("info" if options.verbose else options.log_level, is_json=False)
    # What goes with the process need not be collected before.
    atexit.register(gc.freeze)
    try:
        with _quiet_terminal(options):
            # A host that a bot starts shares the bot's terminal.
            is_asked_for = getattr(options, "linger", None) is None
            if options.module in _SLOW and is_asked_for and sys.stderr.isatty():
                sys.stderr.write("Starting…\n")
            with garbage_collection.paused():
                # It would look through all that is installed for plugins, of which we want none.
                os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
                from interpreter_bot.app import process_startup

                is_sandboxed = not getattr(options, "unsafe_no_sandbox", False)
                config = process_startup.load_settings(options.config, is_sandboxed=is_sandboxed)
                if _has_kernels(options):
                    from interpreter_bot.kernels.libraries import kernel_environment

                    kernel_environment.ensure(config, sys.stderr.write)
                if _needs_own_ids(config, options):
                    # Before anything is imported that might start a thread.
                    config = _with_own_ids(config)
                process_startup.forbid_inspection()
                command = importlib.import_module(f"interpreter_bot.commands.{options.module}")
            status: int = command.run(config, options)
            return status
    except errors.BotError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"interpreter-bot: {line}\n")
        return _REFUSED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed it; what is still buffered has nowhere to go.
        sys.stdout = None
        return 1


def _quiet_terminal(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Keep what is typed before a prompt is there out of what is shown: the prompt has it."""
    if options.module != "ask" or not (sys.stdin and sys.stdin.isatty()):
        return contextlib.nullcontext()
    from interpreter_bot.platforms.console import terminal_input

    return terminal_input.without_echo()


def _has_kernels(options: argparse.Namespace) -> bool:
    return options.module in _SLOW and getattr(options, "verb", None) in (None, "serve")


def _needs_own_ids(config: settings.Settings, options: argparse.Namespace) -> bool:
    """Return whether a command has kernels of its own, or deletes what a dead host left."""
    if options.module == "run":
        return config.host.mode == "inside"
    return options.module in _SLOW or getattr(options, "verb", None) == "forget"


def _with_own_ids(config: settings.Settings) -> settings.Settings:
    """Take the user ids that are granted for kernels, if any.

    Raises:
        SandboxError: they cannot be used after all.
    """
    from interpreter_bot.kernels.provisioning import subordinate_ids

    if not (count := subordinate_ids.enter(config.sandbox)):
        return config
    sandbox = config.sandbox.model_copy(update={"uid_count": count})
    return config.model_copy(update={"sandbox": sandbox})
