"""Copies of files that hostile code wrote, and may still be writing. Functions block.

A copy shares no inode with its original. If the file system supports it, copy_file_range(2) lets
both share blocks until one of them changes. Holes stay holes, so a copy uses no more disk than its
original.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import time
from collections.abc import Collection
from typing import Final

from interpreter_bot import errors
from interpreter_bot.kernels.files import directory_contents, safe_open, workspace_io
from interpreter_bot.text import quantities
from interpreter_bot.wording import file_words

# A copy leaves twice the reserve free, so that it alone never causes running code to be stopped.
_MIN_FREE_RESERVES: Final = 2
_CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits of a copy.

    Attributes:
        max_bytes: disk usage of all files; code that writes meanwhile may exceed it by one file.
        max_files: number of files and folders.
        reserve_bytes: twice as much disk space stays free.
        max_seconds: a copy that takes longer fails.
    """

    max_bytes: int
    max_files: int
    reserve_bytes: int
    max_seconds: float = 600.0


def copy_tree(source: pathlib.Path, target: pathlib.Path, limits: CopyLimits) -> str:
    """Copy everything below a directory, links as links, into an empty one that no code uses.

    Returns:
        A sentence that says why a file is missing or torn: it has several names, is a pipe, or
        changed. Empty if the copy is complete.

    Raises:
        WorkspaceFullError: a limit is exceeded.
        OSError: the operating system refuses.
    """
    with (
        workspace_io.root_descriptor(source) as source_root,
        workspace_io.root_descriptor(target) as target_root,
    ):
        scan = directory_contents.scan(source_root, limits.max_files)
        if scan.is_truncated:
            raise errors.WorkspaceFullError(file_words.copy_too_many(limits.max_files))
        for folder in scan.folders:
            os.close(_open_or_make(target_root, folder))
        return copy_entries(source_root, target_root, scan.entries, limits)


def copy_entries(
    source: int,
    target: int,
    entries: Collection[directory_contents.Entry],
    limits: CopyLimits,
) -> str:
    """Copy scanned entries from an open directory into another; see `copy_tree`."""
    if sum(entry.disk_bytes for entry in entries) > limits.max_bytes:
        size = quantities.size(limits.max_bytes)
        raise errors.WorkspaceFullError(file_words.copy_too_large(size))
    flaw, deadline = "", time.monotonic() + limits.max_seconds
    for folder, group in itertools.groupby(entries, lambda entry: os.path.dirname(entry.path)):
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, target_folder := _open_or_make(target, folder))
            source_folder = _open_if_present(source, folder, stack)
            for entry in group:
                try:
                    if source_folder is None:
                        raise errors.FileMissingError(file_words.CHANGED_MEANWHILE)
                    _copy_entry(entry, source_folder, target_folder, limits, deadline)
                except errors.FileMissingError as error:
                    flaw = flaw or file_words.not_copied(entry.info.name, error)
    return flaw


def _copy_entry(
    entry: directory_contents.Entry,
    source_folder: int,
    target_folder: int,
    limits: CopyLimits,
    deadline: float,
) -> None:
    """Copy an entry from one open folder to another.

    Raises:
        FileMissingError: the copy is missing or torn; the message says why.
    """
    name = os.path.basename(entry.path)
    if entry.is_link:
        os.symlink(safe_open.read_link(source_folder, name), name, dir_fd=target_folder)
        return
    if entry.refusal:
        raise errors.FileMissingError(entry.refusal)
    try:
        file = safe_open.open_file(source_folder, name)
    except errors.FileMissingError as error:
        raise errors.FileMissingError(file_words.CHANGED_MEANWHILE) from error
    try:
        status = os.fstat(file)
        disk = os.fstatvfs(target_folder)
        free_bytes = disk.f_bavail * disk.f_frsize - directory_contents.disk_bytes(status)
        if free_bytes < _MIN_FREE_RESERVES * limits.reserve_bytes:
            raise errors.WorkspaceFullError(file_words.COPY_DISK_FULL)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(name, flags, 0o600, dir_fd=target_folder)
        try:
            _copy_content(file, copy, status.st_size, deadline)
            os.fchmod(copy, status.st_mode & 0o777 | 0o600)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(copy)
        status_after = os.fstat(file)
        if (status_after.st_size, status_after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            raise errors.FileMissingError(file_words.CHANGED_MEANWHILE)
    finally:
        os.close(file)


def _copy_content(file: int, copy: int, size_bytes: int, deadline: float) -> None:
    offset = 0
    while offset < size_bytes:
        try:
            offset = os.lseek(file, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # The rest is a hole.
        end = min(os.lseek(file, offset, os.SEEK_HOLE), size_bytes)
        while offset < end:
            if time.monotonic() > deadline:
                raise errors.WorkspaceFullError(file_words.COPY_TOO_SLOW)
            copied_bytes = os.copy_file_range(
                file, copy, min(end - offset, _CHUNK_BYTES), offset, offset
            )
            if not copied_bytes:
                end = size_bytes = offset
            offset += copied_bytes
    os.ftruncate(copy, size_bytes)


def replace_content(directory: pathlib.Path, new_directory: pathlib.Path) -> None:
    """Replace the content of a directory that no code uses with that of `new_directory`.

    The directory's owner becomes the bot, so that `ownership` gives all files to the next kernel.
    """
    with (
        workspace_io.root_descriptor(directory) as root,
        workspace_io.root_descriptor(new_directory) as new_root,
    ):
        for name in os.listdir(root):
            safe_open.remove_tree(root, name)
        os.fchown(root, os.geteuid(), os.getegid())
        for name in os.listdir(new_root):
            os.rename(name, name, src_dir_fd=new_root, dst_dir_fd=root)


def _open_if_present(root: int, folder: bytes, stack: contextlib.ExitStack) -> int | None:
    """Open a folder until the stack closes; None if it is missing."""
    try:
        descriptor = safe_open.open_directory(root, folder)
    except OSError as error:
        if error.errno in safe_open.RESOURCE_ERRORS:
            raise
        return None
    stack.callback(os.close, descriptor)
    return descriptor


def _open_or_make(root: int, folder: bytes) -> int:
    """Open a folder below `root`, and create missing parts of its path."""
    descriptor = os.dup(root)
    for part in filter(None, folder.split(b"/")):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=descriptor)
            child = safe_open.open_directory(descriptor, part)
        finally:
            os.close(descriptor)
        descriptor = child
    return descriptor
