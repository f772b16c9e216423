"""Guard of the machine's memory: below a reserve, it ends the session that took most of it.

Not all that code makes the host's kernel hold is counted for a session, with a cgroup or without:
files in memory that no process maps, queues of sockets, watches, locks. This is what catches the
rest. Nobody ends for what other programs of the machine took, and who sits still only if it holds
more than a session may.
While there is plenty, all this costs is one file read at each tick.
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
from interpreter_bot.kernels.provisioning import cgroup_files
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# From twice the reserve on it is noted who takes how much.
_NEAR: Final = 2
_LEAST_BYTES: Final = 16 * settings.MIB
_MAX_SHARE_OF_GROUP: Final = 16
_MEMORY: Final = re.compile(rb"^(\w+): +(\d+) kB", re.MULTILINE)
# Everything that is free, a file's on a disk, or a process's; the kernel itself holds the rest.
_OF_NO_KERNEL: Final = (
    *(b"MemFree", b"Buffers", b"Cached", b"SwapCached", b"AnonPages", b"SReclaimable"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory at one moment.

    Attributes:
        free_bytes: what new allocations can have.
        kernel_bytes: what the host's kernel holds for itself, and for whoever made it; files in
            memory among it.
    """

    free_bytes: int
    kernel_bytes: int


def machine_memory() -> MachineMemory:
    """Read how much memory is left; takes some 50 microseconds.

    Where a sandbox of the whole bot plays the machine and leaves rows out, all of it is left.
    """
    pairs = _MEMORY.findall(procfs.read("/proc/meminfo"))
    rows = {name: int(kilobytes) * settings.KIB for name, kilobytes in pairs}
    total_bytes = rows.get(b"MemTotal", 0)
    # Files in memory are part of `Cached`.
    elsewhere_bytes = sum(rows.get(name, 0) for name in _OF_NO_KERNEL) - rows.get(b"Shmem", 0)
    available_bytes = rows.get(b"MemAvailable", total_bytes or sys.maxsize)
    return MachineMemory(available_bytes, total_bytes - elsewhere_bytes)


def free_bytes() -> int:
    """Return what this process and its sessions can still have: of the machine, and of each cgroup.

    In a container the machine may have far more than the container.
    """
    groups = cgroup_files.memory_groups()
    return min([machine_memory().free_bytes, *(group.free_bytes() for group in groups)])


def culprit(
    taken_bytes: int, taken_by_kernel_bytes: int, strains: Mapping[_T, session_metering.Strain]
) -> _T | None:
    """Return which session took most of some memory; None if none of them did. Pure.

    Args:
        taken_bytes: what went since the machine had most.
        taken_by_kernel_bytes: how much of that the kernel holds.
        strains: what each session that ran took and did meanwhile.
    """
    half_bytes = taken_bytes / 2
    if taken_bytes < _LEAST_BYTES or not strains:
        return None
    if sum(max(0, strain.held_bytes) for strain in strains.values()) >= half_bytes:
        return max(strains, key=lambda session: strains[session].held_bytes)
    # What no session is seen to hold was made in system calls.
    busiest = max(strains, key=lambda session: strains[session].system_seconds)
    is_made = taken_by_kernel_bytes >= half_bytes and strains[busiest].system_seconds > 0
    return busiest if is_made else None


class MachineExhaustion:
    """Keeper of the reserve; see the module."""

    def __init__(self, limits: settings.Limits) -> None:
        self._reserve_bytes = limits.memory_reserve_bytes
        self._session_bytes = limits.memory_bytes + session_monitors.HEADROOM_BYTES
        self._groups = cgroup_files.memory_groups()
        self._most: MachineMemory | None = None
        self._strains: dict[session_monitors.SessionMonitor, session_metering.Strain] = {}

    async def end_culprit(self, everyone: Sequence[session_monitors.SessionMonitor]) -> None:
        """End a session if the reserve is touched and one caused it; called at each tick."""
        now = machine_memory()
        missing_bytes = self._reserve_bytes - now.free_bytes
        for group in self._groups:
            reserve_bytes = min(self._reserve_bytes, group.limit_bytes // _MAX_SHARE_OF_GROUP)
            missing_bytes = max(missing_bytes, reserve_bytes - group.free_bytes())
        if missing_bytes < -(_NEAR - 1) * self._reserve_bytes:
            self._forget()
            return
        active = [monitor for monitor in everyone if monitor.is_active]
        strains = await asyncio.to_thread(
            lambda: {session: session.usage.strain() for session in active}
        )
        if self._most is None or now.free_bytes > self._most.free_bytes:
            self._most, self._strains = now, strains
            return
        since = {
            session: strain - self._strains.get(session, strain)
            for session, strain in strains.items()
        }
        self._strains = strains | self._strains
        if missing_bytes > 0:
            await self._judge(everyone, self._most, now, since)

    def _forget(self) -> None:
        self._most = None
        self._strains.clear()

    async def _judge(
        self,
        everyone: Sequence[session_monitors.SessionMonitor],
        before: MachineMemory,
        now: MachineMemory,
        since: Mapping[session_monitors.SessionMonitor, session_metering.Strain],
    ) -> None:
        taken_bytes = before.free_bytes - now.free_bytes
        found = culprit(taken_bytes, now.kernel_bytes - before.kernel_bytes, since)
        if found is None:
            return
        # Whoever holds more than a session may comes first, though it took that long ago.
        held = await asyncio.to_thread(lambda: {one: one.usage.memory_bytes() for one in everyone})
        largest = max(held, key=held.__getitem__)
        if held[largest] > self._session_bytes:
            found = largest
        _log.error("the machine's memory is nearly used up; ended for it: %s", held[found])
        found.launched.kernel.kill_with_reason(values.Ending.OUT_OF_MEMORY, run_words.MEMORY_SHORT)
        self._forget()
