"""Confinement of a kernel where the machine refuses namespaces and mounts: an ordinary container.

What stands in for them needs no privilege there: Landlock for files, signals and other processes'
/proc, a user id of the session's own if ids can be changed, and more rules in the system call
filter. A session's directories have their usual names by links through descriptors that the filter
keeps open: `/mnt/data` is a link to `/proc/self/fd/900`, made with the container's image.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from . import landlock, rootfs, seccomp, syscalls

_DATA, _VARIABLES, _SKILLS, _TEMPORARY, _LAYERS, _TOOLS = seccomp.PINNED

# Landlock says "permission denied" of what is there and not listed; some programs take only "no
# such file" for an answer: git and pip of settings, DuckDB and loky of control groups. All of /proc
# is listed because a rule for a process's own part would not hold for its children's. It shows the
# names and numbers of others, and Landlock itself keeps what they have in memory and open closed.
_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/alternatives", "/etc/debian_version", "/etc/fonts", "/etc/gitconfig", "/etc/group"),
    *("/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/lsb-release", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release"),
    *("/etc/passwd", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone"),
    *("/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
)
# Without /dev/zero: mapped, it would be shared memory of any size.
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_SHARED_MEMORY = "/dev/shm"
_END_SECONDS = 10.0
# An ordinary session is gone by then, however many processes it has.
_STORM_SECONDS = 0.1
_MAX_LOOKS = 50
_PAUSE_SECONDS = 0.002
# Below the first, others' files can be cut short; below the second, others' processes signalled.
_TRUNCATION_ABI, _SIGNALS_ABI = 3, 6


def missing(*, has_own_ids: bool) -> str:
    """Return what this machine lacks for these walls, as a sentence without an end; empty if
    nothing.
    """
    abi = syscalls.landlock_abi()
    needed = _TRUNCATION_ABI if has_own_ids else _SIGNALS_ABI
    if abi >= needed:
        return ""
    if not abi:
        return "Linux offers no Landlock here"
    who = "" if has_own_ids else " where all sessions have the bot's user id"
    return f"Linux offers Landlock {abi} here, and {needed} is needed{who}"


def own_id_refusal(uid: int, readable: Iterable[str]) -> str:
    """Return why sessions cannot have such user ids, as a sentence without an end; empty if they
    can. Found by trying, in a child.

    Args:
        uid: one of them.
        readable: what kernels have to reach.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            closed = next(filter(None, map(_closed_part, readable)), "")
            reason = f"{closed} is closed to other users" if closed else ""
        except OSError as error:
            reason = f"user ids cannot be changed ({error.strerror})"
        os.write(writer, reason.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        reason = file.read()
    os.waitpid(pid, 0)
    return reason


def _closed_part(path: str, right: int = os.R_OK) -> str:
    """Return the first part of a path that this user may not pass or read; empty if none."""
    parent = os.path.dirname(path)
    closed = "" if parent == path else _closed_part(parent, os.X_OK)
    return closed or ("" if os.access(path, right) else path)


def become(uid: int) -> None:
    """Have this user and group id and no other, irrevocably."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def pin_shared(*, skills: str, layers: str, tools: str) -> None:
    """Keep directories open that all kernels share, each of which may be none."""
    for path, number in ((skills, _SKILLS), (layers, _LAYERS), (tools, _TOOLS)):
        _pin(os.open(path or os.devnull, os.O_PATH), number)


def end_descendants(apart_from: Collection[int] = ()) -> bool:
    """Kill all processes below this one, which adopts orphans, and wait for them.

    A child that was killed leaves its own children to this process. No time passes between a look
    and a kill: the next process of a chain, each of which ends once it has forked another, would
    not be known yet. A storm of forks is ended by its process groups, each of which gets the signal
    at once; one that makes a group of each is stopped as a whole before it is killed. Of single
    processes that are killed, new ones would take the places.

    Args:
        apart_from: children that stay, and what is below them.

    Returns:
        whether none is left.
    """
    deadline = time.monotonic() + _END_SECONDS
    storm = time.monotonic() + _STORM_SECONDS
    while left := [child for child in _children() if child not in apart_from]:
        # Not group 1 either: its number, negated, means all processes.
        for group in {_group(pid) for pid in left} - {os.getpgrp(), 0, 1}:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        if time.monotonic() > storm:
            _stop_and_kill(apart_from)
        time.sleep(_PAUSE_SECONDS)
        reap()
    return True


def _stop_and_kill(apart_from: Collection[int]) -> None:
    """Stop all processes below this one, which takes a few looks while they fork, and kill them."""
    states: dict[int, bytes] = {}
    for _ in range(_MAX_LOOKS):
        states = _descendants(apart_from)
        running = [pid for pid, state in states.items() if state in b"RSDI"]
        for pid in running:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        if not running:
            break
    for pid in states:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _descendants(apart_from: Collection[int]) -> dict[int, bytes]:
    """Return the states of all processes below this one, by their pids."""
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, (_, parent) in processes.items():
        children.setdefault(parent, []).append(pid)
    below = [pid for pid in children.get(os.getpid(), ()) if pid not in apart_from]
    for pid in below:  # Grows while it is walked.
        below += children.get(pid, ())
    return {pid: processes[pid][0] for pid in below}


def _processes() -> dict[int, tuple[bytes, int]]:
    """Return the state and the parent of each process in /proc."""
    processes = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent, *_ = file.read().rpartition(b")")[2].split()
            processes[int(name)] = state, int(parent)
    return processes


def _group(pid: int) -> int:
    """Return the process group of a process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def reap() -> dict[int, int]:
    """Return the wait status of each child that has ended, by its pid."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _children() -> list[int]:
    """List the children of this process's only thread."""
    own = os.getpid()
    with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{own}/children") as file:
        return list(map(int, file.read().split()))
    return [pid for pid, (_, parent) in _processes().items() if parent == own]


def remove_shared_memory() -> None:
    """Remove the files of this user in /dev/shm, which would outlive the session."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(_SHARED_MEMORY):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    os.unlink(entry)


def pin(directories: Sequence[int]) -> None:
    """Keep a session's directories open, in programs that are started too.

    Args:
        directories: descriptors of its files, its saved variables and its temporary files.
    """
    for descriptor, number in zip(directories, (_DATA, _VARIABLES, _TEMPORARY), strict=True):
        _pin(descriptor, number)


def confine(spec: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Confine this process, whose only thread this is; irrevocable. `pin` comes before.

    Args:
        spec: of the kernel.

    Returns:
        the spec, with the places where the kernel finds its files and saved variables; and, if it
        has doors, the descriptor for whoever answers what it wants to connect to.
    """
    real_home = os.readlink(_path(_DATA))
    # With the rights of now: its own id may not be able to walk to all of it.
    ruleset = landlock.prepare(
        [
            *_READABLE,
            *spec["readable"],
            *(_SKILLS, _LAYERS, _TOOLS),
        ],
        [_DATA, _VARIABLES, _TEMPORARY],
        _DEVICES,
        by_name=(_SHARED_MEMORY,),
        ports=(),
    )
    _enter(ruleset, spec["uid"] if spec["has_own_id"] else None)
    is_linked = os.path.exists(rootfs.DATA) and os.path.samefile(rootfs.DATA, _path(_DATA))
    home = rootfs.DATA if is_linked else _path(_DATA)
    _use_temporary(_path(_TEMPORARY))
    os.environ["PWD"] = home
    _name_home(real_home, home)
    syscalls.drop_capabilities()
    has_doors = bool(spec["doors"])
    program = seccomp.build(
        has_namespaces=False, has_shared_id=not spec["has_own_id"], has_doors=has_doors
    )
    listener = syscalls.install_filter(program, is_supervised=has_doors)
    own = spec | {"home": home, "variables": _path(_VARIABLES)}
    return own, [listener] if has_doors else []


def confine_program(
    *, readable: Iterable[str], writable: str, uid: int | None, has_network: bool
) -> None:
    """Confine this process, whose only thread this is, before it becomes a program; irrevocable.

    Args:
        readable: what it may read beside the system.
        writable: its directory, in which it begins, and has its home and temporary files.
        uid: its user id, which all programs may have; None for that of now.
        has_network: it has the container's network, but no sockets of files.
    """
    # Its own user may not be able to walk there.
    _pin(os.open(writable, os.O_PATH | os.O_DIRECTORY), _TEMPORARY)
    home = _path(_TEMPORARY)
    os.chdir(home)
    os.environ.update(HOME=home, TMPDIR=home)
    ruleset = landlock.prepare(
        [*_READABLE, *readable], [_TEMPORARY], _DEVICES, ports=None if has_network else ()
    )
    _enter(ruleset, uid)
    syscalls.drop_capabilities()
    program = seccomp.build(has_namespaces=False, has_shared_id=True, has_network=has_network)
    syscalls.install_filter(program)


def _enter(ruleset: int, uid: int | None) -> None:
    """Become a user, if it is another one, and be held to a ruleset; irrevocable."""
    if uid is not None:
        # The right to do so goes with the id.
        syscalls.bar_capabilities()
        become(uid)
    # After the change of credentials, which clears both.
    syscalls.set_dumpable(True)
    syscalls.die_with_parent(signal.SIGKILL)
    syscalls.forbid_new_privileges()
    landlock.enforce(ruleset)
    # In directories that all share, such as /dev/shm.
    os.umask(0o077)


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _pin(descriptor: int, number: int) -> None:
    """Move a descriptor to where the filter keeps it open, in programs that are started too."""
    os.dup2(descriptor, number, inheritable=True)
    os.close(descriptor)


def _use_temporary(path: str) -> None:
    """Let temporary files, and what programs keep for their user, go to a directory."""
    home = f"{path}/home"
    os.makedirs(home, mode=0o700, exist_ok=True)
    os.environ.update(HOME=home, TMPDIR=path, MPLCONFIGDIR=f"{home}/.matplotlib")
    tempfile.tempdir = None


def _name_home(real: str, name: str) -> None:
    """Let `os.getcwd` call the session's files by the name that people know."""
    get_directory = os.getcwd

    def getcwd() -> str:
        path = get_directory()
        if path == real or path.startswith(f"{real}/"):
            return name + path.removeprefix(real)
        return path

    getcwd.__module__, getcwd.__qualname__ = "os", "getcwd"
    os.getcwd = getcwd


def name_places(readable: Iterable[str]) -> None:
    """Let programs be found where kernels find them, and modules only where they can read."""
    os.environ["PATH"] = os.environ["PATH"].replace(rootfs.TOOLS, _path(_TOOLS))
    os.environ["PIP_PYTHON"] = f"{_path(_TOOLS)}/{os.path.basename(os.environ['PIP_PYTHON'])}"
    shown = ("/usr/", *(f"{path}/" for path in readable))
    sys.path[:] = [entry for entry in sys.path if f"{entry}/".startswith(shown)]
    # Last, so that no skill's module stands before another one.
    sys.path.append(_path(_SKILLS) + rootfs.SKILL_MODULES.removeprefix(rootfs.SKILLS))
