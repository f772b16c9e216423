"""Large buffers of saved variables, each in a file of its own that generations share.

They lie in `blobs/<name>` below the directory of a session's snapshots, and never change. Whether
one of them holds the same as a buffer is found out by comparing them: that takes less of the
processor than a digest, from a fifth to nearly as much by how the memory of files is laid out, and
one that a crash has damaged is not taken for whole. Encrypted ones cannot be compared, so their
names are made of what they hold, with the key.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import mmap
import os
import re
from collections.abc import Iterable

from . import snapshot_encryption, syscalls

NAME_BYTES = 32
"""Of a name; files have it in hexadecimal."""
_NAME = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")
_MOST_PARTS = 1024
# A session that uses more than its share of the processors within one call into the system is
# stopped afterwards until that is made up for, and the kernel with it.
_AT_ONCE_BYTES = 1024 * 1024
_WRITTEN_BACK_AT_ONCE_BYTES = 8 * _AT_ONCE_BYTES
_MOST_COMPARED_IN_VAIN_BYTES = 256 * _AT_ONCE_BYTES
MOST_UNSYNCED_BYTES = 256 * _AT_ONCE_BYTES
"""How far behind the disk may be: what it cannot take in time is not to count as written."""


class BlobWriter:
    """Writer of the large buffers of one generation."""

    def __init__(self, directory: str, key: bytes) -> None:
        """Find those of other generations.

        Args:
            directory: of the session's snapshots.
            key: encrypts them, if there is one.
        """
        self._directory = os.path.join(directory, "blobs")
        self._key = key
        self._written_bytes = self._compared_in_vain_bytes = 0
        # What the disk may not have yet.
        self._unsynced: list[str] = []
        self._unsynced_bytes = 0
        # By length, in the order in which they were written.
        self._names: dict[int, collections.deque[str]] = {}
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._find_all()

    def _find_all(self) -> None:
        found = []
        with os.scandir(self._directory) as entries:
            for one in entries:
                # Code may have put anything there.
                if _NAME.fullmatch(one.name):
                    about = one.stat(follow_symlinks=False)
                    found.append((about.st_mtime_ns, about.st_size, one.name))
        for _, size, name in sorted(found):
            self._names.setdefault(size, collections.deque()).append(name)

    def write(self, buffer: memoryview) -> bytes:
        """Write a buffer, if none is found that holds the same; return the name.

        Raises:
            OSError: the disk is full, or the buffer larger than a file may be.
        """
        if self._key:
            name = snapshot_encryption.blob_name(self._key, hashlib.sha256(buffer).digest())
            is_there = self._is_stored(name.hex(), snapshot_encryption.stored_bytes(buffer.nbytes))
        else:
            found = self._find_equal(buffer)
            name, is_there = found or os.urandom(NAME_BYTES), bool(found)
        if not is_there:
            self._write_file(name.hex(), buffer)
        return name

    def _is_stored(self, name: str, size: int) -> bool:
        try:
            return os.stat(os.path.join(self._directory, name)).st_size == size
        except FileNotFoundError:
            return False

    def _find_equal(self, buffer: memoryview) -> bytes:
        """Return the name of a blob that holds the same as a buffer; empty if none is found.

        Many may differ late: what is compared in vain is bounded by what was written.
        """
        names = self._names.get(buffer.nbytes, collections.deque())
        for _ in range(len(names)):
            if self._compared_in_vain_bytes > self._written_bytes + _MOST_COMPARED_IN_VAIN_BYTES:
                break
            # What was written after it comes first the next time: the next buffer is mostly that.
            name = names[0]
            names.rotate(-1)
            with contextlib.suppress(OSError, MemoryError):
                # It is gone; or it is not known whether it is the same.
                if self._is_equal(name, buffer):
                    return bytes.fromhex(name)
        return b""

    def _is_equal(self, name: str, buffer: memoryview) -> bool:
        piece = bytearray(_AT_ONCE_BYTES)
        with open(os.path.join(self._directory, name), "rb", buffering=0) as file:
            for begin in range(0, buffer.nbytes, _AT_ONCE_BYTES):
                wanted = buffer[begin : begin + _AT_ONCE_BYTES]
                del piece[wanted.nbytes :]
                if file.readinto(piece) != wanted.nbytes or piece != wanted:
                    self._compared_in_vain_bytes += begin + wanted.nbytes
                    return False
        return True

    def _write_file(self, name: str, buffer: memoryview) -> None:
        partial = os.path.join(self._directory, f"partial.{os.getpid()}")
        try:
            with open(partial, "wb", buffering=0) as file:
                self._write_buffer(file.fileno(), name, buffer)
                if self._key:
                    # One that a crash has damaged would be known by its length only.
                    os.fsync(file.fileno())
            os.rename(partial, os.path.join(self._directory, name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
            raise
        self._names.setdefault(buffer.nbytes, collections.deque()).append(name)
        self._unsynced.append(name)
        self._written_bytes += buffer.nbytes

    def _write_buffer(self, file: int, name: str, buffer: memoryview) -> None:
        if not self._key:
            for begin in range(0, buffer.nbytes, _WRITTEN_BACK_AT_ONCE_BYTES):
                part = buffer[begin : begin + _WRITTEN_BACK_AT_ONCE_BYTES]
                write_all(file, [part])
                # There is less to wait for in the end.
                syscalls.begin_writing_back(file, begin, part.nbytes)
                self._unsynced_bytes += part.nbytes
                if self._unsynced_bytes >= MOST_UNSYNCED_BYTES:
                    self._wait_for_disk(file)
            return
        cipher = snapshot_encryption.FileCipher(self._key, name)
        write_all(file, [memoryview(cipher.head)])
        for piece in cipher.pieces([buffer], 0):
            write_all(file, [memoryview(piece)])

    def _wait_for_disk(self, file: int) -> None:
        for name in self._unsynced:
            sync_file(os.path.join(self._directory, name))
        os.fsync(file)
        self._unsynced.clear()
        self._unsynced_bytes = 0


def read(directory: str, name: str, size: int, key: bytes, *, is_check: bool) -> memoryview:
    """Read a buffer.

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
        view = map_file(path, is_check=is_check)
    if len(view) != size:
        raise snapshot_encryption.DamagedError
    return view


def map_file(path: str, *, is_check: bool) -> memoryview:
    """Map a file privately; to check it, read-only."""
    with open(path, "rb") as file:
        access = mmap.PROT_READ if is_check else mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access))


def write_all(file: int, parts: list[memoryview]) -> None:
    """Write parts one after the other to a file's descriptor; they are taken out of the list."""
    while parts:
        pieces: list[memoryview] = []
        size = 0
        for part in itertools.islice(parts, _MOST_PARTS):
            pieces.append(part[:_AT_ONCE_BYTES])
            size += pieces[-1].nbytes
            if size >= _AT_ONCE_BYTES:
                break
        written = os.writev(file, pieces)
        while parts and written >= parts[0].nbytes:
            written -= parts.pop(0).nbytes
        if written:
            parts[0] = parts[0][written:]


def sync(directory: str, names: Iterable[str]) -> None:
    """Wait until the disk has some of them; see `sync_file`."""
    blobs = os.path.join(directory, "blobs")
    for name in names:
        sync_file(os.path.join(blobs, name))
    sync_file(blobs)


def sync_file(path: str) -> None:
    """Wait until the disk has a file, or the names of a directory.

    Raises:
        OSError: it is missing, or the disk is full.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
