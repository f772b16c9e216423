"""What a session uses, where no control group counts it: read from /proc, judged over time.

A session is the init of a pid namespace and all that descends from it. Its memory is what `memory`
finds in its processes and `memory` elsewhere; its disk, beside the files that have names,
is what `deleted_files` finds.

Everything read is hostile: processes vanish at any moment, names hold anything, a process may
hide from a bot that is not root, and there may be more to look at than there is time. What
cannot be read is counted from above, and said; what there was no time for is said, too.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from interpreter_bot.kernels.metering import deleted_files, memory, procfs

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_MOST_PROCESSES: Final = 4096
_UNKNOWN: Final = -1
# A fork of a kernel with everything imported takes 2 to 5 ms, and 10 for each gigabyte it has:
# whoever just computes in many processes is not to be taken for one who keeps us busy.
_LOOK_SECONDS: Final = 0.5
_PROCESS_SECONDS: Final = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a session used at one moment.

    Attributes:
        memory_bytes: its memory; an upper bound where `is_exact` is false.
        cpu_seconds: what live and awaited processes used so far; never falls.
        processes: how many there are; 0 once init is gone.
        hidden: processes that kept us from looking into them, or had too much to look at.
        socket_bytes: what its sockets may hold besides, from above; 0 where they are few.
        is_exact: false where the upper bound was already small enough.
        is_late: looking took too long, so `memory_bytes` is only a part.
    """

    memory_bytes: int
    cpu_seconds: float
    processes: int
    hidden: int = 0
    socket_bytes: int = 0
    is_exact: bool = True
    is_late: bool = False


class LimitViolation(enum.StrEnum):
    """What to make of a session's readings."""

    FINE = "fine"
    OVER_MEMORY = "over memory"
    HIDING = "hiding"
    """What it uses cannot be known: a process does not let us look, or there is too much."""


class ConsecutiveFailures:
    """Counts looks in a row that did not show everything. Pure."""

    def __init__(self, *, hidden: int = 4, late: int = 3) -> None:
        """Start without any looks.

        Args:
            hidden: looks in a row that end patience with processes that hide: one that just
                starts another program does so for a moment.
            late: looks in a row that end patience with those that take too long.
        """
        self._patience = (hidden, late)
        self._counts = (0, 0)

    def is_over(self, *, is_hidden: bool, is_late: bool) -> bool:
        """Take one more look; whether patience is at its end."""
        hidden, late = self._counts
        self._counts = (hidden + 1 if is_hidden else 0, late + 1 if is_late else 0)
        return any(n >= most for n, most in zip(self._counts, self._patience, strict=True))


class LimitWatch:
    """Judges the readings of one session, one after the other. Pure."""

    def __init__(self, memory_bytes: int, *, patience: int = 4) -> None:
        """Start without any readings.

        Args:
            memory_bytes: what the session may use, headroom included.
            patience: readings in a row that may be hidden.
        """
        self._memory_bytes = memory_bytes
        self._streak = ConsecutiveFailures(hidden=patience)

    def evaluate(self, reading: Reading) -> LimitViolation:
        """Take one more reading; memory needs no patience, it grows by gigabytes a second."""
        is_over = self._streak.is_over(is_hidden=reading.hidden > 0, is_late=reading.is_late)
        if reading.memory_bytes > self._memory_bytes:
            return LimitViolation.OVER_MEMORY
        if is_over or reading.memory_bytes + reading.socket_bytes > self._memory_bytes:
            return LimitViolation.HIDING
        return LimitViolation.FINE


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
        if _lists_children():
            return _descendants(self._init)
        return _members(self._namespace(), self._init)

    def clocks(self) -> dict[int, int]:
        """Return the processor clock of each process, for `have_moved`; -1 where it is unknown."""
        clocks = {pid: procfs.clock_nanoseconds(pid) for pid in self.pids()}
        # Who was forked meanwhile, as a sibling or to be an orphan, may not have been listed, and
        # those that had a part in it may never run again.
        clocks = dict.fromkeys(self.pids(), _UNKNOWN) | clocks
        is_whole = len(clocks) < _MOST_PROCESSES and (_lists_children() or self._namespace() != 0)
        return clocks if is_whole else clocks | {self._init: _UNKNOWN}

    def _namespace(self) -> int:
        """Identify the session's pid namespace; 0 where it has none of its own, or is gone."""
        wanted = procfs.namespace(self._init, "pid")
        return 0 if wanted == procfs.namespace("self", "pid") else wanted

    def memory_bytes(self) -> int:
        """Memory of all processes together, exact; costs a walk over their page tables."""
        return self.reading().memory_bytes

    def cpu_seconds(self) -> float:
        """Cpu time so far; that of processes which nobody waited for is lost. Never falls."""
        return self._count_cpu(self.pids())

    def written_bytes(self) -> int:
        """All that live processes ever wrote, to files and sockets alike."""
        fields = (procfs.read(f"/proc/{pid}/io").split() for pid in self.pids())
        return sum(int(found[3]) for found in fields if len(found) > 3)

    def uncounted_bytes(self) -> int:
        """Bound what waits in sockets that a control group need not count; 0 for few of them."""
        return memory.socket_bytes(_witnesses(_shown(self.pids())), has_group=True)

    def deleted(self, disk: deleted_files.Disk) -> deleted_files.Deleted:
        """Count the disk that is held by files without a name, which no walk over names sees.

        Args:
            disk: the file system that counts.
        """
        shown = _shown(self.pids())
        return deleted_files.count(shown, disk, allowance=_allowance(shown))

    def reading(
        self,
        *,
        enough_bytes: int = 0,
        most_bytes: int | None = None,
        shared: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> Reading:
        """Look at everything once, for a bounded time.

        Args:
            enough_bytes: an upper bound not over this is good enough: it costs some 50
                microseconds a process, where exactness costs about 10 a resident megabyte.
            most_bytes: more than this is too much, however much; None to count everything.
            shared: memory that `deleted` found.
        """
        pids = self.pids()
        cpu_seconds = self._count_cpu(pids)
        shown = _shown(pids)
        witnesses = _witnesses(shown)
        temporary = memory.tmpfs_bytes(witnesses)
        devices = {device for device, _ in temporary}
        held, hidden = memory.memfd_bytes(shown, devices)
        socket_bytes = memory.socket_bytes(witnesses)
        bounds = memory.Bounds(enough_bytes - socket_bytes, most_bytes)
        held |= temporary | dict(shared)
        counted = memory.count(shown, held, bounds, allowance=_allowance(shown))
        # It is ours and runs nothing of a user's.
        hidden = (hidden | counted.hidden) - {self._init}
        return Reading(
            counted.bytes,
            cpu_seconds,
            len(pids),
            len(hidden),
            socket_bytes,
            is_exact=counted.is_exact or not pids,
            is_late=counted.is_late,
        )

    def _count_cpu(self, pids: list[int]) -> float:
        ticks = sum(sum(map(int, procfs.stat(pid)[11:15])) for pid in pids)
        self._cpu_seconds = max(self._cpu_seconds, ticks / _TICKS_PER_SECOND)
        return self._cpu_seconds


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    fields = procfs.stat(pid)
    return 0 if procfs.has_ended(fields) else int(fields[19])


def have_moved(clocks: Mapping[int, int]) -> bool:
    """Whether any process of a session ran since its `SessionProcesses.clocks`. Cheap.

    As long as none did, the session has neither memory nor files nor processes more than then.
    """
    return not clocks or any(
        seen < 0 or procfs.clock_nanoseconds(pid) != seen for pid, seen in clocks.items()
    )


def _descendants(init: int) -> list[int]:
    """A process and all that descend from it, the first at the beginning."""
    found = [init]
    for pid in found:  # Grows while it is walked.
        if len(found) >= _MOST_PROCESSES:
            break
        found.extend(procfs.children(pid))
    return list(dict.fromkeys(found[:_MOST_PROCESSES]))


def _members(namespace: int, init: int) -> list[int]:
    """All processes of a pid namespace, its first process first; that alone where it has none."""
    if namespace == 0:
        return [init]  # All of the host would match.
    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != init]
    found = [pid for pid in others if procfs.namespace(pid, "pid") == namespace]
    return [init, *found][:_MOST_PROCESSES]


def _shown(pids: list[int]) -> dict[int, int]:
    """Processes that hold anything, to the numbers that show them; init first."""
    numbers = ((pid, procfs.shown_by(pid)) for pid in pids)
    return {pid: number for pid, number in numbers if number}


def _witnesses(shown: Mapping[int, int]) -> list[int]:
    """Whoever speaks for all had better not be init, which forbids everybody to look."""
    numbers = list(shown.values())
    return [*numbers[1:], *numbers[:1]]


def _allowance(shown: Mapping[int, int]) -> procfs.TimeBudget:
    return procfs.TimeBudget(max(_LOOK_SECONDS, _PROCESS_SECONDS * len(shown)))


def _lists_children() -> bool:
    """Whether this kernel was built to say who the children of a process are."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
