"""Mend answers of a killed bot, whose messages still say that they are being written.

The request of a message is in the id of its Stop button. It is mended when the people there are
notified of an interruption, and when a person presses Stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import discord

from interpreter_bot.platforms.discord import (
    api_errors,
    markdown,
    message_layout,
    persistent_buttons,
    turn_rendering,
)
from interpreter_bot.wording import discord_words

_log = logging.getLogger(__name__)

_MOST_LOOKED_AT: Final = 30
_ENDED: Final = markdown.small(f"⏹️ {discord_words.INTERRUPTED}")

IsRunning = Callable[[int], bool]
"""Says whether a request is in flight, by its number."""


async def mend_all(channel: discord.abc.Messageable, me: int, is_running: IsRunning) -> None:
    """Mend all messages of the bot in a channel that wrongly say they are being written."""
    try:
        async for message in channel.history(limit=_MOST_LOOKED_AT):
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
    content = f"{turn_rendering.without_status(message.content)}\n{_ENDED}".strip()
    await message.edit(
        content=content[-message_layout.MOST_CHARACTERS :],
        view=None,
        allowed_mentions=discord.AllowedMentions.none(),
    )


def _is_stale(message: discord.Message, is_running: IsRunning) -> bool:
    numbers = list(persistent_buttons.numbers(message, ("stop",)))
    return bool(numbers) and not any(map(is_running, numbers))
