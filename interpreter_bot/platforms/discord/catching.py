"""What was missed: while the bot was down, or the gateway away with a session that is lost.

Whatever was written since is looked for where something was written at all: Discord says of each
channel which message is its last. A message that was heard after all is claimed already.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Final

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import faults, listening, places
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_MOST_CHANNELS: Final = 100
_MOST_MESSAGES: Final = 100
_MOST_DIRECT: Final = 200
_MOST_RECENT: Final = 30
# Half a minute, as ids count time: messages of one moment need not come in order.
_MARGIN: Final = 30_000 << 22


class Catcher:
    """Knows what was heard last, and reads on from there."""

    def __init__(
        self,
        client: discord.Client,
        talks: conversations.Conversations,
        allowed: settings.Discord,
        listener: listening.Listener,
    ) -> None:
        self._client = client
        self._talks = talks
        self._options = allowed
        self._listener = listener
        self._has_looked_back = False
        self._last = 0
        self._since: int | None = None
        self._direct: dict[int, None] = {}
        self._lock = asyncio.Lock()

    def note(self, message: discord.Message) -> None:
        """Remember that a message was heard."""
        self._last = max(self._last, message.id)
        if message.guild is None:
            self._direct.pop(message.channel.id, None)
            self._direct[message.channel.id] = None
            if len(self._direct) > _MOST_DIRECT:
                self._direct.pop(next(iter(self._direct)))

    def begin(self) -> None:
        """Remember that from now on nothing should be missed."""
        self._last = self._last or discord.utils.time_snowflake(discord.utils.utcnow())

    def mark(self) -> None:
        """Remember that a new session begins: what it brings is not what was missed before."""
        if self._since is None:
            self._since = self._last - _MARGIN

    async def look_back(self) -> None:
        """Remember, once, that something may have been written before the bot was started.

        Discord tells a bot of its servers, but not of its direct conversations: those are known
        that were used last.
        """
        if self._has_looked_back:
            return
        self._has_looked_back = True
        if not self._options.look_back_seconds:
            return
        for overview in reversed(await self._talks.recent(places.PLATFORM, most=_MOST_RECENT)):
            number = places.channel_of(overview.key)
            if number is not None:
                self._direct.setdefault(number)
        before = datetime.timedelta(seconds=self._options.look_back_seconds)
        since = discord.utils.time_snowflake(discord.utils.utcnow() - before)
        self._since = since if self._since is None else min(since, self._since)

    async def catch_up(self) -> None:
        """Hear what was written between the sessions, oldest first."""
        async with self._lock:
            if self._since is None:
                return
            since, self._since = discord.Object(self._since), None
            missed: list[discord.Message] = []
            for channel in self._changed(since.id):
                missed += await self._read(channel, since)
            for message in sorted(missed, key=lambda one: one.id):
                self.note(message)
                await self._listener.heard(message)
            if missed:
                _log.info("%d messages were looked up that may have been missed", len(missed))

    def _changed(self, since: int) -> list[discord.abc.Messageable]:
        """Find channels in which something was written."""
        found: list[discord.abc.Messageable] = []
        allowed = self._options.guilds
        for guild in self._client.guilds:
            if allowed and guild.id not in allowed:
                continue
            known: list[discord.TextChannel | discord.VoiceChannel | discord.Thread] = []
            known += guild.text_channels
            known += guild.voice_channels
            known += guild.threads
            found += [one for one in known if (one.last_message_id or 0) > since]
        found += [self._client.get_partial_messageable(number) for number in self._direct]
        found.reverse()
        if len(found) > _MOST_CHANNELS:
            _log.warning("of %d channels only %d are looked up", len(found), _MOST_CHANNELS)
        return found[:_MOST_CHANNELS]

    async def _read(
        self, channel: discord.abc.Messageable, since: discord.Object
    ) -> list[discord.Message]:
        try:
            return [
                message
                async for message in channel.history(
                    limit=_MOST_MESSAGES, after=since, oldest_first=True
                )
            ]
        except faults.ANY as error:
            _log.info("what was missed in a channel could not be read", exc_info=error)
            return []
