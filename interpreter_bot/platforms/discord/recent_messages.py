"""The latest messages of channels and threads: from events, and once from the history."""

from __future__ import annotations

import collections
import logging

import cachetools
import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import api_errors, markdown, rate_limits

_log = logging.getLogger(__name__)

_MAX_CHANNELS = 300
_READ_SECONDS = 3.0


class RecentMessages:
    """Keeps the latest messages of the channels in which the bot is asked."""

    def __init__(self, config: settings.Discord, limits: rate_limits.RateLimits) -> None:
        self._max_messages = config.context_messages
        self._bots = frozenset(config.bots)
        self._limits = limits
        self._by_channel = cachetools.LRUCache[int, collections.deque[discord.Message]](
            _MAX_CHANNELS
        )

    def follow(self, channel_id: int) -> None:
        """Keep the messages of a thread from its beginning."""
        self._by_channel.setdefault(channel_id, collections.deque(maxlen=self._max_messages))

    def note(self, message: discord.Message) -> None:
        """Keep a new message, or one that was edited."""
        messages = self._by_channel.get(message.channel.id)
        if messages is None:
            return
        places = [place for place, known in enumerate(messages) if known.id == message.id]
        if places:
            messages[places[0]] = message
        else:
            messages.append(message)

    def forget(self, message_id: int) -> None:
        """Forget a message that was deleted."""
        for messages in self._by_channel.values():
            for message in [known for known in messages if known.id == message_id]:
                messages.remove(message)

    async def before(
        self, message: discord.Message, channel: discord.abc.Messageable, me: int
    ) -> list[discord.Message]:
        """Return what people, and bots that are listed, wrote before a message, oldest first.

        It begins after the bot's last answer there; what mentions the bot was for itself.
        """
        if not self._max_messages:
            return []
        messages = self._by_channel.get(message.channel.id)
        if messages is None:
            messages = collections.deque(maxlen=self._max_messages)
            try:
                if _may_read(message):
                    read = self._read(channel, message)
                    messages.extend(await self._limits.within(_READ_SECONDS, read))
            except api_errors.ANY as error:
                _log.info("what was said before could not be read", exc_info=error)
            self._by_channel[message.channel.id] = messages
            messages.append(message)
        earlier: list[discord.Message] = []
        for known in messages:
            if known.id >= message.id:
                continue
            if known.author.id == me:
                if not known.content.startswith(markdown.NOTICE):
                    earlier.clear()
            elif self._may_be_read(known) and not any(user.id == me for user in known.mentions):
                earlier.append(known)
        return earlier

    def _may_be_read(self, message: discord.Message) -> bool:
        if message.author.bot or message.webhook_id is not None:
            return message.author.id in self._bots
        return not message.author.system

    async def _read(
        self, channel: discord.abc.Messageable, before: discord.Message
    ) -> list[discord.Message]:
        history = channel.history(limit=self._max_messages, before=before)
        return [message async for message in history][::-1]


def _may_read(message: discord.Message) -> bool:
    """Return whether the bot may read the history of a message's channel, as far as is known."""
    channel = message.channel
    if message.guild is None or isinstance(channel, discord.PartialMessageable):
        return True
    return channel.permissions_for(message.guild.me).read_message_history
