"""The files of a generation: pickles with their buffers, an index of them, and a manifest.

The directory of a session's snapshots contains large buffers that generations share
(`blobs/<digest>`), and a directory for each generation with the files `variables`, `index.json` and
`manifest.json`. The manifest is written last; `kernels/snapshot_manifests` reads it. Readers map
variables privately, so arrays are available at once: Linux loads a page at its first use, and
copies it at the first write.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import itertools
import json
import mmap
import os
from typing import Any

FORMAT = 4
"""Version of the format; `kernels/snapshot_manifests` accepts no other."""
MIN_OUT_OF_BAND_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 200
"""Maximum length of the reason for a loss."""
_MIN_BLOB_BYTES = 4 * 1024 * 1024
# The manifest names each blob.
_MAX_BLOBS = 512
_ALIGNMENT = 64
# Writes are small: if a system call uses more than the session's share of processor time, Linux
# pauses the whole session, including the kernel.
_WRITE_BYTES = 1024 * 1024
_SYNC_BYTES = 256 * _WRITE_BYTES
# Limits on listed entries, tried until the manifest is small enough. Others are only counted.
_MAX_ENTRY_COUNTS = (200, 50, 10, 0)
_MAX_NAME_CHARACTERS = 40
_MAX_MANIFEST_BYTES = 256 * 1024
_REFUSAL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class TooLargeError(Exception):
    """A snapshot would exceed its size limit."""

    def __str__(self) -> str:
        return "it is larger than the size limit"


class DamagedError(Exception):
    """A file has changed since it was written."""

    def __str__(self) -> str:
        return "its file was cut off, changed or damaged"


@dataclasses.dataclass(frozen=True)
class Record:
    """Variables that share objects, as a sequence of pickles.

    Attributes:
        names: of the variables, in order.
        pickles: start in the file and size of each pickle.
        buffers: size of each buffer, and its start in the file or its digest.
        sources: source code of functions and classes, by name.
    """

    names: list[str]
    pickles: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    buffers: list[tuple[int, int | str]] = dataclasses.field(default_factory=list)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)

    def size(self) -> int:
        """Return the total size of pickles and buffers."""
        return sum(size for _, size in self.pickles) + sum(size for size, _ in self.buffers)

    def blobs(self) -> dict[str, int]:
        """Return the sizes of its large buffers by digest."""
        return {location: size for size, location in self.buffers if isinstance(location, str)}


@dataclasses.dataclass(frozen=True)
class Index:
    """Index of a generation, for reading it.

    Attributes:
        records: in reading order.
        cells: texts of cells that define functions, by file name.
    """

    records: list[Record]
    cells: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Summary of a generation for the bot.

    Attributes:
        problem: why no variable was saved; empty if any was.
        is_disk_full: whether the problem is a full disk.
        kept_names: names of saved variables.
        loss_reasons: reasons by names of lost variables.
        missing_parts: lost parts by names of partly saved variables.
        blobs: sizes of needed large buffers by digest.
    """

    problem: str = ""
    is_disk_full: bool = False
    kept_names: list[str] = dataclasses.field(default_factory=list)
    loss_reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    missing_parts: dict[str, str] = dataclasses.field(default_factory=dict)
    blobs: dict[str, int] = dataclasses.field(default_factory=dict)


def create_generation(directory: str, generation: int) -> None:
    """Create the empty file of a generation's variables."""
    os.makedirs(os.path.join(directory, "blobs"), mode=0o700, exist_ok=True)
    os.makedirs(os.path.join(directory, str(generation)), mode=0o700, exist_ok=True)
    os.close(
        os.open(
            _variables_path(directory, generation), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600
        )
    )


def _variables_path(directory: str, generation: int) -> str:
    return os.path.join(directory, str(generation), "variables")


def _blob_path(directory: str, digest: str) -> str:
    return os.path.join(directory, "blobs", digest)


class Writer:
    """Appends pickles with their buffers to a generation, up to `max_bytes` in total."""

    def __init__(self, directory: str, generation: int, max_bytes: int, used_bytes: int) -> None:
        self._directory = directory
        self._descriptor = os.open(
            _variables_path(directory, generation), os.O_WRONLY | os.O_APPEND
        )
        self._remaining_bytes = max_bytes - used_bytes
        self._min_blob_bytes = max(_MIN_BLOB_BYTES, max_bytes // _MAX_BLOBS)

    def append(self, pickled: memoryview, buffers: list[memoryview], record: Record) -> None:
        """Append a pickle, and add its location to the record.

        Raises:
            TooLargeError: the snapshot would be too large.
            OSError: the disk is full, or the file exceeds a limit.
        """
        size = pickled.nbytes + sum(buffer.nbytes for buffer in buffers)
        if size > self._remaining_bytes:
            raise TooLargeError
        start = os.lseek(self._descriptor, 0, os.SEEK_END)
        end = start + pickled.nbytes
        locations: list[tuple[int, int | str]] = []
        parts = [pickled]
        for buffer in buffers:
            if buffer.nbytes >= self._min_blob_bytes:
                locations.append((buffer.nbytes, self._write_blob(buffer)))
            else:
                padding = -end % _ALIGNMENT
                locations.append((buffer.nbytes, end + padding))
                parts += [memoryview(bytes(padding)), buffer]
                end += padding + buffer.nbytes
        _write(self._descriptor, parts)
        self._remaining_bytes -= size
        record.pickles.append((start, pickled.nbytes))
        record.buffers.extend(locations)

    def _write_blob(self, buffer: memoryview) -> str:
        hasher = hashlib.sha256()
        for offset in range(0, buffer.nbytes, _WRITE_BYTES):
            hasher.update(buffer[offset : offset + _WRITE_BYTES])
        path = _blob_path(self._directory, hasher.hexdigest())
        if (
            os.path.islink(path)
            or not os.path.isfile(path)
            or os.path.getsize(path) != buffer.nbytes
        ):
            partial_path = f"{path}.new"
            descriptor = os.open(
                partial_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
            )
            try:
                _write(descriptor, [buffer])
                # Otherwise, after a power cut, the file might have the right size but no content.
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(partial_path, path)
        return hasher.hexdigest()

    def close(self) -> None:
        """Wait until everything is on disk, and close the file."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        _sync_directory(os.path.join(self._directory, "blobs"))


def _write(descriptor: int, parts: list[memoryview]) -> None:
    """Write all parts; sync regularly, so that few bytes are unsynced at any time."""
    unsynced_bytes = 0
    for part in parts:
        view = part.cast("B") if part.nbytes else part
        while view.nbytes:
            written_bytes = os.write(descriptor, view[:_WRITE_BYTES])
            view = view[written_bytes:]
            unsynced_bytes += written_bytes
            if unsynced_bytes >= _SYNC_BYTES:
                os.fsync(descriptor)
                unsynced_bytes = 0


def find_refusal_errno(error: BaseException) -> int:
    """Return the error number if the system refused disk space or a descriptor; else 0."""
    error_number = error.errno if isinstance(error, OSError) else None
    return error_number if error_number in _REFUSAL_ERRORS else 0


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error means that the disk is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_manifest(directory: str, generation: int, manifest: Manifest) -> None:
    """Write the manifest, shortened to the bot's limits. This completes the generation."""
    os.makedirs(os.path.join(directory, str(generation)), mode=0o700, exist_ok=True)
    for count in _MAX_ENTRY_COUNTS:
        content = _encode(
            {
                "format": FORMAT,
                "problem": manifest.problem,
                "is_disk_full": manifest.is_disk_full,
                "kept": [name[:_MAX_NAME_CHARACTERS] for name in manifest.kept_names[:count]],
                "kept_count": len(manifest.kept_names),
                "lost": shorten_entries(manifest.loss_reasons, count),
                "lost_count": len(manifest.loss_reasons),
                "partly": shorten_entries(manifest.missing_parts, count),
                "partly_saved_count": len(manifest.missing_parts),
                "blobs": manifest.blobs,
            }
        )
        if len(content) <= _MAX_MANIFEST_BYTES:
            break
    _write_document(os.path.join(directory, str(generation), "manifest.json"), content)


def shorten_entries(entries: dict[str, str], count: int) -> dict[str, str]:
    """Return the first entries, with names and reasons cut to the bot's limits."""
    return {
        name[:_MAX_NAME_CHARACTERS]: text[:MAX_REASON_CHARACTERS]
        for name, text in itertools.islice(entries.items(), count)
    }


def write_index(directory: str, generation: int, index: Index) -> None:
    """Write the index; it is on disk when this returns."""
    content = _encode(dataclasses.asdict(index))
    _write_document(os.path.join(directory, str(generation), "index.json"), content)
    _sync_directory(directory)


def read_index(directory: str, generation: int) -> Index:
    """Read the index of a generation.

    Raises:
        OSError: there is no such generation.
        ValueError: its index is malformed.
    """
    with open(os.path.join(directory, str(generation), "index.json"), "rb") as file:
        content = json.loads(file.read())
    try:
        return Index([Record(**record) for record in content["records"]], content["cells"])
    except (KeyError, TypeError) as error:
        raise ValueError("this is no index of variables") from error


def _encode(content: object) -> bytes:
    # Lone surrogates, which UTF-8 cannot encode, become escapes.
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _write_document(path: str, content: bytes) -> None:
    """Write a file atomically, even in case of a power cut."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    """Wait until the entries of a directory are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Reader:
    """Reads the pickles and buffers of a generation's records.

    With `is_check`, buffers are mapped read-only, so they do not count towards memory limits.
    """

    def __init__(self, directory: str, generation: int, *, is_check: bool) -> None:
        self._directory = directory
        self._access = mmap.PROT_READ if is_check else mmap.PROT_READ | mmap.PROT_WRITE
        self._view = self._map(_variables_path(directory, generation))

    def open_pickle(self, start: int, size: int) -> Any:
        """Return the file of all pickles, at the start of one.

        Raises:
            DamagedError: the file is too short.
        """
        self._slice(start, size)
        file: Any = self._view.obj
        file.seek(start)
        return file

    def buffers(self, record: Record) -> list[memoryview]:
        """Return the buffers of a record.

        Raises:
            DamagedError: a file is missing, or has another size.
            OSError: there are no more descriptors.
        """
        buffers = []
        for size, location in record.buffers:
            if isinstance(location, int):
                buffers.append(self._slice(location, size))
                continue
            # Each buffer has its own mapping, so that equal arrays do not share memory.
            blob = self._map(_blob_path(self._directory, os.path.basename(location)))
            if blob.nbytes != size:
                raise DamagedError
            buffers.append(blob)
        return buffers

    def _slice(self, start: int, size: int) -> memoryview:
        if start + size > self._view.nbytes:
            raise DamagedError
        return self._view[start : start + size]

    def _map(self, path: str) -> memoryview:
        try:
            with open(path, "rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    return memoryview(b"")
                flags = mmap.MAP_PRIVATE
                return memoryview(mmap.mmap(file.fileno(), 0, flags=flags, prot=self._access))
        except OSError as error:
            if find_refusal_errno(error):
                raise
            raise DamagedError from error
