"""Looking after one kernel: what its session has in memory and on disk, a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable
from concurrent import futures
from typing import Final, ParamSpec, TypeVar

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import deaths, launching, workspaces
from interpreter_bot.kernels.provisioning import deletions, holdings, watching

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

TICK_SECONDS: Final = 0.25
"""Between two looks at a busy session. Longer after a look that itself took longer."""

_IDLE_TICKS: Final = 8
_HEADROOM_BYTES: Final = 64 * settings.MIB
# Code that was interrupted may be busy cleaning up; code that goes on filling the disk is not.
_DEADLY_SHARE: Final = 1.25
_JUST_OVER: Final = 1.01
_FAILURES: Final = 20


class Guard:
    """Watches one kernel. Only ever one thread works for it.

    Attributes:
        launched: the kernel.
        disk_bytes: what its session had on disk when it was last looked at.
        looked: set once its disk was looked at since the last `hurry`, and when it ended.
    """

    def __init__(
        self,
        launched: launching.Launched,
        limits: settings.Limits,
        threads: futures.Executor,
    ) -> None:
        self.launched = launched
        self.disk_bytes = 0
        self.looked = asyncio.Event()
        self._limits = limits
        self._threads = threads
        self._watch = watching.Watch(limits.memory_bytes + _HEADROOM_BYTES)
        self._unseen_files = watching.Streak()
        self._hurried = asyncio.Event()
        self._shared: holdings.Held = {}
        self._was_over = False
        self._written_bytes = 0

    async def watch(self, is_wanted: Callable[[], bool]) -> None:
        """Look until the kernel ends, or is not wanted any more.

        Busy ones at each tick, idle ones now and then.
        """
        failures = 0
        # Somewhere between two looks, lest all idle ones were looked at together.
        ticks = itertools.count(id(self) // 64)
        try:
            while self.launched.kernel.is_alive and is_wanted():
                began = time.monotonic()
                if next(ticks) % _IDLE_TICKS == 0 or self._is_due():
                    failures = 0 if await self._has_looked() else failures + 1
                if failures == _FAILURES:
                    _log.error("a session cannot be looked at; its limits are not watched")
                pause = max(TICK_SECONDS, time.monotonic() - began)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurried.wait()
        finally:
            self.looked.set()

    def hurry(self) -> None:
        """Ask for a look as soon as can be; `looked` is set after it."""
        self.looked.clear()
        self._hurried.set()

    def written_bytes(self) -> int:
        """Count what the session's processes wrote since the last time, to wherever it was."""
        total = self.launched.provisioner.processes().written_bytes()
        self._written_bytes, before = total, self._written_bytes
        return total - before

    def _is_due(self) -> bool:
        # Without a control group, what code left running is bounded by looking alone.
        return (
            self._hurried.is_set()
            or self.launched.kernel.is_busy
            or self.launched.provisioner.memory_bytes() is None
        )

    async def _has_looked(self) -> bool:
        """Look once; False where that failed."""
        is_hurried = self._hurried.is_set()
        self._hurried.clear()
        try:
            await self.look()
        except (errors.WorkspaceError, OSError) as error:
            # A session that ends while it is looked at takes its files and processes along.
            _log.debug("a session could not be looked at: %s", error)
            return False
        if is_hurried:
            self.looked.set()
        return True

    async def look(self) -> None:
        """Look once, and step in where a limit is passed.

        Raises:
            WorkspaceError: its files cannot be looked at, perhaps because it just ended.
            OSError: the same of its processes.
        """
        counted_bytes = self.launched.provisioner.memory_bytes()
        if counted_bytes is None:
            verdict = await self._judge_memory()
        else:
            verdict = await self._judge_sockets(counted_bytes)
        if verdict is not watching.Verdict.FINE:
            return
        if self.launched.workspace is not None:
            await self._judge_files(self.launched.workspace)

    async def _judge_memory(self) -> watching.Verdict:
        limit = self._limits.memory_bytes
        reading = await self._in_thread(
            self.launched.provisioner.processes().reading,
            enough_bytes=limit,
            most_bytes=limit + _HEADROOM_BYTES,
            shared=self._shared,
        )
        verdict = self._watch.judge(reading)
        if verdict is watching.Verdict.OVER_MEMORY:
            _log.info("session is %s: %s", verdict, reading)
            reason = deaths.over_memory(limit)
            self.launched.kernel.condemn(values.Ending.OUT_OF_MEMORY, reason)
        elif verdict is watching.Verdict.HIDING:
            self._condemn_hiding(reading)
        return verdict

    async def _judge_sockets(self, counted_bytes: int) -> watching.Verdict:
        """Add what waits in sockets that the control group does not count."""
        processes = self.launched.provisioner.processes()
        waiting_bytes = await self._in_thread(processes.uncounted_bytes)
        most_bytes = self._limits.memory_bytes + _HEADROOM_BYTES
        if not waiting_bytes or counted_bytes + waiting_bytes <= most_bytes:
            return watching.Verdict.FINE
        self._condemn_hiding(f"{waiting_bytes} bytes in sockets")
        return watching.Verdict.HIDING

    def _condemn_hiding(self, seen: watching.Reading | deletions.Deleted | str) -> None:
        # Should all sessions end like this, the bot has no right to look: as root it needs
        # CAP_SYS_PTRACE.
        _log.warning("session keeps what it uses from being seen: %s", seen)
        self.launched.kernel.condemn(values.Ending.STOPPED, deaths.HIDING)

    async def _judge_files(self, workspace: workspaces.Workspace) -> None:
        """Find how much the workspace has of what it may have; over 1 is too much."""
        usage = await workspace.usage()
        deleted = await self._in_thread(self._deleted, workspace)
        self.disk_bytes = usage.bytes + deleted.bytes
        # Found on the way, and judged with the rest of the memory at the next look.
        self._shared = deleted.shared
        if self._unseen_files.is_over(is_hidden=deleted.hidden > 0, is_late=deleted.is_late):
            self._condemn_hiding(deleted)
            return
        share = max(
            self.disk_bytes / self._limits.workspace_bytes,
            usage.files / self._limits.workspace_files,
        )
        if share <= 1 and usage.is_uncountable:
            self._object(_JUST_OVER, deaths.UNCOUNTABLE)
        else:
            self._object(share, deaths.workspace_full(self._limits))

    def _deleted(self, workspace: workspaces.Workspace) -> deletions.Deleted:
        disk = deletions.Disk.of(workspace.directory, self._limits.file_bytes)
        return self.launched.provisioner.processes().deleted(disk)

    def _object(self, share: float, reason: str) -> None:
        kernel = self.launched.kernel
        if share <= 1:
            self._was_over = False
        elif share > _DEADLY_SHARE or (not kernel.is_busy and not self._was_over):
            kernel.condemn(values.Ending.STOPPED, reason)
        elif not self._was_over:
            # Once: code that comes later may be deleting what this one left.
            self._was_over = True
            kernel.step_in(values.Ending.STOPPED, reason)

    async def _in_thread(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        loop = asyncio.get_running_loop()
        work = functools.partial(function, *args, **kwargs)
        return await loop.run_in_executor(self._threads, work)
