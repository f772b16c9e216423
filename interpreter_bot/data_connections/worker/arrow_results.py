"""Results as an Arrow stream in frames, cut at the limits.

If a database does not return Arrow, all rows are collected before they are sent, because the last
row may change the type of a column.
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
    """Raw stream that sends frames of data."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._endpoint = endpoint

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer.
        view = memoryview(data).cast("B")
        for start in range(0, len(view), worker_messages.MAX_FRAME_BYTES):
            worker_messages.send_frame(
                self._endpoint,
                worker_messages.DATA,
                view[start : start + worker_messages.MAX_FRAME_BYTES],
            )
        return len(view)


class ResultStream:
    """Sends the result of one query.

    Attributes:
        rows: number of sent rows.
        exceeded_limit: name of the limit at which the result was cut; empty if it is complete.
    """

    def __init__(self, endpoint: socket.socket, limits: worker_messages.Limits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._output = io.BufferedWriter(_FrameWriter(endpoint), _FRAME_BYTES)
        self._sent_bytes = 0
        self.rows = 0
        self.exceeded_limit = ""

    @property
    def seconds_left(self) -> float:
        """Time until the time limit; negative after it."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Check the time limit.

        Raises:
            QueryStoppedError: it is exceeded.
        """
        if self.seconds_left < 0:
            raise QueryStoppedError(data_words.query_too_slow(self._limits.seconds))

    def send(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Send batches, up to the limits.

        Raises:
            QueryStoppedError: the time limit is exceeded.
        """
        names = _make_distinct(schema.names)
        fields = [_common_field(field, name) for field, name in zip(schema, names, strict=True)]
        sent_schema = pa.schema(fields)
        with pa.ipc.new_stream(self._output, sent_schema) as stream:
            for batch in batches:
                self.check()
                columns = [
                    _convert_column(batch.column(index), field)
                    for index, field in enumerate(fields)
                ]
                fitting_batch = self._cut_batch(
                    pa.RecordBatch.from_arrays(columns, schema=sent_schema)
                )
                stream.write_batch(fitting_batch)
                if self.exceeded_limit:
                    break
        self._output.flush()

    def _cut_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count a batch, and return the part of it that is within the limits."""
        rows_left, size = self._limits.rows - self.rows, batch.nbytes
        if self._sent_bytes + size > self._limits.bytes:
            fitting_ratio = (self._limits.bytes - self._sent_bytes) / size
            rows_left = min(rows_left, int(batch.num_rows * fitting_ratio))
            self.exceeded_limit = "bytes"
        if rows_left < batch.num_rows:
            self.exceeded_limit = self.exceeded_limit or "rows"
            batch = batch.slice(0, max(rows_left, 0))
        self._sent_bytes += size
        self.rows += batch.num_rows
        return batch

    def send_rows(self, names: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
        """Send rows of Python objects.

        Raises:
            QueryStoppedError: the time limit is exceeded.
        """
        parts: list[list[pa.Array]] = []
        count = size = 0
        while piece := list(itertools.islice(rows, _BATCH_ROWS)):
            self.check()
            parts.append([_to_array(list(values)) for values in zip(*piece, strict=True)])
            count += len(piece)
            size += sum(array.nbytes for array in parts[-1])
            if count > self._limits.rows or size > self._limits.bytes:
                break  # `send` cuts the excess.
        column_types = [
            _common_type([part[index].type for part in parts]) for index in range(len(names))
        ]
        schema = pa.schema(list(map(pa.field, names, column_types)))
        arrays = (
            [_cast(array, kind) for array, kind in zip(part, column_types, strict=True)]
            for part in parts
        )
        self.send(schema, (pa.RecordBatch.from_arrays(part, schema=schema) for part in arrays))


def _common_field(field: pa.Field, name: str) -> pa.Field:
    """Return a field with a type that all readers know; exact numbers become floats."""
    data_type = field.type
    if isinstance(data_type, pa.OpaqueType) and data_type.type_name == "numeric":
        data_type = pa.float64()
    elif isinstance(data_type, pa.BaseExtensionType):
        data_type = pa.string() if isinstance(data_type, pa.UuidType) else data_type.storage_type
    elif pa.types.is_decimal(data_type):
        data_type = pa.float64()
    elif pa.types.is_null(data_type):
        data_type = pa.string()
    return pa.field(name, data_type)


def _convert_column(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    if isinstance(array.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()])
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return pc.cast(array, field.type)


def _to_array(values: list[Any]) -> pa.Array:
    """Return a column as an array; values without a common type become text."""
    first_value = next((value for value in values if value is not None), None)
    if isinstance(first_value, (decimal.Decimal, uuid.UUID)):
        convert = float if isinstance(first_value, decimal.Decimal) else str
        values = [None if value is None else convert(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    try:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    except (TypeError, ValueError, OverflowError):
        return pa.array(
            [None if value is None else _to_text(value) for value in values], pa.string()
        )


def _to_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return a type for all parts of a column."""
    known_types = {data_type for data_type in types if not pa.types.is_null(data_type)}
    if len(known_types) == 1:
        return known_types.pop()
    are_numbers = all(
        pa.types.is_floating(data_type) or pa.types.is_integer(data_type)
        for data_type in known_types
    )
    return pa.float64() if known_types and are_numbers else pa.string()


def _cast(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        return pc.cast(array, data_type)
    except pa.ArrowException:
        return pa.array(
            [None if value is None else _to_text(value) for value in array.to_pylist()], data_type
        )


def _make_distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns, with numbers added so that no two are equal."""
    distinct_names: dict[str, None] = {}
    for name in names:
        number, candidate = 1, name
        while candidate in distinct_names:
            number += 1
            candidate = f"{name}_{number}"
        distinct_names[candidate] = None
    return list(distinct_names)
