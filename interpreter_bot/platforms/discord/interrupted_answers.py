"""Go on in messages of a killed bot, or mend those that still say that they are being written.

The request of a message is in the id of its Stop button. It is mended when the people there are
notified of an interruption, and when a person presses Stop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Final

import discord

from interpreter_bot.platforms.chat import sync, transport
from interpreter_bot.platforms.discord import (
    api_errors,
    markdown,
    persistent_buttons,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.wording import discord_words

_log = logging.getLogger(__name__)

_MAX_LOOKED_AT: Final = 30
_MAX_ADOPTED: Final = 100
_STATUS: Final = re.compile(r"\n?^-# (?:⏳|✍️) .*\Z", re.MULTILINE)
_ENDED: Final = markdown.small(f"⏹️ {discord_words.INTERRUPTED}")

IsRunning = Callable[[str], bool]
"""Says whether a request is in flight, by its id."""


async def adopt(
    client: discord.Client,
    at: transport.Location,
    request_id: str,
    drafts: Sequence[transport.Draft],
) -> list[sync.Slot]:
    """Return the messages that a bot which is gone has posted for a request.

    The last one has the request's Stop button. Those before it begin as the drafts do.
    """
    channel = client.get_partial_messageable(int(at.channel))
    history = channel.history(
        limit=_MAX_ADOPTED, after=discord.Object(int(request_id)), oldest_first=True
    )
    # What begins a thread is a message of Discord's in the bot's name, which nobody can edit.
    starter = discord.MessageType.thread_starter_message
    slots: list[sync.Slot] = []
    try:
        async for message in history:
            if message.author != client.user or message.type is starter:
                continue
            stops = persistent_buttons.ids(message, ("stop",))
            draft = drafts[len(slots)] if len(slots) < len(drafts) else transport.Draft("")
            if request_id in stops:
                return [*slots, _adopted(message, at, draft)]
            if not stops and _begins(draft, message):
                slots.append(_adopted(message, at, draft))
    except api_errors.ANY as error:
        _log.info("the messages of an answer could not be looked up", exc_info=error)
    return []


def _adopted(message: discord.Message, at: transport.Location, draft: transport.Draft) -> sync.Slot:
    """Return the slot of a message that stands already, of which a draft goes on."""
    files = {file.filename: file for file in message.attachments}
    kept = [upload for upload in draft.uploads if upload.name in files]
    posted = transport.Posted(str(message.id), at, tuple(files[upload.name] for upload in kept))
    # Whatever differs is sent, the buttons in any case.
    standing = transport.Draft(message.content, uploads=tuple(kept), notifies=draft.notifies)
    return sync.Slot(standing, posted=posted)


def _begins(draft: transport.Draft, message: discord.Message) -> bool:
    """Say whether a draft begins with what stands in a message."""
    names = [upload.name for upload in draft.uploads]
    is_same = all(file.filename in names for file in message.attachments)
    return is_same and draft.text.startswith(_without_status(message.content))


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
