"""Confinement of a kernel if the machine refuses namespaces and mounts, as in ordinary containers.

Walls that need no privilege replace them: Landlock for files, signals and other processes' /proc, a
user id for each session if ids can be changed, and more rules in the system call filter. A
session's directories have their usual names by links through descriptors that the filter keeps
open: `/mnt/data` is a link to `/proc/self/fd/900`, created with the container's image.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from . import control_messages, landlock, rootfs, seccomp, syscalls

_DATA_FD, _VARIABLES_FD, _SKILLS_FD, _TEMPORARY_FD, _LAYERS_FD, _TOOLS_FD = (
    seccomp.PINNED_DESCRIPTORS
)

# For unlisted paths, Landlock says "permission denied", but some programs only handle "no such
# file": git and pip for settings, DuckDB and loky for control groups. All of /proc is listed,
# because a rule for a process's own directory would not cover its children's. It shows names and
# pids of other processes; Landlock itself protects their memory and open files.
_READABLE_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/alternatives", "/etc/debian_version", "/etc/fonts", "/etc/gitconfig", "/etc/group"),
    *("/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/lsb-release", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release"),
    *("/etc/passwd", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone"),
    *("/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
)
# Not /dev/zero: mapping it would give shared memory of any size.
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_SHARED_MEMORY = "/dev/shm"
_END_SECONDS = 10.0
# Any ordinary session has ended by then; after it, a fork storm is assumed.
_STORM_SECONDS = 0.1
_MAX_STOP_ROUNDS = 50
_KILL_PAUSE_SECONDS = 0.002
# Older versions do not prevent truncating other files, or signalling other processes.
_TRUNCATION_ABI, _SIGNALS_ABI = 3, 6


def describe_missing_support(*, has_own_ids: bool) -> str:
    """Return what this machine lacks for these walls, without a full stop; empty if nothing."""
    abi = syscalls.landlock_abi()
    min_abi = _TRUNCATION_ABI if has_own_ids else _SIGNALS_ABI
    if abi >= min_abi:
        return ""
    if not abi:
        return "Linux offers no Landlock here"
    condition = "" if has_own_ids else " where several share one user id"
    return f"Linux offers Landlock {abi} here, and {min_abi} is needed{condition}"


def find_own_id_refusal(uid: int, readable_paths: Iterable[str]) -> str:
    """Return why sessions cannot have user ids of their own, without a full stop, or nothing.

    `uid` is such an id, and `readable_paths` are needed by kernels.
    """

    def attempt() -> str:
        try:
            switch_user(uid)
        except OSError as error:
            return f"user ids cannot be changed ({error.strerror})"
        closed_path = next(filter(None, map(_first_closed_part, readable_paths)), "")
        return f"{closed_path} is closed to other users" if closed_path else ""

    return try_in_child(attempt)


def try_in_child(attempt: Callable[[], str]) -> str:
    """Return the result of `attempt` in a child process: why something is refused, else empty.

    If `attempt` forks, the process that returns from it gives the answer.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                reason = attempt()
            except Exception as error:
                # Any exception, because the parent must not take a failure for success.
                reason = f"{type(error).__name__}: {error}"
            # The full stop tells success from a child that was killed.
            os.write(writer, f"{reason}.".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return answer[:-1] if answer else "the attempt was killed"


def _first_closed_part(path: str, access_mode: int = os.R_OK) -> str:
    """Return the first part of a path that this user may not enter or read; empty if none."""
    parent = os.path.dirname(path)
    closed_path = "" if parent == path else _first_closed_part(parent, os.X_OK)
    return closed_path or ("" if os.access(path, access_mode) else path)


def switch_user(uid: int) -> None:
    """Switch to this user and group id irrevocably."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def pin_shared(*, skills_directory: str, layers_directory: str, tools_directory: str) -> None:
    """Pin directories that all kernels share; /dev/null for an empty path."""
    for path, pinned_number in (
        (skills_directory, _SKILLS_FD),
        (layers_directory, _LAYERS_FD),
        (tools_directory, _TOOLS_FD),
    ):
        _pin(os.open(path or os.devnull, os.O_PATH), pinned_number)


def end_descendants(spared_children: Collection[int] = ()) -> bool:
    """Kill all descendants, except for `spared_children` and theirs; return whether all ended.

    This process adopts orphans, so after each round the children of killed processes are its
    children. It kills immediately after it lists, because a process may fork a successor and exit.
    A signal to a process group reaches all its members at once, which ends most fork storms. If
    each process of a storm has a group of its own, all are stopped before any is killed; else new
    processes would replace killed ones.
    """
    deadline = time.monotonic() + _END_SECONDS
    storm_time = time.monotonic() + _STORM_SECONDS
    while children := [child for child in _list_children() if child not in spared_children]:
        # Not group 1: kill(-1) would mean all processes.
        for group in {_process_group(pid) for pid in children} - {os.getpgrp(), 0, 1}:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        if time.monotonic() > storm_time:
            _stop_and_kill(spared_children)
        time.sleep(_KILL_PAUSE_SECONDS)
        reap()
    return True


def _stop_and_kill(spared_children: Collection[int]) -> None:
    """Stop all descendants, which takes some rounds while they fork, and then kill them."""
    states: dict[int, bytes] = {}
    for _ in range(_MAX_STOP_ROUNDS):
        states = _list_descendants(spared_children)
        running_pids = [pid for pid, state in states.items() if state in b"RSDI"]
        for pid in running_pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        if not running_pids:
            break
    for pid in states:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _list_descendants(spared_children: Collection[int]) -> dict[int, bytes]:
    """Return the states of all descendants by pid."""
    processes = _list_processes()
    children: dict[int, list[int]] = {}
    for pid, (_, parent) in processes.items():
        children.setdefault(parent, []).append(pid)
    descendants = [pid for pid in children.get(os.getpid(), ()) if pid not in spared_children]
    for pid in descendants:  # The list grows in the loop.
        descendants += children.get(pid, ())
    return {pid: processes[pid][0] for pid in descendants}


def _list_processes() -> dict[int, tuple[bytes, int]]:
    """Return the state and the parent of each process in /proc."""
    processes = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent, *_ = file.read().rpartition(b")")[2].split()
            processes[int(name)] = state, int(parent)
    return processes


def _process_group(pid: int) -> int:
    """Return the process group of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def reap() -> dict[int, int]:
    """Return the wait status of each child that has ended, by its pid."""
    statuses = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[child[0]] = child[1]
    return statuses


def _list_children() -> list[int]:
    """List the children of this process's only thread."""
    own_pid = os.getpid()
    with (
        contextlib.suppress(FileNotFoundError),
        open(f"/proc/self/task/{own_pid}/children") as file,
    ):
        return list(map(int, file.read().split()))
    return [pid for pid, (_, parent) in _list_processes().items() if parent == own_pid]


def remove_shared_memory() -> None:
    """Remove the files of this user in /dev/shm, which would outlive the session."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(_SHARED_MEMORY):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    os.unlink(entry)


def pin(directories: Sequence[int]) -> None:
    """Pin the descriptors of a session's files, saved variables and temporary files."""
    for descriptor, pinned_number in zip(
        directories, (_DATA_FD, _VARIABLES_FD, _TEMPORARY_FD), strict=True
    ):
        _pin(descriptor, pinned_number)


def confine(
    readable_paths: Iterable[str], kernel: control_messages.KernelParameters
) -> tuple[str, str, list[int]]:
    """Confine this single-threaded process irrevocably, after `pin`.

    `readable_paths` are directories of the Python environment.

    Returns:
        The paths of the kernel's files and saved variables; and, if it has doors, a descriptor for
        the supervisor of its connections.
    """
    real_home = os.readlink(_descriptor_path(_DATA_FD))
    # Prepared before the change of user, because the session's user may not reach all paths.
    ruleset = landlock.prepare(
        [
            *_READABLE_PATHS,
            *readable_paths,
            *(_SKILLS_FD, _LAYERS_FD, _TOOLS_FD),
        ],
        [_DATA_FD, _VARIABLES_FD, _TEMPORARY_FD],
        _DEVICES,
        unlistable_directories=(_SHARED_MEMORY,),
        ports=(),
    )
    _switch_user_and_enforce(ruleset, kernel.uid if kernel.has_own_id else None)
    is_linked = os.path.exists(rootfs.DATA) and os.path.samefile(
        rootfs.DATA, _descriptor_path(_DATA_FD)
    )
    home = rootfs.DATA if is_linked else _descriptor_path(_DATA_FD)
    _set_temporary_directory(_descriptor_path(_TEMPORARY_FD))
    os.environ["PWD"] = home
    _show_home_as(real_home, home)
    syscalls.drop_capabilities()
    has_doors = bool(kernel.doors)
    program = seccomp.build(
        has_namespaces=False, has_shared_id=not kernel.has_own_id, has_doors=has_doors
    )
    listener = syscalls.install_filter(program, is_supervised=has_doors)
    return home, _descriptor_path(_VARIABLES_FD), [listener] if has_doors else []


def confine_program(
    *, readable_paths: Iterable[str], writable_directory: str, uid: int | None, has_network: bool
) -> None:
    """Confine this single-threaded process irrevocably, before it executes a program.

    Args:
        readable_paths: paths that it may read, besides the system's.
        writable_directory: its working directory, with home and temporary files.
        uid: its own user id; None for the present one, which others have, too.
        has_network: whether it has the container's network (without Unix sockets) or none.
    """
    # Opened before the change of user, because the program's user may not reach it.
    _pin(os.open(writable_directory, os.O_PATH | os.O_DIRECTORY), _TEMPORARY_FD)
    home = _descriptor_path(_TEMPORARY_FD)
    os.chdir(home)
    os.environ.update(HOME=home, TMPDIR=home)
    ruleset = landlock.prepare(
        [*_READABLE_PATHS, *readable_paths],
        [_TEMPORARY_FD],
        _DEVICES,
        ports=None if has_network else (),
    )
    _switch_user_and_enforce(ruleset, uid)
    syscalls.drop_capabilities()
    # Another bot in this container may give the same id to a program. An old Landlock does not
    # keep the two from signalling each other, so the filter has to.
    has_shared_id = uid is None or syscalls.landlock_abi() < _SIGNALS_ABI
    program = seccomp.build(
        has_namespaces=False, has_shared_id=has_shared_id, has_network=has_network
    )
    syscalls.install_filter(program)


def _switch_user_and_enforce(ruleset: int, uid: int | None) -> None:
    """Switch to another user id, if given, and enforce a ruleset, irrevocably."""
    if uid is not None:
        # This needs a capability that is lost with the former id.
        syscalls.drop_bounding_capabilities()
        switch_user(uid)
    # After the change of credentials, which resets the next two.
    syscalls.set_dumpable(True)
    syscalls.die_with_parent(signal.SIGKILL)
    syscalls.forbid_new_privileges()
    landlock.enforce(ruleset)
    # New files must be private, for example those in /dev/shm, which sessions share.
    os.umask(0o077)


def _descriptor_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _pin(descriptor: int, pinned_number: int) -> None:
    """Move a descriptor to a number that the filter keeps open, even in programs of code."""
    os.dup2(descriptor, pinned_number, inheritable=True)
    os.close(descriptor)


def _set_temporary_directory(path: str) -> None:
    """Use a directory for temporary files, and for programs' files in HOME."""
    home = f"{path}/home"
    os.makedirs(home, mode=0o700, exist_ok=True)
    os.environ.update(HOME=home, TMPDIR=path, MPLCONFIGDIR=f"{home}/.matplotlib")
    tempfile.tempdir = None


def _show_home_as(real_path: str, shown_path: str) -> None:
    """Let `os.getcwd` return the path that people know for the session's files."""
    get_real_directory = os.getcwd

    def getcwd() -> str:
        path = get_real_directory()
        if path == real_path or path.startswith(f"{real_path}/"):
            return shown_path + path.removeprefix(real_path)
        return path

    getcwd.__module__, getcwd.__qualname__ = "os", "getcwd"
    os.getcwd = getcwd


def set_search_paths(readable_paths: Iterable[str]) -> None:
    """Set PATH and `sys.path` to directories that kernels can read."""
    os.environ["PATH"] = os.environ["PATH"].replace(rootfs.TOOLS, _descriptor_path(_TOOLS_FD))
    os.environ["PIP_PYTHON"] = (
        f"{_descriptor_path(_TOOLS_FD)}/{os.path.basename(os.environ['PIP_PYTHON'])}"
    )
    visible_prefixes = ("/usr/", *(f"{path}/" for path in readable_paths))
    sys.path[:] = [entry for entry in sys.path if f"{entry}/".startswith(visible_prefixes)]
    # Last, so that no module of a skill hides another one.
    sys.path.append(_descriptor_path(_SKILLS_FD) + rootfs.SKILL_MODULES.removeprefix(rootfs.SKILLS))
