"""Changes of messages: a request that is edited is run again, one that is deleted is withdrawn."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    listening,
    places,
    recents,
    requesting,
)
from interpreter_bot.sessions import conversations

_OTHERS_FIRST_SECONDS: Final = 2.0


class Editor:
    """Hears of changes."""

    def __init__(
        self,
        client: discord.Client,
        talks: conversations.Conversations,
        allowed: settings.Discord,
        requester: requesting.Requester,
        listener: listening.Listener,
    ) -> None:
        self._client = client
        self._talks = talks
        self._options = allowed
        self._requester = requester
        self._listener = listener

    async def edited(self, message: discord.Message) -> None:
        """Take a message that was changed; Discord itself changes some, to add previews."""
        edited_at = message.edited_at
        if edited_at is None or message.author.bot:
            return
        event = f"edit {message.id} {edited_at.timestamp()}"
        async with self._listener.in_order(message.channel.id):
            recent = self._listener.recents.find(message.id)
            if recent is not None:
                await self._edited_recently(message, recent, event)
                return
        age = discord.utils.utcnow() - message.created_at
        # If it did not call us before, perhaps it does now.
        if age.total_seconds() <= self._options.rerun_seconds and await self._listener.heard(
            message
        ):
            self._requester.spawn(self._anew(message, event), f"edited message {message.id}")

    async def _edited_recently(
        self, message: discord.Message, recent: recents.Recent, event: str
    ) -> None:
        is_late = time.monotonic() - recent.heard > self._options.rerun_seconds
        if is_late or message.content == recent.message.content:
            return
        if not await self._listener.is_still_for_us(message):
            # Perhaps it cannot even be read any more: the answer to what it was stands.
            return
        if not await self._talks.claim(places.PLATFORM, event):
            return
        recent.message = message
        if recent.run is not None:
            work = self._again(message, recent, recent.run)
            self._requester.spawn(work, f"edited message {message.id}")

    async def _anew(self, message: discord.Message, event: str) -> None:
        """Answer a changed message that was answered before the bot was started."""
        # Another bot that gave the answer, and can change it, shall have its chance first.
        await asyncio.sleep(_OTHERS_FIRST_SECONDS)
        if await self._talks.claim(places.PLATFORM, event):
            await self._listener.heard_anew(message)

    async def _again(
        self, message: discord.Message, recent: recents.Recent, old: requesting.Run
    ) -> None:
        """Run a changed message again; its answer takes the place of the old one."""
        if not old.is_over.is_set():
            await self._requester.stop(old)
            await old.is_over.wait()
        chosen = await self._requester.chosen_by(old.place, places.person(message.author))
        said = await self._listener.said(message)
        request = self._listener.request(message, said, old.place, chosen)
        run = requesting.Run(request, old.place, old.desk)
        recent.run = run
        await self._requester.carry_out(run, chosen, instead_of=old)

    async def deleted(self, message_id: int) -> None:
        """Take a message that was deleted: a request that still waits is withdrawn."""
        recent = self._listener.recents.forget(message_id)
        if recent is not None and recent.run is not None:
            await self._talks.withdraw(recent.run.place.key, recent.run.request.id)
