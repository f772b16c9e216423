"""Cgroups: memory, processes and cpu of one session, bounded, accounted and frozen together.

What is usable is found by trying: `Cgroups.probe` creates a cgroup, sets limits, moves a process in
and removes it all. Version 2 is used where a subtree was delegated, else version 1 where its
hierarchies are writable, else none; nothing here raises for want of cgroups.

The bot's are named `interpreter-bot-<pid>-<start>-<pid namespace>.<n>/kernel-<name>` and lie
beneath the bot's own cgroup, so its limits bound its kernels too. The name identifies the owner:
`sweep` removes what dead bots left and touches nothing of a live one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
import re
import subprocess
import sys
from typing import Final, Literal

from interpreter_bot import errors, settings
from interpreter_bot.kernels.provisioning import cgroup_files
from interpreter_bot.wording import host_words

_NEEDED: Final = ("memory", "pids", "cpu")
_ALSO: Final = {1: ("cpuacct", "blkio"), 2: ("io",)}
"""Per version: controllers that are used where they are."""
_PERIOD_MICROSECONDS: Final = 100_000
_SMALLEST_QUOTA_MICROSECONDS: Final = 1_000
_SPARE_PROCESSES: Final = 2
"""The namespace's init, and one to spare for clean-up."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_WEIGHTS: Final = {
    1: (
        ("cpu", "cpu.shares", 1024),
        ("blkio", "blkio.weight", 500),
        ("blkio", "blkio.bfq.weight", 100),
    ),
    2: (("cpu", "cpu.weight", 100), ("io", "io.weight", 100), ("io", "io.bfq.weight", 100)),
}
"""Per version: controllers, their files, and what is a whole weight there."""
_LEAST_WEIGHT: Final = 10
_BOT_BYTES: Final = 768 * settings.MIB
_READINGS: Final = {
    1: {
        "usage": ("memory", "memory.usage_in_bytes"),
        "cache": ("memory", "memory.stat", "total_inactive_file"),
        "ooms": ("memory", "memory.oom_control", "oom_kill"),
        "cpu": ("cpuacct", "cpuacct.usage"),
    },
    2: {
        "usage": ("memory", "memory.current"),
        "cache": ("memory", "memory.stat", "inactive_file"),
        "ooms": ("memory", "memory.events", "oom_kill"),
        "cpu": ("cpu", "cpu.stat", "usage_usec"),
    },
}
"""Per version: controller, file, and the key of the wanted line where there is more than one."""
_UNIFIED: Final = "unified"
"""Version 1 leaves freezing to version 2, beside it: who is frozen there can be killed."""


class Group:
    """The cgroup of one session, in one directory (v2) or one per hierarchy (v1)."""

    def __init__(self, version: Literal[1, 2], places: dict[str, str]) -> None:
        """`places` maps each controller to this cgroup's directory, in order of joining."""
        self._version: Literal[1, 2] = version
        self._places = places
        self._directories = tuple(dict.fromkeys(places.values()))
        self._freezer = places.get(_UNIFIED) if version == 1 else self._directories[0]
        self._entered = tuple(
            place for place in self._directories if version == 2 or place != self._freezer
        )
        self.can_freeze = self._freezer is not None

    def add(self, pid: int) -> None:
        """Move a process, with all its threads but without its children, into the cgroup.

        The first write waits for an RCU grace period (5 to 30 ms on a busy machine), the rest cost
        0.1. A process that enters by itself does not wait, see `entrances`.

        Raises:
            errors.KernelStartError: it is gone, or may not be moved.
        """
        try:
            for directory in self._entered:
                cgroup_files.write(directory, "cgroup.procs", pid)
        except OSError as error:
            raise errors.KernelStartError from error

    def entrances(self) -> list[int]:
        """Open the files to which a single-threaded process writes `0` to enter by itself.

        On version 1 that costs 0.1 ms in all. The descriptors are the caller's to close, and must
        be closed in the process before it runs any user code.

        Raises:
            errors.KernelStartError: the cgroup is gone.
        """
        name = "tasks" if self._version == 1 else "cgroup.procs"
        with contextlib.ExitStack() as stack:
            opened = []
            try:
                for place in self._entered:
                    opened.append(os.open(f"{place}/{name}", os.O_WRONLY | os.O_CLOEXEC))
                    stack.callback(os.close, opened[-1])
            except OSError as error:
                raise errors.KernelStartError from error
            stack.pop_all()
        return opened

    def set_frozen(self, is_frozen: bool) -> None:
        """Freeze or thaw all processes inside; they cannot tell. Freezing may take some 20 ms."""
        if self._freezer is None:
            return
        with contextlib.suppress(OSError):  # Removed by now.
            cgroup_files.write(self._freezer, "cgroup.freeze", int(is_frozen))
        if is_frozen and self._freezer not in self._entered:
            # They enter only now, as that takes long. Who is inside is frozen, and forks no more.
            moved: set[int] = set()
            while fresh := cgroup_files.processes(self._places["pids"]) - moved:
                for pid in fresh:
                    with contextlib.suppress(OSError):
                        cgroup_files.write(self._freezer, "cgroup.procs", pid)
                moved |= fresh

    def memory_bytes(self) -> int:
        """Return the memory in use, without reclaimable file cache. 0 once removed."""
        return max(0, self._read("usage") - self._read("cache"))

    def oom_kills(self) -> int:
        """Return the number of processes killed by the OOM killer. Read it before `remove`."""
        return self._read("ooms")

    def cpu_seconds(self) -> float:
        """Return the cpu time of all processes, also ended ones; 0 where the kernel does not count
        it.
        """
        return self._read("cpu") / (1e9 if self._version == 1 else 1e6)

    def set_weight(self, weight: float) -> None:
        """Set what part of a person's share of processor and disk is the session's, in (0, 1]."""
        for controller, file, whole in _WEIGHTS[self._version]:
            # Removed by now, or not offered by this kernel or its scheduler of the disk.
            with contextlib.suppress(OSError, KeyError):
                value = max(_LEAST_WEIGHT, round(whole * weight))
                cgroup_files.write(self._places[controller], file, value)

    def kill(self) -> None:
        """Send SIGKILL to everything inside, without waiting; it allows no forks afterwards."""
        for directory in self._directories:
            cgroup_files.kill(directory, forks_of=self._places["pids"])

    async def remove(self) -> bool:
        """Kill what is inside and remove the cgroup, off the event loop, within 2 seconds.

        Returns:
            whether it is gone; if not, the log says so and a later `sweep` will find it.
        """
        return await asyncio.to_thread(self.remove_now)

    def remove_now(self) -> bool:
        """Remove the cgroup as `remove` does, blocking."""
        self.kill()
        return all([cgroup_files.remove(directory) for directory in self._directories])

    def _read(self, what: str) -> int:
        controller, file, *key = _READINGS[self._version][what]
        try:
            text = cgroup_files.read(self._places[controller], file)
        except (OSError, KeyError):  # Removed by now, or not offered by this kernel.
            return 0
        found = re.search(rf"^{key[0]} (\d+)" if key else r"(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0


class Cgroups:
    """Cgroups usable on this machine, and those that this process created.

    Attributes:
        version: 2, 1, or 0 if none are usable.
        reason: one line for the log and the doctor: where they are, or why there are none.
    """

    def __init__(
        self, version: Literal[0, 1, 2], reason: str, *, bases: dict[str, str] | None = None
    ) -> None:
        """`bases` maps each controller to the directory of this process's cgroups. Use `probe`."""
        self.version: Literal[0, 1, 2] = version
        self.reason = reason
        self._bases = bases or {}
        self._instance = cgroup_files.instance_name() if self._bases else ""

    @classmethod
    def probe(
        cls, mode: Literal["auto", "off"], *, proc: pathlib.Path = pathlib.Path("/proc/self")
    ) -> Cgroups:
        """Find usable cgroups by trying; blocks for some 10 ms.

        Under version 2 the bot moves itself into a leaf beside its kernels where it must.

        Args:
            mode: `off` tries nothing and returns none.
            proc: where to read `cgroup` and `mountinfo`; tests point it elsewhere.
        """
        if mode == "off":
            return cls(0, "control groups are switched off by the settings")
        try:
            unified, places = cgroup_files.own(proc)
        except (OSError, ValueError) as error:
            return cls(0, f"no control groups: {error}")
        reasons = []
        candidates: list[tuple[Literal[1, 2], dict[str, str]]] = []
        if unified is not None:
            candidates.append((2, dict.fromkeys(_NEEDED, unified)))
        if all(name in places for name in _NEEDED):
            also = [name for name in _ALSO[1] if os.access(places.get(name, ""), os.W_OK)]
            bases = {name: places[name] for name in (*_NEEDED, *also)}
            if unified is not None and os.access(f"{unified}/cgroup.procs", os.W_OK):
                candidates.append((1, bases | {_UNIFIED: unified}))
            candidates.append((1, bases))
        for version, bases in candidates:
            try:
                return cls._try(version, bases)
            except (OSError, errors.BotError) as error:
                reasons.append(f"version {version}: {error.__cause__ or error}")
        return cls(0, "no control groups: " + ("; ".join(reasons) or "none are mounted"))

    @classmethod
    def _try(cls, version: Literal[1, 2], bases: dict[str, str]) -> Cgroups:
        if version == 2:
            base = cgroup_files.claim(bases["memory"], _NEEDED)
            also = [name for name in _ALSO[2] if cgroup_files.could_enable(base, name)]
            bases = dict.fromkeys((*_NEEDED, *also), base)
        found = cls(version, f"version {version} beneath {bases['memory']}", bases=bases)
        try:
            for base in dict.fromkeys(bases.values()):
                os.mkdir(f"{base}/{found._instance}")
                if version == 2:
                    cgroup_files.enable(f"{base}/{found._instance}", bases)
            found._put_bot_first()
            group = found.create("probe", settings.Limits())
            try:
                _join_for_trial(group)
            finally:
                group.remove_now()
        except BaseException:
            found.close_now()
            raise
        return found

    def _put_bot_first(self) -> None:
        """Let the bot and its fork server weigh twice as much as all kernels together."""
        places = {name: f"{base}/{self._instance}" for name, base in self._bases.items()}
        Group(self.version or 1, places).set_weight(0.5)
        # Where the bot has a leaf of its own, its memory is the last to be reclaimed.
        with contextlib.suppress(OSError):
            leaf = f"{self._bases['memory']}/{cgroup_files.MAIN}"
            cgroup_files.write(leaf, "memory.low", _BOT_BYTES)

    def create(
        self, name: str, limits: settings.Limits, *, headroom_bytes: int = 64 * settings.MIB
    ) -> Group:
        """Create a cgroup and set its limits: some 0.5 ms, so it can be done ahead.

        Args:
            name: unique among the live cgroups of this process.
            limits: memory (with swap), processes and cpu of the session.
            headroom_bytes: added for the kernel's own memory before any user code.

        Raises:
            ValueError: the name is not 1 to 64 of letters, digits, `_`, `.` and `-`.
            errors.SandboxError: no cgroups are usable here.
            errors.KernelStartError: the cgroup could not be created; nothing is left of it.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name for a control group: {name!r}")
        if self.version == 0:
            raise errors.SandboxError(host_words.this_machine_has(self.reason))
        # The prefix keeps a name from colliding with the kernel's own files, such as `tasks`.
        places = {c: f"{b}/{self._instance}/kernel-{name}" for c, b in self._bases.items()}
        made: list[str] = []
        try:
            for directory in dict.fromkeys(places.values()):
                os.mkdir(directory)
                made.append(directory)
            _bound(self.version, places, limits, memory_bytes=limits.memory_bytes + headroom_bytes)
        except OSError as error:
            for directory in made:
                cgroup_files.remove(directory)
            raise errors.KernelStartError from error
        return Group(self.version, places)

    async def sweep(self) -> int:
        """Kill and remove the cgroups of dead bots; returns how many bots there were.

        Bots of other pid namespaces are left alone: whether they live cannot be seen.
        """
        return await asyncio.to_thread(self._sweep)

    def _sweep(self) -> int:
        swept = set()
        for base in dict.fromkeys(self._bases.values()):
            for name in cgroup_files.children(base):
                if cgroup_files.is_left_over(name) and cgroup_files.remove_tree(f"{base}/{name}"):
                    swept.add(name)
        return len(swept)

    async def close(self) -> None:
        """Kill and remove every remaining cgroup of this process."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close as `close` does, blocking."""
        for base in dict.fromkeys(self._bases.values()):
            cgroup_files.remove_tree(f"{base}/{self._instance}")


def _bound(
    version: int, places: dict[str, str], limits: settings.Limits, *, memory_bytes: int
) -> None:
    quota = max(_SMALLEST_QUOTA_MICROSECONDS, int(limits.cpu_cores * _PERIOD_MICROSECONDS))
    memory, pids, cpu = (places[name] for name in _NEEDED)
    cgroup_files.write(pids, "pids.max", limits.processes + _SPARE_PROCESSES)
    if version == 1:
        cgroup_files.write(memory, "memory.limit_in_bytes", memory_bytes)
        swap, value = "memory.memsw.limit_in_bytes", memory_bytes  # Memory and swap together.
    else:
        cgroup_files.write(memory, "memory.max", memory_bytes)
        swap, value = "memory.swap.max", 0
    with contextlib.suppress(FileNotFoundError):  # A kernel that does not account for swap.
        cgroup_files.write(memory, swap, value)
    if version == 2:
        cgroup_files.write(cpu, "cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")
        return
    cgroup_files.write(cpu, "cpu.cfs_period_us", _PERIOD_MICROSECONDS)
    try:
        cgroup_files.write(cpu, "cpu.cfs_quota_us", quota)
    except OSError as error:
        # Version 1 refuses a quota larger than the bot's own; then that bounds the session too.
        if error.errno != errno.EINVAL:
            raise


def _join_for_trial(group: Group) -> None:
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}) as it:
        group.add(it.pid)
