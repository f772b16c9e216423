"""Usage: tokens, money and processor time, by person and day and by session.

Money is an integer, in millionths, so that sums are exact. Days are days in UTC.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import errors, values
from interpreter_bot.store import columns, records, transactions
from interpreter_bot.wording import storage_words

_USAGE = records.Usage
_SUMS: Final = tuple(
    sa.func.coalesce(sa.func.sum(column), 0)
    for column in (
        _USAGE.input_tokens,
        _USAGE.output_tokens,
        _USAGE.money_micros,
        _USAGE.cpu_seconds,
    )
)
# A server may report any number of tokens. The sum of thousands of such counts still fits 64 bits.
_MAX_COUNT: Final = 10**15
_MICROS: Final = 1_000_000


def round_up_to_micros(money: decimal.Decimal) -> decimal.Decimal:
    """Round up to millionths, the smallest amount that is recorded."""
    return (money * _MICROS).to_integral_value(decimal.ROUND_UP) / _MICROS


def subtract(total: values.Usage, recorded_usage: values.Usage) -> values.Usage:
    """Return the part of the usage that is not counted yet."""
    return values.Usage(
        input_tokens=total.input_tokens - recorded_usage.input_tokens,
        output_tokens=total.output_tokens - recorded_usage.output_tokens,
        money=total.money - recorded_usage.money,
        cpu_seconds=total.cpu_seconds - recorded_usage.cpu_seconds,
    )


class Usage(transactions.Aggregate):
    """Table of usage."""

    async def add(self, turn_id: int, spending: values.Usage, *, model: str = "") -> None:
        """Add usage to a turn, its session, and its person's present day.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        turns, sessions = records.Turn, records.Session
        query = sa.select(
            turns.session_id, sessions.platform, sessions.workspace, turns.person
        ).join_from(turns, sessions)
        async with self._transactions.transaction(is_writing=True):
            rows = await self._transactions.rows(query.where(turns.id == turn_id))
            if not rows:
                raise errors.StoreError(storage_words.CONVERSATION_GONE)
            insert = sa.insert(_USAGE).values(
                turn_id=turn_id,
                **rows[0]._asdict(),
                day=columns.now().date(),
                model=model,
                input_tokens=_clamp(spending.input_tokens),
                output_tokens=_clamp(spending.output_tokens),
                money_micros=_clamp(int(round_up_to_micros(spending.money) * _MICROS)),
                cpu_seconds=spending.cpu_seconds if math.isfinite(spending.cpu_seconds) else 0.0,
            )
            await self._transactions.change(insert)

    async def sum_for_person(
        self,
        person: str,
        *,
        platform: str,
        workspace: str = "",
        without_turns: Collection[int] = (),
    ) -> values.Usage:
        """Sum a person's usage today, in all sessions.

        Args:
            without_turns: ids of turns that are not counted.
        """
        # Usage of a deleted turn has lost its turn id, but counts.
        is_counted = sa.or_(_USAGE.turn_id.is_(None), _USAGE.turn_id.not_in(without_turns))
        return await self._sum(
            _USAGE.platform == platform,
            _USAGE.workspace == workspace,
            _USAGE.person == person,
            _USAGE.day == columns.now().date(),
            *([is_counted] if without_turns else []),
        )

    async def sum_for_session(self, session_id: int) -> values.Usage:
        """Sum all usage of a session."""
        return await self._sum(_USAGE.session_id == session_id)

    async def sum_for_turns(self, turn_ids: Sequence[int]) -> dict[int, values.Usage]:
        """Sum the usage of each of some turns; turns without usage are left out."""
        query = sa.select(_USAGE.turn_id, *_SUMS).where(_USAGE.turn_id.in_(turn_ids))
        rows = await self._transactions.rows(query.group_by(_USAGE.turn_id))
        return {turn_id: _from_sums(sums) for turn_id, *sums in rows}

    async def _sum(self, *conditions: sa.ColumnElement[bool]) -> values.Usage:
        (sums,) = await self._transactions.rows(sa.select(*_SUMS).where(*conditions))
        return _from_sums(sums)


def _from_sums(sums: Iterable[Any]) -> values.Usage:
    input_tokens, output_tokens, money, cpu = sums
    # PostgreSQL sums integers to decimals.
    return values.Usage(
        input_tokens=int(input_tokens),
        output_tokens=int(output_tokens),
        money=decimal.Decimal(int(money)) / _MICROS,
        cpu_seconds=float(cpu),
    )


def _clamp(number: int) -> int:
    return min(max(number, 0), _MAX_COUNT)
