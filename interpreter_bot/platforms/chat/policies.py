"""Who may use the bot, and where: the operator's lists, read alike on every chat network."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TypeAlias

from interpreter_bot import errors
from interpreter_bot.wording import access_words

Id: TypeAlias = int | str


class NotAllowedError(errors.BotError):
    """This person may not use the bot here."""


class NotHereError(NotAllowedError):
    """Nobody may use the bot here; such messages are ignored without a refusal."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The places where the bot may be used, and the people who may use it, by their ids.

    Empty `workspaces` and `channels` mean everywhere. A person needs to be in `people` or in one of
    `groups`; if both are empty, everybody is allowed.
    """

    workspaces: Collection[Id] = ()
    channels: Collection[Id] = ()
    people: Collection[Id] = ()
    groups: Collection[Id] = ()
    allows_direct: bool = True
    allows_guests: bool = True
    allows_outsiders: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """A person in a place, as rules see them.

    Attributes:
        workspace: None in direct messages that belong to none.
        channels: the channel and, in a thread that is a channel itself, the one around it.
        groups: the person's groups; in direct messages, of all allowed workspaces.
        is_member: in direct messages: they are in a workspace where the bot may be used.
        is_bot_there: the bot is a member of the place, too.
    """

    person: Id
    workspace: Id | None
    channels: Collection[Id]
    groups: Collection[Id] = ()
    is_direct: bool = False
    is_member: bool = False
    is_bot_there: bool = True
    is_admin: bool = False
    is_bot: bool = False
    is_guest: bool = False
    is_outsider: bool = False


def refusal_of_place(requester: Requester, rules: Rules) -> NotHereError | None:
    """Return why nobody may use the bot in a place; None if people may."""
    is_there = requester.is_bot_there and (rules.allows_direct or not requester.is_direct)
    if rules.workspaces and requester.workspace is not None:
        is_there &= requester.workspace in rules.workspaces
    if rules.channels and not requester.is_direct:
        is_there &= not set(rules.channels).isdisjoint(requester.channels)
    return None if is_there else NotHereError(access_words.NOT_HERE)


def refusal(requester: Requester, rules: Rules) -> NotAllowedError | None:
    """Return why a person may not use the bot in a place; None if they may."""
    if error := refusal_of_place(requester, rules):
        return error
    if requester.is_bot:
        return NotAllowedError(access_words.NO_BOTS)
    if requester.is_outsider and not rules.allows_outsiders:
        return NotAllowedError(access_words.NO_OUTSIDERS)
    if requester.is_guest and not rules.allows_guests:
        return NotAllowedError(access_words.NO_GUESTS)
    if rules.people or rules.groups:
        is_listed = requester.person in rules.people or requester.is_admin
        is_listed |= not set(rules.groups).isdisjoint(requester.groups)
    else:
        # In a direct message, membership in an allowed workspace decides.
        is_elsewhere = requester.workspace is None and bool(rules.workspaces or rules.channels)
        is_listed = requester.is_member or not is_elsewhere
    return None if is_listed else NotAllowedError(access_words.NOT_LISTED)
