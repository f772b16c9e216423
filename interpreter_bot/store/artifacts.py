"""Artifacts: which files the code of a turn made. Their bytes stay in the workspace."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_T = schema.ARTIFACTS
_UNKNOWN: Final = "application/octet-stream"


class Artifacts:
    """All artifacts."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def add(self, turn_id: int, *artifacts: values.Artifact) -> None:
        """Record what a turn made: all of them, or none. The media type is told by the name.

        Raises:
            StoreError: there is no such turn any more, or no database.
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
            await transaction.execute(sa.insert(_T), rows)

    async def of_turn(self, turn_id: int) -> tuple[records.Artifact, ...]:
        """The artifacts of a turn, in the order in which they were given back."""
        return await self.of_turns([turn_id])

    async def of_turns(self, turn_ids: Sequence[int]) -> tuple[records.Artifact, ...]:
        """The artifacts of some turns, turn by turn."""
        query = sa.select(_T).where(_T.c.turn_id.in_(turn_ids)).order_by(_T.c.turn_id, _T.c.id)
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(records.Artifact(**row._asdict()) for row in rows)
