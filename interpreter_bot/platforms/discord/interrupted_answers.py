"""Mend answers of a killed bot, whose messages still say that they are being written.

The request of a message is in the id of its Stop button. It is mended when the people there are
notified of an interruption, and when a person presses Stop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

import discord

from interpreter_bot.platforms.discord import (
    api_errors,
    markdown,
    persistent_buttons,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.wording import discord_words

_log = logging.getLogger(__name__)

_MAX_LOOKED_AT: Final = 30
_STATUS: Final = re.compile(r"\n?^-# (?:⏳|✍️) .*\Z", re.MULTILINE)
_ENDED: Final = markdown.small_print(f"⏹️ {discord_words.INTERRUPTED}")

IsRunning = Callable[[str], bool]
"""Says whether a request is in flight, by its id."""


def _without_status(content: str) -> str:
    return _STATUS.sub("", content).rstrip()


async def mend_all(channel: discord.abc.Messageable, me: int, is_running: IsRunning) -> None:
    """Mend all messages of the bot in a channel that wrongly say they are being written."""
    try:
        async for message in channel.history(limit=_MAX_LOOKED_AT):
            if message.author.id == me and _is_stale(message, is_running):
                # Fetched anew: its answer may have ended after the messages were listed. The
                # request must not run before this fetch nor after it.
                await mend(await message.fetch(), is_running)
    except api_errors.ANY as error:
        _log.info("stale answers could not be looked for", exc_info=error)


async def mend(message: discord.Message, is_running: IsRunning) -> None:
    """Mark a message as interrupted, if no request writes it any more.

    Raises:
        HTTPException: Discord does not let it be changed.
    """
    if not _is_stale(message, is_running):
        return
    content = f"{_without_status(message.content)}\n{_ENDED}".strip()
    await message.edit(
        content=content[-discord_transport.MAX_CHARACTERS :],
        view=None,
        allowed_mentions=discord.AllowedMentions.none(),
    )


def _is_stale(message: discord.Message, is_running: IsRunning) -> bool:
    stops = persistent_buttons.ids(message, ("stop",))
    return bool(stops) and not any(map(is_running, stops))
