"""Trials of the Slack and Discord tokens: each network is asked about its token."""

from __future__ import annotations

import asyncio

from interpreter_bot import errors, settings
from interpreter_bot.doctor import diagnosis
from interpreter_bot.wording import doctor_words


def check(config: settings.Settings) -> tuple[diagnosis.Finding, ...]:
    """Try all configured tokens at once, in an event loop of its own."""
    return asyncio.run(_check(config))


async def _check(config: settings.Settings) -> tuple[diagnosis.Finding, ...]:
    trials = []
    if config.slack.bot_token.get_secret_value():
        trials.append(_check_slack_bot(config.slack))
    if config.slack.app_token.get_secret_value():
        trials.append(_check_slack_app(config.slack))
    if config.discord.token.get_secret_value():
        trials.append(_check_discord(config.discord))
    return tuple(finding for findings in await asyncio.gather(*trials) for finding in findings)


async def _check_slack_bot(config: settings.Slack) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.slack import startup

    name = "Slack bot token"
    try:
        identity, missing_scopes = await startup.check_bot_token(config)
    except errors.BotError as error:
        return [_refusal_finding(name, error)]
    detail = doctor_words.missing(missing_scopes) if missing_scopes else doctor_words.ALL_SCOPES
    return [
        diagnosis.create_finding(name, True, identity),
        diagnosis.create_finding("Slack scopes", not missing_scopes, detail),
    ]


async def _check_slack_app(config: settings.Slack) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.slack import startup

    name = "Slack app token"
    try:
        await startup.check_app_token(config)
    except errors.BotError as error:
        return [_refusal_finding(name, error)]
    return [diagnosis.create_finding(name, True, doctor_words.SOCKET_MODE)]


async def _check_discord(config: settings.Discord) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.discord import startup

    name = "Discord token"
    try:
        application = await startup.check_token(config.token.get_secret_value())
    except errors.BotError as error:
        return [_refusal_finding(name, error)]
    is_granted = application.has_content
    detail = doctor_words.CONTENT_GRANTED if is_granted else doctor_words.NO_CONTENT
    return [
        diagnosis.create_finding(name, True, doctor_words.logged_in_as(application.name)),
        diagnosis.create_finding("Discord messages", is_granted, detail),
    ]


def _refusal_finding(name: str, error: errors.BotError) -> diagnosis.Finding:
    is_network_problem = isinstance(error, errors.PlatformLostError)
    fix = doctor_words.CHECK_NETWORK if is_network_problem else ""
    return diagnosis.create_finding(name, False, str(error), fix=fix)
