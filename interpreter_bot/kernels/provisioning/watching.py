"""What a session uses, where no control group counts it: read from /proc, judged over time.

A session is the init of a pid namespace and all that descends from it. Its memory is the
proportional set of each process (pages shared with the fork server count by share), plus what
it keeps in memfds without mapping it. Not seen here: files in its tmpfs that nobody maps, which
the size of the tmpfs bounds; and memory that no process shows (a memfd in flight between two
sockets, a detached System V segment), which only the walls can refuse.

Everything read is hostile: processes vanish at any moment, names hold anything, and a process
may hide from a bot that is not root. What cannot be read is counted from above, and said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import os
import re
from collections.abc import Iterator
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_MOST_PROCESSES: Final = 4096
_MOST_DESCRIPTORS: Final = 16_384
_MOST_MAPS_BYTES: Final = 8 * 1024 * 1024
_SHARED: Final = (b"/memfd:", b"/dev/shm/")
_PSS: Final = re.compile(rb"^Pss: +(\d+) kB", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+).*\n"
    rb"(?:(?!Pss:)[A-Z]\w+:.*\n)*Pss: +(\d+) kB",
    re.MULTILINE,
)

_Inode = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a session used at one moment.

    Attributes:
        memory_bytes: its memory; an upper bound where `is_exact` is false.
        cpu_seconds: what live and awaited processes used so far; never falls.
        processes: how many there are; 0 once init is gone.
        hidden: processes that kept us from looking into them, or had too much to look at.
        is_exact: false where the upper bound was already small enough.
    """

    memory_bytes: int
    cpu_seconds: float
    processes: int
    hidden: int = 0
    is_exact: bool = True


class Verdict(enum.StrEnum):
    """What to make of a session's readings."""

    FINE = "fine"
    OVER_MEMORY = "over memory"
    HIDING = "hiding"
    """It keeps a process from being looked into, so its memory is not known."""


class Watch:
    """Judges the readings of one session, one after the other. Pure."""

    def __init__(self, memory_bytes: int, *, patience: int = 4) -> None:
        """Start without any readings.

        Args:
            memory_bytes: what the session may use, headroom included.
            patience: readings in a row that may be hidden: a process that just starts another
                program is hidden for a moment.
        """
        self._memory_bytes = memory_bytes
        self._patience = patience
        self._hidden = 0

    def judge(self, reading: Reading) -> Verdict:
        """Take one more reading; memory needs no patience, it grows by gigabytes a second."""
        self._hidden = self._hidden + 1 if reading.hidden else 0
        if reading.memory_bytes > self._memory_bytes:
            return Verdict.OVER_MEMORY
        return Verdict.HIDING if self._hidden >= self._patience else Verdict.FINE


class SessionProcesses:
    """The processes of one session, seen from the host. Blocking: use it in a thread."""

    def __init__(self, init_pid: int) -> None:
        """`init_pid` is the host's number of the namespace's first process."""
        self._init = init_pid
        self._start = start_ticks(init_pid)
        self._cpu_seconds = 0.0

    def pids(self) -> list[int]:
        """Host process ids, init first; empty once init is gone, at most 4096."""
        if self._start == 0 or start_ticks(self._init) != self._start:
            return []  # The number may be somebody else's by now.
        if not _lists_children():
            return self._pids_of_namespace()
        found = [self._init]
        for pid in found:  # Grows while it is walked.
            if len(found) >= _MOST_PROCESSES:
                break
            found.extend(_children(pid))
        return list(dict.fromkeys(found[:_MOST_PROCESSES]))

    def _pids_of_namespace(self) -> list[int]:
        wanted = _namespace(self._init)
        if wanted in (0, _namespace(os.getpid())):
            return [self._init]  # Without a namespace of its own, all of the host would match.
        others = (int(name) for name in os.listdir("/proc") if name.isdigit())
        found = [pid for pid in others if pid != self._init and _namespace(pid) == wanted]
        return [self._init, *found][:_MOST_PROCESSES]

    def memory_bytes(self) -> int:
        """Memory of all processes together, exact; costs a walk over their page tables."""
        return self.reading().memory_bytes

    def cpu_seconds(self) -> float:
        """Cpu time so far; that of processes which nobody waited for is lost. Never falls."""
        return self._count_cpu(self.pids())

    def written_bytes(self) -> int:
        """All that live processes ever wrote, to files and sockets alike."""
        fields = (_read(f"/proc/{pid}/io").split() for pid in self.pids())
        return sum(int(found[3]) for found in fields if len(found) > 3)

    def unlinked_bytes(self, device: int) -> int:
        """Disk that is held by open files without a name, which no walk over names sees.

        Args:
            device: number of the file system that counts.
        """
        found: dict[_Inode, int] = {}
        for seen in itertools.islice(_open_files(self.pids()), _MOST_DESCRIPTORS):
            if seen.st_dev == device and seen.st_nlink == 0:
                found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
        return sum(found.values())

    def reading(self, *, enough_bytes: int = 0) -> Reading:
        """Look at everything once.

        Args:
            enough_bytes: an upper bound not over this is good enough: it costs some 50
                microseconds a process, where exactness costs about 10 a resident megabyte.
        """
        pids = self.pids()
        cpu_seconds = self._count_cpu(pids)
        held, hidden = _held_in_memory(pids)
        # Init forbids everybody to look; it is ours, runs nothing of a user's, and what it has
        # resident are the fork server's pages.
        hidden.discard(self._init)
        bound = sum(_resident_bytes(pid) for pid in pids) + sum(held.values())
        if bound <= enough_bytes:
            return Reading(bound, cpu_seconds, len(pids), len(hidden), is_exact=not bound)
        exact = 0
        for pid in pids:
            size = _proportional_bytes(pid, held)
            if size is None and pid != self._init:
                hidden.add(pid)
                size = _resident_bytes(pid)
            exact += size or 0
        exact += sum(size for size in held.values() if size > 0)
        return Reading(exact, cpu_seconds, len(pids), len(hidden))

    def _count_cpu(self, pids: list[int]) -> float:
        ticks = sum(sum(map(int, _stat(pid)[11:15])) for pid in pids)
        self._cpu_seconds = max(self._cpu_seconds, ticks / _TICKS_PER_SECOND)
        return self._cpu_seconds


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    fields = _stat(pid)
    return 0 if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def _stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on; empty when gone. A name may hold `)` and spaces."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    """A file of /proc; empty when its process is gone."""
    try:
        return _look(path)
    except OSError:
        return b""


def _look(path: str) -> bytes:
    """At most 8 MiB of a file; raises OSError."""
    with open(path, "rb") as file:
        return file.read(_MOST_MAPS_BYTES)


def _lists_children() -> bool:
    """Whether this kernel was built to say who the children of a process are."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # It ended between two looks; its children are init's by then.
    lists = (_read(f"/proc/{pid}/task/{task}/children") for task in tasks)
    return [int(child) for one in lists for child in one.split()]


def _namespace(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def _resident_bytes(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0


def _open_files(pids: list[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    yield os.stat(f"/proc/{pid}/fd/{name}")


def _held_in_memory(pids: list[int]) -> tuple[dict[_Inode, int], set[int]]:
    """Bytes of each memfd or shared memory file that is open, and who would not show.

    Nothing is opened: `stat` of /proc/PID/fd/N looks at the very file, whatever its name says.
    """
    held: dict[_Inode, int] = {}
    hidden: set[int] = set()
    left = _MOST_DESCRIPTORS
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            hidden.add(pid)
            continue
        except OSError:
            continue
        if len(names) > left:
            hidden.add(pid)
        for name in names[:left]:
            try:
                if os.readlink(os.fsencode(f"{folder}/{name}")).startswith(_SHARED):
                    seen = os.stat(f"{folder}/{name}")
                    held[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
            except OSError:
                continue
        left -= len(names[:left])
    return held, hidden


def _proportional_bytes(pid: int, held: dict[_Inode, int]) -> int | None:
    """The proportional set of a process, taking off `held` what it maps of that.

    Returns:
        bytes, 0 when it is gone, or None when it does not let us look.
    """
    try:
        if held:
            maps = _look(f"/proc/{pid}/smaps")
            if len(maps) < _MOST_MAPS_BYTES:
                return _mapped_bytes(maps, held)
        return sum(map(int, _PSS.findall(_look(f"/proc/{pid}/smaps_rollup")))) * 1024
    except PermissionError:
        return None
    except OSError:
        return 0


def _mapped_bytes(maps: bytes, held: dict[_Inode, int]) -> int:
    total = 0
    for major, minor, inode, kilobytes in _MAPPING.findall(maps):
        size = int(kilobytes) * 1024
        total += size
        key = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
        if key in held:
            held[key] -= size
    return total
