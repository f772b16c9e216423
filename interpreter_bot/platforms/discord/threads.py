"""Threads of ours: opened on a message, recognised when somebody writes in one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import cachetools
import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import faults, places
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, object], str], object]
"""Lets something run as a task of a name."""

_MOST_KNOWN: Final = 10_000
_LOOK_SECONDS: Final = 0.2
_WAITS_SECONDS: Final = (0.5, 2.0, 8.0)


class Threads:
    """Knows which threads are ours."""

    def __init__(
        self,
        client: discord.Client,
        talks: conversations.Conversations,
        allowed: settings.Discord,
        spawn: Spawn,
    ) -> None:
        self._client = client
        self._spawn = spawn
        self._talks = talks
        self._options = allowed
        self._known = cachetools.LRUCache[int, bool](_MOST_KNOWN)

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
            self._known[thread.id] = known
        return known

    def join(self, thread_id: int) -> None:
        """Remember that we have been asked in a thread."""
        self._known[thread_id] = True

    async def open(self, message: discord.Message, title: str) -> int | None:
        """Open a thread on a message.

        Returns:
            Its id; None where that is not allowed, or not for the next minutes.
        """
        guild, channel = message.guild, message.channel
        if guild is None or not isinstance(channel, discord.TextChannel):
            return None
        if guild.get_thread(message.id) is not None:
            # It was opened when the message was answered for the first time.
            return message.id
        me = guild.get_member(self._client.user.id) if self._client.user is not None else None
        held = channel.permissions_for(me) if me is not None else None
        if held and not (held.create_public_threads and held.send_messages_in_threads):
            return None
        opened: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._spawn(self._open(message, title, opened), f"thread on message {message.id}")
        # The library answers only when the next one might be opened, too; Discord has told of
        # this one before.
        while not opened.done() and guild.get_thread(message.id) is None:
            await asyncio.wait((opened,), timeout=_LOOK_SECONDS)
        return opened.result() if opened.done() else message.id

    async def _open(
        self, message: discord.Message, title: str, opened: asyncio.Future[int | None]
    ) -> None:
        try:
            opened.set_result(await self._create(message, title))
        finally:
            if not opened.done():
                opened.set_result(None)

    async def _create(self, message: discord.Message, title: str) -> int | None:
        for wait_seconds in (*_WAITS_SECONDS, None):
            try:
                thread = await message.create_thread(
                    name=title, auto_archive_duration=self._options.archive_minutes
                )
            except discord.RateLimited as error:
                _log.warning("no thread may be opened for %.0f s", error.retry_after)
                return None
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
