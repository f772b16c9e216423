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
_REMOVE_FILE, _MAKE_FILE = 1 << 5, 1 << 8
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
_BY_NAME = _WRITE_FILE | _READ_FILE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE

Place = str | int
"""A path, or a descriptor of what lies there."""


def restrict(
    readable: Iterable[Place],
    writable: Iterable[Place],
    devices: Iterable[Place],
    *,
    listed: Iterable[Place] = ("/",),
    ports: Iterable[int] | None = None,
) -> int:
    """Allow this process and its children these paths only; irrevocable.

    See `prepare` for what the arguments mean.

    Returns:
        the kernel's ABI of Landlock; 0 where it has none, and nothing is restricted.

    Raises:
        OSError: the kernel has it, and it could not be used.
    """
    abi = syscalls.landlock_abi()
    if abi < _OLDEST_ABI:
        return 0
    enforce(prepare(readable, writable, devices, listed=listed, ports=ports))
    return abi


def prepare(
    readable: Iterable[Place],
    writable: Iterable[Place],
    devices: Iterable[Place],
    *,
    listed: Iterable[Place] = (),
    by_name: Iterable[Place] = (),
    ports: Iterable[int] | None = None,
) -> int:
    """Make a ruleset for `enforce`, with the rights of now to walk to the paths.

    A rule holds for all below its path, mounts included, but a mount that comes later is only below
    the parent of its mount point.

    Args:
        readable: may be read and executed; those that do not exist are skipped.
        writable: may be written to as well, in every way but by making devices.
        devices: may be read and written.
        listed: their directories may be listed.
        by_name: files may be made, used and removed there by who knows their names.
        ports: TCP ports that may be connected to; None for all.

    Returns:
        its descriptor.

    Raises:
        OSError: the kernel has no Landlock, or it could not be used.
    """
    abi = syscalls.landlock_abi()
    handled = _FIRST_ACCESSES
    for since, accesses in _ADDED_ACCESSES.items():
        handled |= accesses if abi >= since else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if abi >= _SCOPING_ABI else 0
    connect = _CONNECT if ports is not None and abi >= _PORTS_ABI else 0
    ruleset = syscalls.landlock_create_ruleset(handled, connect, scoped)
    for port in (ports or ()) if connect else ():
        syscalls.landlock_add_port(ruleset, port, connect)
    write = handled & ~(_MAKE_DEVICES | _DEVICE_IOCTL)
    rules: dict[Place, int] = dict.fromkeys(listed, _READ_DIRECTORY)
    rules |= dict.fromkeys(readable, _READ) | dict.fromkeys(by_name, _BY_NAME & handled)
    rules |= dict.fromkeys(writable, write) | dict.fromkeys(devices, _READ_FILE | _WRITE_FILE)
    for place, accesses in rules.items():
        try:
            number = os.open(place, os.O_PATH | os.O_CLOEXEC) if isinstance(place, str) else place
        except FileNotFoundError:
            continue
        is_directory = stat.S_ISDIR(os.fstat(number).st_mode)
        allowed = accesses if is_directory else accesses & _OF_FILES
        syscalls.landlock_add_rule(ruleset, number, allowed)
        if number != place:
            os.close(number)
    return ruleset


def enforce(ruleset: int) -> None:
    """Hold this process and its children to a ruleset, whose descriptor is closed; irrevocable."""
    flags = _LOG_NOTHING if syscalls.landlock_abi() >= _LOGGING_ABI else 0
    syscalls.landlock_restrict_self(ruleset, flags)
    os.close(ruleset)


def restrict_kernel(environment: Iterable[str]) -> int:
    """Allow this process what its root shows; see `restrict`.

    Args:
        environment: the directories of the kernels' Python.
    """
    return restrict((*rootfs.SHOWN, *environment), rootfs.WRITABLE, rootfs.device_paths())
