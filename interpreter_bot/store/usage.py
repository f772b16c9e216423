"""Usage: tokens, money and processor time, by person and day and by session.

Money is an integer, in millionths, so that sums are exact. A day is one of UTC.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import errors, values
from interpreter_bot.store import columns, schema, transactions
from interpreter_bot.wording import storage_words

_T = schema.USAGE
_SUMS: Final = tuple(
    sa.func.coalesce(sa.func.sum(column), 0)
    for column in (_T.c.input_tokens, _T.c.output_tokens, _T.c.money_micros, _T.c.cpu_seconds)
)
# A server may claim any number of tokens. Thousands of these still add up within 64 bits.
_MAX: Final = 10**15
_MICROS: Final = 1_000_000


def whole_micros(money: decimal.Decimal) -> decimal.Decimal:
    """Round up to millionths, the smallest amount that is recorded."""
    return (money * _MICROS).to_integral_value(decimal.ROUND_UP) / _MICROS


def difference(used: values.Usage, counted: values.Usage) -> values.Usage:
    """Return what of the usage is not booked yet."""
    return values.Usage(
        input_tokens=used.input_tokens - counted.input_tokens,
        output_tokens=used.output_tokens - counted.output_tokens,
        money=used.money - counted.money,
        cpu_seconds=used.cpu_seconds - counted.cpu_seconds,
    )


class Usage:
    """Table of usage."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def add(self, turn_id: int, spending: values.Usage, *, model: str = "") -> None:
        """Add usage to a turn, its session, and its person's present day.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        turns, sessions = schema.TURNS, schema.SESSIONS
        used = {
            _T.c.day: columns.now().date(),
            _T.c.model: model,
            _T.c.input_tokens: _bounded(spending.input_tokens),
            _T.c.output_tokens: _bounded(spending.output_tokens),
            _T.c.money_micros: _bounded(int(whole_micros(spending.money) * _MICROS)),
            _T.c.cpu_seconds: spending.cpu_seconds if math.isfinite(spending.cpu_seconds) else 0.0,
        }
        whose = {
            _T.c.turn_id: turns.c.id,
            _T.c.session_id: turns.c.session_id,
            _T.c.platform: sessions.c.platform,
            _T.c.workspace: sessions.c.workspace,
            _T.c.person: turns.c.person,
        }
        found = [sa.literal(value, column.type) for column, value in used.items()]
        row = sa.select(*whose.values(), *found).join_from(turns, sessions)
        insert = sa.insert(_T).from_select([*whose, *used], row.where(turns.c.id == turn_id))
        async with self._begin.writing() as transaction:
            if not (await transaction.execute(insert)).rowcount:
                raise errors.StoreError(storage_words.CONVERSATION_GONE)

    async def of_person(
        self,
        person: str,
        *,
        platform: str,
        workspace: str = "",
        day: datetime.date | None = None,
        without_turns: Collection[int] = (),
    ) -> values.Usage:
        """Sum a person's usage on one day, in all sessions; today by default.

        Args:
            without_turns: ids of turns that are left out.
        """
        # Usage of a deleted turn has no turn id any more, and counts.
        is_wanted = sa.or_(_T.c.turn_id.is_(None), _T.c.turn_id.not_in(without_turns))
        return await self._sum(
            _T.c.platform == platform,
            _T.c.workspace == workspace,
            _T.c.person == person,
            _T.c.day == (day or columns.now().date()),
            *([is_wanted] if without_turns else []),
        )

    async def of_session(self, session_id: int) -> values.Usage:
        """Sum a session's usage, ever."""
        return await self._sum(_T.c.session_id == session_id)

    async def of_turns(self, turn_ids: Sequence[int]) -> dict[int, values.Usage]:
        """Sum the usage of each of some turns; those without any are missing."""
        query = sa.select(_T.c.turn_id, *_SUMS).where(_T.c.turn_id.in_(turn_ids))
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query.group_by(_T.c.turn_id))).all()
        return {turn_id: _spending(sums) for turn_id, *sums in rows}

    async def _sum(self, *conditions: sa.ColumnElement[bool]) -> values.Usage:
        query = sa.select(*_SUMS).where(*conditions)
        async with self._begin.reading() as transaction:
            return _spending((await transaction.execute(query)).one())


def _spending(sums: Iterable[Any]) -> values.Usage:
    tokens_in, tokens_out, money, cpu = sums
    # PostgreSQL sums integers to decimals.
    return values.Usage(
        input_tokens=int(tokens_in),
        output_tokens=int(tokens_out),
        money=decimal.Decimal(int(money)) / _MICROS,
        cpu_seconds=float(cpu),
    )


def _bounded(number: int) -> int:
    return min(max(number, 0), _MAX)
