"""System calls that Python's `os` lacks; they raise OSError like the functions of `os`."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct

HOST_NAME = "sandbox"

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4

_OPEN_TREE_CLONE = 1
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH = 4

# The same numbers on every architecture: they are newer than the common table of 2019.
_NR_OPEN_TREE = 428
_NR_MOVE_MOUNT = 429
_NR_MOUNT_SETATTR = 442
_NR_LANDLOCK_CREATE_RULESET = 444
_NR_LANDLOCK_ADD_RULE = 445
_NR_LANDLOCK_RESTRICT_SELF = 446
_NR_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(os.uname().machine, -1)
_NR_SECCOMP = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine, -1)
_NR_CAPSET = {"x86_64": 126, "aarch64": 91}.get(os.uname().machine, -1)
_NR_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine, -1)
_IOPRIO_WHO_PROCESS, _IOPRIO_LAST_BEST_EFFORT = 1, 2 << 13 | 7

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_RULE_NET_PORT = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, f"{call}: {os.strerror(error_number)}")
    return result


def _encode(path: str | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def unshare(flags: int) -> None:
    """Move this process to new namespaces of the kinds in `flags`."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Enter the namespace of the descriptor `fd`."""
    _check(_libc.setns(fd, kind), "setns")


def rename_host() -> None:
    """Set the host name to `sandbox` in the current UTS namespace.

    Podman's default profile and systemd's `ProtectHostname=` forbid this call in any namespace.
    Code then sees the host's name, which the doctor reports; all other walls hold.
    """
    with contextlib.suppress(OSError):
        socket.sethostname(HOST_NAME)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system; see mount(2)."""
    arguments = _encode(source), _encode(target), _encode(kind), ctypes.c_ulong(flags)
    _check(_libc.mount(*arguments, _encode(data)), f"mount {target}")


def umount(target: str) -> None:
    """Detach the mount at `target` and all below it."""
    _check(_libc.umount2(_encode(target), MNT_DETACH), f"umount {target}")


def open_tree(path: str) -> int:
    """Clone the mounts at and below `path`; returns a descriptor for `move_mount`."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    return _check(
        _libc.syscall(_NR_OPEN_TREE, _AT_FDCWD, _encode(path), flags), f"open_tree {path}"
    )


def move_mount(tree: int, target: str) -> None:
    """Attach a tree from `open_tree` at `target`."""
    arguments = tree, b"", _AT_FDCWD, _encode(target), _MOVE_MOUNT_F_EMPTY_PATH
    _check(_libc.syscall(_NR_MOVE_MOUNT, *arguments), f"move_mount {target}")


def set_mount_flags(tree: int, flags: int) -> None:
    """Set MOUNT_ATTR flags on a tree and everything mounted below it."""
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    arguments = tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes)
    _check(_libc.syscall(_NR_MOUNT_SETATTR, *arguments), "mount_setattr")


def pivot_root(path: str) -> None:
    """Make `path`, a mount point, the root; the former root is detached."""
    os.chdir(path)
    _check(_libc.syscall(_NR_PIVOT_ROOT, b".", b"."), "pivot_root")
    umount(".")
    os.chdir("/")


def set_dumpable(is_dumpable: bool) -> None:
    """Allow or forbid other processes of this user id to read this one's /proc files."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0), "PR_SET_DUMPABLE")


def access_files_as(uid: int) -> None:
    """Access files, including processes' /proc, as a user and group of the same number.

    Root without CAP_SYS_PTRACE may inspect only its own processes. The process keeps all other
    rights, and other users get none to signal it.
    """
    _libc.setfsgid(uid)
    _libc.setfsuid(uid)
    # The change of credentials may have made the process dumpable.
    set_dumpable(False)


def die_with_parent(signal_number: int) -> None:
    """Ask for a signal when the parent thread that forked this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def forbid_new_privileges() -> None:
    """Make setuid bits and file capabilities have no effect from now on."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def drop_bounding_capabilities() -> None:
    """Drop all capabilities from the bounding set, which needs a capability itself."""
    for capability in range(_LAST_CAPABILITY + 1):
        # Capabilities that this Linux does not have fail with EINVAL.
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break


def drop_capabilities() -> None:
    """Drop all capabilities, and all ways to regain any."""
    drop_bounding_capabilities()
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("II", _LINUX_CAPABILITY_VERSION_3, 0)
    _check(_libc.syscall(_NR_CAPSET, header, bytes(24)), "capset")


def lower_disk_priority() -> None:
    """Give this process's reads and writes the lowest priority, if the scheduler supports it."""
    arguments = (_IOPRIO_WHO_PROCESS, 0, _IOPRIO_LAST_BEST_EFFORT)
    _check(_libc.syscall(_NR_IOPRIO_SET, *arguments), "ioprio_set")


def install_filter(program: bytes, *, is_supervised: bool = False) -> int:
    """Install a seccomp program of 8-byte BPF instructions.

    Returns:
        With `is_supervised`, the descriptor for the process that answers supervised calls; else 0.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    address = ctypes.addressof(buffer)
    descriptor = struct.pack("HxxxxxxQ", len(program) // 8, address)
    flags = _SECCOMP_FILTER_FLAG_NEW_LISTENER if is_supervised else 0
    result = _libc.syscall(_NR_SECCOMP, _SECCOMP_SET_MODE_FILTER, flags, descriptor)
    return _check(result, "seccomp")


def landlock_abi() -> int:
    """Return the version of Landlock that Linux offers; 0 if it has none."""
    arguments = None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
    abi: int = _libc.syscall(_NR_LANDLOCK_CREATE_RULESET, *arguments)
    return max(0, abi)


def landlock_create_ruleset(accesses: int, network_accesses: int, scopes: int) -> int:
    """Create a ruleset that denies accesses and scopes; return its descriptor."""
    attributes = struct.pack("QQQ", accesses, network_accesses, scopes)
    arguments = attributes, ctypes.c_size_t(len(attributes)), 0
    return _check(_libc.syscall(_NR_LANDLOCK_CREATE_RULESET, *arguments), "landlock_create_ruleset")


def landlock_add_rule(ruleset: int, descriptor: int, accesses: int) -> None:
    """Allow accesses to an open file or directory, and to everything below it."""
    rule = struct.pack("=Qi", accesses, descriptor)
    arguments = ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0
    _check(_libc.syscall(_NR_LANDLOCK_ADD_RULE, *arguments), "landlock_add_rule")


def landlock_add_port(ruleset: int, port: int, accesses: int) -> None:
    """Allow accesses to a TCP port, at any address."""
    rule = struct.pack("=QQ", accesses, port)
    arguments = ruleset, _LANDLOCK_RULE_NET_PORT, rule, 0
    _check(_libc.syscall(_NR_LANDLOCK_ADD_RULE, *arguments), "landlock_add_rule")


def landlock_restrict_self(ruleset: int, flags: int) -> None:
    """Enforce a ruleset on this thread and its children."""
    _check(_libc.syscall(_NR_LANDLOCK_RESTRICT_SELF, ruleset, flags), "landlock_restrict_self")


def raise_loopback() -> None:
    """Bring `lo` up in the current network namespace."""
    siocgifflags, siocsifflags, is_up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = fcntl.ioctl(probe, siocgifflags, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1] | is_up
        fcntl.ioctl(probe, siocsifflags, struct.pack("16sH22x", b"lo", flags))
