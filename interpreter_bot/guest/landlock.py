"""Landlock: a second wall behind the mounts, enforced by another part of Linux.

If a mount shows more than intended, code can list it, but neither read nor write it. Access to
other sessions' sockets and processes, which namespaces hide, is denied, too (ABI 6).

Kernels with namespaces have only their own loopback, so TCP ports are not restricted. A program
with the host's network may be restricted to some ports (ABI 4).
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
# All accesses of the first ABI, and accesses that later ABIs added.
_FIRST_ACCESSES = _REFER - 1
_ADDED_ACCESSES = {2: _REFER, 3: _TRUNCATE, 5: _DEVICE_IOCTL}
# With ABI 1, no file could be moved to another directory.
_MIN_ABI = 2
_PORTS_ABI = 4
_CONNECT_TCP = 2
_SCOPING_ABI = 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_LOGGING_ABI = 7
# Denied accesses would fill the host's audit log.
_LOG_NOTHING = 1
_READ_ACCESSES = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_FILE_ACCESSES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_UNLISTABLE_ACCESSES = _WRITE_FILE | _READ_FILE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE

PathOrFd = str | int
"""A path, or the descriptor of an open file."""


def restrict(
    readable_paths: Iterable[PathOrFd],
    writable_paths: Iterable[PathOrFd],
    devices: Iterable[PathOrFd],
    *,
    listable_directories: Iterable[PathOrFd] = ("/",),
    ports: Iterable[int] | None = None,
) -> int:
    """Restrict this process and its children to these paths, irrevocably; see `prepare`.

    Returns:
        The version of Landlock; 0 if Linux lacks it, so that nothing is restricted.

    Raises:
        OSError: Linux has Landlock, but refuses the rules.
    """
    abi = syscalls.landlock_abi()
    if abi < _MIN_ABI:
        return 0
    enforce(
        prepare(
            readable_paths,
            writable_paths,
            devices,
            listable_directories=listable_directories,
            ports=ports,
        )
    )
    return abi


def prepare(
    readable_paths: Iterable[PathOrFd],
    writable_paths: Iterable[PathOrFd],
    devices: Iterable[PathOrFd],
    *,
    listable_directories: Iterable[PathOrFd] = (),
    unlistable_directories: Iterable[PathOrFd] = (),
    ports: Iterable[int] | None = None,
) -> int:
    """Create a ruleset for `enforce`, and return its descriptor. The user must reach the paths.

    A rule covers everything below its path, including mounts. A later mount is covered only by
    rules for directories above its mount point. Missing paths are skipped.

    Args:
        readable_paths: paths that may be read and executed.
        writable_paths: paths where everything is allowed but the creation of devices.
        devices: files that may be read and written.
        listable_directories: directories that may be listed.
        unlistable_directories: directories that cannot be listed, in which files may be created,
            used and removed.
        ports: TCP ports that may be connected to; None for all.

    Raises:
        OSError: Linux has no Landlock, or refuses the rules.
    """
    abi = syscalls.landlock_abi()
    handled_accesses = _FIRST_ACCESSES
    for min_abi, accesses in _ADDED_ACCESSES.items():
        handled_accesses |= accesses if abi >= min_abi else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= _SCOPING_ABI else 0
    port_accesses = _CONNECT_TCP if ports is not None and abi >= _PORTS_ABI else 0
    ruleset = syscalls.landlock_create_ruleset(handled_accesses, port_accesses, scopes)
    for port in (ports or ()) if port_accesses else ():
        syscalls.landlock_add_port(ruleset, port, port_accesses)
    write_accesses = handled_accesses & ~(_MAKE_DEVICES | _DEVICE_IOCTL)
    rules: dict[PathOrFd, int] = dict.fromkeys(listable_directories, _READ_DIRECTORY)
    rules |= dict.fromkeys(readable_paths, _READ_ACCESSES) | dict.fromkeys(
        unlistable_directories, _UNLISTABLE_ACCESSES & handled_accesses
    )
    rules |= dict.fromkeys(writable_paths, write_accesses) | dict.fromkeys(
        devices, _READ_FILE | _WRITE_FILE
    )
    for path, accesses in rules.items():
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if isinstance(path, str) else path
        except FileNotFoundError:
            continue
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        allowed_accesses = accesses if is_directory else accesses & _FILE_ACCESSES
        syscalls.landlock_add_rule(ruleset, descriptor, allowed_accesses)
        if descriptor != path:
            os.close(descriptor)
    return ruleset


def enforce(ruleset: int) -> None:
    """Enforce a ruleset on this process and its children, irrevocably, and close the ruleset."""
    flags = _LOG_NOTHING if syscalls.landlock_abi() >= _LOGGING_ABI else 0
    syscalls.landlock_restrict_self(ruleset, flags)
    os.close(ruleset)


def restrict_kernel(environment_paths: Iterable[str]) -> int:
    """Restrict this process to the paths of its root and of the kernels' Python; see `restrict`."""
    return restrict(
        (*rootfs.READABLE_PATHS, *environment_paths), rootfs.WRITABLE_PATHS, rootfs.device_paths()
    )
