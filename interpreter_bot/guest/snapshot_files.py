"""The files of a generation: pickles with their buffers, an index of them, and a manifest.

Below the directory of a session's snapshots lie `blobs/<digest>`, large buffers that generations
share, and for each generation `<number>/variables`, `<number>/index.json` and, written last,
`<number>/manifest.json`, which `kernels/snapshot_manifests` reads. Variables are mapped privately:
arrays are there at once, pages come when they are touched, and writing to them copies the page.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import itertools
import json
import mmap
import os

FORMAT = 3
"""Of a generation; `kernels/snapshot_manifests` reads no other."""
OUT_OF_BAND_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 200
"""Length of a reason for a loss."""
_MIN_BLOB_BYTES = 4 * 1024 * 1024
# The manifest names each of them.
_MAX_BLOBS = 512
_ALIGNMENT = 64
# A session that uses more than its share of the processors within one call into the system is
# stopped afterwards until that is made up for, and its kernel with it.
_PIECE_BYTES = 1024 * 1024
_SYNC_BYTES = 256 * _PIECE_BYTES
# The bot reads this many entries of a manifest, and counts the others.
_LISTED = (200, 50, 10, 0)
_MAX_LISTED_CHARACTERS = 40
_MAX_MANIFEST_BYTES = 256 * 1024
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class TooLargeError(Exception):
    """A snapshot may not hold that much."""

    def __str__(self) -> str:
        return "it is larger than what may be kept"


class DamagedError(Exception):
    """A file does not hold what was written."""

    def __str__(self) -> str:
        return "its file was cut off, changed or damaged"


@dataclasses.dataclass(frozen=True)
class Record:
    """Variables that share objects, as one pickle after the other.

    Attributes:
        names: of the variables, in their order.
        pickles: start of each in the file, and its size.
        buffers: size of each, and its start in the file or its digest.
        sources: of the functions and classes among the variables.
    """

    names: list[str]
    pickles: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    buffers: list[tuple[int, int | str]] = dataclasses.field(default_factory=list)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)

    def size(self) -> int:
        """Return how many bytes it has with its buffers."""
        return sum(size for _, size in self.pickles) + sum(size for size, _ in self.buffers)

    def blobs(self) -> dict[str, int]:
        """Return the sizes of its large buffers by digest."""
        return {place: size for size, place in self.buffers if isinstance(place, str)}


@dataclasses.dataclass(frozen=True)
class Index:
    """What is needed to read the variables.

    Attributes:
        records: in the order in which they are read.
        cells: texts of cells that define functions, by file name.
    """

    records: list[Record]
    cells: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What the bot reads of a generation.

    Attributes:
        problem: why nothing was saved, if nothing was.
        is_disk_full: whether that is why.
        kept: names.
        lost: what could not be kept, and why.
        partly: variables of which a part could not be kept, and which.
        blobs: sizes of the large buffers that it needs.
    """

    problem: str = ""
    is_disk_full: bool = False
    kept: list[str] = dataclasses.field(default_factory=list)
    lost: dict[str, str] = dataclasses.field(default_factory=dict)
    partly: dict[str, str] = dataclasses.field(default_factory=dict)
    blobs: dict[str, int] = dataclasses.field(default_factory=dict)


def create(directory: str, number: int) -> None:
    """Create the empty file of a generation's variables."""
    os.makedirs(os.path.join(directory, "blobs"), mode=0o700, exist_ok=True)
    os.makedirs(os.path.join(directory, str(number)), mode=0o700, exist_ok=True)
    os.close(os.open(_variables(directory, number), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600))


def _variables(directory: str, number: int) -> str:
    return os.path.join(directory, str(number), "variables")


def _blob(directory: str, digest: str) -> str:
    return os.path.join(directory, "blobs", digest)


class Writer:
    """Appends pickles with their buffers to a generation.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        max_bytes: of all records with their buffers.
        used_bytes: of the records that are there.
    """

    def __init__(self, directory: str, number: int, max_bytes: int, used_bytes: int) -> None:
        self._directory = directory
        self._file = os.open(_variables(directory, number), os.O_WRONLY | os.O_APPEND)
        self._left_bytes = max_bytes - used_bytes
        self._blob_bytes = max(_MIN_BLOB_BYTES, max_bytes // _MAX_BLOBS)

    def append(self, pickled: memoryview, buffers: list[memoryview], record: Record) -> None:
        """Append a pickle, and note in the record where it is.

        Raises:
            TooLargeError: the snapshot would be too large with it.
            OSError: the disk is full, or a file would be larger than it may be.
        """
        size = pickled.nbytes + sum(buffer.nbytes for buffer in buffers)
        if size > self._left_bytes:
            raise TooLargeError
        start = os.lseek(self._file, 0, os.SEEK_END)
        end = start + pickled.nbytes
        places: list[tuple[int, int | str]] = []
        parts = [pickled]
        for buffer in buffers:
            if buffer.nbytes >= self._blob_bytes:
                places.append((buffer.nbytes, self._write_blob(buffer)))
            else:
                gap = -end % _ALIGNMENT
                places.append((buffer.nbytes, end + gap))
                parts += [memoryview(bytes(gap)), buffer]
                end += gap + buffer.nbytes
        _write(self._file, parts)
        self._left_bytes -= size
        record.pickles.append((start, pickled.nbytes))
        record.buffers.extend(places)

    def _write_blob(self, buffer: memoryview) -> str:
        digest = hashlib.sha256()
        for begin in range(0, buffer.nbytes, _PIECE_BYTES):
            digest.update(buffer[begin : begin + _PIECE_BYTES])
        path = _blob(self._directory, digest.hexdigest())
        if (
            os.path.islink(path)
            or not os.path.isfile(path)
            or os.path.getsize(path) != buffer.nbytes
        ):
            partial = f"{path}.new"
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            try:
                _write(file, [buffer])
                # One that a power cut has damaged would have the right name and size.
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(partial, path)
        return digest.hexdigest()

    def close(self) -> None:
        """Wait until the disk has all of it."""
        os.fsync(self._file)
        os.close(self._file)
        _sync_directory(os.path.join(self._directory, "blobs"))


def _write(file: int, parts: list[memoryview]) -> None:
    """Write all parts, and never leave the disk far behind."""
    unsynced_bytes = 0
    for part in parts:
        view = part.cast("B") if part.nbytes else part
        while view.nbytes:
            written = os.write(file, view[:_PIECE_BYTES])
            view = view[written:]
            unsynced_bytes += written
            if unsynced_bytes >= _SYNC_BYTES:
                os.fsync(file)
                unsynced_bytes = 0


def refusal(error: BaseException) -> int:
    """Return the errno if the system refused disk space or a descriptor; 0 for all else."""
    number = error.errno if isinstance(error, OSError) else None
    return number if number in _REFUSALS else 0


def is_disk_full(error: BaseException) -> bool:
    """Return whether something was not written because the disk is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_manifest(directory: str, number: int, manifest: Manifest) -> None:
    """Write the manifest, shortened to what the bot reads; with that, saving has ended."""
    os.makedirs(os.path.join(directory, str(number)), mode=0o700, exist_ok=True)
    for count in _LISTED:
        content = _encode(
            {
                "format": FORMAT,
                "problem": manifest.problem,
                "is_disk_full": manifest.is_disk_full,
                "kept": [name[:_MAX_LISTED_CHARACTERS] for name in manifest.kept[:count]],
                "kept_count": len(manifest.kept),
                "lost": shortened(manifest.lost, count),
                "lost_count": len(manifest.lost),
                "partly": shortened(manifest.partly, count),
                "partly_count": len(manifest.partly),
                "blobs": manifest.blobs,
            }
        )
        if len(content) <= _MAX_MANIFEST_BYTES:
            break
    _write_document(os.path.join(directory, str(number), "manifest.json"), content)


def shortened(entries: dict[str, str], count: int) -> dict[str, str]:
    """Return the first names and their reasons, both in a length that the bot reads."""
    return {
        name[:_MAX_LISTED_CHARACTERS]: text[:MAX_REASON_CHARACTERS]
        for name, text in itertools.islice(entries.items(), count)
    }


def write_index(directory: str, number: int, index: Index) -> None:
    """Write the index; the disk has it, and all that it names, before this returns."""
    content = _encode(dataclasses.asdict(index))
    _write_document(os.path.join(directory, str(number), "index.json"), content)
    _sync_directory(directory)


def read_index(directory: str, number: int) -> Index:
    """Read the index of a generation.

    Raises:
        OSError: there is no such generation.
        ValueError: its index is none of ours.
    """
    with open(os.path.join(directory, str(number), "index.json"), "rb") as file:
        content = json.loads(file.read())
    try:
        return Index([Record(**record) for record in content["records"]], content["cells"])
    except (KeyError, TypeError) as error:
        raise ValueError("this is no index of variables") from error


def _encode(content: object) -> bytes:
    # Whatever characters are in it.
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _write_document(path: str, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, after a power cut too."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    """Wait until the disk has the names of a directory."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Reader:
    """Reads the pickles and buffers of a generation's records.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        is_check: buffers are read-only, which counts against no limit of memory.
    """

    def __init__(self, directory: str, number: int, *, is_check: bool) -> None:
        self._directory = directory
        self._access = mmap.PROT_READ if is_check else mmap.PROT_READ | mmap.PROT_WRITE
        self._view = self._map(_variables(directory, number))

    def pickles(self, record: Record) -> list[memoryview]:
        """Return the pickles of a record.

        Raises:
            DamagedError: they are not there.
        """
        return [self._part(start, size) for start, size in record.pickles]

    def buffers(self, record: Record) -> list[memoryview]:
        """Return the buffers of a record.

        Raises:
            DamagedError: they are not there.
            OSError: there is no descriptor for one of them.
        """
        buffers = []
        for size, place in record.buffers:
            if isinstance(place, int):
                buffers.append(self._part(place, size))
                continue
            # Each time anew: two arrays that were equal do not become one.
            blob = self._map(_blob(self._directory, os.path.basename(place)))
            if blob.nbytes != size:
                raise DamagedError
            buffers.append(blob)
        return buffers

    def _part(self, start: int, size: int) -> memoryview:
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
            if refusal(error):
                raise
            raise DamagedError from error
