"""Targets for messages of an answer: a channel here, an interaction in `interaction_targets`.

A target sends one message at a time and translates Discord's errors.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Collection
from typing import Any, Final, Literal, Protocol

import discord

from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    message_layout,
    persistent_buttons,
)

_log = logging.getLogger(__name__)

_MOST_LOOKED_AT: Final = 100
# Discord's clock may be behind ours by this much.
_CLOCK_SECONDS: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Posted:
    """A message that stands on Discord.

    Attributes:
        id: of the message.
        files: its attachments, in the order of the draft's uploads.
        way: whether it is reached as the bot's own message or through an interaction.
    """

    id: int
    files: tuple[discord.Attachment, ...] = ()
    way: Literal["bot", "token"] = "bot"


class MovedError(Exception):
    """What was posted so far is out of reach for good; all of it has to be posted anew."""


class MessageTarget(Protocol):
    """Posts, edits and deletes messages somewhere. Each method may raise `api_errors.ANY`."""

    async def send(self, index: int, draft: message_layout.MessageDraft, nonce: str) -> Posted:
        """Post the `index`th message; sent twice with one `nonce` it is posted once."""

    async def find(
        self, draft: message_layout.MessageDraft, since: float, known: Collection[int]
    ) -> Posted | None:
        """Return a message that matches a draft: it was posted, but the response was lost.

        Args:
            draft: how it stands.
            since: not before this moment, in wall-clock time.
            known: ids of others.
        """

    async def standing(self, number: int) -> list[discord.Message]:
        """Return the messages of the bot since a request, oldest first."""

    async def edit(
        self,
        posted: Posted,
        before: message_layout.MessageDraft,
        draft: message_layout.MessageDraft,
    ) -> Posted:
        """Edit a message into another draft."""

    async def remove(self, posted: Posted) -> None:
        """Delete a message."""

    async def type(self) -> None:
        """Show the typing indicator."""


class ChannelTarget:
    """Messages in a channel, a thread or a direct conversation."""

    def __init__(
        self,
        client: discord.Client,
        place: channels_and_threads.Place,
        author: int,
        *,
        answers: discord.Message | None = None,
    ) -> None:
        self._channel = client.get_partial_messageable(place.channel_id, guild_id=place.guild_id)
        self._me = client.user.id if client.user is not None else 0
        self._config = mentions(author)
        self._answers = answers

    async def send(self, index: int, draft: message_layout.MessageDraft, nonce: str) -> Posted:
        """Post a message; the first may be a reply."""
        if index or self._answers is None:
            return await self._send(draft, nonce)
        try:
            reference = self._answers.to_reference(fail_if_not_exists=False)
            return await self._send(draft, nonce, reference=reference, mention_author=True)
        except discord.HTTPException as error:
            if error.code != api_errors.NO_REPLIES:
                raise
        # Without the right to read earlier messages the bot can write, but not reply.
        self._answers = None
        return await self._send(draft, nonce)

    async def _send(self, draft: message_layout.MessageDraft, nonce: str, **fields: Any) -> Posted:
        message = await self._channel.send(
            draft.content or None,
            files=files(draft.uploads),
            view=persistent_buttons.view(draft.buttons) or discord.utils.MISSING,
            allowed_mentions=self._config,
            suppress_embeds=True,
            nonce=nonce,
            **fields,
        )
        return Posted(message.id, tuple(message.attachments))

    async def find(
        self, draft: message_layout.MessageDraft, since: float, known: Collection[int]
    ) -> Posted | None:
        """Look for a message among the latest, which no longer tell the nonce they came with."""
        begin = datetime.datetime.fromtimestamp(since - _CLOCK_SECONDS, datetime.UTC)
        after = discord.Object(discord.utils.time_snowflake(begin))
        names = [upload.name for upload in draft.uploads]
        try:
            async for message in self._channel.history(limit=_MOST_LOOKED_AT, after=after):
                is_ours = message.author.id == self._me and message.id not in known
                named = [file.filename for file in message.attachments]
                if is_ours and message.content == draft.content.strip() and named == names:
                    return Posted(message.id, tuple(message.attachments))
        except discord.Forbidden as error:
            _log.info("whether a message was posted could not be looked up", exc_info=error)
        return None

    async def standing(self, number: int) -> list[discord.Message]:
        """Return the messages of the bot since a request, oldest first."""
        history = self._channel.history(
            limit=_MOST_LOOKED_AT, after=discord.Object(number), oldest_first=True
        )
        # What begins a thread is a message of Discord's in the bot's name, which nobody can edit.
        starter = discord.MessageType.thread_starter_message
        return [
            message
            async for message in history
            if message.author.id == self._me and message.type is not starter
        ]

    async def edit(
        self,
        posted: Posted,
        before: message_layout.MessageDraft,
        draft: message_layout.MessageDraft,
    ) -> Posted:
        """Edit a message; files that stay are not sent again."""
        message = await self._channel.get_partial_message(posted.id).edit(
            content=draft.content or None,
            attachments=attachments(posted, before, draft),
            view=persistent_buttons.view(draft.buttons),
            allowed_mentions=self._config,
        )
        return Posted(message.id, tuple(message.attachments))

    async def remove(self, posted: Posted) -> None:
        """Delete a message."""
        await self._channel.get_partial_message(posted.id).delete()

    async def type(self) -> None:
        """Show the typing indicator, for some ten seconds."""
        await self._channel.typing()


def mentions(author: int) -> discord.AllowedMentions:
    """Allow mentions to notify one person only."""
    return discord.AllowedMentions(
        everyone=False, roles=False, users=[discord.Object(author)], replied_user=True
    )


def files(uploads: tuple[message_layout.Upload, ...]) -> list[discord.File]:
    """Open files to be sent; the request closes them."""
    return [
        discord.File(
            upload.source.content(), filename=upload.name, description=upload.description or None
        )
        for upload in uploads
    ]


def attachments(
    posted: Posted, before: message_layout.MessageDraft, draft: message_layout.MessageDraft
) -> Any:  # noqa: ANN401
    """Return the attachments of an edit: those that stand already are kept, not sent."""
    if before.uploads == draft.uploads:
        return discord.utils.MISSING
    known = dict(zip(before.uploads, posted.files, strict=False))
    return [known.get(upload) or files((upload,))[0] for upload in draft.uploads]
