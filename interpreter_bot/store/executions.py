"""Executions: code that was run, recorded before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_T = schema.EXECUTIONS


class Executions:
    """All executions."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def start(self, turn_id: int, code: str) -> int:
        """Record that code is about to run, and return the id of its execution.

        Raises:
            StoreError: there is no such turn any more, or no database.
        """
        insert = sa.insert(_T).values(
            turn_id=turn_id,
            code=code,
            seconds=0.0,
            reason="",
            kernel_lost=False,
            started=columns.now(),
        )
        async with self._begin.writing() as transaction:
            made: int = (await transaction.execute(insert.returning(_T.c.id))).scalar_one()
            return made

    async def finish(self, execution_id: int, finished: values.Finished) -> None:
        """Record how it ended. The first end counts."""
        end = (
            sa.update(_T)
            .where(_T.c.id == execution_id, _T.c.ending.is_(None))
            .values(
                ending=finished.ending.value,
                seconds=finished.seconds,
                reason=finished.reason,
                kernel_lost=finished.kernel_lost,
            )
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(end)

    async def of_turn(self, turn_id: int) -> tuple[records.Execution, ...]:
        """The executions of a turn, in order."""
        return await self.of_turns([turn_id])

    async def of_turns(self, turn_ids: Sequence[int]) -> tuple[records.Execution, ...]:
        """The executions of some turns, in order."""
        query = sa.select(_T).where(_T.c.turn_id.in_(turn_ids)).order_by(_T.c.id)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))


def _record(row: sa.Row[Any]) -> records.Execution:
    fields = row._asdict()
    fields["ending"] = None if row.ending is None else values.Ending(row.ending)
    return records.Execution(**fields)
