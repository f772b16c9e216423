"""Files that code leaves open or writes elsewhere, checked after each cell.

Buffers are flushed before files are sent to people; a message names files that would be incomplete
or would not be sent.
"""

from __future__ import annotations

import bz2
import contextlib
import gc
import gzip
import io
import lzma
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator

_DESCRIPTOR_DIRECTORY = "/proc/self/fd"
_BUFFERED_TYPES = (
    *(io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom),
    *(gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile),
)
# Formats that are unreadable until closing has written their last bytes.
_UNREADABLE_UNTIL_CLOSED = (
    *(".zip", ".gz", ".bz2", ".xz", ".tar", ".tgz", ".xlsx", ".xlsm", ".docx", ".pptx"),
    *(".parquet", ".feather", ".arrow", ".h5", ".hdf5", ".nc", ".npz", ".mp4", ".avi"),
)
_RESULT_SUFFIXES = (
    *_UNREADABLE_UNTIL_CLOSED,
    *(".csv", ".tsv", ".txt", ".json", ".jsonl", ".md", ".html", ".pdf", ".xml", ".svg"),
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".db", ".sqlite", ".pkl", ".wav", ".mp3"),
)
_MAX_FILES = 2000
_MAX_NAMED = 5
# The times of files are behind the clock by up to a tick.
_CLOCK_NANOSECONDS = 20_000_000


class OpenFiles:
    """Looks after the files of one session's code, one cell after the other."""

    def __init__(self, home: str) -> None:
        """`home` is the directory whose files are sent to people."""
        self._home = home
        # What descriptors are named by, even if `home` is a link.
        self._real_home = os.path.realpath(home)
        self._times_before: dict[str, int] = {}
        self._began_ns = 0
        self._reported: set[str] = set()

    def begin(self) -> None:
        """Remember files in other places, before a cell runs."""
        self._times_before = dict(self._find_results())
        self._began_ns = time.time_ns() - _CLOCK_NANOSECONDS

    def end(self) -> None:
        """Flush buffers, and print which files a person would miss."""
        opened = dict(_find_open_files())
        if opened:
            _flush(opened)
        unfinished = {
            path
            for path in opened.values()
            if path.startswith(self._real_home + "/")
            and path.lower().endswith(_UNREADABLE_UNTIL_CLOSED)
        }
        for path in sorted(unfinished - self._reported)[:_MAX_NAMED]:
            name = os.path.relpath(path, self._real_home)
            sys.stderr.write(f"{name} is still open, so it is not complete: close it.\n")
        self._reported = unfinished
        # The working directory may be another one than before.
        new = {
            path
            for path, changed in self._find_results()
            if changed >= self._began_ns and self._times_before.get(path) != changed
        }
        if new:
            names = ", ".join(sorted(new)[:_MAX_NAMED]) + (", …" if len(new) > _MAX_NAMED else "")
            sys.stderr.write(f"Only files in {self._home} are given back, not: {names}\n")

    def _find_results(self) -> Iterator[tuple[str, int]]:
        """Find results in the other places where code writes, with their times."""
        places = [tempfile.gettempdir()]
        with contextlib.suppress(OSError):
            if not f"{os.getcwd()}/".startswith(f"{os.path.realpath(places[0])}/"):
                places.append(os.getcwd())
        files_left = _MAX_FILES
        for place in dict.fromkeys(places):
            if place == self._home or place.startswith(self._home + "/"):
                continue
            for directory, folders, names in os.walk(place):
                # Hidden files and Python's temporary files are not for people.
                folders[:] = [name for name in folders if not name.startswith((".", "tmp"))]
                folders[:] = [name for name in folders if f"{directory}/{name}" != self._home]
                for name in names:
                    files_left -= 1
                    if name.lower().endswith(_RESULT_SUFFIXES) and not name.startswith(
                        (".", "tmp")
                    ):
                        path = f"{directory}/{name}"
                        with contextlib.suppress(OSError):
                            yield path, os.stat(path).st_mtime_ns
                if files_left < 0 or directory.count("/") - place.count("/") > 2:
                    folders.clear()
                if files_left < 0:
                    break


def _find_open_files() -> Iterator[tuple[int, str]]:
    """Find the regular files that this process has open and may write to."""
    for name in os.listdir(_DESCRIPTOR_DIRECTORY):
        with contextlib.suppress(OSError, ValueError):
            descriptor = int(name)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                with open(f"/proc/self/fdinfo/{name}") as info:
                    flags = int(info.read().partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    yield descriptor, os.readlink(f"{_DESCRIPTOR_DIRECTORY}/{name}")


def _flush(opened: dict[int, str]) -> None:
    """Flush buffers of these files, not of pipes and sockets, which may block."""
    for file in gc.get_objects():
        if type(file) in _BUFFERED_TYPES:
            # Any exception: the disk may be full, or the file closed behind its back.
            with contextlib.suppress(Exception):
                if not file.closed and file.writable() and file.fileno() in opened:
                    file.flush()
