"""Safe open, move and delete below a directory while hostile code writes to it.

Nothing here follows a link, leaves the directory or its file system, waits for a fifo, or recurses.
Directories are held as descriptors; paths are bytes relative to them. Every function blocks, for as
long as the disk takes. `directory_contents` lists and measures with these, `workspace_io`
reads and writes with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import itertools
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator

from interpreter_bot import errors
from interpreter_bot.wording import file_words

SEVERAL_NAMES = file_words.SEVERAL_NAMES
"""Refusal of a file with hard links: the others may lie outside."""

_LONGEST_PATH_BYTES = 4095 - len("/mnt/data/")  # of PATH_MAX: code inside cannot name more
_MAX_REMOVALS = 20_000_000
_BATCH = 1000
_OPENAT2 = 437  # the same number on every architecture Python knows but alpha
_RENAME_NOREPLACE = 1
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
# NONBLOCK also ends the wait for a lease (fcntl F_SETLEASE), not only for a fifo.
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = _READING | os.O_DIRECTORY
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BROKEN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})
"""Numbers of errors by which the machine says that it is short of something, or broken."""


class _How(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def refusal(status: os.stat_result) -> str:
    """Return why such a file is not read, as the end of "x was left out: it …"; empty if it is."""
    if stat.S_ISLNK(status.st_mode):
        return file_words.LINK
    if not stat.S_ISREG(status.st_mode):
        return file_words.NOT_REGULAR
    if status.st_nlink > 1:
        return SEVERAL_NAMES
    return "" if status.st_nlink else file_words.IS_DELETED


def open_file(root: int, path: bytes, *, may_be_linked: bool = False) -> int:
    """Open a regular file that has exactly one name, for reading.

    Args:
        root: descriptor of the directory that must not be left.
        path: relative to it, of plain components.
        may_be_linked: it may have several names, as in directories where no code reaches.

    Raises:
        FileMissingError: there is no such file, or it is refused.
        WorkspaceError: the machine is short of descriptors, memory or disk.
    """
    try:
        descriptor = _open(root, path, _READING)
    except OSError as e:
        kind = errors.WorkspaceError if e.errno in BROKEN else errors.FileMissingError
        raise kind from e
    reason = refusal(os.fstat(descriptor))
    if reason and not (may_be_linked and reason == SEVERAL_NAMES):
        os.close(descriptor)
        raise errors.FileMissingError
    return descriptor


def read_link(folder: int, name: bytes) -> bytes:
    """Return what a symbolic link in an open directory says, wherever that may lead.

    Raises:
        FileMissingError: there is no such link.
        WorkspaceError: as above.
    """
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as e:
        kind = errors.WorkspaceError if e.errno in BROKEN else errors.FileMissingError
        raise kind from e


def open_directory(root: int, path: bytes, *, is_forced: bool = False) -> int:
    """Open a directory below `root` for listing; an empty path is `root` itself.

    Args:
        root: descriptor of the directory that must not be left.
        path: relative to it, of plain components.
        is_forced: change the mode of a directory that its owner is not permitted to open.

    Raises:
        OSError: as of open(2); ELOOP or ENOTDIR for what is no directory (any more).
    """
    path = path or b"."
    try:
        descriptor = _open(root, path, _DIRECTORY)
    except PermissionError:
        if not is_forced:
            raise
        handle = _open(root, path, _HANDLE)
        try:
            # The path by /proc changes the mode of the open directory, not of what has its name
            # now.
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        return _open(root, path, _DIRECTORY)
    if is_forced and os.geteuid():
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o700 != 0o700:
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, mode | 0o700)
    return descriptor


def place(source: int, name: str, target: int, new_name: str) -> None:
    """Move `name` of directory `source` to `new_name` in `target`, never replacing anything.

    Raises:
        FileExistsError: something has that name already.
        OSError: anything else.
    """
    rename = getattr(_libc(), "renameat2", None)
    if rename is not None:
        old, new = os.fsencode(name), os.fsencode(new_name)
        if not rename(source, old, target, new, _RENAME_NOREPLACE):
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise OSError(code, os.strerror(code))
    # Some file systems lack it. The file has two names for a moment, and is refused until then.
    os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(name, dir_fd=source)


def remove(directory: pathlib.Path) -> None:
    """Remove a directory that user code may have written to, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_tree(parent, directory.name)
        finally:
            os.close(parent)


def remove_tree(parent: int, name: str) -> None:
    """Delete `name` in the directory `parent` and all below it, at any depth. Missing is fine.

    Subdirectories are moved up beside their parent before it is removed, so neither depth nor
    length of paths matters. The processes that write there should be dead by now.

    Raises:
        OSError: something cannot be deleted, or is created faster than deleted.
    """
    budget = iter(range(_MAX_REMOVALS))
    prefix = f".{secrets.token_hex(8)}-"
    while _remains(parent, name):
        root = open_directory(parent, os.fsencode(name), is_forced=True)
        try:
            while batch := _names(root):
                for child in batch:
                    _spend(budget)
                    if _remains(root, child):
                        _flatten(root, child, prefix, budget)
        finally:
            os.close(root)


def _flatten(root: int, name: str, prefix: str, budget: Iterator[int]) -> None:
    """Delete a directory of `root`, having moved its subdirectories into `root`."""
    directory = open_directory(root, os.fsencode(name), is_forced=True)
    try:
        while batch := _names(directory):
            for child in batch:
                number = _spend(budget)
                if not _remains(directory, child):
                    continue
                # Moving a directory requires write permission to it, for its "..".
                os.close(open_directory(directory, os.fsencode(child), is_forced=True))
                os.rename(child, f"{prefix}{number}", src_dir_fd=directory, dst_dir_fd=root)
    finally:
        os.close(directory)
    _remains(root, name)


def _spend(budget: Iterator[int]) -> int:
    number = next(budget, None)
    if number is None:
        raise OSError(errno.ENOTEMPTY, "more is made than deleted")
    return number


def _remains(directory: int, name: str) -> bool:
    """Delete a file or an empty directory; True if it is a directory that is not empty."""
    try:
        os.unlink(name, dir_fd=directory)
        return False
    except FileNotFoundError:
        return False
    except (IsADirectoryError, PermissionError) as e:
        first = e  # unlink(2) of a directory gives EISDIR, or in POSIX EPERM
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise first from None
    except OSError as e:
        if e.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return True
        raise
    return False


def _names(directory: int) -> list[str]:
    """Return the first names in a directory, a bounded number."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _BATCH)]


def _open(root: int, path: bytes, flags: int) -> int:
    """Open what lies strictly below `root`, by openat2 or else component by component."""
    if len(path) > _LONGEST_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if path != b"." and any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    try:
        return _openat2(root, path, flags)
    except OSError as e:
        # EPERM is what older Docker's seccomp profile answers to unknown calls.
        if e.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _walk(root, path, flags)


def _openat2(root: int, path: bytes, flags: int) -> int:
    if b"\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    how = _How(flags, 0, _RESOLVE)
    for _ in range(10):
        descriptor = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_long(root),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(code, os.strerror(code))


def _walk(root: int, path: bytes, flags: int) -> int:
    """Open component by component. None is "..", so concurrent moves cannot lead outside.

    Only directories are compared with the root's device: overlayfs has others for its files.
    """
    device = os.fstat(root).st_dev
    *parents, last = path.split(b"/")
    here = os.dup(root)
    try:
        for part in parents:
            below = os.open(part, _HANDLE, dir_fd=here)
            os.close(here)
            here = below
            _stay(here, device)
        descriptor = os.open(last, flags, dir_fd=here)
    finally:
        os.close(here)
    if flags & os.O_DIRECTORY:
        try:
            _stay(descriptor, device)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def _stay(descriptor: int, device: int) -> None:
    if os.fstat(descriptor).st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
