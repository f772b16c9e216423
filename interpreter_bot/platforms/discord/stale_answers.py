"""Answers that nobody writes any more: the bot that did was killed, and its message still says so.

What a message of ours says about itself is in the id of its Stop button. It is brought up to date
when the people there are told that something was interrupted, and when somebody presses Stop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Final

import discord

from interpreter_bot.platforms.discord import api_errors, markdown, message_layout

_log = logging.getLogger(__name__)

_MOST_LOOKED_AT: Final = 30
_STOP: Final = re.compile(r"ib:stop:(?P<number>[0-9]{1,19}):")
# What `turn_rendering` says last of an answer that is being written.
_GOING_ON: Final = re.compile(r"^-# (?:⏳|✍️) .*\n?", re.MULTILINE)
_ENDED: Final = markdown.small("⏹️ This answer was interrupted.")

IsRunning = Callable[[int], bool]
"""Says whether a request is being carried out here, by its number."""


async def mend_all(channel: discord.abc.Messageable, me: int, is_running: IsRunning) -> None:
    """Let no message of ours in a channel say that it is being written, if it is not."""
    try:
        async for message in channel.history(limit=_MOST_LOOKED_AT):
            if message.author.id == me and _is_stale(message, is_running):
                # As it stands now: its answer may have ended after the messages were listed. That
                # nobody wrote it before we ask again is as important as that nobody does after.
                await mend(await message.fetch(), is_running)
    except api_errors.ANY as error:
        _log.info("stale answers could not be looked for", exc_info=error)


async def mend(message: discord.Message, is_running: IsRunning) -> None:
    """Let a message say that it was interrupted, if nobody writes it any more.

    Raises:
        HTTPException: Discord does not let it be changed.
    """
    if not _is_stale(message, is_running):
        return
    content = f"{_GOING_ON.sub('', message.content).rstrip()}\n{_ENDED}".strip()
    await message.edit(
        content=content[-message_layout.MOST_CHARACTERS :],
        view=None,
        allowed_mentions=discord.AllowedMentions.none(),
    )


def _is_stale(message: discord.Message, is_running: IsRunning) -> bool:
    numbers = list(_stops(message))
    return bool(numbers) and not any(map(is_running, numbers))


def _stops(message: discord.Message) -> Iterator[int]:
    """Find the requests that can be stopped by a message."""
    for row in message.components:
        for item in row.children if isinstance(row, discord.ActionRow) else ():
            found = _STOP.match(getattr(item, "custom_id", None) or "")
            if found is not None:
                yield int(found["number"])
