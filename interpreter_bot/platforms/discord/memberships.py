"""Which roles somebody has, where Discord does not say so with what they did.

It does with what happens on a server; not in direct messages, nor of messages that are looked up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any, Final

import discord

from interpreter_bot import settings
from interpreter_bot.platforms.discord import faults, places

_log = logging.getLogger(__name__)

_KNOWN_SECONDS: Final = 300.0
_MOST_KNOWN: Final = 1000
_MOST_GUILDS: Final = 10


class Memberships:
    """Asks Discord for roles, where the operator's lists depend on them."""

    def __init__(self, client: discord.Client, allowed: settings.Discord) -> None:
        self._client = client
        self._options = allowed
        self._known: dict[tuple[int, int], tuple[float, frozenset[int]]] = {}

    def is_unknown(self, user: places.Author, guild_id: int | None) -> bool:
        """Say whether it depends on roles that would have to be asked for if somebody may."""
        if not self._options.roles or user.id in self._options.people:
            return False
        is_far = guild_id is not None and self._client.get_guild(guild_id) is None
        return not isinstance(user, discord.Member) and not is_far

    async def roles_of(self, user: places.Author, guild: discord.Guild | None) -> Collection[int]:
        """Return somebody's roles on a server; in direct messages on all that count."""
        if not self.is_unknown(user, guild.id if guild is not None else None):
            return roles_told(user)
        where = [guild] if guild is not None else self._where_it_counts()
        found: set[int] = set()
        for one in where[:_MOST_GUILDS]:
            found |= await self._roles_on(one, user.id)
        return found

    def _where_it_counts(self) -> list[discord.Guild]:
        return [
            guild
            for guild in self._client.guilds
            if not self._options.guilds or guild.id in self._options.guilds
            if any(guild.get_role(number) is not None for number in self._options.roles)
        ]

    async def _roles_on(self, guild: discord.Guild, user_id: int) -> frozenset[int]:
        now = time.monotonic()
        asked, roles = self._known.get((guild.id, user_id), (-_KNOWN_SECONDS, frozenset()))
        if now - asked < _KNOWN_SECONDS:
            return roles
        try:
            member = await guild.fetch_member(user_id)
        except discord.NotFound:
            roles = frozenset()
        except faults.ANY as error:
            _log.warning("somebody's roles could not be looked up", exc_info=error)
            return frozenset()
        else:
            roles = roles_told(member)
        if len(self._known) >= _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[guild.id, user_id] = now, roles
        return roles


def roles_told(user: Any) -> frozenset[int]:  # noqa: ANN401
    """Return the roles that came along with somebody."""
    roles = user.roles if isinstance(user, discord.Member) else []
    return frozenset(role.id for role in roles)
