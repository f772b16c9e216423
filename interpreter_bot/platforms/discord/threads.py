"""Threads of ours: opened on a message, recognised when somebody writes in one."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import faults, places
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_MOST_KNOWN: Final = 10_000
_WAITS_SECONDS: Final = (0.5, 2.0, 8.0)


class Threads:
    """Knows which threads are ours."""

    def __init__(
        self,
        client: discord.Client,
        talks: conversations.Conversations,
        allowed: settings.Discord,
    ) -> None:
        self._client = client
        self._talks = talks
        self._options = allowed
        self._known: dict[int, bool] = {}

    async def is_ours(self, thread: discord.Thread) -> bool:
        """Say whether a thread was opened by us, or is one in which we have been asked before."""
        me = self._client.user
        if me is not None and thread.owner_id == me.id:
            return True
        if thread.parent_id in self._options.forum_channels:
            return True
        known = self._known.get(thread.id)
        if known is None:
            place = places.of_channel(thread, thread.guild)
            known = bool(await self._talks.history(place.key, most=1))
            self._know(thread.id, is_ours=known)
        return known

    def _know(self, thread_id: int, *, is_ours: bool) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[thread_id] = is_ours

    def join(self, thread_id: int) -> None:
        """Remember that we have been asked in a thread."""
        self._know(thread_id, is_ours=True)

    async def open(self, message: discord.Message, title: str) -> int | None:
        """Open a thread on a message; returns its id, or None where that is not allowed."""
        if not isinstance(message.channel, discord.TextChannel):
            return None
        if message.guild is not None and message.guild.get_thread(message.id) is not None:
            # It was opened when the message was answered for the first time.
            return message.id
        me = message.guild.me if message.guild is not None else None
        if me is not None:
            held = message.channel.permissions_for(me)
            if not (held.create_public_threads and held.send_messages_in_threads):
                return None
        return await self._open(message, title)

    async def _open(self, message: discord.Message, title: str) -> int | None:
        for wait_seconds in (*_WAITS_SECONDS, None):
            try:
                thread = await message.create_thread(
                    name=title, auto_archive_duration=self._options.archive_minutes
                )
            except faults.ANY as error:
                if faults.code_of(error) == faults.THREAD_EXISTS:
                    return message.id
                _log.info("no thread could be opened", exc_info=error)
                if wait_seconds is None or not faults.is_passing(error):
                    return None
                # It may have been opened before the connection was lost: then it exists.
                await asyncio.sleep(wait_seconds)
            else:
                return thread.id
        return None
