"""The files of a snapshot: pickles of variables one after the other, large buffers apart.

Below one directory lie `blobs/<sha256>`, buffers that generations share, and for each generation
`<number>/variables`, `<number>/details.json` and `<number>/manifest.json`, which is written last. A
file of variables is a sequence of records::

    header: kind, bytes of name, bytes of payload, buffers, number of the pickler's next object
    name, payload
    for each buffer: bytes, offset in this file or 0, digest of the blob or zeros

Buffers in the file are aligned. Reading maps everything privately: arrays are there at once, pages
come when they are touched, and writing to them copies the page.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

VARIABLE, SOURCE, MODULE = b"VAR.", b"SRC.", b"MOD."
APART_BYTES = 64 * 1024
MANIFEST = "manifest.json"
_BLOB_BYTES = 4 * 1024 * 1024
# The manifest names each of them.
_MOST_BLOBS = 512
_MAGIC = b"IBVARS1\n"
_HEADER = struct.Struct("<4sIQQQ")
_BUFFER = struct.Struct("<QQ32s")
_ALIGNMENT = 64
_MOST_PARTS = 1024


class TooLargeError(Exception):
    """What is to be written is more than a snapshot may hold."""

    def __str__(self) -> str:
        return "it is larger than what may be kept"


class Record(NamedTuple):
    """One record as read.

    Attributes:
        kind: one of the three above.
        name: of the variable, or of the function whose source this is.
        payload: a pickle; a source or a module's name in UTF-8.
        buffers: out of band, writable unless the file was opened to check it.
        objects: how many objects the pickler had numbered after it.
    """

    kind: bytes
    name: str
    payload: memoryview
    buffers: list[memoryview]
    objects: int


def names(directory: str, number: int) -> tuple[str, str]:
    """Return the paths of a generation's variables and manifest."""
    own = os.path.join(directory, str(number))
    return os.path.join(own, "variables"), os.path.join(own, MANIFEST)


class Writer:
    """Writer of one file of variables.

    Attributes:
        blobs: digests of the blobs it refers to.
        written_bytes: what it wrote, new blobs among it.
    """

    def __init__(self, directory: str, number: int, most_bytes: int) -> None:
        """Create the file.

        Args:
            directory: of the session's snapshots.
            number: of the generation.
            most_bytes: of the file and the blobs it refers to.
        """
        self._blobs_directory = os.path.join(directory, "blobs")
        os.makedirs(self._blobs_directory, mode=0o700, exist_ok=True)
        path, _ = names(directory, number)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._position = 0
        self._most_bytes = most_bytes
        self._blob_bytes = max(_BLOB_BYTES, most_bytes // _MOST_BLOBS)
        self._used_bytes = 0
        self.written_bytes = 0
        self.blobs: dict[str, int] = {}
        self._write([_MAGIC])

    def record(
        self, kind: bytes, name: str, payload: Any, buffers: list[memoryview], objects: int
    ) -> None:
        """Append a record.

        Raises:
            TooLargeError: with it, the snapshot would be too large; nothing of it counts.
            OSError: the disk is full, or the buffer larger than a file may be.
        """
        size = len(payload) + sum(buffer.nbytes for buffer in buffers)
        if self._used_bytes + size > self._most_bytes:
            raise TooLargeError
        begin = self._position
        encoded = name.encode("utf-8", "surrogatepass")
        at = begin + _HEADER.size + len(encoded) + len(payload) + _BUFFER.size * len(buffers)
        table, inline = [], []
        try:
            for buffer in buffers:
                if buffer.nbytes >= self._blob_bytes:
                    table.append(_BUFFER.pack(buffer.nbytes, 0, self._write_blob(buffer)))
                else:
                    gap = -at % _ALIGNMENT
                    inline += [bytes(gap), buffer]
                    table.append(_BUFFER.pack(buffer.nbytes, at + gap, bytes(32)))
                    at += gap + buffer.nbytes
            header = _HEADER.pack(kind, len(encoded), len(payload), len(buffers), objects)
            self._write([header, encoded, payload, *table, *inline])
        except OSError:
            os.ftruncate(self._file, begin)
            self._position = os.lseek(self._file, begin, os.SEEK_SET)
            raise
        self._used_bytes += size

    def _write_blob(self, buffer: memoryview) -> bytes:
        digest = hashlib.sha256(buffer)
        name = digest.hexdigest()
        self.blobs[name] = buffer.nbytes
        path = os.path.join(self._blobs_directory, name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_size == buffer.nbytes:
                return digest.digest()
        partial = f"{path}.{os.getpid()}"
        try:
            with open(partial, "wb", buffering=0) as file:
                _write_all(file.fileno(), [buffer])
                os.fsync(file.fileno())
            os.rename(partial, path)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
            raise
        self.written_bytes += buffer.nbytes
        return digest.digest()

    def _write(self, parts: list[Any]) -> None:
        size = _write_all(self._file, [memoryview(part).cast("B") for part in parts if len(part)])
        self._position += size
        self.written_bytes += size

    def close(self) -> None:
        """Close the file; all that was written is on the disk then."""
        os.fsync(self._file)
        os.close(self._file)
        _fsync_directory(self._blobs_directory)


def write_whole(path: str, content: bytes) -> None:
    """Write a file that is there as a whole, or not at all; after a power cut as well."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    _fsync_directory(os.path.dirname(path))


def _fsync_directory(path: str) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(file: int, parts: list[memoryview]) -> int:
    total = 0
    while parts:
        written = os.writev(file, parts[:_MOST_PARTS])
        total += written
        while parts and written >= parts[0].nbytes:
            written -= parts.pop(0).nbytes
        if written:
            parts[0] = parts[0][written:]
    return total


def read(directory: str, number: int, *, is_check: bool = False) -> Iterator[Record]:
    """Yield the records of a generation, up to the first one that was not written whole.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        is_check: buffers are read-only, which counts against no limit of memory.

    Raises:
        OSError: there is no such file.
        ValueError: the file is none of ours.
    """
    path, _ = names(directory, number)
    view = _map(path, is_check=is_check)
    if view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("this is no file of variables")
    blobs: dict[str, memoryview] = {}
    position = len(_MAGIC)
    while position + _HEADER.size <= len(view):
        kind, name_bytes, payload_bytes, count, objects = _HEADER.unpack_from(view, position)
        at = position + _HEADER.size
        table = at + name_bytes + payload_bytes
        end = table + count * _BUFFER.size
        if end > len(view):
            return
        buffers = []
        for index in range(count):
            size, offset, digest = _BUFFER.unpack_from(view, table + index * _BUFFER.size)
            if not offset:
                blob = os.path.join(directory, "blobs", digest.hex())
                if blob not in blobs:
                    blobs[blob] = _map(blob, is_check=is_check)
                buffers.append(blobs[blob])
                continue
            end = offset + size
            if end > len(view):
                return
            buffers.append(view[offset:end])
        name = str(view[at : at + name_bytes], "utf-8", "surrogatepass")
        yield Record(kind, name, view[at + name_bytes : table], buffers, objects)
        position = end


def _map(path: str, *, is_check: bool) -> memoryview:
    with open(path, "rb") as file:
        access = mmap.PROT_READ if is_check else mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access))
