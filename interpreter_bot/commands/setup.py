"""`interpreter-bot setup`: ask for a model, Slack and Discord, try them, and store their keys."""

from __future__ import annotations

import argparse
import asyncio
import functools
import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Mapping

from interpreter_bot import errors, settings, shipped_files, stored_credentials
from interpreter_bot.agent.llms import model_choice
from interpreter_bot.sessions import model_setup
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import operator_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Ask, try and store; whatever was stored before an interrupt stays.

    Raises:
        SettingsError: there is no terminal, or nothing can be stored.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise errors.SettingsError(operator_words.NO_TERMINAL)
    credentials = stored_credentials.StoredCredentials(config)
    credentials.load()
    model = False
    if config.models or model_setup.names_models(os.environ):
        _say(operator_words.MODEL_SET)
    else:
        _say(operator_words.ASK_FOR_MODEL)
        for name, (address, models) in asyncio.run(model_choice.local_servers()).items():
            _say(operator_words.found_server(name, address, models[:3]))
        model = _until_it_works(credentials, _ask_for_model, _try_model)
    _say(operator_words.ask_for_slack(shipped_files.MANIFEST))
    slack = _until_it_works(credentials, _ask_for_slack, functools.partial(_try_slack, config))
    _say(operator_words.ASK_FOR_DISCORD)
    discord = _until_it_works(credentials, _ask_for_discord, _try_discord)
    _say(operator_words.setup_done(has_changes=model or slack or discord))
    return 0


def _until_it_works(
    credentials: stored_credentials.StoredCredentials,
    ask: Callable[[], dict[str, str]],
    attempt: Callable[[Mapping[str, str]], Awaitable[str]],
) -> bool:
    """Ask for credentials, try them, and store them if they work; say whether any were entered."""
    _say(operator_words.SKIP)
    while True:
        try:
            changes = ask()
            if not any(changes.values()):
                return False
            _say(operator_words.TRYING)
            what = asyncio.run(_in(attempt(changes)))
        except errors.BotError as error:
            _say(operator_words.try_again(error))
        else:
            credentials.save(changes)
            _say(operator_words.stored(what))
            return True


async def _in(work: Awaitable[str]) -> str:
    return await work


def _ask_for_model() -> dict[str, str]:
    key = getpass.getpass(operator_words.KEY).strip()
    address = input(operator_words.ADDRESS).strip()
    if not key and not address:
        return {}
    return dict.fromkeys(model_setup.VARIABLES, "") | model_choice.variables(key, address)


async def _try_model(changes: Mapping[str, str]) -> str:
    catalogue = await model_choice.open_tried(changes, model_choice.PATIENCE)
    try:
        return catalogue.titles[0]
    finally:
        await catalogue.close()


def _ask_for_slack() -> dict[str, str]:
    bot = _token(operator_words.SLACK_BOT_TOKEN, "xoxb-")
    app = _token(operator_words.SLACK_APP_TOKEN, "xapp-") if bot else ""
    return {"SLACK_BOT_TOKEN": bot, "SLACK_APP_TOKEN": app} if bot else {}


async def _try_slack(config: settings.Settings, changes: Mapping[str, str]) -> str:
    from interpreter_bot.platforms.slack import startup

    tried = stored_credentials.applied(config, changes).slack
    identity, lacking = await startup.check_bot_token(tried)
    if tried.transport == "socket":
        await startup.check_app_token(tried)
    return operator_words.missing_scopes(identity, lacking) if lacking else identity


def _ask_for_discord() -> dict[str, str]:
    token = _token(operator_words.DISCORD_TOKEN)
    return {"DISCORD_TOKEN": token} if token else {}


async def _try_discord(changes: Mapping[str, str]) -> str:
    from interpreter_bot.platforms.discord import startup

    application = await startup.check_token(changes["DISCORD_TOKEN"])
    _say(operator_words.invitation(application.invitation))
    name = application.name
    return name if application.has_content else operator_words.no_content_intent(name)


def _token(prompt: str, prefix: str = "") -> str:
    """Ask for a token that can be sent.

    Raises:
        SettingsError: it cannot be one.
    """
    token = getpass.getpass(prompt).strip()
    if token and (fault := header_values.key_fault(token)):
        raise errors.SettingsError(operator_words.bad_token(fault))
    if token and prefix not in token:
        raise errors.SettingsError(operator_words.other_token(prefix))
    return token


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
