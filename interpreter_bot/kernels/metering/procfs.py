"""Readings of hostile processes from /proc, and process descriptors (pidfds).

A process descriptor means the same process for ever; a pid may be another's a moment later. A
reading is bounded in time and bytes, as the processes control its content. /proc shows a process by
its first thread. If that ended before the others, everything it shows is empty while the others
hold memory and files: `shown_by` finds a thread to read instead, which answers under /proc as if it
were a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Final

_libc: Final = ctypes.CDLL(None)

_MAX_BYTES: Final = 8 * 1024 * 1024

_ENDED: Final = (b"Z", b"X")
_SCHEDULED: Final = 2
_HELD: Final = re.compile(rb"^Vm(?:RSS|Swap|PTE):\s+(\d+) kB", re.MULTILINE)
_TABLES: Final = re.compile(rb"^VmPTE:\s+(\d+) kB", re.MULTILINE)
# The mount of the kernel's own for what has no file: always the first without a device.
_SHARED: Final = re.compile(rb"^(\w+)-(\w+) ..[-x]s \w+ 00:01 (\d+) ", re.MULTILINE)
_PROPORTIONAL: Final = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB", re.MULTILINE)


def pid_of(pidfd: int) -> int:
    """Return the pid of a process descriptor, in this pid namespace."""
    text = pathlib.Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))


def send_signal(pidfd: int, signum: int) -> None:
    """Signal a process; does nothing when it is gone, or the descriptor is none (-1)."""
    if pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signum)


@contextlib.contextmanager
def reading_as(user: int | None) -> Iterator[None]:
    """Let this thread read what belongs to a user and group, if it may change ids; None: itself.

    Root of a container lacks the capability to look into others' processes.
    """
    if user is None:
        yield
        return
    own_user, own_group = os.geteuid(), os.getegid()
    # These change the ids of one thread, for access to files alone; setfsuid(2) reports no failure.
    _libc.setfsgid(user)
    _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(own_user)
        _libc.setfsgid(own_group)


class TimeBudget:
    """Time limit of one reading, in processor time, so that a busy machine does not shorten it.

    Wall time counts too, but four times as much is allowed: the process that is read may hold
    kernel locks.
    """

    def __init__(self, seconds: float) -> None:
        self._processor_end = time.thread_time() + seconds
        self._clock_end = time.monotonic() + 4 * seconds

    @property
    def is_spent(self) -> bool:
        """Whether the reading has to stop; call it in the thread that began the reading."""
        return time.thread_time() > self._processor_end or time.monotonic() > self._clock_end


def read(path: str) -> bytes:
    """Read a file; empty when its process is gone, or it is not permitted."""
    try:
        return read_or_raise(path)
    except OSError:
        return b""


def read_or_raise(path: str) -> bytes:
    """Read at most 8 MiB of a file.

    Raises:
        PermissionError: the process hides.
        OSError: it is gone.
    """
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES)


def clock_nanoseconds(pid: int) -> int:
    """Return the processor time of a process with all its threads; -1 when it is gone.

    Reads no file, so it costs half a microsecond. A thread that runs this very moment is up to one
    scheduler tick ahead of it.
    """
    try:
        # Linux's clock ids of other processes, see clock_getcpuclockid(3).
        return time.clock_gettime_ns(~pid << 3 | _SCHEDULED)
    except OSError:
        return -1


def stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; empty when gone.

    The name, which may hold `)` and spaces, is left out.
    """
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def has_ended(fields: list[bytes]) -> bool:
    """Return whether these `stat` fields are of a thread that has ended, waited for or not."""
    return not fields or fields[0] in _ENDED


def shown_by(pid: int) -> int:
    """Return the id by which to read a process: its own, or that of a thread.

    Returns:
        0 when all its threads ended: it holds nothing any more.
    """
    if not has_ended(stat(pid)):
        return pid
    return next((task for task in tasks(pid) if not has_ended(stat(task))), 0)


def children(pid: int, threads: list[int] | None = None) -> list[int]:
    """List the children of all, or these, threads; empty when it is gone, and they are init's."""
    threads = tasks(pid) if threads is None else threads
    lists = (read(f"/proc/{pid}/task/{thread}/children") for thread in threads)
    return [int(child) for one in lists for child in one.split()]


def tasks(pid: int) -> list[int]:
    """List the threads of a process; empty when it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def namespace(pid: int | str, kind: str) -> int:
    """Return the inode of a process's namespace; 0 when it is gone or hides."""
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except OSError:
        return 0


def most_bytes(pid: int) -> int:
    """Return an upper bound of its memory: resident, swapped out, page tables. Not 0 while it
    lives.

    Shared pages count in full. `status` is readable even of a process that hides.
    """
    return _sum(_HELD, read(f"/proc/{pid}/status"))


def proportional_bytes(pid: int) -> int:
    """Return a process's memory, of what it shares its part, and its page tables.

    Raises:
        PermissionError: it hides.
        OSError: it is gone.
    """
    share = _sum(_PROPORTIONAL, read_or_raise(f"/proc/{pid}/smaps_rollup"))
    return share + _sum(_TABLES, read(f"/proc/{pid}/status"))


def shared_bytes(pids: Iterable[int]) -> int:
    """Return the size of the anonymous memory that processes map to share it, each part once.

    Pages that another process touched, which may have ended, are in nobody's resident set.
    """
    sizes: dict[bytes, int] = {}
    for pid in pids:
        for first, last, inode in _SHARED.findall(read(f"/proc/{pid}/maps")):
            sizes[inode] = max(sizes.get(inode, 0), int(last, 16) - int(first, 16))
    return sum(sizes.values())


def _sum(rows: re.Pattern[bytes], text: bytes) -> int:
    return sum(map(int, rows.findall(text))) * 1024
