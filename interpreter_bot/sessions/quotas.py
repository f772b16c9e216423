"""Daily limits per person, over all sessions.

The usage of a running turn is in its `TurnReservation`, that of finished turns in the store.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.agent import budgets
from interpreter_bot.sessions import requests
from interpreter_bot.store import databases, preferences
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

MONEY: Final = "allowance_money"
TOKENS: Final = "allowance_tokens"
"""Names of the choices that override the settings; both hold a number as text."""


def limits_for_person(
    limits: settings.DailyAllowance, choices: preferences.Choices
) -> settings.DailyAllowance:
    """Return a person's limits, with the choices of their workspace and their own.

    Choices that are not numbers are ignored.
    """
    effective = choices.outside_channels.effective
    overrides = {
        name: effective[choice]
        for name, choice in (("money", MONEY), ("tokens", TOKENS))
        if choice in effective
    }
    try:
        return settings.DailyAllowance.model_validate(limits.model_dump() | overrides)
    except ValueError:
        _log.warning("the choice of an allowance is invalid: %s", overrides)
        return limits


class DailyUsage:
    """Usage of the running turns of this process, of which the store has only part."""

    def __init__(self) -> None:
        self._reservations: dict[int, TurnReservation] = {}
        # Two concurrent requests must see each other's reservation.
        self._reserve_lock = asyncio.Lock()

    def open(
        self, turn_id: int, request: requests.Request, *, limits: settings.DailyAllowance
    ) -> TurnReservation:
        """Open the reservation of a turn, until `close`."""
        owner = (request.key.platform, request.key.workspace, request.person.id)
        reservation = self._reservations[turn_id] = TurnReservation(self, turn_id, owner, limits)
        return reservation

    def close(self, turn_id: int) -> None:
        """Drop the reservation of a turn, whose usage is in the store now."""
        self._reservations.pop(turn_id, None)

    async def reserve(
        self, reservation: TurnReservation, database: databases.Database, worst_case: values.Usage
    ) -> str | None:
        """Reserve usage for a turn; return None, or the sentence why it exceeds a limit."""
        async with self._reserve_lock:
            platform, workspace, person = reservation.owner
            used = await database.usage.sum_for_person(
                person,
                platform=platform,
                workspace=workspace,
                without_turns=tuple(self._reservations),
            )
            other_usages = [
                other.used
                for other in self._reservations.values()
                if other is not reservation and other.owner == reservation.owner
            ]
            limits = reservation.limits
            used = sum((*other_usages, worst_case), used)
            if limits.tokens is not None and used.tokens > limits.tokens:
                return session_words.over_quota(f"{limits.tokens:,} tokens")
            if limits.money is not None and used.money > limits.money:
                return session_words.over_quota(f"a cost of {limits.money}")
            reservation.reserved = worst_case
            return None


class TurnReservation:
    """The usage of one turn.

    Attributes:
        owner: platform, workspace, person.
        reserved: the worst-case usage after the last permitted call.
        budget: the turn's budget, once it has one.
    """

    def __init__(
        self,
        daily_usage: DailyUsage,
        turn_id: int,
        owner: tuple[str, str, str],
        limits: settings.DailyAllowance,
    ) -> None:
        self.turn_id = turn_id
        self.owner = owner
        self.limits = limits
        self.reserved = values.Usage()
        self.budget: budgets.Budget | None = None
        self._daily_usage = daily_usage

    @property
    def used(self) -> values.Usage:
        """The usage so far; during a model call, with the worst case of the call."""
        spent = self.budget.usage if self.budget is not None else values.Usage()
        return self.reserved if self.reserved.steps > spent.steps else spent

    def allowance(self, database: databases.Database) -> budgets.Allowance | None:
        """Return the check to be called before each model call; None if nothing is limited."""
        if self.limits.money is None and self.limits.tokens is None:
            return None
        return functools.partial(self._daily_usage.reserve, self, database)
