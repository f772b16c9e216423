"""The files of a snapshot: pickles of variables one after the other, large buffers apart.

Below one directory lie `blobs/<sha256>`, buffers that generations share, and for each generation
`<number>/variables`, `<number>/details.json` and `<number>/manifest.json`, which is written last. A
file of variables is a sequence of records::

    header: kind, bytes of name, bytes of payload, buffers, number of the pickler's next object
    name, payload
    for each buffer: bytes, offset in this file or 0, digest of the blob or zeros

Buffers in the file are aligned. Reading maps everything privately: arrays are there at once, pages
come when they are touched, and writing to them copies the page. With a key, all of these files are
encrypted (`snapshot_encryption`), and what is read is in memory at once.

Above 300 lines: what writes a format and what reads it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import snapshot_encryption

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
# A session that uses more than its share of the processors within one call into the system is
# stopped afterwards until that is made up for, and the kernel with it.
_WRITTEN_AT_ONCE_BYTES = 1024 * 1024
_FLUSHED_AT_ONCE_BYTES = 8 * _WRITTEN_AT_ONCE_BYTES


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
        blobs: sizes of the blobs that it refers to since this was last cleared, by digest.
        written_bytes: what it wrote, new blobs among it.
    """

    def __init__(self, directory: str, number: int, most_bytes: int, key: bytes = b"") -> None:
        """Create the file.

        Args:
            directory: of the session's snapshots.
            number: of the generation.
            most_bytes: of the file and the blobs it refers to.
            key: encrypts them, if there is one.
        """
        self._key = key
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
        with os.scandir(self._blobs_directory) as blobs:
            # Code may have put links there that lead nowhere.
            self._blob_lengths = {one.stat(follow_symlinks=False).st_size for one in blobs}
        self._cipher: snapshot_encryption.FileCipher | None = None
        if key:
            self._cipher = snapshot_encryption.FileCipher(key, f"{number}/variables")
            _write_all(self._file, [memoryview(self._cipher.head)])
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
                    table.append(_BUFFER.pack(buffer.nbytes, 0, self._write_blob(buffer)))
                else:
                    gap = -at % _ALIGNMENT
                    inline += [bytes(gap), buffer]
                    table.append(_BUFFER.pack(buffer.nbytes, at + gap, bytes(32)))
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

    def _write_blob(self, buffer: memoryview) -> bytes:
        partial = os.path.join(self._blobs_directory, f"partial.{os.getpid()}")
        # Of a length that no other has it must be new, and is hashed while it is written.
        is_new = not self._key and buffer.nbytes not in self._blob_lengths
        try:
            if is_new:
                digest = self._write_hashed(partial, buffer)
            else:
                digest = hashlib.sha256(buffer).digest()
            stored = buffer.nbytes
            if self._key:
                digest = snapshot_encryption.blob_name(self._key, digest)
                stored = snapshot_encryption.stored_bytes(stored)
            name = digest.hex()
            self.blobs[name] = buffer.nbytes
            path = os.path.join(self._blobs_directory, name)
            if not is_new:
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_size == stored:
                        return digest
                self._write_file(partial, name, buffer)
            os.rename(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
            raise
        self._blob_lengths.add(stored)
        self.written_bytes += buffer.nbytes
        return digest

    def _write_hashed(self, path: str, buffer: memoryview) -> bytes:
        hashed = hashlib.sha256()
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, buffer.nbytes, _WRITTEN_AT_ONCE_BYTES):
                piece = buffer[begin : begin + _WRITTEN_AT_ONCE_BYTES]
                _write_all(file.fileno(), [piece])
                # As long as it is in the processor's cache.
                hashed.update(piece)
                if begin and begin % _FLUSHED_AT_ONCE_BYTES == 0:
                    # The disk begins with what came before; there is less to wait for at the end.
                    before = begin - _FLUSHED_AT_ONCE_BYTES
                    os.posix_fadvise(
                        file.fileno(), before, _FLUSHED_AT_ONCE_BYTES, os.POSIX_FADV_DONTNEED
                    )
            os.fsync(file.fileno())
        return hashed.digest()

    def _write_file(self, path: str, name: str, buffer: memoryview) -> None:
        with open(path, "wb", buffering=0) as file:
            self._write_buffer(file.fileno(), name, buffer)
            os.fsync(file.fileno())

    def _write_buffer(self, file: int, name: str, buffer: memoryview) -> None:
        if not self._key:
            _write_all(file, [buffer])
            return
        cipher = snapshot_encryption.FileCipher(self._key, name)
        _write_all(file, [memoryview(cipher.head)])
        for piece in cipher.pieces([buffer], 0):
            _write_all(file, [memoryview(piece)])

    def _write(self, parts: list[Any]) -> None:
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        size = sum(view.nbytes for view in views)
        if self._cipher is None:
            _write_all(self._file, views)
        else:
            for piece in self._cipher.pieces(views, self._position):
                _write_all(self._file, [memoryview(piece)])
        self._position += size
        self.written_bytes += size

    def close(self) -> None:
        """Close the file; all that was written is on the disk then."""
        os.fsync(self._file)
        os.close(self._file)
        _fsync_directory(self._blobs_directory)


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
    _fsync_directory(os.path.dirname(path))


def read_document(directory: str, name: str, key: bytes) -> bytes:
    """Read what `write_document` wrote.

    Raises:
        OSError: there is no such file.
        DamagedError: it was not written with this key.
    """
    with open(os.path.join(directory, name), "rb") as file:
        content = file.read()
    return snapshot_encryption.unseal(key, name, content) if key else content


def _fsync_directory(path: str) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(file: int, parts: list[memoryview]) -> None:
    while parts:
        pieces: list[memoryview] = []
        size = 0
        for part in itertools.islice(parts, _MOST_PARTS):
            pieces.append(part[:_WRITTEN_AT_ONCE_BYTES])
            size += pieces[-1].nbytes
            if size >= _WRITTEN_AT_ONCE_BYTES:
                break
        written = os.writev(file, pieces)
        while parts and written >= parts[0].nbytes:
            written -= parts.pop(0).nbytes
        if written:
            parts[0] = parts[0][written:]


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
        view = _map(path, is_check=is_check)
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
            size, offset, digest = _BUFFER.unpack_from(view, table + index * _BUFFER.size)
            if not offset:
                try:
                    # Each time anew: two arrays that were equal do not become one.
                    blob = _read_blob(directory, digest.hex(), size, key, is_check=is_check)
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


def _read_blob(directory: str, name: str, size: int, key: bytes, *, is_check: bool) -> memoryview:
    """Read a large buffer.

    Raises:
        OSError: it is missing.
        DamagedError: it is not as long as it was, or was not written with this key.
    """
    path = os.path.join(directory, "blobs", name)
    if key and is_check:
        return snapshot_encryption.blank(size)
    if key:
        view = snapshot_encryption.read(path, key, name, is_check=is_check)
    else:
        view = _map(path, is_check=is_check)
    if len(view) != size:
        raise snapshot_encryption.DamagedError
    return view


def _map(path: str, *, is_check: bool) -> memoryview:
    with open(path, "rb") as file:
        access = mmap.PROT_READ if is_check else mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access))
