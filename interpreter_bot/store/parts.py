"""Parts: what a turn consists of, in order; enough to show it again and to tell it to a model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import errors, values
from interpreter_bot.store import columns, encoding, keeping, records, tables, transactions

_log = logging.getLogger(__name__)

_T = tables.PARTS
_NOT_KEPT: Final = "What was shown here could not be kept."


class Parts:
    """All parts of all turns."""

    def __init__(self, begin: transactions.Transactions, files: keeping.KeptFiles) -> None:
        self._begin = begin
        self._files = files

    async def add(self, turn_id: int, *parts: records.NewPart) -> None:
        """Add parts at the end of a turn: all of them, or none.

        Raises:
            StoreError: there is no such turn any more, or no database.
        """
        rows = [await self._row(turn_id, part) for part in parts]
        if not rows:
            return
        async with self._begin.writing() as transaction:
            # Ids grow in this order, which is the order of the parts: a turn has one writer.
            await transaction.execute(sa.insert(_T), rows)

    async def of_turn(self, turn_id: int) -> tuple[records.Part, ...]:
        """The parts of a turn, in order."""
        return await self.of_turns([turn_id])

    async def of_turns(
        self,
        turn_ids: Sequence[int],
        *,
        only: records.PartKind | None = None,
        without: records.PartKind | None = None,
    ) -> tuple[records.Part, ...]:
        """The parts of some turns, turn by turn, in order; of one kind, or all but one kind."""
        query = sa.select(_T).where(_T.c.turn_id.in_(turn_ids)).order_by(_T.c.turn_id, _T.c.id)
        if only is not None:
            query = query.where(_T.c.kind == only.value)
        if without is not None:
            query = query.where(_T.c.kind != without.value)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))

    async def discard_unused_files(self) -> int:
        """Remove kept files that no part refers to any more, and say how many."""
        unused = set(await self._files.listed())
        async with self._begin.reading() as transaction:
            query = sa.select(_T.c.sha256).where(_T.c.sha256.is_not(None)).distinct()
            unused.difference_update((await transaction.execute(query)).scalars())
        await self._files.discard(unused)
        return len(unused)

    async def _row(self, turn_id: int, part: records.NewPart) -> dict[str, Any]:
        output, sha256 = None, None
        if part.output is not None:
            output, sha256 = await self._encoded(part.output)
        return {
            "turn_id": turn_id,
            "step": part.step,
            "kind": part.kind.value,
            "text": part.text,
            "output": output,
            "sha256": sha256,
            "detail": None if part.detail is None else dict(part.detail),
            "execution_id": part.execution_id,
            "created": columns.now(),
        }

    async def _encoded(self, output: values.Output) -> tuple[dict[str, Any], str | None]:
        try:
            return await encoding.encode(output, self._files)
        except errors.StoreError:
            # What was said and run beside it is not to be lost with a picture.
            _log.exception("an output could not be kept")
            return await encoding.encode(values.Notice(_NOT_KEPT), self._files)


def _record(row: sa.Row[Any]) -> records.Part:
    fields = row._asdict()
    del fields["sha256"]
    fields["kind"] = records.PartKind(fields["kind"])
    fields["output"] = None if row.output is None else encoding.decode(row.output)
    fields["detail"] = row.detail or {}
    return records.Part(**fields)
