"""Transfer of files into and out of a workspace, a chunk at a time.

An upload grows in a staging directory that the sandbox does not see, and then appears complete
under an unused name. An upload locks its file; unlocked files are leftovers of a dead bot.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO, ParamSpec, TypeVar

from interpreter_bot import cancellation, errors, settings, values
from interpreter_bot.kernels.files import directory_contents, safe_open
from interpreter_bot.wording import file_words

CHUNK_BYTES = 256 * settings.KIB
"""Size of the chunks that are read."""
STAGING = ".incoming"
"""Name of the staging directory, a sibling of the directory that the sandbox sees."""
# High, because compressing file systems need few blocks even for some ordinary files.
_SPARSE_FACTOR = 16
_MIN_SPARSE_BYTES = settings.MIB

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the operating system's errors about files into sentences for people."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.WorkspaceFullError(file_words.BOT_DISK_FULL) from error
        raise errors.WorkspaceError from error


async def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a blocking file function in a thread; see `cancellation.in_thread`.

    Raises:
        WorkspaceError: the operating system refused.
    """
    with translate_errors():
        return await cancellation.in_thread(function, *args, **kwargs)


def open_root(root: pathlib.Path) -> int:
    """Open a workspace's directory; code in the sandbox cannot change the directories above it."""
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


@contextlib.contextmanager
def root_descriptor(root: pathlib.Path) -> Iterator[int]:
    """Open a workspace's directory, and close it when the context ends."""
    descriptor = open_root(root)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Upload:
    """One file on its way into a workspace. Methods block; `close` undoes an uncommitted upload."""

    def __init__(self, root: pathlib.Path, name: str, limits: settings.Limits) -> None:
        self._root_path = root
        self._name = name
        self._limits = limits
        self._cleanup = contextlib.ExitStack()
        self._staged_name = secrets.token_hex(16)
        self._root = self._staging = self._file = -1
        self._written_bytes = self._used_bytes = 0

    def begin(self) -> None:
        """Create the staged file.

        Raises:
            WorkspaceFullError: not even an empty file fits.
        """
        self._root = self._close_later(open_root(self._root_path))
        staging = self._root_path.parent / STAGING
        staging.mkdir(mode=0o700, exist_ok=True)
        self._staging = self._close_later(open_root(staging))
        self._check_room()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = self._close_later(
            os.open(self._staged_name, flags, 0o600, dir_fd=self._staging)
        )
        self._cleanup.callback(self._discard)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            FileTooLargeError: the file is over its limit.
            WorkspaceFullError: it does not fit into the workspace.
        """
        self._written_bytes += len(chunk)
        max_bytes = self._limits.upload_bytes
        if self._written_bytes > max_bytes:
            raise errors.FileTooLargeError(file_words.too_large_for_one(self._name, max_bytes))
        self._check_bytes()
        unwritten_bytes = memoryview(chunk)
        while unwritten_bytes:
            unwritten_bytes = unwritten_bytes[os.write(self._file, unwritten_bytes) :]

    def commit(self) -> values.FileInfo:
        """Make the file appear in the workspace.

        Raises:
            WorkspaceFullError: it no longer fits.
        """
        owner = os.fstat(self._root)
        if owner.st_uid != os.geteuid():
            os.fchown(self._file, owner.st_uid, owner.st_gid)
        os.fchmod(self._file, 0o644)
        # One upload commits at a time, in all processes, so that each counts the earlier ones. The
        # lock is released in the same call: all threads may be waiting for it.
        fcntl.flock(self._staging, fcntl.LOCK_EX)
        try:
            self._check_room()
            name = self._move_into_workspace()
        finally:
            fcntl.flock(self._staging, fcntl.LOCK_UN)
        status = os.fstat(self._file)
        return values.FileInfo(name, self._written_bytes, status.st_mtime_ns)

    def close(self) -> None:
        """Release everything; an uncommitted file is deleted."""
        self._cleanup.close()

    def _move_into_workspace(self) -> str:
        for name in _candidate_names(self._name):
            with contextlib.suppress(FileExistsError):
                safe_open.move_without_replacing(self._staging, self._staged_name, self._root, name)
                return name
        raise errors.FileNameError  # unreachable: there is always another name

    def _close_later(self, descriptor: int) -> int:
        self._cleanup.callback(os.close, descriptor)
        return descriptor

    def _discard(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._staged_name, dir_fd=self._staging)

    def _check_room(self) -> None:
        usage = directory_contents.measure(
            self._root,
            max_bytes=self._limits.workspace_bytes,
            max_files=self._limits.workspace_files - 1,
        )
        if usage.files >= self._limits.workspace_files:
            raise errors.WorkspaceFullError(file_words.too_many_files(self._limits.workspace_files))
        self._used_bytes = usage.bytes
        if usage.is_over_limit:
            raise errors.WorkspaceFullError
        self._check_bytes()

    def _check_bytes(self) -> None:
        disk = os.fstatvfs(self._root)
        if disk.f_bavail * disk.f_frsize < self._limits.disk_reserve_bytes:
            raise errors.WorkspaceFullError(file_words.MACHINE_DISK_FULL)
        max_bytes = self._limits.workspace_bytes
        if self._used_bytes + self._written_bytes > max_bytes:
            raise errors.WorkspaceFullError(file_words.does_not_fit(self._name, max_bytes))


def _candidate_names(name: str) -> Iterator[str]:
    """Yield `data.csv`, `data (2).csv`, … and finally random, unused names."""
    stem, suffix = os.path.splitext(name)
    yield name
    for number in range(2, 1000):
        yield f"{stem} ({number}){suffix}"
    while True:
        yield f"{stem} ({secrets.token_hex(4)}){suffix}"


class Content:
    """Content of an open file, up to its size when it was opened.

    Iterate over it (asynchronously) for chunks of at most `CHUNK_BYTES`.

    Attributes:
        info: name, size and time as of opening.
    """

    info: values.FileInfo

    def __init__(self, root: pathlib.Path, name: str, *, max_bytes: int) -> None:
        self._root, self._name = root, name
        self._max_bytes = max_bytes
        self.info = values.FileInfo(name, 0, 0)
        self._file: BinaryIO | None = None
        self._remaining_bytes = 0

    def begin(self) -> None:
        """Open the file. Blocks.

        Raises:
            FileMissingError: there is no such regular file with one name.
            FileTooLargeError: it holds more than `max_bytes`.
        """
        path = directory_contents.parse_display_name(self._name)
        with root_descriptor(self._root) as root:
            # Use a file object: unlike a descriptor, it cannot be closed during a read.
            self._file = os.fdopen(safe_open.open_file(root, path), "rb")
        status = os.fstat(self._file.fileno())
        if status.st_size > self._max_bytes:
            raise errors.FileTooLargeError(file_words.too_large(self.info.name, self._max_bytes))
        self.info = values.FileInfo(self.info.name, status.st_size, status.st_mtime_ns)
        self._remaining_bytes = status.st_size
        self._block_bytes = status.st_blocks * 512

    def refuse_sparse(self) -> None:
        """Refuse a file that is nearly all holes, because a copy would use its full size.

        Raises:
            FileTooLargeError: the file is nearly all holes.
        """
        size_bytes = self.info.size_bytes
        if size_bytes > _MIN_SPARSE_BYTES and self._block_bytes * _SPARSE_FACTOR < size_bytes:
            raise errors.FileTooLargeError(file_words.mostly_empty(self.info.name))

    def close(self) -> None:
        """Close the file. Blocks while another task reads."""
        if self._file is not None:
            self._file.close()

    async def skip(self, size_bytes: int) -> None:
        assert self._file is not None, "read inside `async with`"  # noqa: S101
        skipped_bytes = min(size_bytes, self._remaining_bytes)
        await in_thread(self._file.seek, skipped_bytes, os.SEEK_CUR)
        self._remaining_bytes -= skipped_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks; a second iteration continues where the first one stopped.

        Raises:
            WorkspaceError: reading failed.
            ValueError: the file is closed.
        """
        assert self._file is not None, "read inside `async with`"  # noqa: S101
        while self._remaining_bytes:
            chunk = await in_thread(self._file.read, min(CHUNK_BYTES, self._remaining_bytes))
            if not chunk:
                return
            self._remaining_bytes -= len(chunk)
            yield chunk


def sweep(root: pathlib.Path) -> int:
    """Delete staged files that no upload has locked, and return how many. Blocks."""
    deleted_count = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(root.parent / STAGING) as staged_files:
        for entry in staged_files:
            with contextlib.suppress(FileNotFoundError, BlockingIOError), open(entry.path) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
                deleted_count += 1
    return deleted_count
