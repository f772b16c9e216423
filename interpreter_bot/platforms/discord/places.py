"""Where somebody speaks with us, and which conversation that is."""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias

import discord

from interpreter_bot import values
from interpreter_bot.sessions import requests

PLATFORM: Final = "discord"
_OWN_MARK: Final = "person-"
MARGIN_BYTES: Final = 64 * 1024
"""A file of exactly the limit is refused: Discord counts what comes around it, too."""

Author: TypeAlias = discord.User | discord.Member | discord.ClientUser


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a request came from and its answer goes.

    Attributes:
        key: the conversation.
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
        """Return where choices hold here, for somebody."""
        return values.Scope(PLATFORM, self.key.workspace, self.key.channel, person)


def of_channel(channel: object, guild: discord.Guild | None) -> Place:
    """Return the place that a channel, a thread or a direct conversation is."""
    guild_id = guild.id if guild else None
    return Place(_key(channel, guild_id), getattr(channel, "id", 0), guild_id, _most_bytes(guild))


def of_thread(place: Place, thread_id: int) -> Place:
    """Return the place in a thread of a channel."""
    key = dataclasses.replace(place.key, thread=str(thread_id))
    return dataclasses.replace(place, key=key, channel_id=thread_id)


def of_interaction(interaction: discord.Interaction, owner: int | None = None) -> Place:
    """Return the place of an interaction.

    Where the bot is not, a conversation is one person's: those around have no part in it, and
    may be strangers to each other.

    Args:
        interaction: what somebody did.
        owner: whose conversation it is, where the bot is not; default: whoever did it.
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
    # Of an answer only the first message is in the name of a person who may send larger files;
    # the others are the bot's own.
    most_bytes = _most_bytes(interaction.guild)
    if not is_member:
        most_bytes = interaction.filesize_limit - MARGIN_BYTES
    return Place(key, channel_id, guild_id, most_bytes, is_member)


def _most_bytes(guild: discord.Guild | None) -> int:
    """Return the largest file that the bot itself may send."""
    default = discord.utils.DEFAULT_FILE_SIZE_LIMIT_BYTES
    return (guild.filesize_limit if guild else default) - MARGIN_BYTES


def channel_of(key: values.SessionKey) -> int | None:
    """Return the channel in which a conversation takes place; None where we are not."""
    if key.thread.startswith(_OWN_MARK):
        return None
    return int(key.thread or key.channel)


def person(user: Author) -> requests.Person:
    """Say who somebody is."""
    return requests.Person(str(user.id), user.display_name)


def _key(channel: object, guild_id: int | None) -> values.SessionKey:
    if isinstance(channel, discord.Thread):
        parent = str(channel.parent_id)
        return values.SessionKey(PLATFORM, str(guild_id or ""), parent, str(channel.id))
    number = getattr(channel, "id", 0)
    return values.SessionKey(PLATFORM, str(guild_id or ""), str(number))
