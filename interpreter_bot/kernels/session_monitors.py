"""Monitor of one kernel's session: its memory and disk, checked a few times a second.

An idle session is checked every five minutes: its usage is unchanged unless one of its processes
ran. To see whether one ran costs a microsecond; a check costs thousands.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Final, ParamSpec, TypeVar

from interpreter_bot import settings, values
from interpreter_bot.kernels import live_kernels, snapshots
from interpreter_bot.kernels.files import directory_contents, workspaces
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

_CHECKS_PER_SECOND: Final = 8 * min(os.cpu_count() or 1, 16)


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How often sessions are checked.

    Attributes:
        tick_seconds: pause between two checks of a busy session. It is as long as the last check,
            if that is more.
        idle_ticks: ticks between checks of background code and short executions if a cgroup bounds
            the memory.
        checks_per_second: bound for all sessions together, if cgroups bound their memory: a check
            takes 7 ms of a core, mostly for the list of mappings. If many sessions run, each gets
            less processor time, so it writes less between checks.
        max_starting: at most this many starting kernels count as running; they delay other checks
            by up to two seconds.
        max_seconds_unchecked: pause after which an idle session is checked all the same, in case an
            earlier check missed something.
    """

    tick_seconds: float = 0.25
    idle_ticks: int = 8
    checks_per_second: float = _CHECKS_PER_SECOND
    max_starting: int = 2 * _CHECKS_PER_SECOND
    max_seconds_unchecked: float = 300.0


PACE: Final = Pace()
"""The pace of every bot; tests use a faster one."""

_GROWTH_BYTES: Final = settings.MIB
HEADROOM_BYTES: Final = 64 * settings.MIB
# Linux gives each process session, as made by `setsid`, a share of the processor of its own. With
# five, including the kernel's, a neighbour on the same core is three times as slow.
_MAX_PROCESS_SESSIONS: Final = 5
# Interrupted code may still clean up; code that exceeds this share of the limit does not.
_KILL_SHARE: Final = 1.25
_INTERRUPT_SHARE: Final = 1.01
# The current generation of saved variables is kept until the next one is complete.
_MAX_GENERATIONS_ON_DISK: Final = 2
_MAX_FAILURES: Final = 20


class SessionMonitor:
    """Monitor of one kernel. At most one thread works for it at a time.

    Attributes:
        kernel: the kernel.
        meter: measures its session.
        disk_bytes: its session's disk usage at the last check, or what its processes have written
            in total if that is more: deleted files that are still open are in no directory.
        hides_writes: whether a process made its writes unreadable at the last check.
        has_grown: whether disk usage grew by more than a megabyte between the last two checks.
        check_done: set when the disk check of the last `request_check` is done, and at the end.
    """

    def __init__(
        self,
        kernel: live_kernels.Kernel,
        config: settings.Settings,
        session_snapshots: snapshots.Snapshots,
        pace: Pace,
        *,
        memory_threads: futures.Executor,
        disk_threads: futures.Executor,
    ) -> None:
        self.kernel = kernel
        self.disk_bytes = 0
        self.has_grown = self._has_earlier_check = False
        self.check_done = asyncio.Event()
        self._limits = limits = config.limits
        self._max_saved_bytes = (
            _MAX_GENERATIONS_ON_DISK * config.snapshots.bytes
            + config.snapshots.checkpoint_bytes
            + HEADROOM_BYTES
        )
        self._snapshots = session_snapshots
        can_freeze = kernel.provisioner.can_freeze
        self._freeze_seconds = (can_freeze and config.kernels.freeze_seconds) or math.inf
        self._memory_threads, self._disk_threads = memory_threads, disk_threads
        self.meter = kernel.provisioner.meter()
        self._clocks: Mapping[int, int] = {}
        is_counted = self.meter.is_counted
        self._idle_check_seconds = pace.idle_ticks * pace.tick_seconds if is_counted else 0.0
        self._checks_per_second = pace.checks_per_second if is_counted else math.inf
        self._max_seconds_unchecked = pace.max_seconds_unchecked
        self._execution_count = 0
        self._pause_seconds = 0.0
        self._next_check_at = time.monotonic()
        self._next_busy_check_at = self._next_check_at
        self._next_idle_check_at = self._next_check_at + self._idle_check_seconds
        self._max_tasks = None if kernel.provisioner.has_own_id else limits.processes
        self._check_requested = asyncio.Event()
        self._is_disk_check_requested = False
        self._is_finished = False
        self.hides_writes = self._was_interrupted = self._was_reading_late = False
        self._written_bytes = 0

    async def watch(self) -> None:
        """Check whenever `tick` or `request_check` ask for it, until the kernel ends."""
        failures = 0
        try:
            while True:
                await self._check_requested.wait()
                if self._is_finished or not self.kernel.is_alive:
                    return
                failures = 0 if await self._check_or_log() else failures + 1
                is_frozen = self.kernel.is_frozen
                if not is_frozen and not self._snapshots.save_if_due(self.kernel):
                    await self._freeze_if_idle()
                if failures == _MAX_FAILURES:
                    _log.error("a session cannot be checked; its limits are not watched")
        finally:
            self.check_done.set()

    @property
    def is_active(self) -> bool:
        """Whether anything in the session ran since the last check, or may run now."""
        kernel = self.kernel
        return kernel.is_busy or (not kernel.is_frozen and self.meter.has_run_since(self._clocks))

    @property
    def is_running(self) -> bool:
        """Whether code of an execution ran since the last check; false while it only waits."""
        return self.kernel.is_busy and self.meter.has_run_since(self._clocks)

    def tick(self, *, is_current: bool, running_count: int = 1) -> None:
        """Request a check if one is due; called at each tick.

        `is_current` is false once the session no longer has this kernel. `running_count` counts all
        sessions that run or start.
        """
        kernel = self.kernel
        self._pause_seconds = running_count / self._checks_per_second
        self._is_finished = not (is_current and kernel.is_alive)
        is_new = self._execution_count != kernel.execution_count
        if is_new:
            self._execution_count = kernel.execution_count
            self._next_busy_check_at = time.monotonic() + self._pause_seconds
        is_overdue = kernel.is_busy and not is_new and time.monotonic() >= self._next_busy_check_at
        if self._is_finished or self._is_due(is_overdue=is_overdue):
            self._check_requested.set()

    def _is_due(self, *, is_overdue: bool) -> bool:
        """Return whether to check now; `is_overdue` means that code has run for a whole pause."""
        now = time.monotonic()
        kernel = self.kernel
        if now < self._next_check_at or kernel.is_frozen:
            return False
        if now >= self._next_check_at + self._max_seconds_unchecked:
            return True
        if is_overdue and self.is_running:
            return True
        if self._snapshots.is_due(self.kernel):
            return True
        if now >= kernel.last_used + self._freeze_seconds:
            return True
        # If many sessions run or start, this check may come up to twice as late.
        idle_check_at = self._next_idle_check_at + min(
            self._pause_seconds, self._idle_check_seconds
        )
        return now >= idle_check_at and self.meter.has_run_since(self._clocks)

    async def _freeze_if_idle(self) -> None:
        kernel = self.kernel
        if not kernel.is_busy and time.monotonic() >= kernel.last_used + self._freeze_seconds:
            await kernel.freeze()

    def request_check(self) -> None:
        """Request a check as soon as possible; `check_done` is set after it.

        If no process ran since the last check, `check_done` is set at once.
        """
        if self._next_check_at < math.inf and not self.meter.has_run_since(self._clocks):
            self.has_grown = False
            self.check_done.set()
            return
        self.check_done.clear()
        self._is_disk_check_requested = True
        self._check_requested.set()

    def written_bytes(self) -> int:
        """Return how many bytes the session's processes wrote anywhere since the last call."""
        total = self.meter.written_bytes()
        self._written_bytes, previous_total = total, self._written_bytes
        return total - previous_total

    async def _check_or_log(self) -> bool:
        """Check once, and return whether the check succeeded."""
        self._check_requested.clear()
        is_disk_check_requested, self._is_disk_check_requested = (
            self._is_disk_check_requested,
            False,
        )
        started_at, self._next_check_at = time.monotonic(), math.inf
        try:
            await self.check()
        except OSError as error:
            # The session may just have ended, with its files and processes.
            _log.debug("a session could not be checked: %s", error)
            self._force_next_check()
            return False
        finally:
            now = time.monotonic()
            self._next_check_at = now + max(now - started_at, self._pause_seconds)
            self._next_idle_check_at = max(self._next_check_at, now + self._idle_check_seconds)
        if is_disk_check_requested:
            self.check_done.set()
        return True

    async def check(self) -> None:
        """Check once, and interrupt or kill the kernel if a limit is exceeded.

        Raises:
            OSError: its files or processes cannot be read, perhaps because it just ended.
        """
        if self.meter.is_counted:
            await self._read_clocks_then(lambda: None)
        elif (violation := await self._memory_violation()) and not self._interrupt_saving():
            self.kernel.kill_with_reason(*violation)
            return
        if self.kernel.workspace is not None:
            await self._enforce_disk_limits(self.kernel.workspace)

    def _interrupt_saving(self) -> bool:
        """Interrupt the bot's own save in a session over its limits; return whether one ran."""
        self._force_next_check()
        return self._snapshots.interrupt(self.kernel)

    def _force_next_check(self) -> None:
        """Ensure another check, even if no process runs meanwhile."""
        self._clocks = {}

    async def _memory_violation(self) -> tuple[values.Ending, str] | None:
        """Return how and why to end the session; None if memory and processes are within limits."""
        limit_bytes = self._limits.memory_bytes + HEADROOM_BYTES
        reading = await self._read_clocks_then(self.meter.reading, limit_bytes, self._max_tasks)
        was_reading_late, self._was_reading_late = self._was_reading_late, reading.is_late
        if reading.is_late and not was_reading_late:
            # The machine may be busy. A session that slows down readings to hide memory exceeds
            # the limit at the next check.
            self._force_next_check()
        elif reading.memory_bytes > limit_bytes:
            _log.info("a session has too much memory: %s", reading)
            reason = run_words.over_memory(self._limits.memory_bytes)
            return values.Ending.OUT_OF_MEMORY, reason
        if self._max_tasks is not None and reading.task_count > self._max_tasks:
            reason = run_words.too_many_processes(self._limits)
            return values.Ending.STOPPED, reason
        if reading.process_session_count > _MAX_PROCESS_SESSIONS:
            return values.Ending.STOPPED, run_words.TOO_MANY_PROCESS_SESSIONS
        return None

    async def _enforce_disk_limits(self, workspace: workspaces.Workspace) -> None:
        """Kill or interrupt the kernel if its files exceed a limit."""
        loop = asyncio.get_running_loop()
        measurements = await loop.run_in_executor(self._disk_threads, self._measure, workspace)
        usage, variables_usage, temporary_usage, stored_bytes = measurements
        self.hides_writes = stored_bytes is None
        used_bytes = max(usage.bytes + temporary_usage.bytes, stored_bytes or 0)
        previous_bytes, self.disk_bytes = self.disk_bytes, used_bytes
        # Files that exist at the first check may be a year old.
        self.has_grown = (
            self._has_earlier_check and self.disk_bytes > previous_bytes + _GROWTH_BYTES
        )
        self._has_earlier_check = True
        if usage.is_partial:
            self._force_next_check()
        max_files = self._limits.workspace_files
        share = max(usage.bytes / self._limits.workspace_bytes, usage.files / max_files)
        temporary_share = max(
            temporary_usage.bytes / self._limits.temporary_bytes, temporary_usage.files / max_files
        )
        if variables_usage.is_over_limit:
            if not self._interrupt_saving():
                self.kernel.kill_with_reason(values.Ending.STOPPED, run_words.SAVED_FOLDER_FULL)
        elif temporary_share > max(1, share):
            self._interrupt_or_kill(temporary_share, run_words.temporary_full(self._limits))
        elif share <= 1 and (usage.is_uncountable or temporary_usage.is_uncountable):
            self._interrupt_or_kill(_INTERRUPT_SHARE, run_words.FOLDERS_UNCOUNTABLE)
        else:
            self._interrupt_or_kill(share, run_words.workspace_full(self._limits))

    def _measure(
        self, workspace: workspaces.Workspace
    ) -> tuple[
        directory_contents.DirectoryUsage,
        directory_contents.DirectoryUsage,
        directory_contents.DirectoryUsage,
        int | None,
    ]:
        """Measure files, saved variables, temporary files and bytes written. Blocks."""
        variables_usage = workspace.measure_variables(self._max_saved_bytes)
        stored_bytes = self.meter.stored_bytes()
        return workspace.measure(), variables_usage, workspace.measure_temporary(), stored_bytes

    def _interrupt_or_kill(self, share: float, reason: str) -> None:
        kernel = self.kernel
        if share <= 1:
            self._was_interrupted = False
        elif share > _KILL_SHARE or (not kernel.is_busy and not self._was_interrupted):
            kernel.kill_with_reason(values.Ending.STOPPED, reason)
        elif not self._was_interrupted:
            # Interrupt only once: later code may be deleting files.
            self._was_interrupted = True
            kernel.interrupt_with_reason(values.Ending.STOPPED, reason)

    async def _read_clocks_then(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read the processes' clocks and then call a function, both in one visit to a thread.

        A process that runs after the clocks were read causes another check. A change of threads
        costs a third of a millisecond, so the first step of a check is combined with it.
        """

        def read() -> _T:
            self._clocks = self.meter.clocks()
            return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._memory_threads, read)
