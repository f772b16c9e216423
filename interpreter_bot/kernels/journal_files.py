"""Files of a journal: numbered records in segments, which survive the death of their writer.

A segment is a file of records one after the other, each behind its length and checksum: what a
writer that was killed left half written ends the segment, and nothing before it is lost. All of
this blocks; `execution_journals` calls it in threads.
"""

from __future__ import annotations

import array
import bisect
import dataclasses
import os
import pathlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Final

from interpreter_bot import settings

RECORD_BYTES: Final = 64 * settings.MIB
"""Longest record: a display with its preview, as encoded."""

_MAGIC: Final = b"journal1"
_HEADER: Final = struct.Struct("<8sQI")  # the magic, the first number, the length of what follows
_FRAME: Final = struct.Struct("<II")
_IS_END: Final = 1 << 31


@dataclasses.dataclass(slots=True)
class Segment:
    """Consecutive records in one file.

    Attributes:
        path: of the file.
        first: number of its first record.
        about: what the journal is about; each segment says it.
        size_bytes: of the file, as far as it holds whole records.
        has_end: its last record is the end of the journal.
    """

    path: pathlib.Path
    first: int
    about: bytes
    size_bytes: int
    has_end: bool = False
    _offsets: array.array[int] = dataclasses.field(default_factory=lambda: array.array("Q"))

    @property
    def next(self) -> int:
        """Number of the record after its last."""
        return self.first + len(self._offsets)

    def note(self, record_bytes: int, *, is_end: bool) -> None:
        """Count a record that was appended to the file."""
        self._offsets.append(self.size_bytes)
        self.size_bytes += _FRAME.size + record_bytes
        self.has_end = is_end

    def read(self, number: int, most_bytes: int) -> list[bytes]:
        """Read records from `number` on: at least one, then as many as fit.

        Raises:
            OSError: the file cannot be read, is gone, or holds something else by now.
        """
        at = number - self.first
        start = self._offsets[at]
        until = max(bisect.bisect_right(self._offsets, start + most_bytes) - 1, at + 1)
        end = self._offsets[until] if until < len(self._offsets) else self.size_bytes
        with self.path.open("rb") as file:
            file.seek(start)
            data = memoryview(file.read(end - start))
        found: list[bytes] = []
        for offset in self._offsets[at:until]:
            frame = data[offset - start :]
            size, checksum = _FRAME.unpack_from(frame) if len(frame) >= _FRAME.size else (0, 1)
            record = bytes(frame[_FRAME.size : _FRAME.size + (size & ~_IS_END)])
            if zlib.crc32(record) != checksum:
                raise OSError(f"{self.path} is damaged")
            found.append(record)
        return found


class Writer:
    """Open end of a segment."""

    def __init__(self, path: pathlib.Path, first: int, about: bytes) -> None:
        """Begin a segment; its file is created with the first records."""
        self._header = _HEADER.pack(_MAGIC, first, len(about)) + about
        self._descriptor = -1
        self.segment = Segment(path, first, about, len(self._header))

    def append(self, records: Sequence[bytes], *, has_end: bool) -> None:
        """Append records; with `has_end`, the last is the end of the journal, and it is closed.

        Raises:
            OSError: not all were written; the file can take no more, but keeps what it had.
        """
        if self._descriptor < 0:
            # In place of one that is there.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.segment.path, flags, 0o600)
            _write(self._descriptor, self._header)
        parts = []
        for number, record in enumerate(records, 1):
            mark = _IS_END if has_end and number == len(records) else 0
            parts += [_FRAME.pack(len(record) | mark, zlib.crc32(record)), record]
        _write(self._descriptor, b"".join(parts))
        if has_end:
            # What it says of what was written counts, too.
            self._close_file()
        for number, record in enumerate(records, 1):
            self.segment.note(len(record), is_end=has_end and number == len(records))

    def close(self) -> None:
        """Close the file, which is removed where it holds no record."""
        self._close_file()
        if self.segment.next == self.segment.first:
            self.segment.path.unlink(missing_ok=True)

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def recovered(path: pathlib.Path) -> Segment | None:
    """Read which records a file of a dead process holds; None if it holds none.

    Raises:
        OSError: it cannot be read.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[: len(_MAGIC)] != _MAGIC:
            return None
        _, first, length = _HEADER.unpack(header)
        about = file.read(min(length, size_bytes))
        segment = Segment(path, first, about, _HEADER.size + length)
        while (record := _next(file, size_bytes)) is not None:
            segment.note(*record[:1], is_end=record[1])
    return segment if segment.next > first else None


def _next(file: BinaryIO, size_bytes: int) -> tuple[int, bool] | None:
    """Return the length of the next whole record, and whether it is the end; None if none is."""
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return None
    marked, checksum = _FRAME.unpack(frame)
    length = marked & ~_IS_END
    # A file system that lost its last writes may have zeros in their place.
    if not 0 < length <= min(RECORD_BYTES, size_bytes - file.tell()):
        return None
    if zlib.crc32(file.read(length)) != checksum:
        return None
    return length, bool(marked & _IS_END)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def found(
    directory: pathlib.Path, names: Iterable[str]
) -> list[tuple[pathlib.Path, Segment | None]]:
    """Read the files of a directory, which is created if missing. Blocks.

    Args:
        directory: of the journals.
        names: patterns of the files' names.

    Returns:
        Each file, with None where it cannot be read.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = sorted(path for name in names for path in directory.glob(name))
    return [(path, recovered(path)) for path in paths]
