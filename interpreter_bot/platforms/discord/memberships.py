"""Which roles somebody has, and where they belong, where Discord does not say so by itself.

It does with what happens on a server; not in direct messages, nor of messages that are looked up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Collection
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import faults, places

_log = logging.getLogger(__name__)

_KNOWN_SECONDS: Final = 300.0
_MOST_KNOWN: Final = 1000
_MOST_GUILDS: Final = 25


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """What somebody is on the servers that count: their roles; whether they are on any."""

    role_ids: Collection[int] = ()
    is_member: bool = False


class Memberships:
    """Asks Discord for members, where the operator's lists depend on them."""

    def __init__(self, client: discord.Client, allowed: settings.Discord) -> None:
        self._client = client
        self._options = allowed
        self._known = cachetools.TTLCache[tuple[int, int], frozenset[int] | None](
            _MOST_KNOWN, _KNOWN_SECONDS
        )

    def is_unknown(self, user: places.Author, guild_id: int | None) -> bool:
        """Say whether it depends on something that has to be asked for if somebody may."""
        allowed = self._options
        if user.id in allowed.people:
            return False
        if not allowed.roles:
            has_places = bool(allowed.guilds or allowed.channels)
            return guild_id is None and has_places and not allowed.people
        is_far = guild_id is not None and self._client.get_guild(guild_id) is None
        return not isinstance(user, discord.Member) and not is_far

    async def standing(self, user: places.Author, guild: discord.Guild | None) -> Standing:
        """Return what somebody is on a server; in direct messages on all that count."""
        if not self.is_unknown(user, guild.id if guild is not None else None):
            return Standing(roles_told(user))
        wanted = set(self._options.roles)
        found: set[int] = set()
        is_member = False
        for one in ([guild] if guild is not None else self._where_it_counts())[:_MOST_GUILDS]:
            roles = await self._roles_on(one, user.id)
            if roles is not None:
                is_member = True
                found |= roles
            if wanted & found or (is_member and not wanted):
                break
        return Standing(found, is_member)

    def _where_it_counts(self) -> list[discord.Guild]:
        allowed = self._options
        return [
            guild
            for guild in self._client.guilds
            if not allowed.guilds or guild.id in allowed.guilds
            if not allowed.channels or any(map(guild.get_channel_or_thread, allowed.channels))
            if not allowed.roles or any(map(guild.get_role, allowed.roles))
        ]

    async def _roles_on(self, guild: discord.Guild, user_id: int) -> frozenset[int] | None:
        """Return somebody's roles on a server; None where they are not on it, or nobody knows."""
        with contextlib.suppress(KeyError):
            return self._known[guild.id, user_id]
        try:
            member = await guild.fetch_member(user_id)
        except discord.NotFound:
            roles = None
        except faults.ANY as error:
            _log.warning("a member could not be looked up", exc_info=error)
            return None
        else:
            roles = roles_told(member)
        self._known[guild.id, user_id] = roles
        return roles


def roles_told(user: Any) -> frozenset[int]:  # noqa: ANN401
    """Return the roles that came along with somebody."""
    roles = user.roles if isinstance(user, discord.Member) else []
    return frozenset(role.id for role in roles)
