"""Usage of one session, read from /proc if no cgroup counts it.

A session is the init of a pid namespace, its kernel, and all descendants of both. Its memory is the
sum of its processes' proportional sets: each process counts its part of shared pages; swapped-out
pages and page tables count, too. Memory that no process maps does not count: files in memory, which
have limits of their own, and queues, watches and locks in Linux. `machine_exhaustion` ends a
session that takes much of it.

Processes are hostile: they end at any moment, their names contain anything, they may be unreadable
for a bot that is not root, and reading may take too long. An unreadable process counts in full,
with all its shared pages.
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
# Reading a fork of a kernel with all imports takes 2 to 5 ms, and 10 ms for each gigabyte.
_READING_SECONDS: Final = 0.5
# Positions in /proc/PID/io.
_WRITTEN_INDEX, _STORED_INDEX, _CANCELLED_INDEX = 3, 11, 13


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Memory and processes of a session at one moment.

    Attributes:
        memory_bytes: its memory; an upper bound if below the limit, or if `is_late`.
        task_count: number of processes and threads; counting stops when there are too many.
        process_session_count: number of Unix sessions (setsid) of its processes. Without cgroups,
            Linux may divide processors among these, so each gets as much as another whole session.
        is_late: whether there was no time to read all memory.
    """

    memory_bytes: int = 0
    task_count: int = 0
    process_session_count: int = 0
    is_late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LoadSample:
    """Load of a session on the machine, measured quickly and meaningful only as a difference.

    Attributes:
        memory_bytes: memory of its processes; shared pages count once.
        system_seconds: processor time in system calls.
    """

    memory_bytes: int
    system_seconds: float

    def __sub__(self, earlier: LoadSample) -> LoadSample:
        seconds = self.system_seconds - earlier.system_seconds
        return LoadSample(self.memory_bytes - earlier.memory_bytes, seconds)


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

        `read_as` is the user to read as, if the bot may not read the session's processes.
        """
        self._read_as, self._max_tasks = read_as, max_tasks
        self._init, self._kernel = init_pid, kernel_pid
        self._kernel_start_ticks = procfs.stat_fields(kernel_pid)[19:20]
        self._start = start_ticks(init_pid)
        self._cpu_seconds = 0.0

    def pids(self) -> list[int]:
        """List up to `max_tasks` of the host's pids, init first; empty once init has ended."""
        return self._list_processes()[0]

    def _list_processes(self) -> tuple[list[int], int]:
        """List pids like `pids`, and count their threads, up to a limit.

        In a fork storm the bot has a fiftieth of a core, so listing all would take seconds.
        """
        if self._start == 0 or start_ticks(self._init) != self._start:
            return [], 0  # The pid may belong to another process by now.
        if not _can_list_children():
            pids = _list_namespace(self._namespace(), self._init)[: self._max_tasks]
            return pids, sum(len(procfs.thread_ids(pid)) for pid in pids)
        # Orphans of an ended kernel are children of init. A kernel without its first thread looks
        # like a zombie, so its start time decides.
        is_kernel_alive = procfs.stat_fields(self._kernel)[19:20] == self._kernel_start_ticks != []
        pids, thread_count = [self._init, self._kernel] if is_kernel_alive else [self._init], 0
        for pid in pids:  # The list grows during the loop.
            threads = procfs.thread_ids(pid)
            thread_count += len(threads)
            if thread_count > self._max_tasks:
                break
            # The kernel may be a child of init, and orphans get another parent: skip known pids.
            pids += [child for child in procfs.children(pid, threads) if child not in pids]
        return pids[: self._max_tasks], thread_count

    def clocks(self) -> dict[int, int]:
        """Return the processor clock of each process, for `has_run_since`; -1 if unknown."""
        clocks = {pid: procfs.processor_time_ns(pid) for pid in self.pids()}
        # List again, as a process that was forked meanwhile may be missing in the first list, and
        # the processes that forked it may never run again.
        clocks = dict.fromkeys(self.pids(), _UNKNOWN) | clocks
        is_complete = len(clocks) < self._max_tasks and (
            _can_list_children() or self._namespace() != 0
        )
        return clocks if is_complete else clocks | {self._init: _UNKNOWN}

    @staticmethod
    def has_run_since(clocks: Mapping[int, int]) -> bool:
        """Return whether any process ran since `clocks` were read. Cheap.

        If none did, the session has no more memory, files or processes than then.
        """
        return not clocks or any(
            clock < 0 or procfs.processor_time_ns(pid) != clock for pid, clock in clocks.items()
        )

    def _namespace(self) -> int:
        """Return the session's pid namespace; 0 if it has none of its own, or is gone."""
        namespace = procfs.namespace(self._init, "pid")
        return 0 if namespace == procfs.namespace("self", "pid") else namespace

    def cpu_seconds(self) -> float:
        """Return the cpu time so far, without that of unreaped processes. It never decreases."""
        ticks = sum(sum(map(int, procfs.stat_fields(pid)[11:15])) for pid in self.pids())
        self._cpu_seconds = max(self._cpu_seconds, ticks / _TICKS_PER_SECOND)
        return self._cpu_seconds

    def sample_load(self) -> LoadSample:
        """Measure the session's load on the machine; takes some milliseconds a process."""
        ticks = sum(sum(map(int, procfs.stat_fields(pid)[12:15:2])) for pid in self.pids())
        return LoadSample(self.memory_bytes(), ticks / _TICKS_PER_SECOND)

    def written_bytes(self) -> int:
        """Return the bytes that live processes have ever written, to files and sockets."""
        return sum(row[_WRITTEN_INDEX] for row in self._read_io_counters().values() if row)

    def stored_bytes(self) -> int | None:
        """Return the bytes that live processes have ever written to disks, even to deleted files.

        None if a process is unreadable. An unreadable init does not count: it is the bot's own code
        and writes nothing.
        """
        rows = self._read_io_counters()
        if any(row is None for pid, row in rows.items() if pid != self._init):
            return None
        return sum(row[_STORED_INDEX] - row[_CANCELLED_INDEX] for row in rows.values() if row)

    def _read_io_counters(self) -> dict[int, list[int] | None]:
        """Read /proc/PID/io of each process; None for an unreadable process."""
        rows: dict[int, list[int] | None] = {}
        with procfs.read_as_user(self._read_as):
            for pid in self.pids():
                try:
                    words = procfs.read_or_raise(f"/proc/{pid}/io").split()
                except PermissionError:
                    rows[pid] = None
                except OSError:
                    continue  # The process has ended.
                else:
                    rows[pid] = [int(word) if word.isdigit() else 0 for word in words]
        return rows

    def deleted_bytes(self, device: int, directory: str, *, mapped_bytes: int) -> int:
        """Return the size of the deleted files that the processes have open, or have mapped.

        Args:
            device: device of the files.
            directory: directory that the files were in, without symbolic links.
            mapped_bytes: size to assume for a file that is only mapped, as it cannot be measured.

        Raises:
            OSError: a process hides its files, or has too many mappings.
            TimeoutError: there are too many to read them in time.
        """
        budget, sizes = procfs.TimeBudget(_READING_SECONDS), dict[int, int]()
        mapped_inodes = set[int]()
        unreadable_pids = []
        with procfs.read_as_user(self._read_as):
            for pid in self.pids():
                try:
                    sizes |= procfs.deleted_files(procfs.readable_id(pid), device)
                    mapped_inodes |= procfs.deleted_mappings(procfs.readable_id(pid), directory)
                except PermissionError:
                    unreadable_pids.append(pid)
                if budget.is_spent:
                    raise TimeoutError
        # Some processes do not belong to the other user yet.
        for pid in unreadable_pids:
            sizes |= procfs.deleted_files(pid, device)
            mapped_inodes |= procfs.deleted_mappings(pid, directory)
        return sum(sizes.values()) + mapped_bytes * len(mapped_inodes - sizes.keys())

    def has_writable_file_mapping(self) -> bool:
        """Return whether a process may change a file without a change of its times."""
        with procfs.read_as_user(self._read_as):
            return any(
                procfs.has_writable_file_mapping(procfs.readable_id(pid)) for pid in self.pids()
            )

    def memory_bytes(self, limit_bytes: int | None = None) -> int:
        """Return the memory of all processes together.

        With `limit_bytes`, it is exact only near the limit. Without, it is exact, and at least the
        size of their shared memory, of which some pages may be in no process's set.
        """
        with procfs.read_as_user(self._read_as):
            pids = self.pids()
            shared_bytes = procfs.shared_bytes(pids) if limit_bytes is None else 0
            return max(self._memory_bytes(pids, limit_bytes)[0], shared_bytes)

    def _memory_bytes(self, pids: list[int], limit_bytes: int | None) -> tuple[int, bool]:
        """Return the memory, and whether there was no time to read all of it.

        An upper bound takes some 0.05 ms a process. Only if it exceeds the limit, proportional
        sets are read, which takes 0.01 ms for each resident megabyte.
        """
        budget = procfs.TimeBudget(_READING_SECONDS)
        numbers = ((pid, procfs.readable_id(pid)) for pid in pids)
        upper_bounds = {pair: procfs.upper_bound_bytes(pair[1]) for pair in numbers if pair[1]}
        low_bytes, high_bytes = limit_bytes or 0, limit_bytes or math.inf
        read_bytes, unread_bytes = 0, sum(upper_bounds.values())
        for pid, number in sorted(upper_bounds, key=upper_bounds.__getitem__, reverse=True):
            if read_bytes + unread_bytes <= low_bytes:
                return read_bytes + unread_bytes, False
            if budget.is_spent:
                # The processes read so far may be there to hide the others.
                return read_bytes + unread_bytes, True
            unread_bytes -= upper_bounds[pid, number]
            try:
                read_bytes += procfs.proportional_bytes(number)
            except PermissionError:
                # A kernel's init is the bot's own code, undumpable, and shares the init server's
                # pages.
                is_own_init = pid == self._init and self._kernel
                read_bytes += 0 if is_own_init else upper_bounds[pid, number]
            except OSError:
                continue  # The process has ended.
            if read_bytes > high_bytes:
                break
        return read_bytes, False

    def reading(self, limit_bytes: int, max_tasks: int | None = None) -> Reading:
        """Read everything once, for a bounded time; if there are too many tasks, not the memory."""
        pids, task_count = self._list_processes()
        if max_tasks is not None and task_count > max_tasks:
            return Reading(task_count=task_count)
        with procfs.read_as_user(self._read_as):
            memory_bytes, is_late = self._memory_bytes(pids, limit_bytes)
        stats = (procfs.stat_fields(pid) for pid in pids if pid != self._init)
        process_sessions = {fields[3] for fields in stats if not procfs.has_ended(fields)}
        return Reading(memory_bytes, task_count, len(process_sessions), is_late)


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it has ended."""
    fields = procfs.stat_fields(pid)
    return 0 if procfs.has_ended(fields) else int(fields[19])


def _list_namespace(namespace: int, init_pid: int) -> list[int]:
    """List all processes of a pid namespace, init first; only init if `namespace` is 0."""
    if namespace == 0:
        return [init_pid]  # All processes of the host would match.
    other_pids = [
        int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != init_pid
    ]
    return [init_pid, *(pid for pid in other_pids if procfs.namespace(pid, "pid") == namespace)]


def _can_list_children() -> bool:
    """Return whether Linux was built to list the children of a process."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
