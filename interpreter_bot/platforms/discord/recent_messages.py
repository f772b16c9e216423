"""The latest messages of channels and threads, from events and, once, from the history."""

from __future__ import annotations

import collections
import logging
from typing import Final

import cachetools
import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    api_errors,
    markdown,
    message_parsing,
    rate_limits,
)

_log = logging.getLogger(__name__)

_MAX_CHANNELS: Final = 300
_MAX_HIDDEN_IDS: Final = 1000
_READ_SECONDS: Final = 3.0


class RecentMessages:
    """Keeps the latest messages of the channels in which the bot is asked."""

    def __init__(self, config: settings.Discord, limits: rate_limits.RateLimits) -> None:
        self._max_messages = config.context_messages
        self._bots = frozenset(config.heard_bots)
        self._limits = limits
        self._by_channel = cachetools.LRUCache[int, collections.deque[discord.Message]](
            _MAX_CHANNELS
        )
        self._hidden_ids = cachetools.LRUCache[int, None](_MAX_HIDDEN_IDS)

    def follow(self, channel_id: int) -> None:
        """Keep the messages of a thread from its beginning."""
        self._by_channel.setdefault(channel_id, collections.deque(maxlen=self._max_messages))

    def note_message(self, message: discord.Message) -> None:
        """Keep a new message, or one that was edited."""
        messages = self._by_channel.get(message.channel.id)
        if messages is None:
            return
        for index, earlier in enumerate(messages):
            if earlier.id == message.id:
                messages[index] = message
                return
        messages.append(message)

    def forget(self, message_id: int) -> None:
        """Forget a message that was deleted."""
        for messages in self._by_channel.values():
            for message in [earlier for earlier in messages if earlier.id == message_id]:
                messages.remove(message)

    def hide(self, message_id: int) -> None:
        """Let a message be no context of later ones."""
        self._hidden_ids[message_id] = None

    async def messages_before(
        self, message: discord.Message, channel: discord.abc.Messageable, bot_id: int
    ) -> list[discord.Message]:
        """Return the messages between the bot's last answer and a message, oldest first.

        They are of people and of the bots in the settings; none mentions the bot.
        """
        if not self._max_messages:
            return []
        messages = self._by_channel.get(message.channel.id)
        if messages is None:
            messages = collections.deque(maxlen=self._max_messages)
            try:
                if _can_read_history(message):
                    reading = self._read(channel, message)
                    messages.extend(await self._limits.within(_READ_SECONDS, reading))
            except api_errors.ANY as error:
                _log.info("earlier messages could not be read", exc_info=error)
            self._by_channel[message.channel.id] = messages
            messages.append(message)
        earlier: list[discord.Message] = []
        for earlier_message in messages:
            if earlier_message.id >= message.id or earlier_message.id in self._hidden_ids:
                continue
            if earlier_message.author.id == bot_id:
                if not earlier_message.content.startswith(markdown.NOTICE):
                    earlier.clear()
            elif self._is_context(earlier_message) and not message_parsing.is_addressed(
                earlier_message, bot_id
            ):
                earlier.append(earlier_message)
        return earlier

    def _is_context(self, message: discord.Message) -> bool:
        if message.author.bot or message.webhook_id is not None:
            return message.author.id in self._bots
        return not message.author.system

    async def _read(
        self, channel: discord.abc.Messageable, before: discord.Message
    ) -> list[discord.Message]:
        history = channel.history(limit=self._max_messages, before=before)
        return [message async for message in history][::-1]


def _can_read_history(message: discord.Message) -> bool:
    """Return whether the bot may read the history of a channel, as far as the cache knows."""
    channel = message.channel
    if message.guild is None or isinstance(channel, discord.PartialMessageable):
        return True
    return channel.permissions_for(message.guild.me).read_message_history
