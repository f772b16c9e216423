"""`interpreter-bot setup`: ask for a model, Slack and Discord, try them, and store their keys."""

from __future__ import annotations

import argparse
import asyncio
import functools
import getpass
import os
import pathlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from interpreter_bot import errors, settings, stored_credentials
from interpreter_bot.agent.llms import model_choice
from interpreter_bot.sessions import model_setup
from interpreter_bot.setting_groups import header_values

_NO_TERMINAL: Final = (
    "`interpreter-bot setup` asks questions, so it needs a terminal. Set OPENAI_API_KEY, "
    "SLACK_BOT_TOKEN, SLACK_APP_TOKEN or DISCORD_TOKEN in the environment instead."
)
_MODEL: Final = (
    "A language model. Paste a key of OpenAI or Anthropic, or enter the address of a server.\n"
)
_FOUND: Final = "Found on this machine: {name} at {address} ({models}).\n"
_SLACK: Final = (
    "\nSlack. Open https://api.slack.com/apps, choose Create New App, From a manifest, and paste "
    "the text of\n{manifest}.\nInstall the app to your workspace.\n"
)
_DISCORD: Final = (
    "\nDiscord. Open https://discord.com/developers/applications, choose New Application, Bot, "
    "Reset Token,\nand switch Message Content Intent on.\n"
)
_SKIP: Final = "Press Enter to skip; what is stored already stays.\n"
_TRYING: Final = "Trying it…\n"
_STORED: Final = "It works ({what}). Stored, encrypted.\n"
_FAILED: Final = "{reason}\nTry again.\n"
_DONE: Final = "\nDone."
_NOTHING: Final = "\nNothing was entered, so nothing has changed."
_END: Final = " Start the bot with `interpreter-bot run`, or check everything with `doctor`.\n"
_WRONG_KIND: Final = "This token has to begin with {prefix}; the one you entered is another."
_INVITATION: Final = "To add the bot to a server, open {address}\n"
_NO_CONTENT: Final = "Message Content Intent is off"


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Ask, try and store; whatever was stored before an interrupt stays.

    Raises:
        SettingsError: there is no terminal, or nothing can be stored.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise errors.SettingsError(_NO_TERMINAL)
    credentials = stored_credentials.StoredCredentials(config)
    credentials.load()
    model = False
    if config.models or model_setup.names_models(os.environ):
        _say("The model is set by the environment or the configuration file.\n")
    else:
        _say(_MODEL)
        for name, (address, models) in asyncio.run(model_choice.local_servers()).items():
            _say(_FOUND.format(name=name, address=address, models=", ".join(models[:3])))
        model = _until_it_works(credentials, _ask_for_model, _try_model)
    _say(_SLACK.format(manifest=_manifest()))
    slack = _until_it_works(credentials, _ask_for_slack, functools.partial(_try_slack, config))
    _say(_DISCORD)
    discord = _until_it_works(credentials, _ask_for_discord, _try_discord)
    _say((_DONE if model or slack or discord else _NOTHING) + _END)
    return 0


def _manifest() -> pathlib.Path:
    """Return the file that describes the app to Slack: in a wheel, or in a checkout."""
    package = pathlib.Path(__file__).parents[1]
    shipped = package / "platforms/slack/manifest.yml"
    return shipped if shipped.exists() else package.parent / shipped.name


def _until_it_works(
    credentials: stored_credentials.StoredCredentials,
    ask: Callable[[], dict[str, str]],
    attempt: Callable[[Mapping[str, str]], Awaitable[str]],
) -> bool:
    """Ask for credentials, try them, and store them if they work; say whether any were entered."""
    _say(_SKIP)
    while True:
        try:
            changes = ask()
            if not any(changes.values()):
                return False
            _say(_TRYING)
            what = asyncio.run(_in(attempt(changes)))
        except errors.BotError as error:
            _say(_FAILED.format(reason=error))
        else:
            credentials.save(changes)
            _say(_STORED.format(what=what))
            return True


async def _in(work: Awaitable[str]) -> str:
    return await work


def _ask_for_model() -> dict[str, str]:
    key = getpass.getpass("Key (not shown): ").strip()
    address = input("Address (empty for the usual one): ").strip()
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
    bot = _token("Bot User OAuth Token, xoxb-… (not shown): ", "xoxb-")
    app = (
        _token("App-level token with connections:write, xapp-… (not shown): ", "xapp-")
        if bot
        else ""
    )
    return {"SLACK_BOT_TOKEN": bot, "SLACK_APP_TOKEN": app} if bot else {}


async def _try_slack(config: settings.Settings, changes: Mapping[str, str]) -> str:
    from interpreter_bot.platforms.slack import startup

    tried = stored_credentials.applied(config, changes).slack
    identity, lacking = await startup.check_bot_token(tried)
    if tried.transport == "socket":
        await startup.check_app_token(tried)
    return f"{identity}; missing scopes: {', '.join(lacking)}" if lacking else identity


def _ask_for_discord() -> dict[str, str]:
    token = _token("Bot token (not shown): ")
    return {"DISCORD_TOKEN": token} if token else {}


async def _try_discord(changes: Mapping[str, str]) -> str:
    from interpreter_bot.platforms.discord import startup

    application = await startup.check_token(changes["DISCORD_TOKEN"])
    _say(_INVITATION.format(address=application.invitation))
    return application.name if application.has_content else f"{application.name}; {_NO_CONTENT}"


def _token(prompt: str, prefix: str = "") -> str:
    """Ask for a token that can be sent.

    Raises:
        SettingsError: it cannot be one.
    """
    token = getpass.getpass(prompt).strip()
    if token and (fault := header_values.key_fault(token)):
        raise errors.SettingsError(f"The token {fault}.")
    if token and prefix not in token:
        raise errors.SettingsError(_WRONG_KIND.format(prefix=prefix))
    return token


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
