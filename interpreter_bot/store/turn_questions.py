"""Questions of turns to people, and lasting permissions that people granted to code."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import records, transactions

_QUESTIONS = records.Question
_GRANTS = records.KernelGrant
_RUNNING_TURN_IDS = sa.select(records.Turn.id).where(
    records.Turn.status == values.TurnStatus.RUNNING
)


class TurnQuestions(transactions.Aggregate):
    """Table of questions: the latest one of each running turn, and its answer."""

    async def load(self) -> tuple[records.Question, ...]:
        """Return the questions of all running turns."""
        return await self._select(_QUESTIONS.turn_id.in_(_RUNNING_TURN_IDS))

    async def load_left_behind(self) -> tuple[records.Question, ...]:
        """Return the questions that stayed though their turns have ended."""
        return await self._select(_QUESTIONS.turn_id.not_in(_RUNNING_TURN_IDS))

    async def delete_older(self, ended_before: datetime.datetime) -> None:
        """Delete the questions of turns that ended before a time."""
        old_turn_ids = sa.select(records.Turn.id).where(records.Turn.ended < ended_before)
        await self._transactions.change(
            sa.delete(_QUESTIONS).where(_QUESTIONS.turn_id.in_(old_turn_ids))
        )

    async def _select(self, condition: sa.ColumnElement[bool]) -> tuple[records.Question, ...]:
        query = sa.select(_QUESTIONS).where(condition).order_by(_QUESTIONS.id)
        return await self._transactions.all(query)

    async def put(self, turn_id: int, name: str, question: Mapping[str, Any]) -> None:
        """Record the question of a turn, replacing an earlier one.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        async with self._transactions.transaction(is_writing=True):
            await self.delete([turn_id])
            await self._transactions.change(
                sa.insert(_QUESTIONS).values(turn_id=turn_id, name=name, question=dict(question))
            )

    async def delete(self, turn_ids: Collection[int]) -> None:
        """Delete the questions of turns."""
        await self._transactions.change(
            sa.delete(_QUESTIONS).where(_QUESTIONS.turn_id.in_(turn_ids))
        )

    async def answer(self, name: str, answer: Mapping[str, Any]) -> bool:
        """Record the answer to a question; return False if it was answered already."""
        update_query = sa.update(_QUESTIONS).where(
            _QUESTIONS.name == name, _QUESTIONS.answer.is_(None)
        )
        return await self._transactions.change(update_query.values(answer=dict(answer))) == 1


class Grants(transactions.Aggregate):
    """Table of grants, which let code do something repeatedly while its kernel lives."""

    async def list_for_kernel(self, session_id: int, kernel_id: str) -> frozenset[records.Grant]:
        """Return the grants of a session with a kernel."""
        query = sa.select(_GRANTS).where(
            _GRANTS.session_id == session_id, _GRANTS.kernel_id == kernel_id
        )
        return frozenset(
            records.Grant(person=row.person, subject=row.subject, name=row.name, digest=row.digest)
            for row in await self._transactions.all(query)
        )

    async def add(self, session_id: int, kernel_id: str, grant: records.Grant) -> None:
        """Record a grant, and delete the grants of earlier kernels of the session.

        Raises:
            StoreError: the session was deleted, or the database cannot be used.
        """
        delete_former = sa.delete(_GRANTS).where(
            _GRANTS.session_id == session_id, _GRANTS.kernel_id != kernel_id
        )
        insert = sa.insert(_GRANTS).values(
            session_id=session_id, kernel_id=kernel_id, **dataclasses.asdict(grant)
        )
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.change(delete_former)
            await self._transactions.change(insert)
