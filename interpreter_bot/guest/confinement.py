"""Confinement of one kernel: namespaces, mounts, /proc, resource limits, privileges.

Applied by the kernel's own processes before they run user code.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence

from . import rootfs, seccomp, syscalls

# Walls between kernels, as in `Walls` of the bot.
NAMESPACES, CONTAINER, NOTHING = "namespaces", "container", "nothing"

_MASKED_PROC_FILES = (
    *("buddyinfo", "cmdline", "config.gz", "diskstats", "interrupts", "iomem", "ioports"),
    *("kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats", "locks", "modules"),
    *("partitions", "sched_debug", "schedstat", "softirqs", "swaps", "sysrq-trigger"),
    *("timer_list", "timer_stats", "zoneinfo"),
)
_EMPTIED_PROC_DIRECTORIES = ("acpi", "asound", "driver", "pressure", "scsi")
_EMPTY_DIRECTORY = "/run"
_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
_INSIDE_ID = 1000
# Smallest, default and largest queue of a TCP socket in bytes. Queues count toward no session's
# memory, and Linux would allow tens of megabytes each. On a loopback, small ones are as fast.
_TCP_QUEUE_SIZES = {"tcp_rmem": "4096 131072 212992", "tcp_wmem": "4096 16384 212992"}
# RLIMIT_DATA counts the 8 MiB stack of each thread in full, though most of it is unused, so some
# stacks are allowed on top. The session as a whole is bounded from outside.
_STACKS_BYTES = 64 * 1024 * 1024


def map_to_root(uid: int, gid: int) -> None:
    """Map this process's former ids to root in the user namespace that it has just entered."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")


def enter_namespaces(
    *, temporary_bytes: int, uid: int, readable_paths: list[str], has_network: bool = False
) -> None:
    """Give process 1 of a pid namespace the other namespaces, and file systems of its own.

    Args:
        temporary_bytes: size of /tmp, and of shared memory.
        uid: the kernel's future user id, which will own the home directory.
        readable_paths: the environment's directories.
        has_network: whether the process keeps its present network.
    """
    syscalls.unshare(_NAMESPACES & ~(syscalls.CLONE_NEWNET if has_network else 0))
    syscalls.rename_host()
    if not has_network:
        syscalls.raise_loopback()
    mount_flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.umount("/proc")
    syscalls.mount("proc", "/proc", "proc", mount_flags | syscalls.MS_NOEXEC)
    for name, sizes in () if has_network else _TCP_QUEUE_SIZES.items():
        _write(f"/proc/sys/net/ipv4/{name}", sizes)
    syscalls.umount(rootfs.HOST)
    syscalls.umount("/tmp")
    size = f"size={temporary_bytes},nr_inodes=20000,mode=1777"
    rootfs.mount_temporary(readable_paths, size)
    os.mkdir(rootfs.HOME, mode=0o700)
    os.chown(rootfs.HOME, uid, uid)
    syscalls.mount("shm", "/dev/shm", "tmpfs", mount_flags | syscalls.MS_NOEXEC, size)


def mask_proc(files: dict[str, str]) -> None:
    """Hide the host's data in /proc, replace `files` (texts by name), and make /proc read-only.

    A writable /proc would, for example, let code change its OOM score.
    """
    source = "/tmp/.proc"
    read_only = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY
    for name, text in files.items():
        with open(source, "w") as file:
            file.write(text)
        os.chmod(source, 0o444)
        syscalls.mount(source, f"/proc/{name}", None, syscalls.MS_BIND)
        syscalls.mount(None, f"/proc/{name}", None, read_only | syscalls.MS_NOSUID)
        os.unlink(source)
    present_names = set(os.listdir("/proc"))
    for cover, names in (
        ("/dev/null", _MASKED_PROC_FILES),
        (_EMPTY_DIRECTORY, _EMPTIED_PROC_DIRECTORIES),
    ):
        for name in present_names.intersection(names):
            syscalls.mount(cover, f"/proc/{name}", None, syscalls.MS_BIND)
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount(None, "/proc", None, read_only | flags)


def prefer_as_oom_victim() -> None:
    """Make this process and its children the OOM killer's first victims.

    The bot and the machine's other programs must not be killed for the memory of user code.
    """
    # In an undumpable process this file belongs to the host's root.
    syscalls.set_dumpable(True)
    _write("/proc/self/oom_score_adj", "1000")


def enter_cgroup_namespace() -> None:
    """Make the current cgroups look like the root, because their paths tell about the bot."""
    syscalls.unshare(syscalls.CLONE_NEWCGROUP)


def enter_user_namespace(uid: int) -> None:
    """Switch to `uid` irrevocably, in a user namespace that can create no other.

    Linux counts processes per user and user namespace, so limits hold per session even if all
    sessions have the same user id on the host.
    """
    if uid != os.getuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    group = os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    # The change of credentials made the process undumpable, and its /proc files root's.
    syscalls.set_dumpable(True)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{_INSIDE_ID} {uid} 1")
    _write("/proc/self/gid_map", f"{_INSIDE_ID} {group} 1")
    _write("/proc/sys/user/max_user_namespaces", "0")


def set_limits(limits: Mapping[str, int | Sequence[int]], *, initial_data_bytes: int = 0) -> None:
    """Set resource limits that cannot be raised again.

    Args:
        limits: by names of RLIMIT constants without prefix, a value, or a pair of soft and hard
            limit.
        initial_data_bytes: memory that the process already has. This and the stacks of eight
            threads are added to DATA.
    """
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        # An inherited hard limit may be lower; asking for more would be refused.
        _, hard = resource.getrlimit(kind)
        soft, hard_maximum = (value, value) if isinstance(value, int) else value
        if name == "DATA":
            soft, hard_maximum = (
                amount + initial_data_bytes + _STACKS_BYTES for amount in (soft, hard_maximum)
            )
        bound = hard_maximum if hard == resource.RLIM_INFINITY else min(hard_maximum, hard)
        resource.setrlimit(kind, (min(soft, bound), bound))


def confine() -> None:
    """Drop all privileges and install the seccomp filter, irrevocably."""
    syscalls.drop_capabilities()
    syscalls.forbid_new_privileges()
    syscalls.install_filter(seccomp.build())


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
