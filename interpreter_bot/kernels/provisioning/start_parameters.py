"""Start parameters of a kernel: its limits, a user id, and addresses that only the bot knows."""

from __future__ import annotations

import os
import pathlib
import socket
import uuid
from collections.abc import Sequence

from interpreter_bot import settings
from interpreter_bot.guest import control_messages

CHANNELS = ("shell", "iopub", "stdin")
_BACKLOG = 8
# Above the ports that Linux assigns, and that programs usually use.
DOOR_PORTS = (61080, 61081)
"""Ports of a kernel's own loopback where the bot may listen: for a proxy, and for services."""

# V8, which draws Altair's charts, reserves 64 GiB that it never fills. RLIMIT_DATA, the cgroup and
# the watchdog bound the filled memory.
_ADDRESS_ALLOWANCE_BYTES = 128 * settings.GIB
_MAX_SESSIONS_OF_USER = 16
MAX_OPEN_FILES = 1024
"""File descriptors of one process of a session."""
PROGRAM_UIDS = 256
"""The first ids of the range are for programs that are MCP servers, and never a kernel's."""
# Each new thread takes as much address space, so not more than usual.
_STACK_BYTES = 8 * settings.MIB
_DEEP_STACK_BYTES = 64 * settings.MIB


class Uids:
    """Allocator of user ids for kernels, each reused only after all others.

    Attributes:
        of_kernels: contains all ids of kernels, as numbered in the bot's namespace.
        are_own: whether each session has an id of its own instead of the bot's.
    """

    def __init__(self, *, count: int, first_uid: int, are_own: bool) -> None:
        self.of_kernels = range(first_uid, first_uid + count)
        self.are_own = are_own
        # Start at random, so that ids of kernels that just ended, even another bot's, rest a while.
        self._next = int.from_bytes(os.urandom(4))

    def take(self) -> tuple[int, int]:
        """Return an id as (inside the fork server's namespace, outside of it)."""
        if not self.are_own:
            return 0, os.geteuid()
        number = PROGRAM_UIDS + self._next % (len(self.of_kernels) - PROGRAM_UIDS)
        self._next += 1
        return number, self.of_kernels[number]


def listen_on_channels(directory: pathlib.Path, sockets: Sequence[socket.socket]) -> None:
    """Bind the sockets of all channels in a directory, which is created, and listen.

    The sockets are those of the kernel's network namespace.
    """
    directory.mkdir(mode=0o700, parents=True)
    # A socket reveals the path it was bound to; this path means nothing in a kernel.
    directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for channel, listener in zip(CHANNELS, sockets, strict=True):
            listener.bind(f"/proc/self/fd/{directory_fd}/{address(channel)}")
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    finally:
        os.close(directory_fd)


def address(channel: str) -> str:
    """Return the name of a channel's socket in its kernel's directory."""
    return f"k-{CHANNELS.index(channel) + 1}"


def address_space_bytes(limits: settings.Limits) -> int:
    """Return RLIMIT_AS: memory, and room for mappings that are never filled, such as libraries'."""
    return limits.memory_bytes + _ADDRESS_ALLOWANCE_BYTES


def build(
    uid: int,
    limits: settings.Limits,
    *,
    affinity: list[int],
    unwalled_home: str,
    has_own_id: bool,
    doors: Sequence[int],
) -> control_messages.KernelParameters:
    """Build the start parameters of a kernel from its limits.

    `unwalled_home` is the working directory without a sandbox, else empty.
    """
    resources = _resources(limits)
    if unwalled_home:
        del resources["NPROC"]
    elif not has_own_id:
        # The limit counts processes of all sessions and of the bot, so it only keeps the machine
        # usable until the watchdog ends a session with too many.
        resources["NPROC"] = [_MAX_SESSIONS_OF_USER * limits.processes] * 2
    return control_messages.KernelParameters(
        uid=uid,
        has_own_id=has_own_id,
        channel_count=len(CHANNELS),
        home=unwalled_home or "/mnt/data",
        affinity=affinity,
        doors=list(doors),
        temporary_bytes=limits.temporary_bytes,
        proc_files=_proc_files(limits),
        rlimits=resources,
    )


def _resources(limits: settings.Limits) -> dict[str, list[int]]:
    fixed_limits = {
        "AS": address_space_bytes(limits),
        "DATA": limits.memory_bytes,
        "NPROC": limits.processes,
        "NOFILE": MAX_OPEN_FILES,
        "FSIZE": limits.file_bytes,
        # Not 0, because a handler that dumps are piped to ignores 0 and runs as the host's root:
        # for Linux, 1 means no dump at all.
        "CORE": 1,
        "MEMLOCK": 64 * settings.KIB,
        "MSGQUEUE": 0,
        "NICE": 0,
        "RTPRIO": 0,
        "SIGPENDING": 1024,
    }
    pairs = {name: [limit, limit] for name, limit in fixed_limits.items()}
    return pairs | {"STACK": [_STACK_BYTES, _DEEP_STACK_BYTES]}


def choose_processors(cores: float) -> list[int]:
    """Choose as many adjacent processors as `cores` needs, rounded up, from a random start."""
    available = sorted(os.sched_getaffinity(0))
    count = max(1, min(len(available), round(cores + 0.49)))
    start = int.from_bytes(os.urandom(2)) % len(available)
    return [available[(start + offset) % len(available)] for offset in range(count)]


def _proc_files(limits: settings.Limits) -> dict[str, str]:
    """Build /proc files that show libraries the session's resources instead of the host's."""
    total_kib = limits.memory_bytes // settings.KIB
    rows = {"MemTotal": total_kib, "MemFree": total_kib, "MemAvailable": total_kib}
    rows |= dict.fromkeys(("Buffers", "Cached", "Shmem", "SReclaimable", "Active", "Inactive"), 0)
    rows |= {"SwapTotal": 0, "SwapFree": 0}
    return {
        "meminfo": "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in rows.items()),
        "loadavg": "0.00 0.00 0.00 1/2 2\n",
        "vmstat": "pswpin 0\npswpout 0\n",
        "sys/kernel/random/boot_id": f"{uuid.uuid4()}\n",
    }
