"""Files that code leaves open, or writes outside the workspace, checked after each cell.

Buffers are flushed, so that files are sent to people complete. A message names files that are still
incomplete, or that are not sent because of their directory.
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
# Formats that are unreadable until the file is closed, which writes the last bytes.
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
_MAX_NAMED_FILES = 5
# Modification times may be behind the clock by up to a tick.
_CLOCK_NANOSECONDS = 20_000_000


class OpenFiles:
    """Checks the files of one session's code, cell by cell."""

    def __init__(self, home: str) -> None:
        """`home` is the directory whose files are sent to people."""
        self._home = home
        # Descriptors name this path, even if `home` is a link.
        self._real_home = os.path.realpath(home)
        self._start_ns = 0
        self._reported_paths: set[str] = set()
        self._reported_results: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Remember when a cell begins."""
        self._start_ns = time.time_ns() - _CLOCK_NANOSECONDS

    def end(self) -> None:
        """Flush buffers, and print which files are incomplete or not sent."""
        open_paths = dict(_find_open_files())
        if open_paths:
            _flush(open_paths)
        unfinished_paths = {
            path
            for path in open_paths.values()
            if path.startswith(self._real_home + "/")
            and path.lower().endswith(_UNREADABLE_UNTIL_CLOSED)
        }
        for path in sorted(unfinished_paths - self._reported_paths)[:_MAX_NAMED_FILES]:
            name = os.path.relpath(path, self._real_home)
            sys.stderr.write(f"{name} is still open, so it is not complete: close it.\n")
        self._reported_paths = unfinished_paths
        new_results = {
            (path, time_ns)
            for path, time_ns in self._find_result_files()
            if time_ns >= self._start_ns
        } - self._reported_results
        self._reported_results = new_results
        if new_results:
            paths = sorted(path for path, _ in new_results)
            more_note = ", …" if len(paths) > _MAX_NAMED_FILES else ""
            names = ", ".join(paths[:_MAX_NAMED_FILES]) + more_note
            sys.stderr.write(f"Only files in {self._home} are given back, not: {names}\n")

    def _find_result_files(self) -> Iterator[tuple[str, int]]:
        """Find result files outside the workspace, with their modification times."""
        roots = [tempfile.gettempdir()]
        with contextlib.suppress(OSError):
            if not f"{os.getcwd()}/".startswith(f"{os.path.realpath(roots[0])}/"):
                roots.append(os.getcwd())
        remaining_files = _MAX_FILES
        for root in dict.fromkeys(roots):
            if root == self._home or root.startswith(self._home + "/"):
                continue
            for directory, subdirectories, names in os.walk(root):
                # Hidden files and Python's temporary files are not for people.
                subdirectories[:] = [
                    name for name in subdirectories if not name.startswith((".", "tmp"))
                ]
                subdirectories[:] = [
                    name for name in subdirectories if f"{directory}/{name}" != self._home
                ]
                for name in names:
                    remaining_files -= 1
                    if name.lower().endswith(_RESULT_SUFFIXES) and not name.startswith(
                        (".", "tmp")
                    ):
                        path = f"{directory}/{name}"
                        with contextlib.suppress(OSError):
                            yield path, os.stat(path).st_mtime_ns
                if remaining_files < 0 or directory.count("/") - root.count("/") > 2:
                    subdirectories.clear()
                if remaining_files < 0:
                    break


def _find_open_files() -> Iterator[tuple[int, str]]:
    """Yield the descriptor and path of each regular file that is open for writing."""
    for name in os.listdir(_DESCRIPTOR_DIRECTORY):
        with contextlib.suppress(OSError, ValueError):
            descriptor = int(name)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                with open(f"/proc/self/fdinfo/{name}") as info:
                    flags = int(info.read().partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    yield descriptor, os.readlink(f"{_DESCRIPTOR_DIRECTORY}/{name}")


def _flush(descriptors: dict[int, str]) -> None:
    """Flush the buffers of these files; flushing pipes and sockets might block."""
    for file in gc.get_objects():
        if type(file) in _BUFFERED_TYPES:
            # Any exception: the disk may be full, or the descriptor closed by code.
            with contextlib.suppress(Exception):
                if not file.closed and file.writable() and file.fileno() in descriptors:
                    file.flush()
