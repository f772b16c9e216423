"""Places of requests and answers, and the threads that the bot opened or joined."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import cachetools
import discord

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.discord import api_errors, rate_limits
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import discord_words, session_words

PLATFORM: Final = "discord"
_REQUEST_BYTES: Final = 64 * 1024
"""Of a request beside its file: Discord's limit for a file counts them, too."""

Author: TypeAlias = discord.User | discord.Member | discord.ClientUser

_log = logging.getLogger(__name__)

_MAX_TURNS: Final = 20
_MAX_REMEMBERED_THREADS: Final = 10_000
_POLL_SECONDS: Final = 0.1
_READ_SECONDS: Final = 10.0
_MAX_MESSAGES: Final = 100
_UNREAD_MARKER_ID: Final = 0
"""An id that no person has: it is among the people of a thread until its messages were read."""
_MAX_OPENING_SECONDS: Final = 60.0
_MAX_RATE_LIMIT_SECONDS: Final = 10.0
"""If Discord opens no thread for longer than this, the answer is a reply."""
_RETRY_PAUSES_SECONDS: Final = (0.5, 2.0, 8.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The place of a request and its answer.

    Attributes:
        key: the session.
        channel_id: of the channel, thread or direct conversation to write to.
        guild_id: None in direct conversations.
        file_bytes: the largest file that may be sent there.
    """

    key: values.SessionKey
    channel_id: int
    guild_id: int | None
    file_bytes: int = discord.utils.DEFAULT_FILE_SIZE_LIMIT_BYTES - _REQUEST_BYTES


def place_of_channel(channel: object, guild: discord.Guild | None) -> Place:
    """Return the place of a channel, a thread or a direct conversation."""
    guild_id = guild.id if guild else None
    return Place(
        _session_key(channel, guild_id), getattr(channel, "id", 0), guild_id, file_bytes(guild)
    )


def place_at_interaction(interaction: discord.Interaction) -> Place:
    """Return the place of an interaction."""
    guild_id, channel_id = interaction.guild_id, interaction.channel_id or 0
    key = values.SessionKey(PLATFORM, str(guild_id or ""), str(channel_id))
    if interaction.channel is not None:
        key = _session_key(interaction.channel, guild_id)
    # The person's own limit may be larger, but applies only to the first message of an answer.
    return Place(key, channel_id, guild_id, file_bytes(interaction.guild))


def is_bot_at(interaction: discord.Interaction) -> bool:
    """Return whether the bot is a member of the place of an interaction."""
    if interaction.guild_id is None:
        return interaction.context.dm_channel
    return interaction.is_guild_integration()


def file_bytes(guild: discord.Guild | None) -> int:
    """Return the size of the largest file that the bot may send."""
    default = discord.utils.DEFAULT_FILE_SIZE_LIMIT_BYTES
    return (guild.filesize_limit if guild else default) - _REQUEST_BYTES


def location(place: Place, *, handle: object = None) -> transport.Location:
    """Return the location of an answer in a place."""
    return transport.Location(session=place.key, channel=str(place.channel_id), handle=handle)


def channel_id_of(key: values.SessionKey) -> int:
    """Return the channel of a session."""
    return int(key.thread_id or key.channel)


def person_of(user: Author) -> requests.Person:
    """Return the person behind a Discord user."""
    return requests.Person(str(user.id), user.display_name)


@contextlib.asynccontextmanager
async def thread_for_copy(
    channel: object, limits: rate_limits.RateLimits, text: str
) -> AsyncIterator[tuple[str, str]]:
    """Open a thread in the same channel for a copy of a session; delete it if the block raises.

    Yields its id, and a link to it.

    Args:
        channel: of the session.
        limits: of the client.
        text: of the message that starts the thread.

    Raises:
        BotError: no thread can be opened there, or more people would see it.
    """
    if isinstance(channel, discord.Thread) and channel.is_private():
        raise errors.BotError(session_words.PRIVATE_THREAD)
    parent = channel.parent if isinstance(channel, discord.Thread) else channel
    if not isinstance(parent, discord.TextChannel):
        raise errors.BotError(session_words.NO_THREAD_FOR_COPY)
    try:
        sending = parent.send(text, allowed_mentions=discord.AllowedMentions.none())
        message = await limits.within(_MAX_OPENING_SECONDS, sending)
    except api_errors.ANY as error:
        raise errors.BotError(session_words.NO_THREAD_FOR_COPY) from error
    is_open = False
    try:
        is_open = await open_thread_in_time(limits, message, discord_words.COPY_TITLE)
        if not is_open:
            raise errors.BotError(session_words.NO_THREAD_FOR_COPY)
        yield str(message.id), f"<#{message.id}>"
    except BaseException:
        with contextlib.suppress(*api_errors.ANY):
            await message.delete()
        with contextlib.suppress(*api_errors.ANY):
            if is_open:
                await (await message.fetch_thread()).delete()
        raise


def _session_key(channel: object, guild_id: int | None) -> values.SessionKey:
    if isinstance(channel, discord.Thread):
        thread = str(channel.id)
        if channel.is_private():
            # Not all people of the channel see it, so it is a place of its own within that.
            thread = values.private_thread(thread)
        return values.SessionKey(PLATFORM, str(guild_id or ""), str(channel.parent_id), thread)
    channel_id = getattr(channel, "id", 0)
    return values.SessionKey(PLATFORM, str(guild_id or ""), str(channel_id))


class Threads:
    """Tells which messages in threads are for the bot."""

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        limits: rate_limits.RateLimits,
    ) -> None:
        self._client = client
        self._limits = limits
        self._service = service
        self._config = config
        self._first_requests = cachetools.LRUCache[int, int | None](_MAX_REMEMBERED_THREADS)
        self._people = cachetools.LRUCache[int, set[int]](_MAX_REMEMBERED_THREADS)

    async def first_request(self, thread: discord.Thread) -> int | None:
        """Return the id of the first request in a thread.

        Returns:
            0 if the whole thread is for the bot; None if there was no request.
        """
        bot_user = self._client.user
        if bot_user is not None and thread.owner_id == bot_user.id:
            return 0
        if thread.parent_id in self._config.forum_channels:
            return 0
        if thread.id not in self._first_requests:
            place = place_of_channel(thread, thread.guild)
            turns = await self._service.queries.history(place.key, limit=_MAX_TURNS)
            id_texts = [turn.record.request_id.partition("-")[0] for turn in turns]
            message_ids = [int(id_text) for id_text in id_texts if id_text.isdecimal()]
            self._first_requests[thread.id] = min(message_ids, default=0 if turns else None)
        return self._first_requests[thread.id]

    def note_request(self, thread_id: int, message_id: int) -> None:
        """Remember a request to the bot in a thread, if it is the first one."""
        if self._first_requests.get(thread_id) is None:
            self._first_requests[thread_id] = message_id

    def note_person(self, message: discord.Message) -> None:
        """Remember who wrote a message, if the other people of its thread are known."""
        people = self._people.get(message.channel.id)
        if people is not None:
            people.add(message.author.id)

    async def is_of_one_person(self, thread: discord.Thread, person: int) -> bool:
        """Return whether only this person, and bots, have written in a thread."""
        people = self._people.get(thread.id)
        if people is None:
            people = self._people[thread.id] = {_UNREAD_MARKER_ID}
            try:
                people |= await self._limits.within(_READ_SECONDS, _people_in(thread))
                people.discard(_UNREAD_MARKER_ID)
            except api_errors.ANY as error:
                _log.info("who writes in a thread could not be read", exc_info=error)
            finally:
                if _UNREAD_MARKER_ID in people:
                    self._people.pop(thread.id, None)
        return people <= {person}

    async def open_thread(self, message: discord.Message, title: str) -> int | None:
        """Open a thread on a message.

        Returns:
            Its id; None if that is forbidden, or limited for longer than a person waits.
        """
        guild, channel = message.guild, message.channel
        if guild is None or not isinstance(channel, discord.TextChannel):
            return None
        if guild.get_thread(message.id) is not None:
            # It was opened by an earlier answer to the message.
            return message.id
        bot_member = (
            guild.get_member(self._client.user.id) if self._client.user is not None else None
        )
        bot_permissions = channel.permissions_for(bot_member) if bot_member is not None else None
        if bot_permissions and not (
            bot_permissions.create_public_threads and bot_permissions.send_messages_in_threads
        ):
            return None
        is_open = await open_thread_in_time(self._limits, message, title)
        if is_open:
            self._people.setdefault(message.id, {message.author.id})
        return message.id if is_open else None


async def _people_in(thread: discord.Thread) -> set[int]:
    people: set[int] = set()
    async for message in thread.history(limit=_MAX_MESSAGES):
        author = message.author
        original = message.reference.resolved if message.reference is not None else None
        if message.type is discord.MessageType.thread_starter_message:
            author = original.author if isinstance(original, discord.Message) else author
        if not author.bot:
            people.add(author.id)
    return people


async def open_thread_in_time(
    limits: rate_limits.RateLimits, message: discord.Message, title: str
) -> bool:
    """Open a thread on a message, unless Discord allows none for longer than a person waits."""
    route = f"POST /channels/{message.channel.id}/messages/{message.id}/threads"
    if _is_limited(limits, route):
        return False
    creation = limits.spawn(_create_thread(message, title), f"thread on message {message.id}")
    give_up_at = time.monotonic() + _MAX_OPENING_SECONDS
    try:
        while not creation.done():
            # The library delays the response that exhausts a limit until the limit is over.
            if limits.was_accepted(route):
                return True
            if _is_limited(limits, route) or time.monotonic() > give_up_at:
                return False
            await asyncio.wait((creation,), timeout=_POLL_SECONDS)
        return creation.result()
    finally:
        if not limits.was_accepted(route):
            await limits.cancel(creation)


def _is_limited(limits: rate_limits.RateLimits, route: str) -> bool:
    seconds = limits.seconds_left(route)
    if seconds > _MAX_RATE_LIMIT_SECONDS:
        _log.warning("no thread may be opened for %.0f s", seconds)
    return seconds > _MAX_RATE_LIMIT_SECONDS


async def _create_thread(message: discord.Message, title: str) -> bool:
    for wait_seconds in (*_RETRY_PAUSES_SECONDS, None):
        try:
            await message.create_thread(name=title)
        except api_errors.ANY as error:
            if api_errors.code_of(error) == api_errors.THREAD_EXISTS:
                return True
            _log.info("no thread could be opened", exc_info=error)
            if wait_seconds is None or not api_errors.is_temporary(error):
                return False
            # If it was opened before the connection was lost, the next try fails, as it exists.
            await asyncio.sleep(wait_seconds)
        else:
            return True
    return False
