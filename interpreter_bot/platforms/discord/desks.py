"""Where messages of an answer are put: a channel, or the answers to an interaction.

A desk carries one message at a time and translates what Discord says about it.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Final, Literal, Protocol

import discord

from interpreter_bot.platforms.discord import buttons, faults, places, sheets

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Posted:
    """A message that stands on Discord.

    Attributes:
        id: of the message.
        files: its attachments, in the order of the sheet's uploads.
        way: whether it is reached as the bot's own message or through an interaction.
    """

    id: int
    files: tuple[discord.Attachment, ...] = ()
    way: Literal["bot", "token"] = "bot"


class MovedError(Exception):
    """What was posted so far is out of reach for good; all of it has to be posted anew."""


class Desk(Protocol):
    """Puts messages somewhere. Each method may raise `faults.ANY`."""

    async def send(self, index: int, sheet: sheets.Sheet, nonce: str) -> Posted:
        """Post the `index`th message; sent twice with one `nonce` it is posted once."""

    async def edit(self, posted: Posted, before: sheets.Sheet, sheet: sheets.Sheet) -> Posted:
        """Let a message be another sheet."""

    async def remove(self, posted: Posted) -> None:
        """Take a message away."""

    async def type(self) -> None:
        """Show that something is being written."""


class ChannelDesk:
    """Messages in a channel, a thread or a direct conversation."""

    def __init__(
        self,
        client: discord.Client,
        place: places.Place,
        author: int,
        *,
        answers: discord.Message | None = None,
    ) -> None:
        self._channel = client.get_partial_messageable(place.channel_id, guild_id=place.guild_id)
        self._allowed = mentions(author)
        self._answers = answers

    async def send(self, index: int, sheet: sheets.Sheet, nonce: str) -> Posted:
        """Post a message; the first may be a reply."""
        fields: dict[str, Any] = {}
        if index == 0 and self._answers is not None:
            fields["reference"] = self._answers.to_reference(fail_if_not_exists=False)
            fields["mention_author"] = True
        message = await self._channel.send(
            sheet.content or None,
            files=files(sheet.uploads),
            view=buttons.view(sheet.buttons) or discord.utils.MISSING,
            allowed_mentions=self._allowed,
            suppress_embeds=True,
            nonce=nonce,
            **fields,
        )
        return Posted(message.id, tuple(message.attachments))

    async def edit(self, posted: Posted, before: sheets.Sheet, sheet: sheets.Sheet) -> Posted:
        """Edit a message; files that stay are not sent again."""
        message = await self._channel.get_partial_message(posted.id).edit(
            content=sheet.content or None,
            attachments=attachments(posted, before, sheet),
            view=buttons.view(sheet.buttons),
            allowed_mentions=self._allowed,
        )
        return Posted(message.id, tuple(message.attachments))

    async def remove(self, posted: Posted) -> None:
        """Delete a message."""
        await self._channel.get_partial_message(posted.id).delete()

    async def type(self) -> None:
        """Show the typing indicator, for some ten seconds."""
        await self._channel.typing()


_TOKEN_ERRORS: Final = frozenset(
    {faults.TOKEN_OVER, faults.UNKNOWN_WEBHOOK, faults.MOST_FOLLOW_UPS}
)


class InteractionDesk:
    """Answers to an interaction, which was deferred; ordinary messages once its time is over.

    Where the bot is no member, what an interaction can no longer carry goes to its author directly.
    """

    def __init__(
        self,
        client: discord.Client,
        interaction: discord.Interaction[Any],
        place: places.Place,
    ) -> None:
        self._client = client
        self._interaction = interaction
        self._place = place
        self._channel = ChannelDesk(client, place, interaction.user.id)
        self._allowed = mentions(interaction.user.id)
        self._is_over = False
        self._is_direct = False

    async def send(self, index: int, sheet: sheets.Sheet, nonce: str) -> Posted:
        """Post a message: the first in place of "thinking", others after it."""
        if self._is_direct or (index > 0 and self._place.is_member):
            try:
                return await self._channel.send(index, sheet, nonce)
            except discord.Forbidden:
                # A channel that the bot does not see can still be answered through the token.
                if self._is_direct or not self._has_token():
                    raise
        if self._has_token():
            try:
                return await self._answer(index, sheet)
            except discord.HTTPException as error:
                self._note(error)
        if not self._place.is_member:
            await self._go_direct()
        return await self._channel.send(index, sheet, nonce)

    async def _answer(self, index: int, sheet: sheets.Sheet) -> Posted:
        if index == 0:
            message: discord.Message = await self._interaction.edit_original_response(
                content=sheet.content or None,
                attachments=files(sheet.uploads),
                view=buttons.view(sheet.buttons),
                allowed_mentions=self._allowed,
            )
        else:
            message = await self._interaction.followup.send(
                sheet.content,
                files=files(sheet.uploads),
                view=buttons.view(sheet.buttons) or discord.utils.MISSING,
                allowed_mentions=self._allowed,
                suppress_embeds=True,
                wait=True,
            )
        return Posted(message.id, tuple(message.attachments), "token")

    def _has_token(self) -> bool:
        self._is_over = self._is_over or self._interaction.is_expired()
        return not self._is_over

    def _note(self, error: discord.HTTPException) -> None:
        """Remember that the interaction's time is over; anything else is raised again."""
        if error.code not in _TOKEN_ERRORS:
            raise error
        self._is_over = True

    async def _go_direct(self) -> None:
        """Go on in the author's direct messages, from the beginning.

        Raises:
            MovedError: always.
        """
        channel = await self._interaction.user.create_dm()
        place = dataclasses.replace(self._place, channel_id=channel.id, guild_id=None)
        self._channel = ChannelDesk(self._client, place, self._interaction.user.id)
        self._is_direct = True
        raise MovedError

    async def edit(self, posted: Posted, before: sheets.Sheet, sheet: sheets.Sheet) -> Posted:
        """Edit a message, as the bot where the interaction's time is over."""
        if posted.way == "bot":
            return await self._channel.edit(posted, before, sheet)
        if self._has_token():
            try:
                message = await self._interaction.followup.edit_message(
                    posted.id,
                    content=sheet.content or None,
                    attachments=attachments(posted, before, sheet),
                    view=buttons.view(sheet.buttons),
                    allowed_mentions=self._allowed,
                )
                return Posted(message.id, tuple(message.attachments), "token")
            except discord.HTTPException as error:
                self._note(error)
        if not self._place.is_member:
            await self._go_direct()
        return await self._channel.edit(posted, before, sheet)

    async def remove(self, posted: Posted) -> None:
        """Delete a message."""
        if posted.way == "bot" or (self._place.is_member and not self._has_token()):
            await self._channel.remove(posted)
        elif self._has_token():
            await self._interaction.followup.delete_message(posted.id)

    async def type(self) -> None:
        """Show nothing: Discord says itself that the bot is thinking."""


def mentions(author: int) -> discord.AllowedMentions:
    """Allow nobody to be notified but one person."""
    return discord.AllowedMentions(
        everyone=False, roles=False, users=[discord.Object(author)], replied_user=True
    )


def files(uploads: tuple[sheets.Upload, ...]) -> list[discord.File]:
    """Open files to be sent; a request closes them."""
    return [
        discord.File(
            upload.source.content(), filename=upload.name, description=upload.description or None
        )
        for upload in uploads
    ]


def attachments(posted: Posted, before: sheets.Sheet, sheet: sheets.Sheet) -> Any:  # noqa: ANN401
    """Return what an edit says about files: those that stand already are kept, not sent."""
    if before.uploads == sheet.uploads:
        return discord.utils.MISSING
    known = dict(zip(before.uploads, posted.files, strict=False))
    return [known.get(upload) or files((upload,))[0] for upload in sheet.uploads]
