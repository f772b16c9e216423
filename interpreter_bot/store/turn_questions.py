"""What turns ask people, and what people let code do for longer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import records, schema, transactions

_Q = schema.QUESTIONS
_G = schema.GRANTS

Document: TypeAlias = dict[str, Any]


class TurnQuestions:
    """The latest question of each turn that runs, and its answer."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def load(self) -> tuple[tuple[int, Document, Document | None], ...]:
        """Return (id of the turn, question, answer) of all turns that run; forget the others."""
        running = sa.select(schema.TURNS.c.id).where(
            schema.TURNS.c.status == values.TurnStatus.RUNNING.value
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_Q).where(_Q.c.turn_id.not_in(running)))
            query = sa.select(_Q.c.turn_id, _Q.c.question, _Q.c.answer).order_by(_Q.c.id)
            return tuple((row[0], row[1], row[2]) for row in await transaction.execute(query))

    async def put(self, turn_id: int, name: str, question: Mapping[str, Any]) -> None:
        """Note what a turn asks now, in place of what it asked before.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_Q).where(_Q.c.turn_id == turn_id))
            await transaction.execute(
                sa.insert(_Q).values(turn_id=turn_id, name=name, question=dict(question))
            )

    async def answer(self, name: str, answer: Mapping[str, Any]) -> bool:
        """Note the answer to a question; says whether it is the first one."""
        noting = sa.update(_Q).where(_Q.c.name == name, _Q.c.answer.is_(None))
        async with self._begin.writing() as transaction:
            return (await transaction.execute(noting.values(answer=dict(answer)))).rowcount == 1


class Grants:
    """What people let code do again and again, as long as its kernel lives."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def of(self, session_id: int, kernel_id: str) -> frozenset[records.Grant]:
        """Return what was granted to a session while it had this kernel."""
        fields = [_G.c[field.name] for field in dataclasses.fields(records.Grant)]
        query = sa.select(*fields).where(_G.c.session_id == session_id, _G.c.kernel_id == kernel_id)
        async with self._begin.reading() as transaction:
            return frozenset(
                records.Grant(**row._asdict()) for row in await transaction.execute(query)
            )

    async def add(self, session_id: int, kernel_id: str, grant: records.Grant) -> None:
        """Note a grant; those of earlier kernels of the session are forgotten.

        Raises:
            StoreError: the session was deleted, or the database cannot be used.
        """
        former = sa.delete(_G).where(_G.c.session_id == session_id, _G.c.kernel_id != kernel_id)
        insert = sa.insert(_G).values(
            session_id=session_id, kernel_id=kernel_id, **dataclasses.asdict(grant)
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(former)
            await transaction.execute(insert)
