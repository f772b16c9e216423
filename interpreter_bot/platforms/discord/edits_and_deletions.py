"""Edited messages are run again, requests of deleted messages are cancelled."""

from __future__ import annotations

import time

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    message_events,
    requests_in_flight,
)
from interpreter_bot.sessions import session_service


class MessageEdits:
    """Handles edits and deletions of messages."""

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        in_flight: requests_in_flight.RequestsInFlight,
        listener: message_events.MessageEvents,
    ) -> None:
        self._client = client
        self._service = service
        self._config = config
        self._in_flight = in_flight
        self._message_events = listener

    async def edited(self, message: discord.Message) -> None:
        """Handle an edited message; Discord itself edits some, to add previews."""
        self._message_events.recent_messages.note(message)
        edited_at = message.edited_at
        if edited_at is None or message.author.bot:
            return
        event = f"edit {message.id} {edited_at.timestamp()}"
        async with self._message_events.in_order(message.channel.id):
            recent = self._message_events.recent_requests.find(message.id)
            if recent is not None:
                await self._edited_recently(message, recent, event)
                return
        age = discord.utils.utcnow() - message.created_at
        # If it was not for the bot before, perhaps it is now.
        is_fresh = age.total_seconds() <= self._config.rerun_seconds
        if is_fresh and await self._message_events.on_message(message):
            self._in_flight.spawn(self._anew(message, event), f"edited message {message.id}")

    async def _edited_recently(
        self, message: discord.Message, recent: requests_in_flight.RequestOfMessage, event: str
    ) -> None:
        is_late = time.monotonic() - recent.heard > self._config.rerun_seconds
        if is_late or message.content == recent.message.content:
            return
        if not await self._message_events.is_still_for_us(message):
            # The edited message may be unreadable for the bot: the old answer stays.
            return
        if not await self._service.events.claim(channels_and_threads.PLATFORM, event):
            return
        recent.message = message
        if recent.run is not None:
            work = self._again(message, recent, recent.run)
            self._in_flight.spawn(work, f"edited message {message.id}")

    async def _anew(self, message: discord.Message, event: str) -> None:
        """Answer an edited message that was answered before the bot was started."""
        if await self._service.events.claim(channels_and_threads.PLATFORM, event):
            await self._message_events.on_edit(message, event)

    async def _again(
        self,
        message: discord.Message,
        recent: requests_in_flight.RequestOfMessage,
        old: requests_in_flight.InFlight,
    ) -> None:
        """Run an edited message again; its answer replaces the old one."""
        if not old.is_over.is_set():
            await self._service.cancel(old.place.key, old.request.id)
            await old.is_over.wait()
        chosen = await self._in_flight.chosen_by(
            old.place, channels_and_threads.person(message.author)
        )
        said = await self._message_events.parsed(message)
        request = self._message_events.request(message, said, old.place, chosen)
        run = requests_in_flight.InFlight(request, old.place, old.at)
        recent.run = run
        await self._in_flight.carry_out(run, chosen, instead_of=old)

    async def deleted(self, message_id: int) -> None:
        """Handle a deleted message: its request is withdrawn, or its turn stopped."""
        self._message_events.recent_messages.forget(message_id)
        self._message_events.recent_requests.forget(message_id)
        await self._in_flight.cancel(str(message_id))
