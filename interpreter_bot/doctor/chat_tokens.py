"""Trials of the Slack and Discord tokens: each network is asked whose token it is."""

from __future__ import annotations

import asyncio
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.doctor import diagnosis

_NO_SLACK: Final = "The bot does not answer on Slack."
_FIX_SLACK_BOT: Final = (
    "Copy the Bot User OAuth Token (xoxb-…) of api.slack.com/apps > OAuth & Permissions to "
    "SLACK_BOT_TOKEN."
)
_FIX_SLACK_APP: Final = (
    "Make an app-level token (xapp-…) with connections:write at api.slack.com/apps > Basic "
    "Information, and set SLACK_APP_TOKEN to it."
)
_LESS_ON_SLACK: Final = "What needs these permissions fails on Slack."
_SCOPES: Final = "Update the app with manifest.yml at api.slack.com/apps, and install it again."
_NO_DISCORD: Final = "The bot does not answer on Discord."
_FIX_DISCORD: Final = (
    "Reset the token on the Bot page of discord.com/developers, and set DISCORD_TOKEN to it."
)
_LESS_ON_DISCORD: Final = (
    "In channels it reads only messages that mention it or reply to it, and none in its threads."
)
_CONTENT: Final = (
    "Switch Message Content Intent on, on the Bot page of discord.com/developers; or set "
    "discord.message_content to off."
)
_NETWORK: Final = "Check whether this machine may connect to it, and settings of a proxy."


def check(config: settings.Settings) -> tuple[diagnosis.Finding, ...]:
    """Try the tokens that are set, all at once; runs an event loop of its own."""
    return asyncio.run(_check(config))


async def _check(config: settings.Settings) -> tuple[diagnosis.Finding, ...]:
    trials = []
    if config.slack.bot_token.get_secret_value():
        trials.append(_slack_bot(config.slack))
    if config.slack.transport == "socket" and config.slack.app_token.get_secret_value():
        trials.append(_slack_app(config.slack))
    if config.discord.token.get_secret_value():
        trials.append(_discord(config.discord))
    return tuple(finding for findings in await asyncio.gather(*trials) for finding in findings)


async def _slack_bot(config: settings.Slack) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.slack import startup

    name = "Slack bot token"
    try:
        identity, missing = await startup.check_bot_token(config)
    except errors.BotError as error:
        return [_refused(name, _NO_SLACK, _FIX_SLACK_BOT, error)]
    detail = f"missing: {', '.join(missing)}" if missing else "all that the manifest asks for"
    return [
        diagnosis.Finding(name, True, _NO_SLACK, _FIX_SLACK_BOT, identity),
        diagnosis.Finding("Slack scopes", not missing, _LESS_ON_SLACK, _SCOPES, detail),
    ]


async def _slack_app(config: settings.Slack) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.slack import startup

    name = "Slack app token"
    try:
        await startup.check_app_token(config)
    except errors.BotError as error:
        return [_refused(name, _NO_SLACK, _FIX_SLACK_APP, error)]
    return [diagnosis.Finding(name, True, _NO_SLACK, _FIX_SLACK_APP, "Socket Mode may connect")]


async def _discord(config: settings.Discord) -> list[diagnosis.Finding]:
    from interpreter_bot.platforms.discord import startup

    name = "Discord token"
    try:
        identity, has_content = await startup.check_token(config.token.get_secret_value())
    except errors.BotError as error:
        return [_refused(name, _NO_DISCORD, _FIX_DISCORD, error)]
    findings = [
        diagnosis.Finding(name, True, _NO_DISCORD, _FIX_DISCORD, f"logged in as {identity}")
    ]
    if config.message_content != "off":
        title, detail = "Discord messages", "message content is granted"
        if not has_content:
            detail = "the message-content intent is off"
        consequence = _LESS_ON_DISCORD if config.message_content == "auto" else _NO_DISCORD
        findings.append(diagnosis.Finding(title, has_content, consequence, _CONTENT, detail))
    return findings


def _refused(name: str, consequence: str, fix: str, error: errors.BotError) -> diagnosis.Finding:
    is_lost = isinstance(error, errors.PlatformLostError)
    return diagnosis.Finding(name, False, consequence, _NETWORK if is_lost else fix, str(error))
