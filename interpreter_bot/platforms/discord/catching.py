"""What was missed while the gateway was away and its session could not be resumed.

Whatever was written since is looked for where something was written at all: Discord says of each
channel which message is its last. A message that was heard after all is claimed already.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import discord

from interpreter_bot.platforms.discord import faults, listening

_log = logging.getLogger(__name__)

_MOST_CHANNELS: Final = 100
_MOST_MESSAGES: Final = 100
_MOST_DIRECT: Final = 200
# Half a minute, as ids count time: messages of one moment need not come in order.
_MARGIN: Final = 30_000 << 22


class Catcher:
    """Knows what was heard last, and reads on from there."""

    def __init__(self, client: discord.Client, listener: listening.Listener) -> None:
        self._client = client
        self._listener = listener
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
                _log.info("%d messages were looked up after a lost connection", len(missed))

    def _changed(self, since: int) -> list[discord.abc.Messageable]:
        """Find channels in which something was written."""
        found: list[discord.abc.Messageable] = []
        for guild in self._client.guilds:
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
