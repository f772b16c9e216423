"""The files of a snapshot: pickles of variables one after the other, large buffers apart.

Below one directory lie `blobs/<name>`, buffers that generations share, and for each generation
`<number>/variables`, `<number>/details.json` and `<number>/manifest.json`, which is written last. A
file of variables is a sequence of records::

    header: kind, bytes of name, bytes of payload, buffers, number of the pickler's next object
    name, payload
    for each buffer: bytes, offset in this file or 0, name of the blob or zeros

Buffers in the file are aligned. Reading maps everything privately: arrays are there at once, pages
come when they are touched, and writing to them copies the page. With a key, all of these files are
encrypted (`snapshot_encryption`), and what is read is in memory at once.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import snapshot_blobs, snapshot_encryption, syscalls

VARIABLE, SOURCE, MODULE = b"VAR.", b"SRC.", b"MOD."
APART_BYTES = 64 * 1024
MANIFEST = "manifest.json"
_BLOB_BYTES = 4 * 1024 * 1024
# The manifest names each of them.
_MOST_BLOBS = 512
_MAGIC = b"IBVARS1\n"
_HEADER = struct.Struct("<4sIQQQ")
_BUFFER = struct.Struct(f"<QQ{snapshot_blobs.NAME_BYTES}s")
_ALIGNMENT = 64


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
        is_damaged: a buffer cannot be read; there are fewer then.
    """

    kind: bytes
    name: str
    payload: memoryview
    buffers: list[memoryview]
    objects: int
    is_damaged: bool


def names(directory: str, number: int) -> tuple[str, str]:
    """Return the paths of a generation's variables and manifest."""
    own = os.path.join(directory, str(number))
    return os.path.join(own, "variables"), os.path.join(own, MANIFEST)


def is_disk_full(error: BaseException) -> bool:
    """Return whether something was not written for that."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class Writer:
    """Writer of one file of variables.

    Attributes:
        blobs: sizes of the blobs that it refers to since this was last cleared, by name.
    """

    def __init__(self, directory: str, number: int, most_bytes: int, key: bytes = b"") -> None:
        """Create the file.

        Args:
            directory: of the session's snapshots.
            number: of the generation.
            most_bytes: of the file and the blobs it refers to.
            key: encrypts them, if there is one.
        """
        self._blob_writer = snapshot_blobs.BlobWriter(directory, key)
        path, _ = names(directory, number)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._position = self._synced_bytes = 0
        self._most_bytes = most_bytes
        self._blob_bytes = max(_BLOB_BYTES, most_bytes // _MOST_BLOBS)
        self._used_bytes = 0
        self.blobs: dict[str, int] = {}
        self._cipher: snapshot_encryption.FileCipher | None = None
        if key:
            self._cipher = snapshot_encryption.FileCipher(key, f"{number}/variables")
            snapshot_blobs.write_all(self._file, [memoryview(self._cipher.head)])
        self._write([_MAGIC])

    def record(
        self, kind: bytes, name: str, payload: Any, buffers: list[memoryview], objects: int
    ) -> None:
        """Append a record.

        Raises:
            TooLargeError: with it, the snapshot would be too large; nothing of it counts.
            OSError: the disk is full, or the buffer larger than a file may be.
        """
        size = self.check_room(payload, buffers)
        begin, begin_stored = self._position, os.lseek(self._file, 0, os.SEEK_CUR)
        encoded = name.encode("utf-8", "surrogatepass")
        at = begin + _HEADER.size + len(encoded) + len(payload) + _BUFFER.size * len(buffers)
        table, inline = [], []
        try:
            for buffer in buffers:
                if buffer.nbytes >= self._blob_bytes:
                    blob_name = self._blob_writer.write(buffer)
                    self.blobs[blob_name.hex()] = buffer.nbytes
                    table.append(_BUFFER.pack(buffer.nbytes, 0, blob_name))
                else:
                    gap = -at % _ALIGNMENT
                    inline += [bytes(gap), buffer]
                    table.append(
                        _BUFFER.pack(buffer.nbytes, at + gap, bytes(snapshot_blobs.NAME_BYTES))
                    )
                    at += gap + buffer.nbytes
            header = _HEADER.pack(kind, len(encoded), len(payload), len(buffers), objects)
            self._write([header, encoded, payload, *table, *inline])
        except BaseException:
            # No memory, or a signal's handler: the next one is to begin where this one did.
            os.ftruncate(self._file, begin_stored)
            os.lseek(self._file, begin_stored, os.SEEK_SET)
            self._position = begin
            raise
        self._used_bytes += size

    def check_room(self, payload: Any, buffers: list[memoryview]) -> int:
        """Return how many bytes a record has.

        Raises:
            TooLargeError: the snapshot would be too large with it.
        """
        size = len(payload) + sum(buffer.nbytes for buffer in buffers)
        if self._used_bytes + size > self._most_bytes:
            raise TooLargeError
        return size

    def _write(self, parts: list[Any]) -> None:
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        size = sum(view.nbytes for view in views)
        if self._cipher is None:
            snapshot_blobs.write_all(self._file, views)
        else:
            for piece in self._cipher.pieces(views, self._position):
                snapshot_blobs.write_all(self._file, [memoryview(piece)])
        self._position += size
        if self._position - self._synced_bytes >= snapshot_blobs.MOST_UNSYNCED_BYTES:
            os.fsync(self._file)
            self._synced_bytes = self._position

    def close(self) -> None:
        """Close the file, which the disk may not have yet: see `sync`."""
        syscalls.begin_writing_back(self._file, 0, 0)
        os.close(self._file)


def sync(directory: str, number: int, blobs: Iterable[str]) -> None:
    """Wait until the disk has what was written of a generation.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        blobs: names of those that it refers to.

    Raises:
        OSError: something of it is missing, or the disk is full.
    """
    path, _ = names(directory, number)
    snapshot_blobs.sync_file(path)
    # Those of earlier generations, too: it is not known whether a crash came before their sync.
    snapshot_blobs.sync(directory, blobs)
    snapshot_blobs.sync_file(directory)


def write_document(directory: str, name: str, content: bytes, key: bytes) -> None:
    """Write a file that is there as a whole, or not at all; after a power cut as well.

    Args:
        directory: of the session's snapshots.
        name: of the file below it.
        content: what it is to hold.
        key: encrypts it, if there is one.
    """
    path = os.path.join(directory, name)
    content = snapshot_encryption.seal(key, name, content) if key else content
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    snapshot_blobs.sync_file(os.path.dirname(path))


def read_document(directory: str, name: str, key: bytes) -> bytes:
    """Read what `write_document` wrote.

    Raises:
        OSError: there is no such file.
        DamagedError: it was not written with this key.
    """
    with open(os.path.join(directory, name), "rb") as file:
        content = file.read()
    return snapshot_encryption.unseal(key, name, content) if key else content


def read(
    directory: str, number: int, *, key: bytes = b"", is_check: bool = False
) -> Iterator[Record]:
    """Yield the records of a generation, up to the first one that was not written whole.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        key: that it was written with.
        is_check: buffers are read-only, which counts against no limit of memory. Large ones that
            were encrypted are zeros: for them there might be no room beside the variables, and
            what makes objects of buffers looks at their size.

    Raises:
        OSError: there is no such file, or no descriptor to check it with.
        ValueError: the file is none of ours.
        DamagedError: it was not written with this key.
    """
    path, _ = names(directory, number)
    if key:
        name = f"{number}/variables"
        view = snapshot_encryption.read(path, key, name, is_check=is_check)
    else:
        view = snapshot_blobs.map_file(path, is_check=is_check)
    if view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("this is no file of variables")
    position = len(_MAGIC)
    while position + _HEADER.size <= len(view):
        kind, name_bytes, payload_bytes, count, objects = _HEADER.unpack_from(view, position)
        at = position + _HEADER.size
        table = at + name_bytes + payload_bytes
        end = table + count * _BUFFER.size
        if end > len(view):
            return
        buffers: list[memoryview] = []
        is_damaged = False
        for index in range(count):
            size, offset, blob_name = _BUFFER.unpack_from(view, table + index * _BUFFER.size)
            if not offset:
                try:
                    # Each time anew: two arrays that were equal do not become one.
                    blob = snapshot_blobs.read(
                        directory, blob_name.hex(), size, key, is_check=is_check
                    )
                    buffers.append(blob)
                except (OSError, snapshot_encryption.DamagedError) as error:
                    if is_check and getattr(error, "errno", 0) in (errno.EMFILE, errno.ENFILE):
                        # Code has taken the descriptors, of which each mapping has one.
                        raise
                    is_damaged = True
                continue
            end = offset + size
            if end > len(view):
                return
            buffers.append(view[offset:end])
        name = str(view[at : at + name_bytes], "utf-8", "surrogatepass")
        payload = view[at + name_bytes : table]
        yield Record(kind, name, payload, buffers, objects, is_damaged)
        position = end
