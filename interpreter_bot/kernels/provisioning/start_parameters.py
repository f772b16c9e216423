"""Start parameters of a kernel: limits, user id, and sockets at paths that only the bot knows."""

from __future__ import annotations

import math
import os
import pathlib
import socket
import uuid
from collections.abc import Sequence

from interpreter_bot import settings
from interpreter_bot.guest import control_messages

CHANNELS = ("shell", "iopub", "stdin")
_BACKLOG = 8
# Above the ephemeral ports of Linux and the usual ports of programs.
DOOR_PORTS = (61080, 61081)
"""Ports of a kernel's own loopback where the bot may listen: for a proxy, and for services."""

_MAX_SESSIONS_OF_USER = 16
MAX_OPEN_FILES = 1024
"""File descriptors of one process of a session."""
PROGRAM_UID_COUNT = 256
"""Number of ids at the start of the range that are for programs of MCP servers, not kernels."""
# The usual size: each new thread takes this much address space.
_STACK_BYTES = 8 * settings.MIB
_DEEP_STACK_BYTES = 64 * settings.MIB


class Uids:
    """Allocator of user ids for kernels, each reused only after all others.

    Attributes:
        kernel_uids: all ids of the sandbox, as numbered in the bot's namespace. The first are for
            programs of MCP servers.
        are_separate: whether each session has an id of its own instead of the bot's.
    """

    def __init__(self, *, count: int, first_uid: int, are_separate: bool) -> None:
        self.kernel_uids = range(first_uid, first_uid + count)
        self.are_separate = are_separate
        # Start at random, so that ids of kernels that just ended, even another bot's, are not
        # reused soon.
        self._next = int.from_bytes(os.urandom(4))

    def take(self) -> tuple[int, int]:
        """Return an unused id: its number in the fork server's namespace, and outside of it."""
        if not self.are_separate:
            return 0, os.geteuid()
        number = PROGRAM_UID_COUNT + self._next % (len(self.kernel_uids) - PROGRAM_UID_COUNT)
        self._next += 1
        return number, self.kernel_uids[number]


def listen_on_channels(directory: pathlib.Path, sockets: Sequence[socket.socket]) -> None:
    """Create a directory, bind one socket per channel in it, and listen on them.

    The sockets belong to the kernel's network namespace.
    """
    directory.mkdir(mode=0o700, parents=True)
    # A socket reveals the path that it was bound to; this path is useless in a kernel.
    directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for channel, listener in zip(CHANNELS, sockets, strict=True):
            listener.bind(f"/proc/self/fd/{directory_fd}/{socket_name(channel)}")
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    finally:
        os.close(directory_fd)


def socket_name(channel: str) -> str:
    """Return the name of a channel's socket in its kernel's directory."""
    return f"k-{CHANNELS.index(channel) + 1}"


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

    `unwalled_home` is the working directory if there is no sandbox; otherwise it is empty.
    """
    resource_limits = _resource_limits(limits)
    if unwalled_home:
        del resource_limits["NPROC"]
    elif not has_own_id:
        # The limit counts processes of all sessions and of the bot, so it only keeps the machine
        # usable until the watchdog ends a session with too many.
        resource_limits["NPROC"] = [_MAX_SESSIONS_OF_USER * limits.processes] * 2
    return control_messages.KernelParameters(
        uid=uid,
        has_own_id=has_own_id,
        channel_count=len(CHANNELS),
        home=unwalled_home or "/mnt/data",
        affinity=affinity,
        doors=list(doors),
        temporary_bytes=limits.temporary_bytes,
        proc_files=_proc_files(limits),
        rlimits=resource_limits,
    )


def _resource_limits(limits: settings.Limits) -> dict[str, list[int]]:
    limits_by_name = {
        "AS": limits.address_space_bytes,
        "DATA": limits.memory_bytes,
        "NPROC": limits.processes,
        "NOFILE": MAX_OPEN_FILES,
        "FSIZE": limits.file_bytes,
        # Not 0: if core dumps are piped to a program, Linux ignores a limit of 0 and starts the
        # program as the host's root. With 1 it makes no dump.
        "CORE": 1,
        "MEMLOCK": 64 * settings.KIB,
        "MSGQUEUE": 0,
        "NICE": 0,
        "RTPRIO": 0,
        "SIGPENDING": 1024,
    }
    pairs = {name: [limit, limit] for name, limit in limits_by_name.items()}
    return pairs | {"STACK": [_STACK_BYTES, _DEEP_STACK_BYTES]}


def choose_processors(cores: float) -> list[int]:
    """Choose as many adjacent processors as `cores` needs, rounded up, from a random start."""
    available_processors = sorted(os.sched_getaffinity(0))
    count = max(1, min(len(available_processors), math.ceil(cores)))
    start = int.from_bytes(os.urandom(2)) % len(available_processors)
    return [
        available_processors[(start + offset) % len(available_processors)]
        for offset in range(count)
    ]


def _proc_files(limits: settings.Limits) -> dict[str, str]:
    """Build files for /proc from which libraries read the session's resources, not the host's."""
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
