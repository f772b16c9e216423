"""Metering of one session from /proc where no cgroup counts it, and verdicts over time.

A session is the init of a pid namespace, its kernel, and all descendants of both. Its memory is
what `memory` finds in its processes and elsewhere; its disk, beside the files that have names, is
what `deleted_files` finds.

Everything read is hostile: processes vanish at any moment, names hold anything, a process may hide
from a bot that is not root, and there may be more to read than time. What cannot be read is bounded
from above and reported; so is what the time was too short for.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from interpreter_bot.kernels.metering import deleted_files, memory, procfs

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
MAX_TASKS: Final = 4096
_UNKNOWN: Final = -1
# The kernel's own is one. With so many, a neighbour on the same processor is three times as slow.
_MOST_GROUPS: Final = 5
# A fork of a kernel with everything imported takes 2 to 5 ms, and 10 for each gigabyte it has: code
# that computes in many processes must not be taken for one that evades metering.
_LOOK_SECONDS: Final = 0.5
_PROCESS_SECONDS: Final = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Usage of a session at one moment.

    Attributes:
        memory_bytes: its memory; an upper bound where `is_exact` is false.
        cpu_seconds: used by live and awaited processes so far; never falls.
        processes: their number; 0 once init is gone.
        hidden: processes that could not be read, or had too much to read.
        socket_bytes: upper bound of what waits in its sockets besides; 0 if there are few.
        is_exact: false where the upper bound was already small enough.
        is_late: the time was too short, so `memory_bytes` is only a part.
        groups: how many `setsid` made of them. Without cgroups, a host may divide its processors
            among such groups, and give each as much as the whole of another session.
        tasks: its processes and all their threads.
    """

    memory_bytes: int
    cpu_seconds: float
    processes: int
    hidden: int = 0
    socket_bytes: int = 0
    is_exact: bool = True
    is_late: bool = False
    groups: int = 0
    tasks: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Strain:
    """What a session costs the machine, quickly measured and good for differences only.

    Attributes:
        held_bytes: what its processes and its temporary files hold; what they share, once.
        system_seconds: time that the host's kernel worked for them.
    """

    held_bytes: int
    system_seconds: float

    def __sub__(self, before: Strain) -> Strain:
        seconds = self.system_seconds - before.system_seconds
        return Strain(self.held_bytes - before.held_bytes, seconds)


class LimitViolation(enum.StrEnum):
    """Verdict on a session's readings."""

    FINE = "fine"
    OVER_MEMORY = "over memory"
    HIDING = "hiding"
    """Its usage cannot be known: a process hides, or there is too much to read."""
    GRABBING = "grabbing"
    """It takes the processors from others."""
    CROWDED = "crowded"
    """It has more processes and threads than it may have."""


class ConsecutiveFailures:
    """Count of incomplete readings in a row. Pure."""

    def __init__(self, *, hidden: int = 4, late: int = 3) -> None:
        """Start at zero.

        Args:
            hidden: tolerated readings in a row with hiding processes, plus one: a process that
                starts another program hides for a moment.
            late: the same for readings that take too long.
        """
        self._patience = (hidden, late)
        self._counts = (0, 0)

    def is_over(self, *, is_hidden: bool, is_late: bool) -> bool:
        """Count one more reading; return whether too many in a row were incomplete."""
        hidden, late = self._counts
        self._counts = (hidden + 1 if is_hidden else 0, late + 1 if is_late else 0)
        return any(n >= most for n, most in zip(self._counts, self._patience, strict=True))


class LimitWatch:
    """Limit check over the readings of one session, one after the other. Pure."""

    def __init__(self, memory_bytes: int, *, tasks: int | None = None, patience: int = 4) -> None:
        """Start without any readings.

        Args:
            memory_bytes: limit of the session, headroom included.
            tasks: limit of its processes and threads, if nothing else bounds them.
            patience: readings in a row that may be hidden.
        """
        self._memory_bytes = memory_bytes
        self._tasks = tasks
        self._streak = ConsecutiveFailures(hidden=patience)

    def evaluate(self, reading: Reading) -> LimitViolation:
        """Evaluate one more reading; memory needs no patience, it grows by gigabytes a second."""
        is_over = self._streak.is_over(is_hidden=reading.hidden > 0, is_late=reading.is_late)
        if reading.memory_bytes > self._memory_bytes:
            return LimitViolation.OVER_MEMORY
        if self._tasks is not None and reading.tasks > self._tasks:
            return LimitViolation.CROWDED
        if reading.groups > _MOST_GROUPS:
            return LimitViolation.GRABBING
        if is_over or reading.memory_bytes + reading.socket_bytes > self._memory_bytes:
            return LimitViolation.HIDING
        return LimitViolation.FINE


class SessionProcesses:
    """Processes of one session, seen from the host. Blocking: use it in a thread."""

    def __init__(
        self,
        init_pid: int,
        kernel_pid: int = 0,
        *,
        max_tasks: int = MAX_TASKS,
        read_as: int | None = None,
    ) -> None:
        """Start without readings.

        Args:
            init_pid: the host's, of the session's first process.
            kernel_pid: likewise of the kernel, if any.
            max_tasks: processes and threads that are listed; of a fork storm, only so many.
            read_as: user id to read its processes as, where the bot's may not.
        """
        self._read_as, self._max_tasks = read_as, max_tasks
        self._init, self._kernel = init_pid, kernel_pid
        self._kernel_start = procfs.stat(kernel_pid)[19:20]
        self._start = start_ticks(init_pid)
        self._cpu_seconds = 0.0

    def pids(self) -> list[int]:
        """List the host's pids, init first; empty once init is gone, not more than the maximum."""
        return self._walk()[0]

    def _walk(self) -> tuple[list[int], int]:
        """List the host's pids as `pids` does, and count their threads until there are too many.

        A fork storm leaves the bot a fiftieth of a core, in which a list of all would take seconds.
        """
        if self._start == 0 or start_ticks(self._init) != self._start:
            return [], 0  # The pid may be another process's by now.
        if not _lists_children():
            pids = _members(self._namespace(), self._init)[: self._max_tasks]
            return pids, sum(len(procfs.tasks(pid)) for pid in pids)
        # What a kernel left is init's. Without its first thread it looks like a zombie.
        is_there = procfs.stat(self._kernel)[19:20] == self._kernel_start != []
        pids, tasks = [self._init, self._kernel] if is_there else [self._init], 0
        for pid in pids:  # Grows while it is walked.
            threads = procfs.tasks(pid)
            tasks += len(threads)
            if tasks > self._max_tasks:
                break
            pids.extend(procfs.children(pid, threads))
        return list(dict.fromkeys(pids[: self._max_tasks])), tasks

    def clocks(self) -> dict[int, int]:
        """Return the processor clock of each process, for `have_moved`; -1 if unknown."""
        clocks = {pid: procfs.clock_nanoseconds(pid) for pid in self.pids()}
        # A process forked in between, as a sibling or an orphan, may not have been listed, and
        # those that took part in the fork may never run again.
        clocks = dict.fromkeys(self.pids(), _UNKNOWN) | clocks
        is_whole = len(clocks) < self._max_tasks and (_lists_children() or self._namespace() != 0)
        return clocks if is_whole else clocks | {self._init: _UNKNOWN}

    @staticmethod
    def have_moved(clocks: Mapping[int, int]) -> bool:
        """Return whether any process ran since these `clocks` were read. Cheap.

        As long as none did, the session has neither more memory nor files nor processes than then.
        """
        return not clocks or any(
            seen < 0 or procfs.clock_nanoseconds(pid) != seen for pid, seen in clocks.items()
        )

    def _namespace(self) -> int:
        """Return the session's pid namespace; 0 if it has none of its own, or is gone."""
        wanted = procfs.namespace(self._init, "pid")
        return 0 if wanted == procfs.namespace("self", "pid") else wanted

    def memory_bytes(self) -> int:
        """Return the memory of all processes together, exact; walks their page tables."""
        return self.reading().memory_bytes

    def cpu_seconds(self) -> float:
        """Return the cpu time so far, without that of processes never waited for. Never falls."""
        return self._count_cpu(map(procfs.stat, self.pids()))

    def strain(self) -> Strain:
        """Measure what the session costs the machine; some milliseconds a process."""
        shown = _shown(self.pids())
        with procfs.reading_as(self._read_as):
            held_bytes = sum(memory.tmpfs_bytes(_witnesses(shown)).values())
            held_bytes += sum(map(memory.proportional_bytes, shown.values()))
        ticks = sum(sum(map(int, procfs.stat(pid)[12:15:2])) for pid in shown)
        return Strain(held_bytes, ticks / _TICKS_PER_SECOND)

    def written_bytes(self) -> int:
        """Return all that live processes ever wrote, to files and sockets alike."""
        with procfs.reading_as(self._read_as):
            rows = [procfs.read(f"/proc/{pid}/io").split() for pid in self.pids()]
        return sum(int(fields[3]) for fields in rows if len(fields) > 3)

    def uncounted_bytes(self) -> int:
        """Bound what waits in sockets that a cgroup need not count; 0 if there are few of them."""
        return memory.socket_bytes(_witnesses(_shown(self.pids())), has_group=True)

    def deleted(self, disk: deleted_files.Disk) -> deleted_files.Deleted:
        """Count the disk space of deleted files that processes hold.

        Args:
            disk: the file system that counts.
        """
        shown = _shown(self.pids())
        with procfs.reading_as(self._read_as):
            return deleted_files.count(shown, disk, allowance=_allowance(shown))

    def reading(
        self,
        *,
        enough_bytes: int = 0,
        most_bytes: int | None = None,
        most_tasks: int | None = None,
        shared: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> Reading:
        """Read everything once, for a bounded time.

        Args:
            enough_bytes: an upper bound not over this is precise enough: it costs some 50
                microseconds a process, where exactness costs about 10 a resident megabyte.
            most_bytes: counting stops beyond this; None to count everything.
            most_tasks: memory is not read if there are more; None to read it whatever there is.
            shared: memory that `deleted` found.
        """
        pids, tasks = self._walk()
        if most_tasks is not None and tasks > most_tasks:
            return Reading(0, self._cpu_seconds, len(pids), is_exact=False, tasks=tasks)
        stats = {pid: procfs.stat(pid) for pid in pids}
        cpu_seconds = self._count_cpu(stats.values())
        shown = _shown(pids)
        witnesses = _witnesses(shown)
        with procfs.reading_as(self._read_as):
            temporary = memory.tmpfs_bytes(witnesses)
            devices = {device for device, _ in temporary}
            held, hidden = memory.memfd_bytes(shown, devices)
            socket_bytes = memory.socket_bytes(witnesses)
            bounds = memory.Bounds(enough_bytes - socket_bytes, most_bytes)
            if self._read_as is not None:
                held |= memory.shared_file_bytes(self._read_as)
            held |= temporary | dict(shared)
            counted = memory.count(shown, held, bounds, allowance=_allowance(shown))
        # Init is the bot's own and runs no user code.
        hidden = (hidden | counted.hidden) - {self._init}
        return Reading(
            counted.bytes,
            cpu_seconds,
            len(pids),
            len(hidden),
            socket_bytes,
            is_exact=counted.is_exact or not pids,
            is_late=counted.is_late,
            groups=len({stats[pid][3] for pid in shown if pid != self._init and stats[pid]}),
            tasks=tasks,
        )

    def _count_cpu(self, stats: Iterable[list[bytes]]) -> float:
        ticks = sum(sum(map(int, fields[11:15])) for fields in stats)
        self._cpu_seconds = max(self._cpu_seconds, ticks / _TICKS_PER_SECOND)
        return self._cpu_seconds


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    fields = procfs.stat(pid)
    return 0 if procfs.has_ended(fields) else int(fields[19])


def _members(namespace: int, init: int) -> list[int]:
    """List all processes of a pid namespace, init first; only init where it has none."""
    if namespace == 0:
        return [init]  # All of the host would match.
    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != init]
    found = [pid for pid in others if procfs.namespace(pid, "pid") == namespace]
    return [init, *found]


def _shown(pids: list[int]) -> dict[int, int]:
    """Map processes that hold anything to the thread ids to read them by; init first."""
    numbers = ((pid, procfs.shown_by(pid)) for pid in pids)
    return {pid: number for pid, number in numbers if number}


def _witnesses(shown: Mapping[int, int]) -> list[int]:
    """List init last: it is undumpable, so its /proc files cannot be read."""
    numbers = list(shown.values())
    return [*numbers[1:], *numbers[:1]]


def _allowance(shown: Mapping[int, int]) -> procfs.TimeBudget:
    return procfs.TimeBudget(max(_LOOK_SECONDS, _PROCESS_SECONDS * len(shown)))


def _lists_children() -> bool:
    """Return whether the host's kernel was built to list the children of a process."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
