"""Readings of hostile processes from /proc, and process descriptors (pidfds).

A process descriptor means the same process for ever; a pid may be another's a moment later. A
reading is bounded in time and bytes, as the processes control its content. /proc shows a process by
its first thread. If that ended before the others, everything it shows is empty while the others
hold memory and files: `shown_by` finds a thread to read instead, which answers under /proc as if it
were a process of its own.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import signal
import time
from collections.abc import Iterator
from typing import Final

_libc: Final = ctypes.CDLL(None)

MOST_BYTES: Final = 8 * 1024 * 1024
"""Most that is read of any one file."""

_ENDED: Final = (b"Z", b"X")
_EXITING: Final = 4
_SCHEDULED: Final = 2
_HELD: Final = re.compile(rb"^Vm(?:RSS|Swap|PTE):\s+(\d+) kB", re.MULTILINE)
_TABLES: Final = re.compile(rb"^VmPTE:\s+(\d+) kB", re.MULTILINE)
_SHARED: Final = re.compile(rb"^RssShmem:\s+(\d+) kB", re.MULTILINE)
_LOCK: Final = re.compile(rb"^\d+: +(?:-> +)?\S+ +\S+ +\S+ +(\d+) ", re.MULTILINE)
_FEW_LOCKS_BYTES: Final = 64 * 1024
_MOST_LOCKS_BYTES: Final = 1024 * 1024
_DELETED: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) \S{4} ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +(.*) \(deleted\)$"
)


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

    Wall time counts too, but ten times as much is allowed: the process that is read may hold kernel
    locks.
    """

    def __init__(self, seconds: float) -> None:
        self._processor_end = time.thread_time() + seconds
        self._clock_end = time.monotonic() + 10 * seconds

    @property
    def is_spent(self) -> bool:
        """Whether the reading has to stop; call it in the thread that began the reading."""
        return time.thread_time() > self._processor_end or time.monotonic() > self._clock_end


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """Mapping of a deleted file.

    Attributes:
        addresses: its name in `map_files`.
        device: of the file system, which need not be what `stat` says (btrfs).
        inode: number of the file there.
        end_bytes: where in the file the mapping ends.
        path: the file's former name, as the session saw it.
    """

    addresses: str
    device: int
    inode: int
    end_bytes: int
    path: bytes


def read(path: str) -> bytes:
    """Read a file; empty when its process is gone, or it is not permitted."""
    try:
        return read_or_raise(path)
    except OSError:
        return b""


def read_or_raise(path: str) -> bytes:
    """Read at most `MOST_BYTES` of a file.

    Raises:
        PermissionError: the process hides.
        OSError: it is gone.
    """
    with open(path, "rb") as file:
        return file.read(MOST_BYTES)


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


def is_hiding(pid: int) -> bool:
    """Return whether an unreadable process hides on purpose; one that just exits does not."""
    fields = stat(pid)
    return not has_ended(fields) and not int(fields[6]) & _EXITING


def shown_by(pid: int) -> int:
    """Return the id by which to read a process: its own, or that of a thread.

    Returns:
        0 when all its threads ended: it holds nothing any more.
    """
    if not has_ended(stat(pid)):
        return pid
    return next((task for task in tasks(pid) if not has_ended(stat(task))), 0)


def lock_owners() -> collections.Counter[int]:
    """Count the locks of files on this machine by process; waiting ones too.

    Short lists cost microseconds. Of long ones only the newest are read, some 16,000: all programs
    of the machine that lock anything wait meanwhile.
    """
    with open("/proc/locks", "rb") as file:
        text = file.read(_FEW_LOCKS_BYTES)
        if len(text) == _FEW_LOCKS_BYTES:
            text += file.read(_MOST_LOCKS_BYTES)
    return collections.Counter(map(int, _LOCK.findall(text)))


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
    return _sum(_HELD, pid)


def table_bytes(pid: int) -> int:
    """Return the memory of its page tables, which are in no mapping."""
    return _sum(_TABLES, pid)


def shared_bytes(pid: int) -> int:
    """Return its resident mappings of files in memory, each page in full."""
    return _sum(_SHARED, pid)


def _sum(rows: re.Pattern[bytes], pid: int) -> int:
    return sum(map(int, rows.findall(read(f"/proc/{pid}/status")))) * 1024


def mappings(pid: int) -> bytes:
    """Read its mappings, one a line.

    Raises:
        PermissionError: the process hides, or has more mappings than are read.
        OSError: it is gone.
    """
    text = read_or_raise(f"/proc/{pid}/maps")
    if len(text) >= MOST_BYTES:
        raise PermissionError
    return text


def deleted_mappings(text: bytes, *, device: int, path: bytes) -> Iterator[Mapping]:
    """Iterate over `mappings` of deleted files, or of names that look as if.

    Args:
        text: the mappings.
        device: those on it are wanted, among others.
        path: so are those of this name.
    """
    place = b" %02x:%02x " % (os.major(device), os.minor(device))
    gone = b" (deleted)"
    # A regular expression over all of the text takes six times as long as the system call; so does
    # one over all that kernels share, which is a deleted file.
    # Names may hold every line break but this one.
    ended = (line for line in text.split(b"\n") if line.endswith(gone))
    lines = [line for line in ended if place in line or line.endswith(path + gone)]
    for found in filter(None, map(_DELETED.match, lines)):
        start, end, offset, major, minor, inode, path = found.groups()
        size = int(end, 16) - int(start, 16)
        yield Mapping(
            # The names in map_files have no leading zeros.
            addresses=f"{int(start, 16):x}-{int(end, 16):x}",
            device=os.makedev(int(major, 16), int(minor, 16)),
            inode=int(inode),
            end_bytes=int(offset, 16) + size,
            path=path,
        )
