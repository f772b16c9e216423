"""Executions of a turn and the files they made, whose bytes stay in the workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_ARTIFACTS = records.Artifact

_EXECUTIONS = records.Execution


class Artifacts(transactions.Aggregate):
    """Table of artifacts."""

    async def add(self, turn_id: int, *artifacts: values.Artifact) -> None:
        """Record a turn's artifacts: all of them, or none. The media type is derived from the name.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        if not artifacts:
            return
        rows = [
            {
                "turn_id": turn_id,
                "name": artifact.name,
                "size_bytes": artifact.size_bytes,
                "sha256": artifact.sha256,
                "created": columns.now(),
            }
            for artifact in artifacts
        ]
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.add(sa.insert(_ARTIFACTS), rows)

    async def list_for_turns(self, turn_ids: Sequence[int]) -> tuple[records.Artifact, ...]:
        """Return the artifacts of some turns, turn by turn, in the order of their creation."""
        query = (
            sa.select(_ARTIFACTS)
            .where(_ARTIFACTS.turn_id.in_(turn_ids))
            .order_by(_ARTIFACTS.turn_id, _ARTIFACTS.id)
        )
        return await self._transactions.all(query)


class Executions(transactions.Aggregate):
    """Table of executions."""

    async def start(
        self,
        turn_id: int,
        code: str,
        *,
        hosted_id: str = "",
        progress: Mapping[str, Any] | None = None,
    ) -> int:
        """Record that code is about to run, and return the id of its execution.

        Args:
            hosted_id: its id at the host.
            progress: of the turn; None keeps the present one.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        insert = sa.insert(_EXECUTIONS).values(
            turn_id=turn_id,
            code=code,
            hosted_id=hosted_id,
            seconds=0.0,
            reason="",
            kernel_lost=False,
            started=columns.now(),
        )
        async with self._transactions.transaction(is_writing=True):
            if progress is not None:
                update_query = sa.update(records.Turn).where(records.Turn.id == turn_id)
                await self._transactions.change(update_query.values(progress=dict(progress)))
            return await self._transactions.one(insert.returning(_EXECUTIONS.id))

    async def finish(self, execution_id: int, finished: values.Finished) -> None:
        """Record how an execution ended. The first end counts."""
        end = (
            sa.update(_EXECUTIONS)
            .where(_EXECUTIONS.id == execution_id, _EXECUTIONS.ending.is_(None))
            .values(
                ending=finished.ending,
                seconds=finished.seconds,
                reason=finished.reason,
                kernel_lost=finished.kernel_lost,
            )
        )
        await self._transactions.change(end)

    async def move(self, execution_id: int, turn_id: int) -> None:
        """Move an execution to another turn, with its code and outputs."""
        for column, table in (
            (_EXECUTIONS.id, _EXECUTIONS),
            (records.Part.execution_id, records.Part),
        ):
            update_query = sa.update(table).where(column == execution_id)
            await self._transactions.change(update_query.values(turn_id=turn_id))

    async def list_for_turn(self, turn_id: int) -> tuple[records.Execution, ...]:
        """Return the executions of a turn, in order."""
        return await self.list_for_turns([turn_id])

    async def list_for_turns(self, turn_ids: Sequence[int]) -> tuple[records.Execution, ...]:
        """Return the executions of some turns, in order."""
        query = (
            sa.select(_EXECUTIONS).where(_EXECUTIONS.turn_id.in_(turn_ids)).order_by(_EXECUTIONS.id)
        )
        return await self._transactions.all(query)

    async def list_for_session(
        self, session_id: int, *, limit: int
    ) -> tuple[records.Execution, ...]:
        """Return the latest executions of a session, the latest first."""
        query = (
            sa.select(_EXECUTIONS).join(records.Turn).where(records.Turn.session_id == session_id)
        )
        query = query.order_by(_EXECUTIONS.id.desc()).limit(limit)
        return await self._transactions.all(query)
