"""Use of one session, read from /proc where no cgroup counts it.

A session is the init of a pid namespace, its kernel, and all descendants of both. Its memory is the
proportional sets of its processes: shared pages count by share, swapped-out ones and page tables
too. What no process maps does not count: files in memory, which have sizes of their own, and what
the host's kernel holds for queues, watches and locks. Should a session take much of that, the
machine's reserve ends it (`machine_exhaustion`).

Everything read is hostile: processes vanish at any moment, names hold anything, a process may hide
from a bot that is not root, and there may be more to read than time. A process that hides counts in
full, with what it shares; one for which there is no time does not count.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Final

from interpreter_bot.kernels.metering import procfs

MAX_TASKS: Final = 4096
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_UNKNOWN: Final = -1
# A fork of a kernel with everything imported takes 2 to 5 ms, and 10 for each gigabyte it has.
_READING_SECONDS: Final = 0.5
# Positions in /proc/PID/io.
_WRITTEN, _STORED, _NOT_STORED = 3, 11, 13


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Use of a session at one moment.

    Attributes:
        memory_bytes: its memory; an upper bound if that is not over the limit, or if it is late.
        tasks: its processes and all their threads; not all of them if they are too many.
        groups: how many `setsid` made of its processes. Without cgroups, a host may divide its
            processors among such groups, and give each as much as the whole of another session.
        is_late: there was more memory to read than time.
    """

    memory_bytes: int = 0
    tasks: int = 0
    groups: int = 0
    is_late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Strain:
    """What a session costs the machine, quickly measured and good for differences only.

    Attributes:
        held_bytes: what its processes hold; what they share, once.
        system_seconds: time that the host's kernel worked for them.
    """

    held_bytes: int
    system_seconds: float

    def __sub__(self, before: Strain) -> Strain:
        seconds = self.system_seconds - before.system_seconds
        return Strain(self.held_bytes - before.held_bytes, seconds)


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
            # The kernel is a child of some inits, and who loses his parent gets another.
            pids += [child for child in procfs.children(pid, threads) if child not in pids]
        return pids[: self._max_tasks], tasks

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
        namespace = procfs.namespace(self._init, "pid")
        return 0 if namespace == procfs.namespace("self", "pid") else namespace

    def cpu_seconds(self) -> float:
        """Return the cpu time so far, without that of processes never waited for. Never falls."""
        ticks = sum(sum(map(int, procfs.stat(pid)[11:15])) for pid in self.pids())
        self._cpu_seconds = max(self._cpu_seconds, ticks / _TICKS_PER_SECOND)
        return self._cpu_seconds

    def strain(self) -> Strain:
        """Measure what the session costs the machine; some milliseconds a process."""
        ticks = sum(sum(map(int, procfs.stat(pid)[12:15:2])) for pid in self.pids())
        return Strain(self.memory_bytes(), ticks / _TICKS_PER_SECOND)

    def written_bytes(self) -> int:
        """Return all that live processes ever wrote, to files and sockets alike."""
        return sum(row[_WRITTEN] for row in self._io().values() if row)

    def stored_bytes(self) -> int | None:
        """Return all that live processes ever wrote to disks, whatever became of the files.

        None if one of them hides it; init, which is the bot's own where it cannot be read, writes
        nothing.
        """
        rows = self._io()
        if any(row is None for pid, row in rows.items() if pid != self._init):
            return None
        return sum(row[_STORED] - row[_NOT_STORED] for row in rows.values() if row)

    def _io(self) -> dict[int, list[int] | None]:
        """Read what each process wrote; None for one that hides it."""
        rows: dict[int, list[int] | None] = {}
        with procfs.reading_as(self._read_as):
            for pid in self.pids():
                try:
                    words = procfs.read_or_raise(f"/proc/{pid}/io").split()
                except PermissionError:
                    rows[pid] = None
                except OSError:
                    continue  # It is gone.
                else:
                    rows[pid] = [int(word) if word.isdigit() else 0 for word in words]
        return rows

    def memory_bytes(self, limit_bytes: int | None = None) -> int:
        """Return the memory of all processes together.

        Args:
            limit_bytes: precision matters only near this; None for all of it, at least the size of
                what they share, which perhaps none of them has touched.
        """
        with procfs.reading_as(self._read_as):
            pids = self.pids()
            shared_bytes = procfs.shared_bytes(pids) if limit_bytes is None else 0
            return max(self._memory_bytes(pids, limit_bytes)[0], shared_bytes)

    def _memory_bytes(self, pids: list[int], limit_bytes: int | None) -> tuple[int, bool]:
        """Return the memory, and whether there was no time to read all of it.

        Begin with an upper bound, some 50 µs a process, and look closer only where that is over.

        A proportional set takes 10 µs for each resident megabyte.
        """
        budget = procfs.TimeBudget(_READING_SECONDS)
        numbers = ((pid, procfs.shown_by(pid)) for pid in pids)
        bounds = {pair: procfs.most_bytes(pair[1]) for pair in numbers if pair[1]}
        enough_bytes, too_many_bytes = limit_bytes or 0, limit_bytes or math.inf
        known_bytes, rest_bytes = 0, sum(bounds.values())
        for pid, number in sorted(bounds, key=bounds.__getitem__, reverse=True):
            if known_bytes + rest_bytes <= enough_bytes:
                return known_bytes + rest_bytes, False
            if budget.is_spent:
                # Whatever is read first may be there to hide the rest.
                return known_bytes + rest_bytes, True
            rest_bytes -= bounds[pid, number]
            try:
                known_bytes += procfs.proportional_bytes(number)
            except PermissionError:
                # A kernel's init is the bot's own, undumpable, and has the init server's pages.
                is_own = pid == self._init and self._kernel
                known_bytes += 0 if is_own else bounds[pid, number]
            except OSError:
                continue  # It is gone.
            if known_bytes > too_many_bytes:
                break
        return known_bytes, False

    def reading(self, limit_bytes: int, max_tasks: int | None = None) -> Reading:
        """Read everything once, for a bounded time.

        Args:
            limit_bytes: of the memory.
            max_tasks: memory is not read if there are more; None to read it whatever there is.
        """
        pids, tasks = self._walk()
        if max_tasks is not None and tasks > max_tasks:
            return Reading(tasks=tasks)
        with procfs.reading_as(self._read_as):
            memory_bytes, is_late = self._memory_bytes(pids, limit_bytes)
        stats = (procfs.stat(pid) for pid in pids if pid != self._init)
        groups = {fields[3] for fields in stats if not procfs.has_ended(fields)}
        return Reading(memory_bytes, tasks, len(groups), is_late)


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    fields = procfs.stat(pid)
    return 0 if procfs.has_ended(fields) else int(fields[19])


def _members(namespace: int, init: int) -> list[int]:
    """List all processes of a pid namespace, init first; only init where it has none."""
    if namespace == 0:
        return [init]  # All of the host would match.
    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != init]
    return [init, *(pid for pid in others if procfs.namespace(pid, "pid") == namespace)]


def _lists_children() -> bool:
    """Return whether the host's kernel was built to list the children of a process."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
