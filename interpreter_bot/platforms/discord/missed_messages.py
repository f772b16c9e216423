"""Catch up on messages missed while the bot was down, or the gateway session was lost.

Only channels with a new message are read: Discord gives the id of each channel's last one. A
message that was handled after all is claimed already.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import settings
from interpreter_bot.platforms.chat import inbox
from interpreter_bot.platforms.discord import api_errors, channels_and_threads
from interpreter_bot.sessions import session_service

_log = logging.getLogger(__name__)

_MAX_CHANNELS: Final = 100
_MAX_MESSAGES: Final = 100
_MAX_DIRECT: Final = 200
_MAX_RECENT: Final = 30
# Half a minute, as ids count time: messages of one moment need not come in order.
_MARGIN: Final = 30_000 << 22


class MissedMessages:
    """Knows the last handled message, and reads on from there."""

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        messages: inbox.Inbox[discord.Message, Any],
    ) -> None:
        self._client = client
        self._service = service
        self._config = config
        self._inbox = messages
        self._has_looked_back = False
        self._last = 0
        self._since: int | None = None
        self._begun: int | None = None
        self._looked_at: set[int] = set()
        self._direct = cachetools.LRUCache[int, None](_MAX_DIRECT)
        self._lock = asyncio.Lock()

    def note(self, message: discord.Message) -> None:
        """Record that a message was handled."""
        self._last = max(self._last, message.id)
        if message.guild is None:
            self._direct[message.channel.id] = None

    def begin(self) -> None:
        """Record that from now on no message should be missed."""
        self._last = self._last or discord.utils.time_snowflake(discord.utils.utcnow())

    def mark(self) -> None:
        """Record that a new session begins: what it brings is not what was missed before."""
        if self._since is None:
            self._since = self._last - _MARGIN
            self._looked_at.clear()

    async def look_back(self) -> None:
        """Record, once, that something may have been written before the bot was started.

        Discord tells a bot of its servers, but not of its direct conversations: only those that
        were used last are known.
        """
        if self._has_looked_back:
            return
        self._has_looked_back = True
        if not self._config.look_back_seconds:
            return
        for overview in reversed(
            await self._service.recent(channels_and_threads.PLATFORM, limit=_MAX_RECENT)
        ):
            number = channels_and_threads.channel_of(overview.key)
            if number is not None:
                self._direct.setdefault(number)
        before = datetime.timedelta(seconds=self._config.look_back_seconds)
        since = discord.utils.time_snowflake(discord.utils.utcnow() - before)
        self._since = since if self._since is None else min(since, self._since)

    async def catch_up(self) -> None:
        """Handle the messages written between the sessions, oldest first."""
        async with self._lock:
            if self._since is None:
                return
            since, self._since = self._since, None
            self._begun = since
            found: list[discord.abc.Messageable] = []
            for guild in self._client.guilds:
                found += self._changed(guild, since)
            found += [self._client.get_partial_messageable(number) for number in self._direct]
            await self._hear(found, since)

    async def catch_up_in(self, guild: discord.Guild) -> None:
        """Handle the messages written on a server that became available later than the others."""
        async with self._lock:
            if self._since is None and self._begun is not None:
                await self._hear(self._changed(guild, self._begun), self._begun)

    async def _hear(self, channels: list[discord.abc.Messageable], since: int) -> None:
        """Handle the messages of some channels, oldest first."""
        if len(channels) > _MAX_CHANNELS:
            _log.warning("of %d channels only %d are looked up", len(channels), _MAX_CHANNELS)
        missed: list[discord.Message] = []
        for channel in channels[: -_MAX_CHANNELS - 1 : -1]:
            missed += await self._read(channel, discord.Object(since))
        missed.sort(key=lambda message: message.id)
        for message in missed:
            self.note(message)
        await self._inbox.catch_up(missed)
        if missed:
            _log.info("%d messages were looked up that may have been missed", len(missed))

    def _changed(self, guild: discord.Guild, since: int) -> list[discord.abc.Messageable]:
        """Find channels of a server with new messages; once in a session."""
        config = self._config.guilds
        if guild.id in self._looked_at or guild.unavailable or (config and guild.id not in config):
            return []
        self._looked_at.add(guild.id)
        known: list[discord.TextChannel | discord.VoiceChannel | discord.Thread] = []
        known += guild.text_channels
        known += guild.voice_channels
        known += guild.threads
        return [one for one in known if (one.last_message_id or 0) > since]

    async def _read(
        self, channel: discord.abc.Messageable, since: discord.Object
    ) -> list[discord.Message]:
        """Read a channel; around a message that the library cannot read, from both ends."""
        found: dict[int, discord.Message] = {}
        for is_oldest_first in (True, False):
            try:
                async for message in channel.history(
                    limit=_MAX_MESSAGES, after=since, oldest_first=is_oldest_first
                ):
                    found[message.id] = message
            except api_errors.ANY as error:
                _log.info("what was missed in a channel could not be read", exc_info=error)
            except Exception:
                _log.exception("a message that may have been missed could not be read")
                continue
            break
        return list(found.values())
