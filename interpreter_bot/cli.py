"""The command line: what can be said, and what each command calls.

Exit status: 0 all went well, 1 something that ran did not, 2 nothing was run.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

import pydantic

from interpreter_bot import errors, logs, settings

_REFUSED: Final = 2
# In the order of the help. Only what is named is imported: `limits` and `exec` need a fraction.
_MODULES: Final = {
    "run": "run",
    "ask": "ask",
    "exec": "execute",
    "doctor": "doctor",
    "limits": "limits",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(given).parse_args(given)
    logs.configure("info" if options.verbose else options.log_level, is_json=False)
    run: Callable[[settings.Settings, argparse.Namespace], int] = options.run
    try:
        return run(_settings(options), options)
    except errors.BotError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"interpreter-bot: {line}\n")
        return _REFUSED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough; what is still buffered has nowhere to go.
        sys.stdout = None
        return 1


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Make a parser of the command that comes first; of all, where none does."""
    parser = argparse.ArgumentParser(
        prog="interpreter-bot", description="A self-hosted code interpreter for chat."
    )
    version = f"interpreter-bot {metadata.version('interpreter-bot')}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("--config", type=pathlib.Path, help="a TOML file of settings")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in given[:1] if given and given[0] in _MODULES else _MODULES:
        module = importlib.import_module(f"interpreter_bot.commands.{_MODULES[name]}")
        command = module.add_to(commands)
        # What a person watches says its own sentences; what nobody watches warns in its log.
        level = "warning" if name == "run" else "error"
        command.set_defaults(run=module.run, log_level=level)
    return parser


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))


def _settings(options: argparse.Namespace) -> settings.Settings:
    """Read the settings.

    Raises:
        SettingsError: they are wrong, or turn the sandbox off where only a flag may.
    """
    try:
        bot = settings.load(options.config)
    except pydantic.ValidationError as error:
        # What was given is not repeated: it may be a secret in the wrong place.
        faults = error.errors(include_url=False, include_input=False)
        lines = [
            f"The setting {_dotted(fault['loc'])} is wrong: {fault['msg']}." for fault in faults
        ]
        raise errors.SettingsError("\n".join(lines)) from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise errors.SettingsError(f"The settings file cannot be read: {error}.") from error
    except ValueError as error:
        raise errors.SettingsError(f"The settings cannot be read: {error}.") from error
    if not bot.sandbox.enabled:
        raise errors.SettingsError(
            "No file or variable turns the sandbox off; --unsafe-no-sandbox does."
        )
    if getattr(options, "unsafe_no_sandbox", False):
        sandbox = bot.sandbox.model_copy(update={"enabled": False})
        bot = bot.model_copy(update={"sandbox": sandbox})
    return bot
