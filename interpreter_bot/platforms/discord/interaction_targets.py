"""Message target of an interaction: its token first, ordinary messages when that has expired."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NoReturn

import discord

from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    message_layout,
    message_targets,
    persistent_buttons,
)
from interpreter_bot.wording import command_words

_log = logging.getLogger(__name__)

_TOKEN_ERRORS: Final = frozenset({api_errors.TOKEN_OVER, api_errors.UNKNOWN_WEBHOOK})


class InteractionTarget:
    """Answers to a deferred interaction; ordinary messages once its token has expired.

    In a channel that the bot does not see, what an interaction can not carry goes to its author
    directly, and so does an answer of which a part may or may not have arrived: Discord takes no
    nonce for a follow-up and lists none, so that sent again it might stand there twice.
    """

    def __init__(
        self,
        client: discord.Client,
        interaction: discord.Interaction[Any],
        place: channels_and_threads.Place,
    ) -> None:
        self._client = client
        self._interaction = interaction
        self._place = place
        self._channel = message_targets.ChannelTarget(client, place, interaction.user.id)
        self._config = message_targets.mentions(interaction.user.id)
        self._followed: list[int] = []
        self._is_over = False
        self._is_direct = False

    async def send(
        self, index: int, draft: message_layout.MessageDraft, nonce: str
    ) -> message_targets.Posted:
        """Post a message: the first in place of "thinking", others after it."""
        if self._is_direct:
            posted = await self._channel.send(index, draft, nonce)
            if index == 0:
                await self._point_there()
            return posted
        if index > 0:
            try:
                return await self._channel.send(index, draft, nonce)
            except discord.Forbidden as error:
                # A channel that the bot does not see can still be answered through the token.
                _log.info("an answer goes on through its interaction", exc_info=error)
        if self._has_token():
            try:
                return await (self._follow(draft) if index else self._answer(draft))
            except discord.HTTPException as error:
                self._note(error)
        return await self._as_bot(lambda: self._channel.send(index, draft, nonce))

    async def _answer(self, draft: message_layout.MessageDraft) -> message_targets.Posted:
        message = await self._interaction.edit_original_response(
            content=draft.content or None,
            attachments=message_targets.files(draft.uploads),
            view=persistent_buttons.view(draft.buttons),
            allowed_mentions=self._config,
        )
        return message_targets.Posted(message.id, tuple(message.attachments), "token")

    async def _follow(self, draft: message_layout.MessageDraft) -> message_targets.Posted:
        try:
            message: discord.Message = await self._interaction.followup.send(
                draft.content,
                files=message_targets.files(draft.uploads),
                view=persistent_buttons.view(draft.buttons) or discord.utils.MISSING,
                allowed_mentions=self._config,
                suppress_embeds=True,
                wait=True,
            )
        except api_errors.UNSENT:
            raise
        except api_errors.CONNECTION as error:
            _log.info("a follow-up may have been sent", exc_info=error)
            await self._go_direct()
        self._followed.append(message.id)
        return message_targets.Posted(message.id, tuple(message.attachments), "token")

    def _has_token(self) -> bool:
        self._is_over = self._is_over or self._interaction.is_expired()
        return not self._is_over

    def _note(self, error: discord.HTTPException) -> None:
        """Record that the interaction can carry no more; anything else is raised again."""
        if error.code not in _TOKEN_ERRORS:
            raise error
        self._is_over = True

    async def _as_bot(
        self, do: Callable[[], Awaitable[message_targets.Posted]]
    ) -> message_targets.Posted:
        """Run an action as the bot, if it can; otherwise go on in direct messages."""
        try:
            return await do()
        except discord.Forbidden:
            return await self._go_direct()

    async def _go_direct(self) -> NoReturn:
        """Go on in the author's direct messages, from the beginning.

        Raises:
            MovedError: always.
        """
        channel = await self._interaction.user.create_dm()
        place = dataclasses.replace(self._place, channel_id=channel.id, guild_id=None)
        self._channel = message_targets.ChannelTarget(
            self._client, place, self._interaction.user.id
        )
        self._is_direct = True
        raise message_targets.MovedError

    async def _point_there(self) -> None:
        """Replace what stands of the answer by a note where it is, if that can still be reached."""
        if self._interaction.is_expired():
            return
        try:
            await self._interaction.edit_original_response(
                content=command_words.ANSWER_IN_DIRECT_MESSAGES,
                attachments=[],
                view=None,
                allowed_mentions=self._config,
            )
            for number in self._followed:
                await self._interaction.followup.delete_message(number)
        except api_errors.ANY as error:
            _log.info("what stands of an answer could not be taken away", exc_info=error)

    async def find(
        self, draft: message_layout.MessageDraft, since: float, known: Collection[int]
    ) -> message_targets.Posted | None:
        """Look for a message that the bot wrote by itself; a token lists none of its own."""
        return await self._channel.find(draft, since, known)

    async def standing(self, number: int) -> list[discord.Message]:
        """Return none: what is there of an answer is reached by its token."""
        return []

    async def edit(
        self,
        posted: message_targets.Posted,
        before: message_layout.MessageDraft,
        draft: message_layout.MessageDraft,
    ) -> message_targets.Posted:
        """Edit a message, as the bot once the interaction's token has expired."""
        if posted.way == "bot":
            return await self._channel.edit(posted, before, draft)
        if self._has_token():
            try:
                message = await self._interaction.followup.edit_message(
                    posted.id,
                    content=draft.content or None,
                    attachments=message_targets.attachments(posted, before, draft),
                    view=persistent_buttons.view(draft.buttons),
                    allowed_mentions=self._config,
                )
                return message_targets.Posted(message.id, tuple(message.attachments), "token")
            except discord.HTTPException as error:
                self._note(error)
        return await self._as_bot(lambda: self._channel.edit(posted, before, draft))

    async def remove(self, posted: message_targets.Posted) -> None:
        """Delete a message."""
        if posted.way == "token" and self._has_token():
            await self._interaction.followup.delete_message(posted.id)
        else:
            await self._channel.remove(posted)

    async def type(self) -> None:
        """Show nothing: Discord itself says that the bot is thinking."""
