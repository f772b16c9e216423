"""What turns ask people, and what people let code do for longer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import records, transactions

_Q = records.Question
_G = records.KernelGrant


class TurnQuestions(transactions.Aggregate):
    """The latest question of each turn that runs, and its answer."""

    async def load(self) -> tuple[records.Question, ...]:
        """Return the questions of all turns that run; forget the others."""
        running = sa.select(records.Turn.id).where(records.Turn.status == values.TurnStatus.RUNNING)
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(sa.delete(_Q).where(_Q.turn_id.not_in(running)))
            return await self._transactions.all(sa.select(_Q).order_by(_Q.id))

    async def put(self, turn_id: int, name: str, question: Mapping[str, Any]) -> None:
        """Note what a turn asks now, in place of what it asked before.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(sa.delete(_Q).where(_Q.turn_id == turn_id))
            await self._transactions.change(
                sa.insert(_Q).values(turn_id=turn_id, name=name, question=dict(question))
            )

    async def answer(self, name: str, answer: Mapping[str, Any]) -> bool:
        """Note the answer to a question; says whether it is the first one."""
        update_query = sa.update(_Q).where(_Q.name == name, _Q.answer.is_(None))
        return await self._transactions.change(update_query.values(answer=dict(answer))) == 1


class Grants(transactions.Aggregate):
    """What people let code do again and again, as long as its kernel lives."""

    async def of(self, session_id: int, kernel_id: str) -> frozenset[records.Grant]:
        """Return what was granted to a session while it had this kernel."""
        query = sa.select(_G).where(_G.session_id == session_id, _G.kernel_id == kernel_id)
        return frozenset(
            records.Grant(person=row.person, subject=row.subject, name=row.name, digest=row.digest)
            for row in await self._transactions.all(query)
        )

    async def add(self, session_id: int, kernel_id: str, grant: records.Grant) -> None:
        """Note a grant; those of earlier kernels of the session are forgotten.

        Raises:
            StoreError: the session was deleted, or the database cannot be used.
        """
        former = sa.delete(_G).where(_G.session_id == session_id, _G.kernel_id != kernel_id)
        insert = sa.insert(_G).values(
            session_id=session_id, kernel_id=kernel_id, **dataclasses.asdict(grant)
        )
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(former)
            await self._transactions.change(insert)
