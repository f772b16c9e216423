"""Monitor of one kernel's session: its memory and disk, checked a few times a second.

An idle session is checked every five minutes: as long as none of its processes ran, its usage is
unchanged. Finding out whether one ran costs a microsecond, a check costs thousands.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Final, ParamSpec, TypeVar

from interpreter_bot import settings, values
from interpreter_bot.kernels import launchers, snapshots
from interpreter_bot.kernels.files import directory_contents, workspaces
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

TICK_SECONDS: Final = 0.25
"""Pause between two checks of a busy session. Longer after a check that itself took longer."""

# Background code, and code that is done sooner, are checked less often where a cgroup bounds their
# memory.
_IDLE_TICKS: Final = 8
# Of all sessions whose memory cgroups bound: a check takes 7 ms of a core, mostly for the list of
# mappings. Where many run, each has less of the processor, so it writes less between two checks.
_CHECKS_PER_SECOND: Final = 8 * min(os.cpu_count() or 1, 16)
MOST_STARTING: Final = 2 * _CHECKS_PER_SECOND
"""How many kernels that are being started count as running: others wait two seconds for them."""

# Even an idle session: what one check missed must not stay unseen for good.
_REST_SECONDS: Final = 300.0
_GROWTH_BYTES: Final = settings.MIB
HEADROOM_BYTES: Final = 64 * settings.MIB
# The kernel's own is one. With so many, a neighbour on the same processor is three times as slow.
_MAX_GROUPS: Final = 5
# Code that was interrupted may be busy cleaning up; code that goes on filling the disk is not.
_DEADLY_SHARE: Final = 1.25
_JUST_OVER: Final = 1.01
# One counts until the next is complete.
_SAVED_GENERATIONS: Final = 2
_FAILURES: Final = 20


class SessionMonitor:
    """Monitor of one kernel. At most one thread works for it at a time.

    Attributes:
        launched: the kernel.
        usage: measures its session.
        disk_bytes: its session's disk usage at the last check. What its processes ever wrote, if
            that is more: files that are deleted while they are open are in no directory.
        hides_writes: whether a process kept that from being seen then.
        has_grown: whether that is a megabyte more than at the check before.
        checked: set once its disk was checked since the last `request_check`, and when it ended.
    """

    def __init__(
        self,
        launched: launchers.LaunchedKernel,
        config: settings.Settings,
        saved: snapshots.Snapshots,
        *,
        memory_threads: futures.Executor,
        disk_threads: futures.Executor,
    ) -> None:
        self.launched = launched
        self.disk_bytes = 0
        self.has_grown = self._has_been_seen = False
        self.checked = asyncio.Event()
        self._limits = limits = config.limits
        self._most_saved_bytes = (
            _SAVED_GENERATIONS * config.snapshots.bytes
            + config.snapshots.checkpoint_bytes
            + HEADROOM_BYTES
        )
        self._snapshots = saved
        can_freeze = launched.provisioner.can_freeze
        self._freeze_seconds = (can_freeze and config.kernels.freeze_seconds) or math.inf
        self._background_seconds = config.kernels.background_seconds
        self._memory_threads, self._disk_threads = memory_threads, disk_threads
        self.usage = launched.provisioner.usage()
        self._clocks: Mapping[int, int] = {}
        is_counted = self.usage.is_counted
        self._idle_seconds = _IDLE_TICKS * TICK_SECONDS if is_counted else 0.0
        self._checks_per_second = _CHECKS_PER_SECOND if is_counted else math.inf
        self._executions = 0
        self._pause_seconds = 0.0
        self._next_look = time.monotonic()
        self._next_busy_look = self._next_look
        self._next_idle_look = self._next_look + self._idle_seconds
        self._most_tasks = None if launched.provisioner.has_own_id else limits.processes
        self._roused = asyncio.Event()
        self._is_hurried = False
        self._is_over = False
        self.hides_writes = self._was_over = self._was_late = False
        self._written_bytes = 0
        # When the kernel was last used, and what it had used then; both as of the last freezing.
        self._idle_since = self._cpu_seconds = 0.0

    async def watch(self) -> None:
        """Check whenever `tick` or `request_check` ask for it, until the kernel ends."""
        failures = 0
        try:
            while True:
                await self._roused.wait()
                if self._is_over or not self.launched.kernel.is_alive:
                    return
                failures = 0 if await self._has_checked() else failures + 1
                is_frozen = self.launched.kernel.is_frozen
                if not is_frozen and not self._snapshots.checkpoint(self.launched):
                    await self._freeze_if_idle()
                if failures == _FAILURES:
                    _log.error("a session cannot be looked at; its limits are not watched")
        finally:
            self.checked.set()

    @property
    def is_active(self) -> bool:
        """Whether anything in the session ran since the last check, or may run now."""
        kernel = self.launched.kernel
        return kernel.is_busy or (not kernel.is_frozen and self.usage.have_moved(self._clocks))

    @property
    def is_running(self) -> bool:
        """Whether code of an execution ran since the last check; false while it only waits."""
        return self.launched.kernel.is_busy and self.usage.have_moved(self._clocks)

    def tick(self, *, is_wanted: bool, running: int = 1) -> None:
        """Request a check if one is due; called at each tick.

        Args:
            is_wanted: false once the session is to be watched no more.
            running: how many sessions run, or begin to.
        """
        kernel = self.launched.kernel
        self._pause_seconds = running / self._checks_per_second
        self._is_over = not (is_wanted and kernel.is_alive)
        is_new = self._executions != kernel.executions
        if is_new:
            self._executions = kernel.executions
            self._next_busy_look = time.monotonic() + self._pause_seconds
        is_long = kernel.is_busy and not is_new and time.monotonic() >= self._next_busy_look
        if self._is_over or self._is_due(is_long=is_long):
            self._roused.set()

    def _is_due(self, *, is_long: bool) -> bool:
        """Return whether to check now; `is_long`: code has run for a tick, and for the pause."""
        now = time.monotonic()
        kernel = self.launched.kernel
        if now < self._next_look or kernel.is_frozen:
            return False
        if now >= self._next_look + _REST_SECONDS or (is_long and self.is_running):
            return True
        if self._snapshots.is_due(self.launched):
            return True
        if not self._background_seconds and now >= kernel.last_used + self._freeze_seconds:
            return True
        # Up to as long again where many run, or people wait for many that begin to.
        idle_look = self._next_idle_look + min(self._pause_seconds, self._idle_seconds)
        return now >= idle_look and self.usage.have_moved(self._clocks)

    async def _freeze_if_idle(self) -> None:
        """Freeze a kernel that is not used any more and has spent its time in the background."""
        kernel = self.launched.kernel
        used_seconds = self.usage.cpu_seconds() if self._background_seconds else 0.0
        if kernel.is_busy or time.monotonic() < kernel.last_used + self._freeze_seconds:
            return
        if self._idle_since != kernel.last_used:
            self._idle_since, self._cpu_seconds = kernel.last_used, used_seconds
        if used_seconds - self._cpu_seconds >= self._background_seconds:
            await kernel.freeze()

    def request_check(self) -> None:
        """Request a check as soon as possible; `checked` is set after it.

        At once if no process ran since the last one.
        """
        if self._next_look < math.inf and not self.usage.have_moved(self._clocks):
            self.has_grown = False
            self.checked.set()
            return
        self.checked.clear()
        self._is_hurried = True
        self._roused.set()

    def written_bytes(self) -> int:
        """Return what the session's processes wrote since the last call, to any target."""
        total = self.usage.written_bytes()
        self._written_bytes, before = total, self._written_bytes
        return total - before

    async def _has_checked(self) -> bool:
        """Check once; False if that failed."""
        self._roused.clear()
        is_hurried, self._is_hurried = self._is_hurried, False
        began, self._next_look = time.monotonic(), math.inf
        try:
            await self.check()
        except OSError as error:
            # A session that ends during the check takes its files and processes along.
            _log.debug("a session could not be looked at: %s", error)
            self._look_on()
            return False
        finally:
            now = time.monotonic()
            self._next_look = now + max(now - began, self._pause_seconds)
            self._next_idle_look = max(self._next_look, now + self._idle_seconds)
        if is_hurried:
            self.checked.set()
        return True

    async def check(self) -> None:
        """Check once, and interrupt or kill the kernel where a limit is exceeded.

        Raises:
            OSError: its files or processes cannot be read, perhaps because it just ended.
        """
        if self.usage.is_counted:
            await self._after_clocks(lambda: None)
        elif (violation := await self._memory_violation()) and not self._gives_up_saving():
            self.launched.kernel.kill_with_reason(*violation)
            return
        if self.launched.workspace is not None:
            await self._judge_files(self.launched.workspace)

    def _gives_up_saving(self) -> bool:
        """End what the bot itself lets a session do, before the session is ended for it."""
        self._look_on()
        return self._snapshots.interrupt(self.launched)

    def _look_on(self) -> None:
        """Ensure another check, even if no process runs until then."""
        self._clocks = {}

    async def _memory_violation(self) -> tuple[values.Ending, str] | None:
        """Return how and why to end a session whose memory or processes are over the limits."""
        limit_bytes = self._limits.memory_bytes + HEADROOM_BYTES
        reading = await self._after_clocks(self.usage.reading, limit_bytes, self._most_tasks)
        was_late, self._was_late = self._was_late, reading.is_late
        if reading.is_late and not was_late:
            # A busy machine may be why; whoever hides its memory so is found by the next look.
            self._look_on()
        elif reading.memory_bytes > limit_bytes:
            _log.info("a session has too much memory: %s", reading)
            reason = run_words.over_memory(self._limits.memory_bytes)
            return values.Ending.OUT_OF_MEMORY, reason
        if self._most_tasks is not None and reading.tasks > self._most_tasks:
            reason = run_words.too_many_processes(self._limits)
            return values.Ending.STOPPED, reason
        if reading.groups > _MAX_GROUPS:
            return values.Ending.STOPPED, run_words.GRABBING
        return None

    async def _judge_files(self, workspace: workspaces.Workspace) -> None:
        """Compare the workspace with its limits; kill or interrupt the kernel if it is over."""
        loop = asyncio.get_running_loop()
        measured = await loop.run_in_executor(self._disk_threads, self._measure, workspace)
        usage, saved, temporary, stored_bytes = measured
        self.hides_writes = stored_bytes is None
        held_bytes = max(usage.bytes + temporary.bytes, stored_bytes or 0)
        before, self.disk_bytes = self.disk_bytes, held_bytes
        # What the session had at the first check may be of last year.
        self.has_grown = self._has_been_seen and self.disk_bytes > before + _GROWTH_BYTES
        self._has_been_seen = True
        if usage.is_partial:
            self._look_on()
        most_files = self._limits.workspace_files
        share = max(usage.bytes / self._limits.workspace_bytes, usage.files / most_files)
        temporary_share = max(
            temporary.bytes / self._limits.temporary_bytes, temporary.files / most_files
        )
        if saved.is_over:
            if not self._gives_up_saving():
                self.launched.kernel.kill_with_reason(values.Ending.STOPPED, run_words.OVER_SAVED)
        elif temporary_share > max(1, share):
            self._object(temporary_share, run_words.temporary_full(self._limits))
        elif share <= 1 and (usage.is_uncountable or temporary.is_uncountable):
            self._object(_JUST_OVER, run_words.UNCOUNTABLE)
        else:
            self._object(share, run_words.workspace_full(self._limits))

    def _measure(
        self, workspace: workspaces.Workspace
    ) -> tuple[
        directory_contents.DirectoryUsage,
        directory_contents.DirectoryUsage,
        directory_contents.DirectoryUsage,
        int | None,
    ]:
        """Measure its files, saved variables, temporary files, and what it wrote. Blocks."""
        saved = workspace.measure_variables(self._most_saved_bytes)
        stored_bytes = self.usage.stored_bytes()
        return workspace.measure(), saved, workspace.measure_temporary(), stored_bytes

    def _object(self, share: float, reason: str) -> None:
        kernel = self.launched.kernel
        if share <= 1:
            self._was_over = False
        elif share > _DEADLY_SHARE or (not kernel.is_busy and not self._was_over):
            kernel.kill_with_reason(values.Ending.STOPPED, reason)
        elif not self._was_over:
            # Once: later code may be deleting the excess.
            self._was_over = True
            kernel.interrupt_with_reason(values.Ending.STOPPED, reason)

    async def _after_clocks(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read the clocks and then call a function: what runs from then on causes another check.

        Whatever is checked first goes through here, in one visit to a thread: to change threads
        takes a third of a millisecond of a processor.
        """

        def read() -> _T:
            self._clocks = self.usage.clocks()
            return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._memory_threads, read)
