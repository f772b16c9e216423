"""Executions of a turn and the artifacts they made, whose bytes stay in the workspace."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_ARTIFACTS = schema.ARTIFACTS
_UNKNOWN: Final = "application/octet-stream"

_T = schema.EXECUTIONS


class Artifacts:
    """Table of artifacts."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

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
                "media_type": mimetypes.guess_type(artifact.name)[0] or _UNKNOWN,
                "created": columns.now(),
            }
            for artifact in artifacts
        ]
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.insert(_ARTIFACTS), rows)

    async def of_turns(self, turn_ids: Sequence[int]) -> tuple[records.Artifact, ...]:
        """Return the artifacts of some turns, turn by turn, in the order they were given."""
        query = (
            sa.select(_ARTIFACTS)
            .where(_ARTIFACTS.c.turn_id.in_(turn_ids))
            .order_by(_ARTIFACTS.c.turn_id, _ARTIFACTS.c.id)
        )
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(records.Artifact(**row._asdict()) for row in rows)


class Executions:
    """Table of executions."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

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
            turn_id: of its turn.
            code: what will run.
            hosted_id: by which its host will know it.
            progress: of the turn; None leaves it as it is.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        insert = sa.insert(_T).values(
            turn_id=turn_id,
            code=code,
            hosted_id=hosted_id,
            seconds=0.0,
            reason="",
            kernel_lost=False,
            started=columns.now(),
        )
        async with self._begin.writing() as transaction:
            if progress is not None:
                noting = sa.update(schema.TURNS).where(schema.TURNS.c.id == turn_id)
                await transaction.execute(noting.values(progress=dict(progress)))
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
        """Return the executions of a turn, in order."""
        return await self.of_turns([turn_id])

    async def of_turns(self, turn_ids: Sequence[int]) -> tuple[records.Execution, ...]:
        """Return the executions of some turns, in order."""
        query = sa.select(_T).where(_T.c.turn_id.in_(turn_ids)).order_by(_T.c.id)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))

    async def of_session(self, session_id: int, *, limit: int) -> tuple[records.Execution, ...]:
        """Return the latest executions of a session, the latest first."""
        query = sa.select(_T).join(schema.TURNS).where(schema.TURNS.c.session_id == session_id)
        query = query.order_by(_T.c.id.desc()).limit(limit)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))


def _record(row: sa.Row[Any]) -> records.Execution:
    fields = row._asdict()
    fields["ending"] = None if row.ending is None else values.Ending(row.ending)
    return records.Execution(**fields)
