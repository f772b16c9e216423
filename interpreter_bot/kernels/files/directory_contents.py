r"""Scan of a directory that hostile code writes to: its entries and its size. Functions block.

People and models see a path as `display_name(path)`. Control, format and bidirectional characters,
look-alikes of the slash, bytes that are not UTF-8 and the backslash itself become `\xNN`. This is
reversible: every file can be read by the name it is listed under, and names are unique.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import TypeAlias

from interpreter_bot import errors, values
from interpreter_bot.kernels.files import safe_open
from interpreter_bot.text import file_names
from interpreter_bot.wording import file_words

MAX_PATH_BYTES = 1024
"""Longest relative path that is listed and read."""
MAX_DEPTH = 64
"""Deepest nesting of directories that is scanned."""

_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_MISSING_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_UNREADABLE_ERRORS = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EXDEV)

Identity: TypeAlias = tuple[int, int, int, int]
"""Inode, bytes, and the times of change and of inode change in ns: new after each write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A scanned file: a regular file with one name, or a refused entry.

    Attributes:
        info: for people; only the name is meaningful if the entry is refused.
        path: the true relative path.
        identity: differs after each change.
        refusal: why the entry cannot be read; empty for a readable file.
        is_link: whether it is refused as a symbolic link.
        disk_bytes: disk usage of the file.
    """

    info: values.FileInfo
    path: bytes
    identity: Identity
    refusal: str
    is_link: bool = False
    disk_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """Result of a bounded scan of a directory.

    Attributes:
        entries: files and refused entries; entries of a folder follow each other.
        folders: paths of the readable subdirectories, parents first.
        is_truncated: whether there were more entries than allowed.
    """

    entries: tuple[Entry, ...]
    folders: tuple[bytes, ...]
    is_truncated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class DirectoryUsage:
    """Disk usage of a directory.

    Attributes:
        bytes: size of used blocks; hard links count once, holes not at all.
        files: number of entries of every kind below the root, including directories.
        is_partial: whether counting stopped early, so that the figures are lower bounds.
        is_over_limit: whether a limit is exceeded, or something cannot be counted.
        is_uncountable: whether something is nested too deeply or unreadable; unknown if counting
            stopped early because a limit is far exceeded.
    """

    bytes: int
    files: int
    is_partial: bool
    is_over_limit: bool
    is_uncountable: bool = False


def display_name(path: bytes) -> str:
    """Return a path made safe to show, reversibly; see the module."""
    text = path.decode("utf-8", "surrogateescape")
    if all(map(file_names.is_plain, text)):
        return text
    return "".join(
        character if file_names.is_plain(character) else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def path_of_name(name: str) -> bytes:
    """Return the path that `display_name` shows as `name`.

    Raises:
        FileMissingError: no file has that display name.
    """
    try:
        path = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode())
    except UnicodeEncodeError:
        raise errors.FileMissingError from None
    if display_name(path) != name or _is_too_deep(path):
        raise errors.FileMissingError
    return path


def scan(root: int, max_entries: int) -> Scan:
    """Scan the directory `root`, top first, at most `max_entries` entries."""
    entries: list[Entry] = []
    folders: list[bytes] = []
    pending = collections.deque([b""])
    budget = max_entries
    while pending:
        directory = pending.popleft()
        try:
            descriptor = safe_open.open_directory(root, directory)
        except OSError as e:
            if directory and e.errno in _UNREADABLE_ERRORS:
                entries.append(_refused_entry(directory, file_words.FOLDER_UNREADABLE))
            elif not directory or e.errno not in _MISSING_ERRORS:
                raise
            continue
        if directory:
            folders.append(directory)
        with _listing(descriptor) as items:
            for item in items:
                if not budget:
                    return Scan(tuple(entries), tuple(folders), is_truncated=True)
                budget -= 1
                path = os.path.join(directory, os.fsencode(item.name))
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    entry = _entry(path, item.stat(follow_symlinks=False))
                    if entry:
                        entries.append(entry)
                    else:
                        pending.append(path)
    return Scan(tuple(entries), tuple(folders), is_truncated=False)


def _entry(path: bytes, status: os.stat_result) -> Entry | None:
    """Return a file or a refused entry; None for a directory to scan."""
    if _is_too_deep(path):
        return _refused_entry(path, file_words.NESTED_TOO_DEEPLY)
    if stat.S_ISDIR(status.st_mode):
        return None
    return Entry(
        info=values.FileInfo(display_name(path), status.st_size, status.st_mtime_ns),
        path=path,
        identity=(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
        refusal=safe_open.refusal(status),
        is_link=stat.S_ISLNK(status.st_mode),
        disk_bytes=disk_bytes(status),
    )


def disk_bytes(status: os.stat_result) -> int:
    """Return the disk usage of a file's copy, without holes."""
    return min(status.st_blocks * 512, status.st_size)


def _refused_entry(path: bytes, reason: str) -> Entry:
    """Build the entry of an unreadable path, without times, which vary with a directory's files."""
    name = display_name(path[:MAX_PATH_BYTES]) + "…" * (len(path) > MAX_PATH_BYTES)
    return Entry(values.FileInfo(name, 0, 0), path, (0, 0, 0, 0), reason)


def _is_too_deep(path: bytes) -> bool:
    return len(path) > MAX_PATH_BYTES or path.count(b"/") >= MAX_DEPTH


def measure(
    root: int, *, max_bytes: int, max_files: int, overshoot_factor: int = 1
) -> DirectoryUsage:
    """Count the blocks and entries below `root`.

    Counting stops when a figure exceeds `overshoot_factor` times its limit. A directory that its
    owner may not read gets another mode, so that it hides nothing. Deleted files that are still
    open are not counted.
    """
    used_bytes, files, has_unreadable = 0, 0, False
    counted_inodes: set[tuple[int, int]] = set()
    pending = [b""]
    while pending:
        directory = pending.pop()
        try:
            descriptor = safe_open.open_directory(root, directory, is_forced=True)
        except OSError as e:
            if e.errno in _UNREADABLE_ERRORS:
                has_unreadable = True
            elif e.errno not in _MISSING_ERRORS:
                raise
            continue
        with _listing(descriptor) as items:
            for item in items:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                files += 1
                if stat.S_ISDIR(status.st_mode):
                    pending.append(os.path.join(directory, os.fsencode(item.name)))
                elif status.st_nlink > 1:
                    key = (status.st_dev, status.st_ino)
                    if key in counted_inodes:
                        continue
                    counted_inodes.add(key)
                used_bytes += status.st_blocks * 512
                if (
                    used_bytes > overshoot_factor * max_bytes
                    or files > overshoot_factor * max_files
                ):
                    return DirectoryUsage(used_bytes, files, is_partial=True, is_over_limit=True)
    is_over_limit = has_unreadable or used_bytes > max_bytes or files > max_files
    return DirectoryUsage(
        used_bytes,
        files,
        is_partial=has_unreadable,
        is_over_limit=is_over_limit,
        is_uncountable=has_unreadable,
    )


@contextlib.contextmanager
def _listing(descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Iterate over the entries of an open directory, which is closed afterwards."""
    try:
        with os.scandir(descriptor) as items:
            yield items
    finally:
        os.close(descriptor)
