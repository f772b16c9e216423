"""Changes of messages: a request that is edited is run again, one that is deleted is withdrawn."""

from __future__ import annotations

import time

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    listening,
    places,
    recents,
    requesting,
    speaking,
)
from interpreter_bot.sessions import conversations


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
        if message.author.bot or message.edited_at is None:
            return
        recent = self._listener.recents.find(message.id)
        if recent is None:
            age = discord.utils.utcnow() - message.created_at
            if age.total_seconds() <= self._options.rerun_seconds:
                # It did not call us before; perhaps it does now.
                await self._listener.heard(message)
            return
        async with self._listener.in_order(message.channel.id):
            is_late = time.monotonic() - recent.heard > self._options.rerun_seconds
            if is_late or message.content == recent.content:
                return
            event = f"edit {message.id} {message.edited_at.timestamp()}"
            if await self._talks.claim(places.PLATFORM, event):
                recent.content = message.content
                work = self._again(message, recent)
                self._requester.spawn(work, f"edited message {message.id}")

    async def _again(self, message: discord.Message, recent: recents.Recent) -> None:
        """Run a changed message again; its answer takes the place of the old one."""
        old = recent.run
        if not old.is_over.is_set():
            is_waiting = await self._talks.withdraw(old.place.key, old.request.id)
            if not is_waiting:
                await self._talks.stop(old.place.key)
            await old.is_over.wait()
        chosen = await self._requester.chosen_by(old.place, places.person(message.author))
        me = self._client.user.id if self._client.user is not None else 0
        request = self._listener.request(message, speaking.said(message, me), old.place, chosen)
        run = requesting.Run(request, old.place, old.desk)
        recent.run = run
        await self._requester.carry_out(run, chosen, instead_of=old)

    async def deleted(self, message_id: int) -> None:
        """Take a message that was deleted: a request that still waits is withdrawn."""
        recent = self._listener.recents.forget(message_id)
        if recent is not None and not recent.run.is_over.is_set():
            await self._talks.withdraw(recent.run.place.key, recent.run.request.id)
