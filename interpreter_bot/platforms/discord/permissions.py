"""Permissions: who may use the bot where, by the operator's lists and the roles of members.

Discord sends roles with events on a server, but not with direct messages and fetched messages. For
those, the member is fetched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import settings, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.chat import policies
from interpreter_bot.platforms.discord import api_errors, channels_and_threads, rate_limits
from interpreter_bot.wording import access_words, discord_words

_log = logging.getLogger(__name__)

_CACHE_SECONDS: Final = 300.0
_MAX_CACHED_PEOPLE: Final = 1000
_MAX_FETCHED_GUILDS: Final = 25
_FETCH_SECONDS: Final = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Membership:
    """A person's roles on the servers that count, and whether they are a member of any of these."""

    role_ids: Collection[int] = ()
    is_member: bool = False


class Memberships:
    """Finds the roles of people, which are fetched if the operator's lists need them."""

    def __init__(
        self, client: discord.Client, config: settings.Discord, limits: rate_limits.RateLimits
    ) -> None:
        self._client = client
        self._limits = limits
        self._config = config
        self._cached_roles = cachetools.TTLCache[tuple[int, int], frozenset[int] | None](
            _MAX_CACHED_PEOPLE, _CACHE_SECONDS
        )

    def must_fetch(self, user: channels_and_threads.Author, guild_id: int | None) -> bool:
        """Return whether a permission depends on roles that Discord did not send."""
        config = self._config
        if user.id in config.people:
            return False
        if not config.roles:
            lists_places = bool(config.guilds or config.channels)
            return guild_id is None and lists_places and not config.people
        is_foreign = guild_id is not None and self._client.get_guild(guild_id) is None
        return not isinstance(user, discord.Member) and not is_foreign

    async def find_membership(
        self, user: channels_and_threads.Author, guild: discord.Guild | None
    ) -> Membership:
        """Return a person's membership on a server; in direct messages on all that count."""
        if not self.must_fetch(user, guild.id if guild is not None else None):
            return Membership(roles_of(user))
        listed_role_ids = set(self._config.roles)
        person_role_ids: set[int] = set()
        is_member = False
        for server in ([guild] if guild is not None else self._relevant_servers())[
            :_MAX_FETCHED_GUILDS
        ]:
            roles = await self._roles_on(server, user.id)
            if roles is not None:
                is_member = True
                person_role_ids |= roles
            if listed_role_ids & person_role_ids or (is_member and not listed_role_ids):
                break
        return Membership(person_role_ids, is_member)

    async def find_owner_refusal(self, key: values.SessionKey, person: str) -> str:
        """Return why the owner of a schedule may no longer use the bot in a channel; empty if they
        may.

        Raises:
            DiscordError: Discord does not say.
        """
        try:
            checking = self._fetch_owner_refusal(key, int(person))
            return await self._limits.within(_FETCH_SECONDS, checking)
        except discord.NotFound:
            return access_words.OWNER_LEFT_CHANNEL
        except api_errors.ANY as error:
            raise api_errors.DiscordLostError(discord_words.UNREACHABLE) from error

    async def _fetch_owner_refusal(self, key: values.SessionKey, user_id: int) -> str:
        if not key.workspace:
            user = await self._client.fetch_user(user_id)
            membership = await self.find_membership(user, None)
            person_there = make_requester(user, None, None, membership)
            return str(policies.refusal(person_there, rules(self._config)) or "")
        channel = await self._client.fetch_channel(channels_and_threads.channel_id_of(key))
        if not isinstance(channel, discord.abc.GuildChannel | discord.Thread):
            return access_words.NOT_HERE
        member = await channel.guild.fetch_member(user_id)
        member_permissions = channel.permissions_for(member)
        if not member_permissions.view_channel:
            return access_words.OWNER_LEFT_CHANNEL
        if (
            isinstance(channel, discord.Thread)
            and channel.is_private()
            and not member_permissions.manage_threads
        ):
            # Not found if they are not in it.
            await channel.fetch_member(user_id)
        membership = Membership(roles_of(member), is_member=True)
        person_there = make_requester(member, channel.guild.id, channel, membership)
        return str(policies.refusal(person_there, rules(self._config)) or "")

    def _relevant_servers(self) -> list[discord.Guild]:
        config = self._config
        return [
            guild
            for guild in self._client.guilds
            if not config.guilds or guild.id in config.guilds
            if not config.channels or any(map(guild.get_channel_or_thread, config.channels))
            if not config.roles or any(map(guild.get_role, config.roles))
        ]

    async def _roles_on(self, guild: discord.Guild, user_id: int) -> frozenset[int] | None:
        """Return a person's roles on a server; None if they are not on it, or it is unknown."""
        with contextlib.suppress(KeyError):
            return self._cached_roles[guild.id, user_id]
        try:
            member = await self._limits.within(_FETCH_SECONDS, guild.fetch_member(user_id))
        except discord.NotFound:
            roles = None
        except api_errors.ANY as error:
            _log.warning("a member could not be looked up", exc_info=error)
            return None
        else:
            roles = roles_of(member)
        self._cached_roles[guild.id, user_id] = roles
        return roles


def roles_of(user: Any) -> frozenset[int]:  # noqa: ANN401
    """Return the roles that Discord sent with a user object."""
    roles = user.roles if isinstance(user, discord.Member) else []
    return frozenset(role.id for role in roles)


DEFAULT_PREFERENCES: Final[Mapping[str, object]] = {
    preferences.APPROVAL: "never",
    preferences.MODEL: "",
    preferences.THREADS: True,
    preferences.FOLLOW_THREADS: True,
    preferences.SHOW_CODE: False,
}
"""The defaults of the settings that people can choose."""


def rules(config: settings.Discord) -> policies.Rules:
    """Return the rules of the operator's lists."""
    return policies.Rules(
        workspaces=config.guilds,
        channels=config.channels,
        people=config.people,
        groups=config.roles,
        allows_direct=config.direct_messages,
    )


def make_requester(
    user: channels_and_threads.Author,
    guild_id: int | None,
    channel: object,
    membership: Membership | None,
    *,
    is_bot_there: bool = True,
) -> policies.Requester:
    """Return a person in a place, as the rules see them.

    Args:
        membership: it was fetched; if None, the roles that Discord sent count.
    """
    channel_ids = [getattr(channel, "id", 0)]
    if isinstance(channel, discord.Thread):
        channel_ids.append(channel.parent_id)
    return policies.Requester(
        person=user.id,
        workspace=guild_id,
        channels=channel_ids,
        groups=roles_of(user) if membership is None else membership.role_ids,
        is_direct=guild_id is None,
        is_member=membership is not None and membership.is_member,
        is_bot_there=is_bot_there,
    )
