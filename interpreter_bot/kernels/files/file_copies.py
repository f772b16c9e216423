"""Copies of files that hostile code wrote, and may still be writing. Everything here blocks.

A copy shares no inode with its original; where the file system can, it shares the blocks until one
of both is written to. Holes stay holes: a copy takes no more of the disk than its original.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from typing import Final

from interpreter_bot import errors
from interpreter_bot.kernels.files import directory_contents, safe_open

_CLONE: Final = 0x40049409  # FICLONE of ioctl_ficlonerange(2)
# A copy alone never brings the disk so far that running code is stopped.
_RESERVES: Final = 2
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_FULL: Final = "The disk of the machine is nearly full."
_TOO_LARGE: Final = "The files are larger than what may be copied."


def copy_files(
    source: int,
    target: int,
    entries: Iterable[directory_contents.Entry],
    *,
    most_bytes: int,
    reserve_bytes: int,
) -> None:
    """Copy files into another directory, under the same names; what is gone by now is left out.

    Args:
        source: descriptor of their directory.
        target: descriptor of the other one, which no code uses now.
        entries: the files, as scanned in `source`.
        most_bytes: that they may take of the disk together.
        reserve_bytes: of the disk; twice as much must stay free.

    Raises:
        WorkspaceFullError: they take more, or the disk is nearly full.
        OSError: the operating system refuses.
    """
    left = most_bytes
    for entry in entries:
        try:
            file = safe_open.open_file(source, entry.path)
        except errors.FileMissingError:
            continue
        try:
            left -= copy_file(
                file, target, entry.path, most_bytes=left, reserve_bytes=reserve_bytes
            )
        finally:
            os.close(file)


def copy_file(file: int, target: int, path: bytes, *, most_bytes: int, reserve_bytes: int) -> int:
    """Copy an open file; returns how many bytes of the disk it takes.

    Args:
        file: descriptor of the original.
        target: descriptor of the directory for the copy, where it belongs to whom that belongs.
        path: of the copy below it. Nothing of that name may be there; folders are made.
        most_bytes: as above.
        reserve_bytes: as above.

    Raises:
        WorkspaceFullError: as above.
        OSError: as above.
    """
    status = os.fstat(file)
    held = min(status.st_blocks * 512, status.st_size)
    disk = os.fstatvfs(target)
    if held > most_bytes:
        raise errors.WorkspaceFullError(_TOO_LARGE)
    if disk.f_bavail * disk.f_frsize - held < _RESERVES * reserve_bytes:
        raise errors.WorkspaceFullError(_FULL)
    owner = os.fstat(target)
    folder, name = os.path.split(path)
    directory = _made(target, folder, owner)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            _copy_content(file, copy, status.st_size, most_bytes)
            _give(copy, owner)
            os.fchmod(copy, status.st_mode & 0o777 | 0o600)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            os.unlink(name, dir_fd=directory)
            raise
        finally:
            os.close(copy)
    finally:
        os.close(directory)
    return held


def _made(root: int, folder: bytes, owner: os.stat_result) -> int:
    """Open a folder below `root`, made where it is missing."""
    directory = os.dup(root)
    try:
        for part in filter(None, folder.split(b"/")):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=directory)
                made = safe_open.open_directory(directory, part)
                try:
                    _give(made, owner)
                finally:
                    os.close(made)
            below = safe_open.open_directory(directory, part, is_forced=True)
            os.close(directory)
            directory = below
    except BaseException:
        os.close(directory)
        raise
    return directory


def _give(descriptor: int, owner: os.stat_result) -> None:
    if owner.st_uid != os.geteuid():
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _copy_content(file: int, copy: int, size: int, most_bytes: int) -> None:
    try:
        fcntl.ioctl(copy, _CLONE, file)
        return
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            raise
    at, written = 0, 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # Nothing but a hole follows.
        end = min(os.lseek(file, at, os.SEEK_HOLE), size)
        while at < end:
            # The code may fill holes meanwhile.
            if written > most_bytes:
                raise errors.WorkspaceFullError(_TOO_LARGE)
            count = os.copy_file_range(file, copy, min(end - at, _CHUNK_BYTES), at, at)
            if not count:
                end = size = at
            at, written = at + count, written + count
    os.ftruncate(copy, size)
