"""Guard of the machine's memory: below a reserve, it ends the session that took most of it.

Code can make Linux hold memory that counts for no session, with a cgroup or without: unmapped files
in memory, socket queues, watches, locks. This guard catches it. No session ends for what other
programs took, and an inactive session only if it holds more than a session may. While there is
plenty of memory, a tick costs one file read.
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

# Below twice the reserve, the growth of each session is recorded.
_OBSERVED_RESERVES: Final = 2
_MIN_TAKEN_BYTES: Final = 16 * settings.MIB
_MAX_SHARE_OF_GROUP: Final = 16
_MEMORY: Final = re.compile(rb"^(\w+): +(\d+) kB", re.MULTILINE)
# Free memory, cached files and processes' memory; the host's kernel holds the rest itself.
_ROWS_OUTSIDE_KERNEL: Final = (
    *(b"MemFree", b"Buffers", b"Cached", b"SwapCached", b"AnonPages", b"SReclaimable"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory at one moment.

    Attributes:
        free_bytes: what new allocations can have.
        kernel_bytes: what the host's kernel holds itself, including files in memory.
    """

    free_bytes: int
    kernel_bytes: int


def machine_memory() -> MachineMemory:
    """Read how much memory is left; takes some 50 microseconds.

    If the bot runs in a sandbox that leaves out rows of the file, all memory counts as free.
    """
    pairs = _MEMORY.findall(procfs.read("/proc/meminfo"))
    rows = {name: int(kilobytes) * settings.KIB for name, kilobytes in pairs}
    total_bytes = rows.get(b"MemTotal", 0)
    # Files in memory are part of `Cached`.
    outside_kernel_bytes = sum(rows.get(name, 0) for name in _ROWS_OUTSIDE_KERNEL) - rows.get(
        b"Shmem", 0
    )
    available_bytes = rows.get(b"MemAvailable", total_bytes or sys.maxsize)
    return MachineMemory(available_bytes, total_bytes - outside_kernel_bytes)


def free_bytes() -> int:
    """Return the memory that this process and its sessions can still allocate.

    It is bounded by the machine and by each cgroup: a container may have far less than the machine.
    """
    groups = cgroups.memory_groups()
    return min([machine_memory().free_bytes, *(group.free_bytes() for group in groups)])


def culprit(
    taken_bytes: int, taken_by_kernel_bytes: int, loads: Mapping[_T, session_metering.LoadSample]
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
    is_kernel_memory = taken_by_kernel_bytes >= half_bytes and loads[busiest].system_seconds > 0
    return busiest if is_kernel_memory else None


class MachineExhaustion:
    """Guard of the reserve; see the module."""

    def __init__(self, limits: settings.Limits) -> None:
        self._reserve_bytes = limits.memory_reserve_bytes
        self._session_bytes = limits.memory_bytes + session_monitors.HEADROOM_BYTES
        self._groups = cgroups.memory_groups()
        self._baseline: MachineMemory | None = None
        self._loads: dict[session_monitors.SessionMonitor, session_metering.LoadSample] = {}

    async def end_culprit(self, monitors: Sequence[session_monitors.SessionMonitor]) -> None:
        """End the session that caused it, if the reserve is used; called at each tick."""
        now = machine_memory()
        missing_bytes = self._reserve_bytes - now.free_bytes
        for group in self._groups:
            reserve_bytes = min(self._reserve_bytes, group.limit_bytes // _MAX_SHARE_OF_GROUP)
            missing_bytes = max(missing_bytes, reserve_bytes - group.free_bytes())
        if missing_bytes < -(_OBSERVED_RESERVES - 1) * self._reserve_bytes:
            self._reset()
            return
        active = [monitor for monitor in monitors if monitor.is_active]
        loads = await asyncio.to_thread(
            lambda: {session: session.usage.sample_load() for session in active}
        )
        if self._baseline is None or now.free_bytes > self._baseline.free_bytes:
            self._baseline, self._loads = now, loads
            return
        growth = {session: load - self._loads.get(session, load) for session, load in loads.items()}
        self._loads = loads | self._loads
        if missing_bytes > 0:
            await self._end_culprit_among(monitors, self._baseline, now, growth)

    def _reset(self) -> None:
        self._baseline = None
        self._loads.clear()

    async def _end_culprit_among(
        self,
        monitors: Sequence[session_monitors.SessionMonitor],
        before: MachineMemory,
        now: MachineMemory,
        growth: Mapping[session_monitors.SessionMonitor, session_metering.LoadSample],
    ) -> None:
        taken_bytes = before.free_bytes - now.free_bytes
        suspect = culprit(taken_bytes, now.kernel_bytes - before.kernel_bytes, growth)
        if suspect is None:
            return
        # A session over its own limit comes first, even if it grew long ago.
        memory_bytes = await asyncio.to_thread(
            lambda: {monitor: monitor.usage.memory_bytes() for monitor in monitors}
        )
        largest = max(memory_bytes, key=memory_bytes.__getitem__)
        if memory_bytes[largest] > self._session_bytes:
            suspect = largest
        _log.error(
            "the machine's memory is nearly used up; ended for it: %s", memory_bytes[suspect]
        )
        suspect.kernel.kill_with_reason(values.Ending.OUT_OF_MEMORY, run_words.MEMORY_SHORT)
        self._reset()
