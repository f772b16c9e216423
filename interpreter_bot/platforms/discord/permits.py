"""Who may use the bot where: the operator's lists. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Final

from interpreter_bot import settings

_PERSON: Final = "You are not among those who may use me here."
_PLACE: Final = "I may not be used here."


@dataclasses.dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and where.

    Attributes:
        channel_ids: of the channel and, in a thread, of the channel around it.
        role_ids: in direct messages those of all servers that count.
        is_member: in direct messages: they are on a server where the bot may be used.
        is_bot_there: the bot is there itself, and not only where somebody installed it for
            themselves.
    """

    user_id: int
    guild_id: int | None
    channel_ids: Collection[int]
    role_ids: Collection[int] = ()
    is_member: bool = False
    is_bot_there: bool = True


def refusal(asker: Asker, allowed: settings.Discord) -> str:
    """Return why somebody may not use the bot, as a sentence; empty where they may."""
    if not (asker.is_bot_there or allowed.user_install):
        return _PLACE
    if asker.guild_id is None:
        if not allowed.direct_messages:
            return _PLACE
    else:
        if allowed.guilds and asker.guild_id not in allowed.guilds:
            return _PLACE
        if allowed.channels and not set(allowed.channels).intersection(asker.channel_ids):
            return _PLACE
    if not (allowed.people or allowed.roles):
        # Who may not be asked for by a place is asked for by where they belong.
        is_elsewhere = asker.guild_id is None and bool(allowed.guilds or allowed.channels)
        return _PERSON if is_elsewhere and not asker.is_member else ""
    is_known = asker.user_id in allowed.people
    has_role = not set(allowed.roles).isdisjoint(asker.role_ids)
    return "" if is_known or has_role else _PERSON


def is_about_place(sentence: str) -> bool:
    """Say whether a refusal is about the place: there nobody is to be answered at all."""
    return sentence == _PLACE
