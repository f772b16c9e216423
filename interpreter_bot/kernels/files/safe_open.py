"""Safe open, move and delete below a directory that hostile code writes to. Functions block.

Nothing here follows a link, leaves the directory or its file system, waits for a fifo, or recurses.
Directories are given as descriptors; paths are bytes relative to them. `directory_contents` lists
and measures with these functions, `workspace_io` reads and writes with them.
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

# Code in a kernel cannot use longer paths, because of Linux's PATH_MAX.
_MAX_PATH_BYTES = 4095 - len("/mnt/data/")
_MAX_REMOVALS = 20_000_000
_BATCH_SIZE = 1000
_OPENAT2 = 437  # the number of the system call on every architecture that Python supports but alpha
_RENAME_NOREPLACE = 1
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
# O_NONBLOCK avoids waiting for a fifo, or for a lease (fcntl F_SETLEASE).
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY_FLAGS = _READ_FLAGS | os.O_DIRECTORY
_HANDLE_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
RESOURCE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})
"""Error numbers of a machine that lacks a resource or is broken."""


class _OpenHow(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def refusal_reason(status: os.stat_result) -> str:
    """Return why a file is refused, to end "x was left out: it …"; empty if it is not."""
    if stat.S_ISLNK(status.st_mode):
        return file_words.IS_LINK
    if not stat.S_ISREG(status.st_mode):
        return file_words.NOT_REGULAR
    if status.st_nlink > 1:
        return file_words.SEVERAL_NAMES
    return "" if status.st_nlink else file_words.WAS_DELETED


def open_file(root: int, path: bytes) -> int:
    """Open a regular file that has exactly one name, for reading.

    `path` is relative to descriptor `root`, without "." or "..".

    Raises:
        FileMissingError: there is no such file, or it is refused.
        WorkspaceError: the machine is short of descriptors, memory or disk.
    """
    try:
        descriptor = _open(root, path, _READ_FLAGS)
    except OSError as error:
        error_type = (
            errors.WorkspaceError if error.errno in RESOURCE_ERRORS else errors.FileMissingError
        )
        raise error_type from error
    if refusal_reason(os.fstat(descriptor)):
        os.close(descriptor)
        raise errors.FileMissingError
    return descriptor


def read_link(folder: int, name: bytes) -> bytes:
    """Return the target of a symbolic link in an open directory, wherever it may lead.

    Raises:
        FileMissingError: there is no such link.
        WorkspaceError: the machine is short of descriptors, memory or disk.
    """
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        error_type = (
            errors.WorkspaceError if error.errno in RESOURCE_ERRORS else errors.FileMissingError
        )
        raise error_type from error


def open_directory(root: int, path: bytes, *, is_forced: bool = False) -> int:
    """Open a directory below `root` for listing; an empty path is `root` itself.

    With `is_forced`, change the mode of a directory that its owner may not open.

    Raises:
        OSError: as of open(2); ELOOP or ENOTDIR if it is not a directory (any more).
    """
    path = path or b"."
    try:
        descriptor = _open(root, path, _DIRECTORY_FLAGS)
    except PermissionError:
        if not is_forced:
            raise
        handle = _open(root, path, _HANDLE_FLAGS)
        try:
            # Through /proc, chmod changes the open directory, even if code has replaced its name.
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        return _open(root, path, _DIRECTORY_FLAGS)
    if is_forced and os.geteuid():
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o700 != 0o700:
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, mode | 0o700)
    return descriptor


def move_without_replacing(source: int, name: str, target: int, new_name: str) -> None:
    """Move `name` of directory `source` to `new_name` in `target`, never replacing anything.

    Raises:
        FileExistsError: the new name is taken.
        OSError: the move failed.
    """
    rename = getattr(_libc(), "renameat2", None)
    if rename is not None:
        old_bytes, new_bytes = os.fsencode(name), os.fsencode(new_name)
        if not rename(source, old_bytes, target, new_bytes, _RENAME_NOREPLACE):
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise OSError(code, os.strerror(code))
    # Some file systems lack renameat2. While the file has two names, readers refuse it.
    os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(name, dir_fd=source)


def remove(directory: pathlib.Path) -> None:
    """Remove a directory that user code may have written to, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_tree(parent, directory.name)
        finally:
            os.close(parent)


def remove_tree(parent: int, name: str) -> None:
    """Delete `name` in the directory `parent` and everything below it, at any depth, if it exists.

    Subdirectories are moved to the top before their parent is removed, so the depth and length of
    paths do not matter. Processes that write there must be dead.

    Raises:
        OSError: something cannot be deleted, or is created faster than deleted.
    """
    removal_numbers = iter(range(_MAX_REMOVALS))
    prefix = f".{secrets.token_hex(8)}-"
    while _delete_unless_nonempty(parent, name):
        root = open_directory(parent, os.fsencode(name), is_forced=True)
        try:
            while batch := _list_batch(root):
                for child in batch:
                    _take_number(removal_numbers)
                    if _delete_unless_nonempty(root, child):
                        _flatten(root, child, prefix, removal_numbers)
        finally:
            os.close(root)


def _flatten(root: int, name: str, prefix: str, removal_numbers: Iterator[int]) -> None:
    """Delete a directory of `root`, after moving its subdirectories into `root`."""
    directory = open_directory(root, os.fsencode(name), is_forced=True)
    try:
        while batch := _list_batch(directory):
            for child in batch:
                number = _take_number(removal_numbers)
                if not _delete_unless_nonempty(directory, child):
                    continue
                # Moving a directory requires write permission to it, for its "..".
                os.close(open_directory(directory, os.fsencode(child), is_forced=True))
                os.rename(child, f"{prefix}{number}", src_dir_fd=directory, dst_dir_fd=root)
    finally:
        os.close(directory)
    _delete_unless_nonempty(root, name)


def _take_number(removal_numbers: Iterator[int]) -> int:
    number = next(removal_numbers, None)
    if number is None:
        raise OSError(errno.ENOTEMPTY, "files are created faster than deleted")
    return number


def _delete_unless_nonempty(directory: int, name: str) -> bool:
    """Delete a file or an empty directory; return whether it is a directory with content."""
    try:
        os.unlink(name, dir_fd=directory)
        return False
    except FileNotFoundError:
        return False
    except (IsADirectoryError, PermissionError) as error:
        unlink_error = error  # unlink(2) of a directory gives EISDIR, or in POSIX EPERM
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise unlink_error from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return True
        raise
    return False


def _list_batch(directory: int) -> list[str]:
    """Return a bounded number of names in a directory."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _BATCH_SIZE)]


def _open(root: int, path: bytes, flags: int) -> int:
    """Open a path strictly below `root`, with openat2 or else component by component."""
    if len(path) > _MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if path != b"." and any(component in (b"", b".", b"..") for component in path.split(b"/")):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    try:
        return _openat2(root, path, flags)
    except OSError as error:
        # Older seccomp profiles of Docker answer EPERM to unknown calls.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _open_by_component(root, path, flags)


def _openat2(root: int, path: bytes, flags: int) -> int:
    if b"\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    open_how = _OpenHow(flags, 0, _RESOLVE)
    for _ in range(10):
        descriptor = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_long(root),
            ctypes.c_char_p(path),
            ctypes.byref(open_how),
            ctypes.c_size_t(ctypes.sizeof(open_how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(code, os.strerror(code))


def _open_by_component(root: int, path: bytes, flags: int) -> int:
    """Open component by component. No component is "..", so concurrent moves cannot lead outside.

    Only directories are compared with the root's device: overlayfs gives files another number.
    """
    device = os.fstat(root).st_dev
    *parents, file_name = path.split(b"/")
    directory = os.dup(root)
    try:
        for component in parents:
            child = os.open(component, _HANDLE_FLAGS, dir_fd=directory)
            os.close(directory)
            directory = child
            _check_device(directory, device)
        descriptor = os.open(file_name, flags, dir_fd=directory)
    finally:
        os.close(directory)
    if flags & os.O_DIRECTORY:
        try:
            _check_device(descriptor, device)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def _check_device(descriptor: int, device: int) -> None:
    if os.fstat(descriptor).st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
