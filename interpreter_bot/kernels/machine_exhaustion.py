"""Guard of the machine's memory: below a reserve, it ends the session that took most of it.

Code can make Linux hold memory that counts for no session, with a cgroup or without: unmapped files
in memory, socket queues, watches, locks. This guard counts that memory too. No session ends for
memory that other programs took; an inactive session ends only if it is over its own limit. While
memory is plentiful, a tick costs one file read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from interpreter_bot import settings, values
from interpreter_bot.kernels import session_monitors
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.kernels.provisioning import cgroups
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# While free memory is below this many reserves, the growth of each session is recorded.
_MAX_OBSERVED_RESERVES: Final = 2
_MIN_TAKEN_BYTES: Final = 16 * settings.MIB
_GROUP_RESERVE_DIVISOR: Final = 16
_MEMORY_PATTERN: Final = re.compile(rb"^(\w+): +(\d+) kB", re.MULTILINE)
# Free memory, cached files and processes' memory; Linux holds the rest itself.
_ROWS_OUTSIDE_LINUX: Final = (
    b"MemFree",
    b"Buffers",
    b"Cached",
    b"SwapCached",
    b"AnonPages",
    b"SReclaimable",
)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory at one moment.

    Attributes:
        free_bytes: what new allocations can have.
        linux_kernel_bytes: what Linux holds itself, including files in memory.
    """

    free_bytes: int
    linux_kernel_bytes: int


def machine_memory() -> MachineMemory:
    """Read how much memory is left; takes some 50 microseconds.

    If the bot runs in a sandbox that leaves out rows of the file, all memory counts as free.
    """
    pairs = _MEMORY_PATTERN.findall(procfs.read("/proc/meminfo"))
    rows = {name: int(kilobytes) * settings.KIB for name, kilobytes in pairs}
    total_bytes = rows.get(b"MemTotal", 0)
    # Files in memory are part of `Cached`.
    outside_linux_bytes = sum(rows.get(name, 0) for name in _ROWS_OUTSIDE_LINUX) - rows.get(
        b"Shmem", 0
    )
    available_bytes = rows.get(b"MemAvailable", total_bytes or sys.maxsize)
    return MachineMemory(available_bytes, total_bytes - outside_linux_bytes)


def free_bytes() -> int:
    """Return the memory that this process and its sessions can still allocate.

    It is bounded by the machine and by each cgroup: a container may have far less than the machine.
    """
    groups = cgroups.memory_groups()
    return min([machine_memory().free_bytes, *(group.free_bytes() for group in groups)])


def find_culprit(
    taken_bytes: int, taken_by_linux_bytes: int, loads: Mapping[_T, session_metering.LoadSample]
) -> _T | None:
    """Return the session that took most of the missing memory; None if no session did.

    All arguments are changes since free memory was highest.
    """
    half_bytes = taken_bytes / 2
    if taken_bytes < _MIN_TAKEN_BYTES or not loads:
        return None
    if sum(max(0, load.memory_bytes) for load in loads.values()) >= half_bytes:
        return max(loads, key=lambda session: loads[session].memory_bytes)
    # Memory that counts for no session was allocated in system calls.
    busiest = max(loads, key=lambda session: loads[session].system_seconds)
    is_linux_memory = taken_by_linux_bytes >= half_bytes and loads[busiest].system_seconds > 0
    return busiest if is_linux_memory else None


class MemoryGuard:
    """Guard of the reserve; see the module."""

    def __init__(self, limits: settings.Limits) -> None:
        self._reserve_bytes = limits.memory_reserve_bytes
        self._session_bytes = limits.memory_bytes + session_monitors.HEADROOM_BYTES
        self._groups = cgroups.memory_groups()
        self._baseline: MachineMemory | None = None
        self._loads: dict[session_monitors.SessionMonitor, session_metering.LoadSample] = {}

    async def end_culprit(self, monitors: Sequence[session_monitors.SessionMonitor]) -> None:
        """End the session that caused it, if the reserve is used; called at each tick."""
        memory = machine_memory()
        missing_bytes = self._reserve_bytes - memory.free_bytes
        for group in self._groups:
            reserve_bytes = min(self._reserve_bytes, group.limit_bytes // _GROUP_RESERVE_DIVISOR)
            missing_bytes = max(missing_bytes, reserve_bytes - group.free_bytes())
        if missing_bytes < -(_MAX_OBSERVED_RESERVES - 1) * self._reserve_bytes:
            self._reset()
            return
        active_monitors = [monitor for monitor in monitors if monitor.is_active]
        loads = await asyncio.to_thread(
            lambda: {monitor: monitor.meter.sample_load() for monitor in active_monitors}
        )
        if self._baseline is None or memory.free_bytes > self._baseline.free_bytes:
            self._baseline, self._loads = memory, loads
            return
        growth = {monitor: load - self._loads.get(monitor, load) for monitor, load in loads.items()}
        self._loads = loads | self._loads
        if missing_bytes > 0:
            await self._end_culprit_among(monitors, self._baseline, memory, growth)

    def _reset(self) -> None:
        self._baseline = None
        self._loads.clear()

    async def _end_culprit_among(
        self,
        monitors: Sequence[session_monitors.SessionMonitor],
        baseline: MachineMemory,
        memory: MachineMemory,
        growth: Mapping[session_monitors.SessionMonitor, session_metering.LoadSample],
    ) -> None:
        taken_bytes = baseline.free_bytes - memory.free_bytes
        suspect = find_culprit(
            taken_bytes, memory.linux_kernel_bytes - baseline.linux_kernel_bytes, growth
        )
        if suspect is None:
            return
        # A session over its own limit is ended first, even if it grew long ago.
        memory_bytes = await asyncio.to_thread(
            lambda: {monitor: monitor.meter.memory_bytes() for monitor in monitors}
        )
        largest = max(memory_bytes, key=memory_bytes.__getitem__)
        if memory_bytes[largest] > self._session_bytes:
            suspect = largest
        _log.error(
            "the machine's memory is nearly used up; ending kernel %s, which has %d bytes",
            suspect.kernel.id,
            memory_bytes[suspect],
        )
        suspect.kernel.kill_with_reason(values.Ending.OUT_OF_MEMORY, run_words.MEMORY_SHORT)
        self._reset()
