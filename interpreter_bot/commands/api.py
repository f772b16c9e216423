"""`interpreter-bot api`: list, add or remove the programs that may use the bot over HTTP."""

from __future__ import annotations

import argparse
import pathlib
import sys

from interpreter_bot import errors, settings
from interpreter_bot.platforms import client_tokens
from interpreter_bot.wording import operator_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List or change the clients of the HTTP interface.

    Raises:
        BotError: it could not be done.
    """
    return change_clients(config.paths.data / client_tokens.API_FILE, "api", options)


def change_clients(file: pathlib.Path, command: str, options: argparse.Namespace) -> int:
    """List or change the clients in a file, for a command.

    Raises:
        BotError: it could not be done.
    """
    if options.verb == "clients":
        names = client_tokens.list_names(file)
        sys.stdout.write(
            "".join(f"{name}\n" for name in names) or operator_words.no_clients(command)
        )
        return 0
    if not options.name:
        raise errors.SettingsError(operator_words.name_client(command, options.verb))
    if options.verb == "add":
        token = client_tokens.add(file, options.name)
        sys.stdout.write(operator_words.client_token(options.name, token))
    else:
        client_tokens.remove(file, options.name)
    return 0
