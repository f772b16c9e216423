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
import tomllib
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
                config = _settings(options)
                if _has_kernels(options):
                    from interpreter_bot.kernels.libraries import kernel_environment

                    kernel_environment.ensure(config, sys.stderr.write)
                if _needs_own_ids(config, options):
                    # Before anything is imported that might start a thread.
                    config = _with_own_ids(config)
                _forbid_inspection()
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


def _forbid_inspection() -> None:
    """Keep other processes of this user from reading the memory and environment of this one.

    In an ordinary container, those of sessions may have the bot's user id.
    """
    import ctypes

    set_dumpable = 4
    ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))


def _settings(options: argparse.Namespace) -> settings.Settings:
    """Load the settings.

    Raises:
        SettingsError: they are wrong, or turn the sandbox off where only a flag may.
    """
    # It would look through all that is installed for plugins, of which we want none.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    import pydantic

    from interpreter_bot import settings
    from interpreter_bot.setting_groups import header_values, unknown_names
    from interpreter_bot.wording import operator_words

    prefix = str(settings.Settings.model_config["env_prefix"])
    if unknown := unknown_names.variable_sentences(os.environ, prefix, settings.Settings):
        raise errors.SettingsError("\n".join(unknown))
    try:
        config = settings.load(options.config)
    except pydantic.ValidationError as error:
        # The given values are not repeated: one may be a secret in the wrong place.
        faults = error.errors(include_url=False, include_input=False)
        lines = [
            unknown_names.sentence(_dotted(fault["loc"]), settings.Settings)
            if fault["type"] == "extra_forbidden"
            else operator_words.bad_setting(_dotted(fault["loc"]), fault["msg"])
            for fault in faults
        ]
        raise errors.SettingsError("\n".join(lines)) from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise errors.SettingsError(operator_words.unreadable_settings_file(error)) from error
    except ValueError as error:
        raise errors.SettingsError(operator_words.unreadable_settings(error)) from error
    named = tuple(model.api_key_variable for model in config.models)
    if unusable := header_values.variable_sentences(os.environ, named):
        raise errors.SettingsError("\n".join(unusable))
    if not config.sandbox.enabled:
        raise errors.SettingsError(operator_words.SANDBOX_ONLY_BY_OPTION)
    if getattr(options, "unsafe_no_sandbox", False):
        sandbox = config.sandbox.model_copy(update={"enabled": False})
        config = config.model_copy(update={"sandbox": sandbox})
    return config
