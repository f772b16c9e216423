"""Parts of turns, in order; enough to show a turn again and to rebuild the model's transcript.

Outputs are stored as JSON documents; what is large goes to blobs.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import errors, values
from interpreter_bot.store import blobs, columns, records, schema, transactions
from interpreter_bot.wording import host_words, storage_words

_MAX_CHARACTERS: Final = 4_000_000
_KINDS: Final[Mapping[str, type[Any]]] = {
    "text": values.Text,
    "error": values.Error,
    "table": values.Table,
    "latex": values.Latex,
    "json": values.Json,
    "result": values.Result,
    "clear": values.Clear,
    "notice": values.Notice,
    "kept": values.StoredDisplay,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}

_log = logging.getLogger(__name__)

_T = schema.PARTS


async def encode(output: values.Output, files: blobs.Blobs) -> tuple[dict[str, Any], str | None]:
    """Serialize an output as a document, and return the hash of its blob, if any.

    Raises:
        StoreError: the blob could not be stored.
    """
    stored: values.StoredOutput
    if isinstance(output, values.Image):
        stored = await _stored_display(output, output.data, mime=output.mime, files=files)
    elif isinstance(output, values.Html):
        stored = await _stored_display(output, output.html, mime="text/html", files=files)
    else:
        stored = output
    made = _document(stored)
    if len(columns.document(made)) > _MAX_CHARACTERS:
        made = _document(values.Notice(host_words.OUTPUT_TOO_LARGE))
    return made, stored.sha256 if isinstance(stored, values.StoredDisplay) else None


def decode(document: Mapping[str, Any]) -> values.StoredOutput:
    """Rebuild an output from its document."""
    fields = {name: _frozen(value) for name, value in document.items() if name != "type"}
    made: values.StoredOutput = _KINDS[document["type"]](**fields)
    return made


async def _stored_display(
    output: values.Display, data: bytes, *, mime: str, files: blobs.Blobs
) -> values.StoredDisplay:
    return values.StoredDisplay(
        plain=output.plain,
        display_id=output.display_id,
        is_update=output.is_update,
        mime=mime,
        sha256=await files.keep(data),
        size_bytes=len(data),
    )


def _document(output: values.StoredOutput) -> dict[str, Any]:
    fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    # Previews are not stored: the original is, and JSON holds no bytes.
    fields = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
    return {"type": _NAMES[type(output)], **fields}


def _frozen(value: object) -> object:
    """Convert JSON lists to the tuples of frozen values."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


class TurnParts:
    """Table of parts."""

    def __init__(self, begin: transactions.Transactions, files: blobs.Blobs) -> None:
        self._begin = begin
        self._files = files

    async def add(
        self, turn_id: int, *parts: records.NewPart, heard: Mapping[int, int] | None = None
    ) -> None:
        """Add parts at the end of a turn: all of them, or none.

        Args:
            turn_id: of the turn.
            parts: to be added.
            heard: by execution, the number of its last output that is among them, or was before.

        Raises:
            StoreError: the turn was deleted, or the database cannot be used.
        """
        await self.insert(await self.rows(turn_id, parts), heard=heard)

    async def rows(
        self, turn_id: int, parts: Iterable[records.NewPart]
    ) -> Sequence[Mapping[str, Any]]:
        """Prepare parts for `insert`; outside of any transaction, as large outputs are stored."""
        return [await self._row(turn_id, part) for part in parts]

    async def insert(
        self, rows: Sequence[Mapping[str, Any]], *, heard: Mapping[int, int] | None = None
    ) -> None:
        """Add the parts that `rows` prepared; see `add`."""
        if not rows:
            return
        async with self._begin.writing() as transaction:
            # Ids grow in this order, which is the order of the parts: a turn has one writer.
            await transaction.execute(sa.insert(_T), rows)
            executions = schema.EXECUTIONS
            for execution_id, number in (heard or {}).items():
                noting = sa.update(executions).where(executions.c.id == execution_id)
                await transaction.execute(noting.values(heard=number))

    async def remove_text(self, turn_id: int, *, since_step: int) -> None:
        """Remove what the model said in a step and later."""
        said = (_T.c.kind == records.PartKind.TEXT.value, _T.c.step >= since_step)
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_T).where(_T.c.turn_id == turn_id, *said))

    async def of_turn(self, turn_id: int) -> tuple[records.Part, ...]:
        """Return the parts of a turn, in order."""
        return await self.of_turns([turn_id])

    async def of_turns(
        self,
        turn_ids: Sequence[int],
        *,
        only: records.PartKind | None = None,
        without: records.PartKind | None = None,
    ) -> tuple[records.Part, ...]:
        """Return the parts of some turns, turn by turn, in order; of one kind, or without one."""
        query = sa.select(_T).where(_T.c.turn_id.in_(turn_ids)).order_by(_T.c.turn_id, _T.c.id)
        if only is not None:
            query = query.where(_T.c.kind == only.value)
        if without is not None:
            query = query.where(_T.c.kind != without.value)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))

    async def refers(self, session_id: int, sha256: str) -> bool:
        """Return whether a part of a session refers to a blob."""
        turns = schema.TURNS
        query = sa.select(_T.c.id).join_from(_T, turns).limit(1)
        query = query.where(_T.c.sha256 == sha256, turns.c.session_id == session_id)
        async with self._begin.reading() as transaction:
            return (await transaction.execute(query)).first() is not None

    async def blob_bytes(self) -> dict[int, int]:
        """Return the bytes of the blobs that each session's parts refer to, by its id."""
        sizes = await self._files.sizes()
        turns = schema.TURNS
        query = sa.select(turns.c.session_id, _T.c.sha256).join_from(_T, turns)
        query = query.where(_T.c.sha256.is_not(None)).distinct()
        found: dict[int, int] = {}
        async with self._begin.reading() as transaction:
            for session_id, sha256 in await transaction.execute(query):
                found[session_id] = found.get(session_id, 0) + sizes.get(sha256, 0)
        return found

    async def release_files(self, session_id: int) -> None:
        """Refer to no blob of a session any more; what it showed says that it is gone."""
        turns = schema.TURNS
        whose = sa.select(turns.c.id).where(turns.c.session_id == session_id)
        update = sa.update(_T).where(_T.c.turn_id.in_(whose)).values(sha256=None)
        async with self._begin.writing() as transaction:
            await transaction.execute(update)

    async def discard_unused_files(self) -> int:
        """Delete blobs that no part refers to any more; returns how many."""
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
            return await encode(output, self._files)
        except errors.StoreError:
            # The words and code beside it must not be lost with a picture.
            _log.exception("an output could not be kept")
            return await encode(values.Notice(storage_words.OUTPUT_NOT_KEPT), self._files)


def _record(row: sa.Row[Any]) -> records.Part:
    fields = row._asdict()
    del fields["sha256"]
    fields["kind"] = records.PartKind(fields["kind"])
    fields["output"] = None if row.output is None else decode(row.output)
    fields["detail"] = row.detail or {}
    return records.Part(**fields)
