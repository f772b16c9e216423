"""Looking after what no single system call bounds: a session's memory and its files on disk.

Memory is watched only where there is no control group to bound it. Disk has no portable quota:
what code writes between two looks is how far a workspace can grow over its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Mapping

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import deaths, launching, workspaces
from interpreter_bot.kernels.provisioning import watching

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.25
_IDLE_TICKS = 8
# Code that was interrupted may be busy cleaning up; code that goes on filling the disk is not.
_DEADLY_SHARE = 1.25
_JUST_OVER = 1.01


class _Guard:
    """Watches one kernel."""

    def __init__(self, launched: launching.Launched, limits: settings.Limits) -> None:
        self.launched = launched
        self._limits = limits
        self._watch = watching.Watch(limits.memory_bytes + 64 * settings.MIB)
        self._was_over = False
        self.disk_bytes = 0
        self._written_bytes = 0

    async def look(self) -> None:
        """Look once, and step in where a limit is passed."""
        kernel = self.launched.kernel
        if self.launched.provisioner.memory_bytes() is None:
            processes = self.launched.provisioner.processes()
            enough = self._limits.memory_bytes
            reading = await asyncio.to_thread(processes.reading, enough_bytes=enough)
            verdict = self._watch.judge(reading)
            if verdict is not watching.Verdict.FINE:
                _log.info("session is %s: %s", verdict, reading)
                reason = deaths.over_memory(self._limits.memory_bytes)
                kernel.condemn(values.Ending.OUT_OF_MEMORY, reason)
                return
        if self.launched.workspace is not None:
            self._judge_files(await self._share_of_files(self.launched.workspace))

    def written_bytes(self) -> int:
        """Count what the session's processes wrote since the last time, to wherever it was."""
        total = self.launched.provisioner.processes().written_bytes()
        self._written_bytes, before = total, self._written_bytes
        return total - before

    async def _share_of_files(self, workspace: workspaces.Workspace) -> float:
        """How much of what it may have the workspace has; over 1 is too much."""
        usage = await workspace.usage()
        processes = self.launched.provisioner.processes()
        device = workspace.directory.stat().st_dev
        unlinked_bytes = await asyncio.to_thread(processes.unlinked_bytes, device)
        self.disk_bytes = usage.bytes + unlinked_bytes
        share = max(
            self.disk_bytes / self._limits.workspace_bytes,
            usage.files / self._limits.workspace_files,
        )
        # What is nested too deeply to be counted shows only there.
        return max(share, _JUST_OVER) if usage.is_over else share

    def _judge_files(self, share: float) -> None:
        kernel = self.launched.kernel
        if share <= 1:
            self._was_over = False
        elif share > _DEADLY_SHARE or (not kernel.is_busy and not self._was_over):
            kernel.condemn(values.Ending.STOPPED, deaths.workspace_full(self._limits))
        elif not self._was_over:
            # Once: code that comes later may be deleting what this one left.
            self._was_over = True
            kernel.step_in(values.Ending.STOPPED, deaths.workspace_full(self._limits))


async def watch(
    live: Mapping[str, launching.Launched], directory: pathlib.Path, limits: settings.Limits
) -> None:
    """Look after all live kernels for ever: busy ones at each tick, idle ones now and then.

    Args:
        live: the kernels by session; read anew at each tick.
        directory: that of all workspaces, whose disk is not to be filled.
        limits: of each session.
    """
    guards: dict[str, _Guard] = {}
    tick = 0
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        tick += 1
        is_disk_full = _is_full(directory, limits)
        for key, launched in list(live.items()):
            guard = guards.get(key)
            if guard is None or guard.launched is not launched:
                guard = guards[key] = _Guard(launched, limits)
            is_due = (
                is_disk_full
                or launched.kernel.is_busy
                # Without a control group, what code left running is bounded by looking alone.
                or launched.provisioner.memory_bytes() is None
                or tick % _IDLE_TICKS == hash(key) % _IDLE_TICKS
            )
            if is_due and launched.kernel.is_alive:
                # A session that ends while it is looked at takes its files and processes along.
                with contextlib.suppress(errors.WorkspaceError, OSError):
                    await guard.look()
        for key in guards.keys() - live.keys():
            del guards[key]
        if _resident_bytes() > limits.bot_memory_bytes:
            await _brake(list(guards.values()))
        if is_disk_full and guards:
            # Who holds most of it goes first, busy or not; the others only if that is not enough.
            largest = max(guards.values(), key=lambda guard: guard.disk_bytes)
            largest.launched.kernel.condemn(values.Ending.STOPPED, deaths.DISK_FULL)


def _is_full(directory: pathlib.Path, limits: settings.Limits) -> bool:
    try:
        return shutil.disk_usage(directory).free < limits.disk_reserve_bytes
    except OSError:
        _log.exception("the data directory cannot be looked at")
        return False


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _brake(guards: list[_Guard]) -> None:
    """End the kernel that writes most, because the bot's own memory is running out.

    A message that never ends is held by libzmq, unseen by whoever reads; who sends it is known
    only by how much it writes.
    """
    written = await asyncio.to_thread(lambda: [guard.written_bytes() for guard in guards])
    if guards:
        _, worst = max(zip(written, guards, strict=True), key=lambda pair: pair[0])
        _log.critical("the bot uses too much memory; ending the session that writes most")
        worst.launched.kernel.condemn(values.Ending.STOPPED, deaths.TOO_MUCH_SENT)
