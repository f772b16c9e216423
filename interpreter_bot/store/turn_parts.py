"""Parts of turns, in order, from which a turn is shown again and the transcript is rebuilt.

Outputs are stored as JSON documents, pictures and pages as blobs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import errors, values
from interpreter_bot.store import blobs, columns, records, transactions
from interpreter_bot.wording import host_words, storage_words

_MAX_CHARACTERS: Final = 4_000_000

_log = logging.getLogger(__name__)

_PARTS = records.Part


async def store_output(output: values.Output, blob_files: blobs.Blobs) -> values.StoredOutput:
    """Return the stored form of an output; a picture or a page becomes a blob.

    A notice replaces an output that is too large.

    Raises:
        StoreError: the blob could not be stored.
    """
    if isinstance(output, values.Image):
        return await _store_display(output, output.data, mime=output.mime, blob_files=blob_files)
    if isinstance(output, values.Html):
        return await _store_display(output, output.html, mime="text/html", blob_files=blob_files)
    if len(columns.serialize_output(output)) > _MAX_CHARACTERS:
        return values.Notice(host_words.OUTPUT_TOO_LARGE)
    return output


async def _store_display(
    output: values.Display, data: bytes, *, mime: str, blob_files: blobs.Blobs
) -> values.StoredDisplay:
    return values.StoredDisplay(
        plain=output.plain,
        display_id=output.display_id,
        is_update=output.is_update,
        mime=mime,
        sha256=await blob_files.save(data),
        size_bytes=len(data),
    )


class TurnParts(transactions.Aggregate):
    """Table of parts."""

    def __init__(self, runner: transactions.Transactions, blob_files: blobs.Blobs) -> None:
        super().__init__(runner)
        self._blobs = blob_files

    async def add(self, turn_id: int, *parts: records.NewPart) -> None:
        """Add parts at the end of a turn: all of them, or none.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        await self.insert(await self.prepare_rows(turn_id, parts))

    async def prepare_rows(
        self, turn_id: int, parts: Iterable[records.NewPart]
    ) -> Sequence[Mapping[str, Any]]:
        """Prepare parts for `insert`. Call it outside of transactions: it stores large outputs."""
        return [await self._row(turn_id, part) for part in parts]

    async def insert(
        self, rows: Sequence[Mapping[str, Any]], *, output_numbers: Mapping[int, int] | None = None
    ) -> None:
        """Add parts that `prepare_rows` returned; see `add`.

        Args:
            output_numbers: by execution, the number of its last output so far.
        """
        if not rows:
            return
        async with self._transactions.transaction(is_writing=True):
            # A turn has one writer, so that the ids grow in the order of its parts.
            await self._transactions.add(sa.insert(_PARTS), rows)
            executions = records.Execution
            for execution_id, number in (output_numbers or {}).items():
                update_query = sa.update(executions).where(executions.id == execution_id)
                await self._transactions.change(update_query.values(last_output_number=number))

    async def remove_text(self, turn_id: int, *, since_step: int) -> None:
        """Remove the model's text of a step and of later ones."""
        is_text = (_PARTS.kind == records.PartKind.TEXT, _PARTS.step >= since_step)
        await self._transactions.change(
            sa.delete(_PARTS).where(_PARTS.turn_id == turn_id, *is_text)
        )

    async def list_for_turn(self, turn_id: int) -> tuple[records.Part, ...]:
        """Return the parts of a turn, in order."""
        return await self.list_for_turns([turn_id])

    async def list_for_turns(
        self,
        turn_ids: Sequence[int],
        *,
        kind: records.PartKind | None = None,
        excluded_kind: records.PartKind | None = None,
    ) -> tuple[records.Part, ...]:
        """Return the parts of some turns, turn by turn, in order: of a kind, or all but a kind."""
        query = (
            sa.select(_PARTS)
            .where(_PARTS.turn_id.in_(turn_ids))
            .order_by(_PARTS.turn_id, _PARTS.id)
        )
        if kind is not None:
            query = query.where(_PARTS.kind == kind)
        if excluded_kind is not None:
            query = query.where(_PARTS.kind != excluded_kind)
        return await self._transactions.all(query)

    async def has_blob(self, session_id: int, sha256: str) -> bool:
        """Return whether a part of a session refers to a blob."""
        turns = records.Turn
        query = sa.select(_PARTS.id).join_from(_PARTS, turns).limit(1)
        query = query.where(_PARTS.sha256 == sha256, turns.session_id == session_id)
        return await self._transactions.first(query) is not None

    async def sum_blob_bytes(self) -> dict[int, int]:
        """Return the bytes of the blobs that each session's parts refer to, by its id."""
        sizes = await self._blobs.sizes()
        turns = records.Turn
        query = sa.select(turns.session_id, _PARTS.sha256).join_from(_PARTS, turns)
        query = query.where(_PARTS.sha256.is_not(None)).distinct()
        sums: dict[int, int] = {}
        for session_id, sha256 in await self._transactions.rows(query):
            sums[session_id] = sums.get(session_id, 0) + sizes.get(sha256, 0)
        return sums

    async def release_blobs(self, session_id: int) -> None:
        """Drop a session's references to blobs; its displays then show that they were deleted."""
        turns = records.Turn
        turns_of_session = sa.select(turns.id).where(turns.session_id == session_id)
        update = sa.update(_PARTS).where(_PARTS.turn_id.in_(turns_of_session)).values(sha256=None)
        await self._transactions.change(update)

    async def discard_unused_blobs(self) -> int:
        """Delete blobs that no part refers to; return their number."""
        unused_digests = set(await self._blobs.list_old())
        query = sa.select(_PARTS.sha256).where(_PARTS.sha256.is_not(None)).distinct()
        unused_digests.difference_update(await self._transactions.all(query))
        await self._blobs.discard(unused_digests)
        return len(unused_digests)

    async def _row(self, turn_id: int, part: records.NewPart) -> dict[str, Any]:
        output = None if part.output is None else await self._store(part.output)
        return {
            "turn_id": turn_id,
            "step": part.step,
            "kind": part.kind,
            "text": part.text,
            "output": output,
            "sha256": output.sha256 if isinstance(output, values.StoredDisplay) else None,
            "detail": dict(part.detail or {}),
            "execution_id": part.execution_id,
            "created": columns.now(),
        }

    async def _store(self, output: values.Output) -> values.StoredOutput:
        try:
            return await store_output(output, self._blobs)
        except errors.StoreError:
            # A picture that cannot be stored must not cost the text and code of the turn.
            _log.exception("an output could not be kept")
            return values.Notice(storage_words.OUTPUT_NOT_KEPT)
