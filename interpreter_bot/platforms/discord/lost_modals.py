"""Windows that were opened by an earlier run of the bot, or very long ago, and are sent off now.

What was written in them is not lost: what a window is about is in its id.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import discord

from interpreter_bot.platforms.discord import (
    api_errors,
    interactions,
    locations,
    message_parsing,
    modals,
)

_log = logging.getLogger(__name__)

_CLOSED: Final = "That question is not open any more."
# Of the three that Discord waits for a first sign.
_LOOK_SECONDS: Final = 1.5


async def take(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    """Take what was sent off with a window that nobody knows any more."""
    try:
        await _take(handler, interaction)
    except Exception as error:
        # The library would only log it, and leave the person without an answer.
        await handler.failed(interaction, error)


async def _take(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    sent = modals.sent_off(interaction)
    if sent is None:
        return
    if sent.kind == modals.CODE:
        await handler.request(interaction, sent.text, attachments=sent.files, is_code=True)
    elif sent.kind == modals.QUESTION:
        about = await _message(interaction, sent.number)
        user = interaction.client.user
        me = user.id if user is not None else 0
        await handler.request(
            interaction,
            sent.text,
            attachments=(*(about.attachments if about is not None else ()), *sent.files),
            context=message_parsing.quoted(about, me) if about is not None else "",
        )
    else:
        await handler.tell(interaction, _CLOSED)


async def _message(interaction: discord.Interaction[Any], number: int) -> discord.Message | None:
    """Return the message that a question is about, where the bot can read it."""
    channel = interaction.channel
    if not locations.of_interaction(interaction).is_member or not isinstance(
        channel, discord.abc.Messageable
    ):
        return None
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await channel.fetch_message(number)
    except api_errors.ANY as error:
        _log.info("what a question is about could not be read", exc_info=error)
        return None
