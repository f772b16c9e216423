r"""Scan of a directory that hostile code writes to, for its entries and its size. Functions block.

People and models see a path as `display_name(path)`. Control, format and bidirectional characters,
look-alikes of the slash, bytes that are not UTF-8 and the backslash itself become `\xNN`. The
conversion is reversible: every file can be read by its listed name, and names are unique.
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

_ESCAPE_PATTERN = re.compile(rb"\\x([0-9a-f]{2})")
_MISSING_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_UNREADABLE_ERRORS = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EXDEV)

Identity: TypeAlias = tuple[int, int, int, int]
"""Inode, size, and times of change of content and of inode in ns: differs after each write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A scanned file: a regular file with one name, or a refused entry.

    Attributes:
        info: description for people; if the entry is refused, only its name is meaningful.
        path: relative path, in the bytes of the file system.
        identity: of the file; differs after each change.
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
            stopped early at a limit.
    """

    bytes: int
    files: int
    is_partial: bool
    is_over_limit: bool
    is_uncountable: bool = False


def display_name(path: bytes) -> str:
    """Return a path in a form that is safe to show and reversible; see the module."""
    text = path.decode("utf-8", "surrogateescape")
    if all(map(file_names.is_plain, text)):
        return text
    return "".join(
        character if file_names.is_plain(character) else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def parse_display_name(name: str) -> bytes:
    """Return the path that `display_name` shows as `name`.

    Raises:
        FileMissingError: no file has that display name.
    """
    try:
        path = _ESCAPE_PATTERN.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode())
    except UnicodeEncodeError:
        raise errors.FileMissingError from None
    if display_name(path) != name or _is_too_deep(path):
        raise errors.FileMissingError
    return path


def scan(root: int, max_entries: int) -> Scan:
    """Scan the directory `root` from the top, at most `max_entries` entries."""
    entries: list[Entry] = []
    folders: list[bytes] = []
    pending_directories = collections.deque([b""])
    entries_left = max_entries
    while pending_directories:
        directory = pending_directories.popleft()
        try:
            descriptor = safe_open.open_directory(root, directory)
        except OSError as error:
            if directory and error.errno in _UNREADABLE_ERRORS:
                entries.append(_make_refused_entry(directory, file_words.FOLDER_UNREADABLE))
            elif not directory or error.errno not in _MISSING_ERRORS:
                raise
            continue
        if directory:
            folders.append(directory)
        with _scan_and_close(descriptor) as items:
            for item in items:
                if not entries_left:
                    return Scan(tuple(entries), tuple(folders), is_truncated=True)
                entries_left -= 1
                path = os.path.join(directory, os.fsencode(item.name))
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    entry = _make_entry(path, item.stat(follow_symlinks=False))
                    if entry:
                        entries.append(entry)
                    else:
                        pending_directories.append(path)
    return Scan(tuple(entries), tuple(folders), is_truncated=False)


def _make_entry(path: bytes, status: os.stat_result) -> Entry | None:
    """Return a file or a refused entry; None for a directory to scan."""
    if _is_too_deep(path):
        return _make_refused_entry(path, file_words.NESTED_TOO_DEEPLY)
    if stat.S_ISDIR(status.st_mode):
        return None
    return Entry(
        info=values.FileInfo(display_name(path), status.st_size, status.st_mtime_ns),
        path=path,
        identity=(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
        refusal=safe_open.refusal_reason(status),
        is_link=stat.S_ISLNK(status.st_mode),
        disk_bytes=disk_bytes(status),
    )


def disk_bytes(status: os.stat_result) -> int:
    """Return the disk usage of a file's copy, without holes."""
    return min(status.st_blocks * 512, status.st_size)


def _make_refused_entry(path: bytes, reason: str) -> Entry:
    """Build the entry of an unreadable path, without times, which change with files in it."""
    name = display_name(path[:MAX_PATH_BYTES]) + "…" * (len(path) > MAX_PATH_BYTES)
    return Entry(values.FileInfo(name, 0, 0), path, (0, 0, 0, 0), reason)


def _is_too_deep(path: bytes) -> bool:
    return len(path) > MAX_PATH_BYTES or path.count(b"/") >= MAX_DEPTH


def measure(
    root: int, *, max_bytes: int, max_files: int, overshoot_factor: int = 1
) -> DirectoryUsage:
    """Count the blocks and entries below `root`.

    Counting stops when a figure exceeds `overshoot_factor` times its limit. A directory that its
    owner may not read is made readable first, so that code cannot hide files in it. Deleted files
    that are still open are not counted.
    """
    used_bytes, file_count, has_unreadable = 0, 0, False
    counted_inodes: set[tuple[int, int]] = set()
    pending_directories = [b""]
    while pending_directories:
        directory = pending_directories.pop()
        try:
            descriptor = safe_open.open_directory(root, directory, is_forced=True)
        except OSError as error:
            if error.errno in _UNREADABLE_ERRORS:
                has_unreadable = True
            elif error.errno not in _MISSING_ERRORS:
                raise
            continue
        with _scan_and_close(descriptor) as items:
            for item in items:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                file_count += 1
                if stat.S_ISDIR(status.st_mode):
                    pending_directories.append(os.path.join(directory, os.fsencode(item.name)))
                elif status.st_nlink > 1:
                    key = (status.st_dev, status.st_ino)
                    if key in counted_inodes:
                        continue
                    counted_inodes.add(key)
                used_bytes += status.st_blocks * 512
                if (
                    used_bytes > overshoot_factor * max_bytes
                    or file_count > overshoot_factor * max_files
                ):
                    return DirectoryUsage(
                        used_bytes, file_count, is_partial=True, is_over_limit=True
                    )
    is_over_limit = has_unreadable or used_bytes > max_bytes or file_count > max_files
    return DirectoryUsage(
        used_bytes,
        file_count,
        is_partial=has_unreadable,
        is_over_limit=is_over_limit,
        is_uncountable=has_unreadable,
    )


@contextlib.contextmanager
def _scan_and_close(descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Yield the entries of an open directory, and close the directory at the end."""
    try:
        with os.scandir(descriptor) as items:
            yield items
    finally:
        os.close(descriptor)
