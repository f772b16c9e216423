"""Landlock: a second wall behind the mounts, kept by another part of the host's kernel.

Should a mount ever show more than it was meant to, code can list it and neither read nor write it.
Other sessions' sockets and processes, which namespaces hide, are refused as well (ABI 6).

TCP ports are left alone in kernels: a session has its own loopback only. A program that keeps the
host's network may be given the ports that it may connect to (ABI 4).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from . import rootfs, syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1, 2, 4, 8
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
# All accesses that a kernel of the first ABI knows, and by ABI what was added.
_FIRST_ACCESSES = _REFER - 1
_ADDED_ACCESSES = {2: _REFER, 3: _TRUNCATE, 5: _DEVICE_IOCTL}
# With the first, nothing could be moved from one directory to another.
_OLDEST_ABI = 2
_PORTS_ABI = 4
_CONNECT = 2
_SCOPING_ABI = 6
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_LOGGING_ABI = 7
# What code is refused would fill the host's audit log.
_LOG_NOTHING = 1
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE


def restrict(
    readable: Iterable[str],
    writable: Iterable[str],
    devices: Iterable[str],
    *,
    listed: str = "/",
    ports: Iterable[int] | None = None,
) -> int:
    """Allow this process and its children these paths only; irrevocable.

    A rule holds for all below its path, mounts included, but a mount that comes later is only below
    the parent of its mount point.

    Args:
        readable: may be read and executed; those that do not exist are skipped.
        writable: may be written to as well, in every way but by making devices.
        devices: may be read and written.
        listed: its directories may be listed.
        ports: TCP ports that may be connected to; None for all.

    Returns:
        the kernel's ABI of Landlock; 0 where it has none, and nothing is restricted.

    Raises:
        OSError: the kernel has it, and it could not be used.
    """
    abi = syscalls.landlock_abi()
    if abi < _OLDEST_ABI:
        return 0
    handled = _FIRST_ACCESSES
    for since, accesses in _ADDED_ACCESSES.items():
        handled |= accesses if abi >= since else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if abi >= _SCOPING_ABI else 0
    connect = _CONNECT if ports is not None and abi >= _PORTS_ABI else 0
    ruleset = syscalls.landlock_create_ruleset(handled, connect, scoped)
    for port in (ports or ()) if connect else ():
        syscalls.landlock_add_port(ruleset, port, connect)
    write = handled & ~(_MAKE_DEVICES | _DEVICE_IOCTL)
    wanted = {listed: _READ_DIRECTORY} | dict.fromkeys(readable, _READ)
    wanted |= dict.fromkeys(writable, write) | dict.fromkeys(devices, _READ_FILE | _WRITE_FILE)
    for path, accesses in wanted.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        is_directory = stat.S_ISDIR(os.fstat(place).st_mode)
        syscalls.landlock_add_rule(
            ruleset, place, accesses if is_directory else accesses & _OF_FILES
        )
        os.close(place)
    syscalls.landlock_restrict_self(ruleset, _LOG_NOTHING if abi >= _LOGGING_ABI else 0)
    os.close(ruleset)
    return abi


def restrict_kernel(environment: Iterable[str]) -> int:
    """Allow this process what its root shows; see `restrict`.

    Args:
        environment: the directories of the kernels' Python.
    """
    return restrict((*rootfs.SHOWN, *environment), rootfs.WRITABLE, rootfs.device_paths())
