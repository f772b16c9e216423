"""Places of requests and answers with their session keys, and threads that the bot opened or
joined."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeAlias

import cachetools
import discord

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.discord import api_errors
from interpreter_bot.sessions import requests, session_service

PLATFORM: Final = "discord"
_OWN_MARK: Final = "person-"
MARGIN_BYTES: Final = 64 * 1024
"""A file of exactly the limit is refused: Discord counts what comes around it, too."""

Author: TypeAlias = discord.User | discord.Member | discord.ClientUser

_log = logging.getLogger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, object], str], object]
"""Runs a coroutine as a named task."""

_NO_THREAD: Final = "Here I can open no thread for a copy."
_PRIVATE: Final = "This thread is private, and a copy of it would not be."
_COPY: Final = "Copy of a conversation"
_MOST_KNOWN: Final = 10_000
_LOOK_SECONDS: Final = 0.2
_WAITS_SECONDS: Final = (0.5, 2.0, 8.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a request came from and its answer goes.

    Attributes:
        key: the session.
        channel_id: of the channel, thread or direct conversation to write to.
        guild_id: None in direct conversations.
        file_bytes: the largest file that may be sent there.
        is_member: the bot is there itself; otherwise only interactions can be answered.
    """

    key: values.SessionKey
    channel_id: int
    guild_id: int | None
    file_bytes: int = discord.utils.DEFAULT_FILE_SIZE_LIMIT_BYTES - MARGIN_BYTES
    is_member: bool = True

    def scope(self, person: str = "") -> values.Scope:
        """Return the scope of choices here, for a person."""
        return values.Scope(PLATFORM, self.key.workspace, self.key.channel, person)


def of_channel(channel: object, guild: discord.Guild | None) -> Place:
    """Return the place of a channel, a thread or a direct conversation."""
    guild_id = guild.id if guild else None
    return Place(_key(channel, guild_id), getattr(channel, "id", 0), guild_id, _most_bytes(guild))


def of_thread(place: Place, thread_id: int) -> Place:
    """Return the place of a thread in a channel."""
    key = dataclasses.replace(place.key, thread=str(thread_id))
    return dataclasses.replace(place, key=key, channel_id=thread_id)


def of_interaction(interaction: discord.Interaction, owner: int | None = None) -> Place:
    """Return the place of an interaction.

    Where the bot is no member, a session is one person's: others there have no part in it, and
    may be strangers to each other.

    Args:
        interaction: what a person did.
        owner: whose session it is, where the bot is no member; default: that person's.
    """
    channel = interaction.channel
    guild_id, channel_id = interaction.guild_id, interaction.channel_id or 0
    is_direct = guild_id is None and interaction.context.dm_channel
    is_member = is_direct or (guild_id is not None and interaction.is_guild_integration())
    key = values.SessionKey(PLATFORM, str(guild_id or ""), str(channel_id))
    if not is_member:
        key = dataclasses.replace(key, thread=f"{_OWN_MARK}{owner or interaction.user.id}")
    elif channel is not None:
        key = _key(channel, guild_id)
    # Of an answer only the first message is in the name of a person who may send larger files; the
    # others are the bot's own.
    most_bytes = _most_bytes(interaction.guild)
    if not is_member:
        most_bytes = interaction.filesize_limit - MARGIN_BYTES
    return Place(key, channel_id, guild_id, most_bytes, is_member)


def _most_bytes(guild: discord.Guild | None) -> int:
    """Return the largest file that the bot itself may send."""
    default = discord.utils.DEFAULT_FILE_SIZE_LIMIT_BYTES
    return (guild.filesize_limit if guild else default) - MARGIN_BYTES


def channel_of(key: values.SessionKey) -> int | None:
    """Return the channel of a session; None if the bot is not there."""
    if key.thread.startswith(_OWN_MARK):
        return None
    return int(key.thread or key.channel)


def person(user: Author) -> requests.Person:
    """Return the person behind a Discord user."""
    return requests.Person(str(user.id), user.display_name)


@contextlib.asynccontextmanager
async def thread_for_copy(
    interaction: discord.Interaction, words: str
) -> AsyncIterator[discord.Thread]:
    """Open a thread for a copy of a session, in the same channel; deleted if the block raises.

    Args:
        interaction: with which a person wants it.
        words: the message that it hangs on.

    Raises:
        BotError: none can be opened there, or more people would see it.
    """
    channel = interaction.channel
    if isinstance(channel, discord.Thread) and channel.is_private():
        raise errors.BotError(_PRIVATE)
    parent = channel.parent if isinstance(channel, discord.Thread) else channel
    if not isinstance(parent, discord.TextChannel) or not of_interaction(interaction).is_member:
        raise errors.BotError(_NO_THREAD)
    try:
        message = await parent.send(words, allowed_mentions=discord.AllowedMentions.none())
    except api_errors.ANY as error:
        raise errors.BotError(_NO_THREAD) from error
    made: list[discord.Message | discord.Thread] = [message]
    try:
        try:
            thread = await message.create_thread(name=_COPY)
        except api_errors.ANY as error:
            raise errors.BotError(_NO_THREAD) from error
        made.append(thread)
        yield thread
    except BaseException:
        for one in made:
            with contextlib.suppress(*api_errors.ANY):
                await one.delete()
        raise


def _key(channel: object, guild_id: int | None) -> values.SessionKey:
    if isinstance(channel, discord.Thread):
        parent = str(channel.parent_id)
        return values.SessionKey(PLATFORM, str(guild_id or ""), parent, str(channel.id))
    number = getattr(channel, "id", 0)
    return values.SessionKey(PLATFORM, str(guild_id or ""), str(number))


class Threads:
    """Knows which threads belong to the bot."""

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        spawn: Spawn,
    ) -> None:
        self._client = client
        self._spawn = spawn
        self._service = service
        self._config = config
        self._known = cachetools.LRUCache[int, bool](_MOST_KNOWN)

    async def is_ours(self, thread: discord.Thread) -> bool:
        """Say whether a thread was opened by the bot, or is one in which it has been asked
        before."""
        me = self._client.user
        if me is not None and thread.owner_id == me.id:
            return True
        if thread.parent_id in self._config.forum_channels:
            return True
        known = self._known.get(thread.id)
        if known is None:
            place = of_channel(thread, thread.guild)
            known = bool(await self._service.queries.history(place.key, most=1))
            self._known[thread.id] = known
        return known

    def join(self, thread_id: int) -> None:
        """Remember that the bot has been asked in a thread."""
        self._known[thread_id] = True

    async def open(self, message: discord.Message, title: str) -> int | None:
        """Open a thread on a message.

        Returns:
            Its id; None if that is not allowed, or not for the next minutes.
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
        # The library answers only when the next one might be opened, too; Discord's event brought
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
                    name=title, auto_archive_duration=self._config.archive_minutes
                )
            except discord.RateLimited as error:
                _log.warning("no thread may be opened for %.0f s", error.retry_after)
                return None
            except api_errors.ANY as error:
                if api_errors.code_of(error) == api_errors.THREAD_EXISTS:
                    return message.id
                _log.info("no thread could be opened", exc_info=error)
                if wait_seconds is None or not api_errors.is_passing(error):
                    return None
                # It may have been opened before the connection was lost: then it exists.
                await asyncio.sleep(wait_seconds)
            else:
                return thread.id
        return None
