"""`interpreter-bot setup`: ask for keys of a model, Slack and Discord, try and store them."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import getpass
import os
import sys
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from interpreter_bot import errors, settings, shipped_files, stored_credentials
from interpreter_bot.agent.llms import model_choice
from interpreter_bot.sessions import model_setup
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import doctor_words, operator_words


@dataclasses.dataclass(frozen=True, slots=True)
class _TestedCredentials:
    """The result of a successful try of credentials.

    Attributes:
        name: of the model, or of the bot to which the tokens belong.
        notes: what is missing, or remains to be done.
        person_prompt: asks for the person to whom the bot should write as a test; may be empty.
        send_hello: writes to the person that the answer names.
    """

    name: str
    notes: str = ""
    person_prompt: str = ""
    send_hello: Callable[[str], Coroutine[Any, Any, None]] | None = None


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Ask for credentials, try and store them one after the other.

    Raises:
        SettingsError: there is no terminal, or nothing can be stored.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise errors.SettingsError(operator_words.NO_TERMINAL)
    try:
        _set_up(config)
    except EOFError as error:
        # Ctrl-D ends the command as Ctrl-C does; credentials that were stored stay.
        raise KeyboardInterrupt from error
    return 0


def _set_up(config: settings.Settings) -> None:
    credentials = stored_credentials.StoredCredentials(config)
    credentials.load()
    is_model_stored = False
    if config.models or model_setup.has_models(os.environ):
        _print(operator_words.MODEL_SET)
    else:
        _print(operator_words.ASK_FOR_MODEL)
        for name, (address, models) in asyncio.run(model_choice.find_local_servers()).items():
            _print(operator_words.found_server(name, address, models[:3]))
        is_model_stored = _ask_until_valid(credentials, _ask_for_model, _try_model)
    is_slack_stored = _set_up_slack(config, credentials)
    is_discord_stored = _set_up_discord(config, credentials)
    _print(
        operator_words.setup_done(
            has_changes=is_model_stored or is_slack_stored or is_discord_stored
        )
    )


def _set_up_slack(
    config: settings.Settings, credentials: stored_credentials.StoredCredentials
) -> bool:
    if config.slack.is_on:
        _print(operator_words.SLACK_SET)
        return False
    manifest = shipped_files.MANIFEST
    _print(operator_words.ask_for_slack(_creation_link(manifest.read_text("utf-8")), manifest))
    return _ask_until_valid(credentials, _ask_for_slack, functools.partial(_try_slack, config))


def _creation_link(manifest: str) -> str:
    """Return the address at which Slack creates an app from a manifest (without its comments)."""
    lines = (line for line in manifest.splitlines() if not line.startswith("#"))
    text = urllib.parse.quote("\n".join(lines), safe=":/,")
    return f"https://api.slack.com/apps?new_app=1&manifest_yaml={text}"


def _set_up_discord(
    config: settings.Settings, credentials: stored_credentials.StoredCredentials
) -> bool:
    if config.discord.token.get_secret_value():
        _print(operator_words.DISCORD_SET)
        return False
    _print(operator_words.ASK_FOR_DISCORD)
    return _ask_until_valid(credentials, _ask_for_discord, functools.partial(_try_discord, config))


def _ask_until_valid(
    credentials: stored_credentials.StoredCredentials,
    ask_credentials: Callable[[], dict[str, str]],
    try_credentials: Callable[[Mapping[str, str]], Coroutine[Any, Any, _TestedCredentials]],
) -> bool:
    """Ask for credentials until they work or none are entered; return whether some were stored."""
    _print(operator_words.HOW_TO_SKIP)
    while True:
        try:
            changes = ask_credentials()
            if not any(changes.values()):
                return False
            _print(operator_words.TRYING)
            tested = asyncio.run(try_credentials(changes))
        except errors.BotError as error:
            _print(operator_words.try_again(error))
        else:
            credentials.save(changes)
            _print(operator_words.credentials_stored(tested.name) + tested.notes)
            _offer_hello(tested)
            return True


def _offer_hello(trial: _TestedCredentials) -> None:
    """Offer that the bot writes to the person, until that works or is skipped."""
    while trial.send_hello is not None and (person := input(trial.person_prompt).strip()):
        try:
            asyncio.run(trial.send_hello(person))
        except errors.BotError as error:
            _print(operator_words.try_again(error))
        else:
            _print(operator_words.HELLO_SENT)
            return


def _ask_for_model() -> dict[str, str]:
    key = getpass.getpass(operator_words.KEY_PROMPT).strip()
    address = input(operator_words.ADDRESS_PROMPT).strip()
    if not key and not address:
        return {}
    return dict.fromkeys(model_setup.VARIABLES, "") | model_choice.make_variables(key, address)


async def _try_model(changes: Mapping[str, str]) -> _TestedCredentials:
    catalogue = await model_choice.open_tested(changes, model_choice.TRIAL_PATIENCE)
    try:
        return _TestedCredentials(catalogue.titles[0])
    finally:
        await catalogue.close()


def _ask_for_slack() -> dict[str, str]:
    bot = _ask_for_token(operator_words.SLACK_BOT_TOKEN_PROMPT, "xoxb-")
    app = _ask_for_token(operator_words.SLACK_APP_TOKEN_PROMPT, "xapp-") if bot else ""
    return {"SLACK_BOT_TOKEN": bot, "SLACK_APP_TOKEN": app} if bot else {}


async def _try_slack(config: settings.Settings, changes: Mapping[str, str]) -> _TestedCredentials:
    from interpreter_bot.platforms.slack import startup

    slack_settings = stored_credentials.with_stored_tokens(config, changes).slack
    identity, missing_scopes = await startup.check_bot_token(slack_settings)
    if not slack_settings.uses_http:
        await startup.check_app_token(slack_settings)
    return _TestedCredentials(
        identity,
        operator_words.missing_scopes(missing_scopes, doctor_words.FIX_SCOPES)
        if missing_scopes
        else "",
        operator_words.SLACK_PERSON_PROMPT,
        functools.partial(startup.send_hello, slack_settings),
    )


def _ask_for_discord() -> dict[str, str]:
    token = _ask_for_token(operator_words.DISCORD_TOKEN_PROMPT)
    return {"DISCORD_TOKEN": token} if token else {}


async def _try_discord(config: settings.Settings, changes: Mapping[str, str]) -> _TestedCredentials:
    from interpreter_bot.platforms.discord import startup

    token = changes["DISCORD_TOKEN"]
    application = await startup.check_token(token)
    notes = operator_words.invitation(application.invitation)
    if not application.has_content:
        notes = operator_words.NO_CONTENT_INTENT + notes

    async def send_hello(_: str) -> None:
        await startup.send_hello(token)

    return _TestedCredentials(
        application.name, notes, operator_words.discord_owner_prompt(application.owner), send_hello
    )


def _ask_for_token(prompt: str, prefix: str = "") -> str:
    """Ask for a token.

    Raises:
        SettingsError: it cannot be a token.
    """
    token = getpass.getpass(prompt).strip()
    if token and (fault := header_values.key_fault(token)):
        raise errors.SettingsError(operator_words.bad_token(fault))
    if token and prefix not in token:
        raise errors.SettingsError(operator_words.other_token(prefix))
    return token


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
