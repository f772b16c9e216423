"""Readings of hostile processes from /proc, and process descriptors (pidfds).

A process descriptor always means the same process; a pid may soon belong to another one. Readings
are bounded in time and bytes, as processes control their content. /proc shows the first thread of a
process. If that thread has ended before the others, its files are empty although the others still
use memory and files: `readable_id` finds another thread, whose /proc files can be read like those
of a process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib
import re
import signal
import stat as stat_modes
import time
from collections.abc import Iterable, Iterator
from typing import Final

_libc: Final = ctypes.CDLL(None)

_MAX_BYTES: Final = 8 * 1024 * 1024
_BLOCK_BYTES: Final = 512

_ENDED_STATES: Final = (b"Z", b"X")
_SCHEDULED_CLOCK: Final = 2
_MEMORY_ROWS_PATTERN: Final = re.compile(rb"^Vm(?:RSS|Swap|PTE):\s+(\d+) kB", re.MULTILINE)
_PAGE_TABLE_ROW_PATTERN: Final = re.compile(rb"^VmPTE:\s+(\d+) kB", re.MULTILINE)
# Linux's internal mount for shared memory without a file: the first mount without a device.
_SHARED_MAPPING_PATTERN: Final = re.compile(rb"^(\w+)-(\w+) ..[-x]s \w+ 00:01 (\d+) ", re.MULTILINE)
# Of a file that has a name: neither shared memory nor a device's.
_WRITABLE_FILE_MAPPING_PATTERN: Final = re.compile(
    rb"^\S+ .w.s \S+ (?!00:01 )\S+ [1-9]\d* +/", re.MULTILINE
)
_DELETED_MAPPING_PATTERN: Final = re.compile(
    rb"^(?:\S+ ){4}(\d+) +(/.*) \(deleted\)$", re.MULTILINE
)
_PROPORTIONAL_ROWS_PATTERN: Final = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB", re.MULTILINE)


def pid_of(pidfd: int) -> int:
    """Return the pid of a process descriptor, in this pid namespace."""
    text = pathlib.Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))


def send_signal(pidfd: int, signum: int) -> None:
    """Signal a process; does nothing if it has ended, or if the descriptor is -1."""
    if pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signum)


@contextlib.contextmanager
def read_as_user(user: int | None) -> Iterator[None]:
    """Let this thread read files in /proc as another user and group; None changes nothing.

    Root of a container needs this, as it lacks the capability to inspect other users' processes.
    """
    if user is None:
        yield
        return
    own_user, own_group = os.geteuid(), os.getegid()
    # These calls change only this thread's ids for access to files, and report no failure.
    _libc.setfsgid(user)
    _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(own_user)
        _libc.setfsgid(own_group)


class TimeBudget:
    """Time limit of one reading, in processor time, so that a busy machine does not shorten it.

    Wall time is bounded, too, at four times that limit, because the process that is read may hold
    locks of Linux.
    """

    def __init__(self, seconds: float) -> None:
        self._processor_end = time.thread_time() + seconds
        self._clock_end = time.monotonic() + 4 * seconds

    @property
    def is_spent(self) -> bool:
        """Whether the reading must stop; call it in the thread that reads."""
        return time.thread_time() > self._processor_end or time.monotonic() > self._clock_end


def read(path: str) -> bytes:
    """Read a file; empty if its process has ended, or reading is not permitted."""
    try:
        return read_or_raise(path)
    except OSError:
        return b""


def read_or_raise(path: str) -> bytes:
    """Read at most 8 MiB of a file.

    Raises:
        PermissionError: the process may not be read.
        OSError: the process has ended.
    """
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES)


def processor_time_ns(pid: int) -> int:
    """Return the processor time of a process with all its threads; -1 if it has ended.

    Reads no file, so it costs half a microsecond. The time of a running thread may be late by one
    scheduler tick.
    """
    try:
        # Linux's clock ids of other processes, see clock_getcpuclockid(3).
        return time.clock_gettime_ns(~pid << 3 | _SCHEDULED_CLOCK)
    except OSError:
        return -1


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; empty if the process has ended.

    The name may contain `)` and spaces.
    """
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def has_ended(fields: list[bytes]) -> bool:
    """Return whether `stat` fields are those of an ended thread, reaped or not."""
    return not fields or fields[0] in _ENDED_STATES


def readable_id(pid: int) -> int:
    """Return the id to read a process by: its own or a thread's; 0 if all threads have ended."""
    if not has_ended(stat_fields(pid)):
        return pid
    return next((task for task in thread_ids(pid) if not has_ended(stat_fields(task))), 0)


def children(pid: int, threads: list[int] | None = None) -> list[int]:
    """List the children of a process's threads, by default of all; empty if it has ended."""
    threads = thread_ids(pid) if threads is None else threads
    lists = (read(f"/proc/{pid}/task/{thread}/children") for thread in threads)
    return [int(child) for list_of_thread in lists for child in list_of_thread.split()]


def thread_ids(pid: int) -> list[int]:
    """List the threads of a process; empty if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def namespace(pid: int | str, kind: str) -> int:
    """Return the inode of a process's namespace; 0 if it has ended or may not be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except OSError:
        return 0


def deleted_files(pid: int, device: int) -> dict[int, int]:
    """Return the bytes on disk of each deleted file of a device that a process has open, by inode.

    Raises:
        PermissionError: the process may not be read.
    """
    sizes: dict[int, int] = {}
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                info = os.stat(f"/proc/{pid}/fd/{name}")
                if stat_modes.S_ISREG(info.st_mode) and (info.st_dev, info.st_nlink) == (device, 0):
                    sizes[info.st_ino] = _BLOCK_BYTES * info.st_blocks
    except FileNotFoundError:
        pass
    except PermissionError:
        # An ending process is unreadable, too; it has no memory left.
        if upper_bound_bytes(pid):
            raise
    return sizes


def deleted_mappings(pid: int, directory: str) -> set[int]:
    """Return the inodes of deleted files of a directory that a process has mapped.

    Raises:
        OSError: the process may not be read, or has too many mappings.
    """
    try:
        text = read_or_raise(f"/proc/{pid}/maps")
    except (FileNotFoundError, ProcessLookupError):
        return set()
    if len(text) >= _MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    prefix = os.fsencode(f"{directory}/")
    mappings = _DELETED_MAPPING_PATTERN.findall(text)
    return {int(inode) for inode, path in mappings if path.startswith(prefix)}


def has_writable_file_mapping(pid: int) -> bool:
    """Return whether a process writes to a mapped file, or its mappings cannot all be read."""
    try:
        text = read_or_raise(f"/proc/{pid}/maps")
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return len(text) >= _MAX_BYTES or _WRITABLE_FILE_MAPPING_PATTERN.search(text) is not None


def upper_bound_bytes(pid: int) -> int:
    """Return an upper bound of a process's memory: resident, swapped out, and page tables.

    Shared pages count in full. `status` is readable even if other files are not.
    """
    return _sum(_MEMORY_ROWS_PATTERN, read(f"/proc/{pid}/status"))


def proportional_bytes(pid: int) -> int:
    """Return a process's memory with its part of shared pages, and its page tables.

    Raises:
        PermissionError: the process may not be read.
        OSError: the process has ended.
    """
    own_bytes = _sum(_PROPORTIONAL_ROWS_PATTERN, read_or_raise(f"/proc/{pid}/smaps_rollup"))
    return own_bytes + _sum(_PAGE_TABLE_ROW_PATTERN, read(f"/proc/{pid}/status"))


def shared_bytes(pids: Iterable[int]) -> int:
    """Return the size of the shared anonymous memory of processes; each mapping counts once.

    The sizes of mappings count, because pages that only an ended process has touched are in no
    process's resident set.
    """
    sizes: dict[bytes, int] = {}
    for pid in pids:
        for start, end, inode in _SHARED_MAPPING_PATTERN.findall(read(f"/proc/{pid}/maps")):
            sizes[inode] = max(sizes.get(inode, 0), int(end, 16) - int(start, 16))
    return sum(sizes.values())


def _sum(rows: re.Pattern[bytes], text: bytes) -> int:
    return sum(map(int, rows.findall(text))) * 1024
