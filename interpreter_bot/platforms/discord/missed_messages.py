"""Catch up on messages missed while the bot was down, or the gateway session was lost.

Only channels with new messages are read, by the id of the last message that Discord sends with each
channel. A message that was handled before is claimed, so it is not handled twice.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Collection
from typing import Any, Final

import cachetools
import discord

from interpreter_bot.platforms.chat import inbox
from interpreter_bot.platforms.discord import api_errors, channels_and_threads
from interpreter_bot.sessions import session_service

_log = logging.getLogger(__name__)

_MAX_CHANNELS: Final = 100
_MAX_MESSAGES: Final = 100
_MAX_DIRECT_CHANNELS: Final = 200
_MAX_RECENT_SESSIONS: Final = 30
# 30 seconds as a difference of ids (milliseconds << 22), because ids are not strictly ordered.
_ID_MARGIN: Final = 30_000 << 22


class MissedMessages:
    """Remembers the last handled message, and reads the messages after it.

    When a gateway session is lost, `_missed_since` becomes the id from which messages may be
    missing. Catching up moves it to `_caught_up_since`, as servers may become available later;
    `_read_server_ids` are those that were read since then.
    """

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        messages: inbox.Inbox[discord.Message, Any],
        *,
        guilds: Collection[int],
        look_back_seconds: float,
    ) -> None:
        self._client = client
        self._service = service
        self._guilds = guilds
        self._look_back_seconds = look_back_seconds
        self._inbox = messages
        self._has_included_downtime = False
        self._last_id = 0
        self._missed_since: int | None = None
        self._caught_up_since: int | None = None
        self._read_server_ids: set[int] = set()
        self._direct_channels = cachetools.LRUCache[int, None](_MAX_DIRECT_CHANNELS)
        self._lock = asyncio.Lock()

    def note_message(self, message: discord.Message) -> None:
        """Record that a message was handled."""
        self._last_id = max(self._last_id, message.id)
        if message.guild is None:
            self._direct_channels[message.channel.id] = None

    def note_start(self) -> None:
        """Record that the bot handles all messages from now on."""
        self._last_id = self._last_id or discord.utils.time_snowflake(discord.utils.utcnow())

    def note_new_session(self) -> None:
        """Remember where the gap began; messages of the new gateway session arrive live."""
        if self._missed_since is None:
            self._missed_since = self._last_id - _ID_MARGIN
            self._read_server_ids.clear()

    async def include_downtime(self) -> None:
        """Include, once, messages from before the start of the bot.

        Discord lists a bot's servers but not its direct conversations: of these, the ones that were
        used last are read.
        """
        if self._has_included_downtime:
            return
        self._has_included_downtime = True
        for overview in reversed(
            await self._service.recent(channels_and_threads.PLATFORM, limit=_MAX_RECENT_SESSIONS)
        ):
            channel_id = channels_and_threads.channel_id_of(overview.record.key)
            self._direct_channels.setdefault(channel_id)
        look_back = datetime.timedelta(seconds=self._look_back_seconds)
        since = discord.utils.time_snowflake(discord.utils.utcnow() - look_back)
        self._missed_since = since if self._missed_since is None else min(since, self._missed_since)

    async def catch_up(self) -> None:
        """Handle the messages written between the sessions, oldest first."""
        async with self._lock:
            if self._missed_since is None:
                return
            since, self._missed_since = self._missed_since, None
            self._caught_up_since = since
            channels: list[discord.abc.Messageable] = []
            for guild in self._client.guilds:
                channels += self._changed_channels(guild, since)
            channels += [
                self._client.get_partial_messageable(channel_id)
                for channel_id in self._direct_channels
            ]
            await self._handle_missed(channels, since)

    async def catch_up_in(self, guild: discord.Guild) -> None:
        """Handle the messages written on a server that became available later than the others."""
        async with self._lock:
            if self._missed_since is None and self._caught_up_since is not None:
                await self._handle_missed(
                    self._changed_channels(guild, self._caught_up_since), self._caught_up_since
                )

    async def _handle_missed(self, channels: list[discord.abc.Messageable], since: int) -> None:
        """Handle the messages of some channels, oldest first."""
        if len(channels) > _MAX_CHANNELS:
            _log.warning("of %d channels only %d are read", len(channels), _MAX_CHANNELS)
        missed_messages: list[discord.Message] = []
        for channel in channels[: -_MAX_CHANNELS - 1 : -1]:
            missed_messages += await self._read(channel, discord.Object(since))
        missed_messages.sort(key=lambda message: message.id)
        for message in missed_messages:
            self.note_message(message)
        await self._inbox.catch_up(missed_messages)
        if missed_messages:
            _log.info("%d messages that may have been missed were read", len(missed_messages))

    def _changed_channels(self, guild: discord.Guild, since: int) -> list[discord.abc.Messageable]:
        """Find channels of a server with new messages; once per gateway session."""
        if (
            guild.id in self._read_server_ids
            or guild.unavailable
            or (self._guilds and guild.id not in self._guilds)
        ):
            return []
        self._read_server_ids.add(guild.id)
        channels: list[discord.TextChannel | discord.VoiceChannel | discord.Thread] = []
        channels += guild.text_channels
        channels += guild.voice_channels
        channels += guild.threads
        return [channel for channel in channels if (channel.last_message_id or 0) > since]

    async def _read(
        self, channel: discord.abc.Messageable, since: discord.Object
    ) -> list[discord.Message]:
        """Read a channel.

        If a message cannot be parsed, read again newest first, to get what lies beyond it.
        """
        messages: dict[int, discord.Message] = {}
        for is_oldest_first in (True, False):
            try:
                async for message in channel.history(
                    limit=_MAX_MESSAGES, after=since, oldest_first=is_oldest_first
                ):
                    messages[message.id] = message
            except api_errors.ANY as error:
                _log.info("missed messages of a channel could not be read", exc_info=error)
            except Exception:
                _log.exception("a message that may have been missed could not be read")
                continue
            break
        return list(messages.values())
