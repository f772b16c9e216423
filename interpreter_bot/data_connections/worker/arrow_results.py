"""Results as an Arrow stream in frames, cut at the limits.

Rows of databases without Arrow are collected first, as the last row may change the type of a
column.
"""

from __future__ import annotations

import decimal
import io
import itertools
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.wording import data_words

_FRAME_BYTES: Final = 1024 * 1024
_BATCH_ROWS: Final = 10_000


class QueryStoppedError(Exception):
    """The query took too long, or was cancelled."""


class _FrameWriter(io.RawIOBase):
    """Writes frames of data."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever is a buffer.
        view = memoryview(data).cast("B")
        for start in range(0, len(view), worker_messages.MAX_BYTES):
            worker_messages.send(
                self._end, worker_messages.DATA, view[start : start + worker_messages.MAX_BYTES]
            )
        return len(view)


class Results:
    """Sends the result of one query.

    Attributes:
        rows: the number of rows that were sent.
        cut: the limit that cut the result; empty if it is whole.
    """

    def __init__(self, end: socket.socket, limits: worker_messages.Limits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._out = io.BufferedWriter(_FrameWriter(end), _FRAME_BYTES)
        self._bytes = 0
        self.rows = 0
        self.cut = ""

    @property
    def seconds_left(self) -> float:
        """The rest of the time limit."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Check the time limit.

        Raises:
            QueryStoppedError: it is exceeded.
        """
        if self.seconds_left < 0:
            raise QueryStoppedError(data_words.query_too_slow(self._limits.seconds))

    def send(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Send batches, as many as the limits allow.

        Raises:
            QueryStoppedError: the time is over.
        """
        names = _distinct(schema.names)
        fields = [_common_field(field, name) for field, name in zip(schema, names, strict=True)]
        sent_schema = pa.schema(fields)
        with pa.ipc.new_stream(self._out, sent_schema) as stream:
            for batch in batches:
                self.check()
                columns = [
                    _column(batch.column(index), field) for index, field in enumerate(fields)
                ]
                part = self._fitting_rows(pa.RecordBatch.from_arrays(columns, schema=sent_schema))
                stream.write_batch(part)
                if self.cut:
                    break
        self._out.flush()

    def _fitting_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the part of a batch that is within the limits."""
        rows_left, size = self._limits.rows - self.rows, batch.nbytes
        if self._bytes + size > self._limits.bytes:
            share = (self._limits.bytes - self._bytes) / size
            rows_left = min(rows_left, int(batch.num_rows * share))
            self.cut = "bytes"
        if rows_left < batch.num_rows:
            self.cut = self.cut or "rows"
            batch = batch.slice(0, max(rows_left, 0))
        self._bytes += size
        self.rows += batch.num_rows
        return batch

    def send_rows(self, names: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
        """Send rows of Python objects.

        Raises:
            QueryStoppedError: the time is over.
        """
        gathered: list[list[pa.Array]] = []
        count = size = 0
        while piece := list(itertools.islice(rows, _BATCH_ROWS)):
            self.check()
            gathered.append([_array(list(values)) for values in zip(*piece, strict=True)])
            count += len(piece)
            size += sum(array.nbytes for array in gathered[-1])
            if count > self._limits.rows or size > self._limits.bytes:
                break  # `send` cuts what is too much.
        kinds = [
            _common_type([part[index].type for part in gathered]) for index in range(len(names))
        ]
        schema = pa.schema(list(map(pa.field, names, kinds)))
        arrays = (
            [_cast(array, kind) for array, kind in zip(part, kinds, strict=True)]
            for part in gathered
        )
        self.send(schema, (pa.RecordBatch.from_arrays(part, schema=schema) for part in arrays))


def _common_field(field: pa.Field, name: str) -> pa.Field:
    """Return a field with a type that all readers know; numbers of any length become floats."""
    kind = field.type
    if isinstance(kind, pa.OpaqueType) and kind.type_name == "numeric":
        kind = pa.float64()
    elif isinstance(kind, pa.BaseExtensionType):
        kind = pa.string() if isinstance(kind, pa.UuidType) else kind.storage_type
    elif pa.types.is_decimal(kind):
        kind = pa.float64()
    elif pa.types.is_null(kind):
        kind = pa.string()
    return pa.field(name, kind)


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    if isinstance(array.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()])
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return pc.cast(array, field.type)


def _array(values: list[Any]) -> pa.Array:
    """Return a column as an array; values without a common type become text."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, (decimal.Decimal, uuid.UUID)):
        change = float if isinstance(first, decimal.Decimal) else str
        values = [None if value is None else change(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    try:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    except (TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return a type for all parts of a column."""
    distinct = {kind for kind in kinds if not pa.types.is_null(kind)}
    if len(distinct) == 1:
        return distinct.pop()
    numbers = all(pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in distinct)
    return pa.float64() if distinct and numbers else pa.string()


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(array, kind)
    except pa.ArrowException:
        return pa.array(
            [None if value is None else _text(value) for value in array.to_pylist()], kind
        )


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns that are all different."""
    names_seen: dict[str, None] = {}
    for name in names:
        number, candidate = 1, name
        while candidate in names_seen:
            number += 1
            candidate = f"{name}_{number}"
        names_seen[candidate] = None
    return list(names_seen)
