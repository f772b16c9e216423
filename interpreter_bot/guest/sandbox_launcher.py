"""Launcher of foreign programs, each in a sandbox of its own, like those of kernels.

`python -m interpreter_bot.guest.sandbox_launcher WALLS PROGRAM ARGUMENT…` becomes three processes:
this one waits, its child is process 1 of a pid namespace, and PROGRAM is a child of that one. At
the level `container`, PROGRAM is a child of this process, which ends all its descendants. WALLS is
JSON. Without PROGRAM, it only tries whether such a sandbox is possible.

PROGRAM is ended if it outlives its input: the bot is gone then, or has executed itself anew.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from typing import NoReturn

from . import confinement, container_walls, landlock, rootfs, syscalls
from .program_walls import SandboxWalls

_NAMESPACES = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS
_FAILURE_STATUS = 125
# Longer than the bot waits, which ends it by a signal.
_MAX_SECONDS_WITHOUT_INPUT = 4.0
# Linux counts all processes of a user id together, also those of other programs and containers that
# may have it; the bot counts each program's.
_MAX_PROGRAMS_OF_USER = 16
# Files for name resolution and certificates.
_NETWORK_FILES = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services"),
    *("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
)


def main(arguments: list[str]) -> NoReturn:
    """Run a program behind walls, and end as it does.

    Args:
        arguments: the walls, then the program and its own arguments.

    Raises:
        OSError: a wall cannot be built; nothing runs then.
    """
    walls, program, program_input = (
        SandboxWalls(**json.loads(arguments[0])),
        arguments[1:],
        os.dup(0),
    )
    for cgroup_file in walls.cgroup_files:
        os.write(cgroup_file, b"0")
        os.close(cgroup_file)
    refusal = "" if walls.level == confinement.CONTAINER else _refusal_of_namespaces()
    has_namespaces = not refusal and walls.level != confinement.CONTAINER
    if refusal and walls.level != "auto":
        sys.exit(refusal)
    if not has_namespaces and (reason := _refusal_of_container(walls)):
        sys.exit(f"{refusal}; and without namespaces: {reason}" if refusal else reason)
    if not program:
        sys.exit()
    if not has_namespaces:
        _run_in_container(walls, program, program_input)
    uid, gid = os.getuid(), os.getgid()
    if not uid:
        os.setgroups([])
    syscalls.unshare(_NAMESPACES)
    confinement.map_to_root(uid, gid)
    syscalls.rename_host()
    syscalls.unshare(syscalls.CLONE_NEWPID)
    # After the change of privileges, which clears it.
    syscalls.die_with_parent(signal.SIGKILL)
    if init := os.fork():
        os._exit(_wait_for_child(init, program_input))
    syscalls.die_with_parent(signal.SIGKILL)
    _enter_sandbox(walls)
    _run_as_init(walls, program)


def _refusal_of_namespaces() -> str:
    """Return why a program cannot have namespaces of its own; empty if it can. Tried in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            uid, gid = os.getuid(), os.getgid()
            syscalls.unshare(_NAMESPACES)
            confinement.map_to_root(uid, gid)
            syscalls.unshare(syscalls.CLONE_NEWPID)
            # Refused where parts of the machine's are covered, as in Docker.
            if os.fork():
                os._exit(0)
            syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        refusal = file.read()
    os.waitpid(child, 0)
    return refusal


def _refusal_of_container(walls: SandboxWalls) -> str:
    """Return why a program cannot have the walls of the level `container`; empty if it can."""
    is_root = not os.getuid()
    reason = container_walls.describe_missing_support(has_own_ids=is_root)
    if is_root and not reason:
        reason = container_walls.own_id_refusal(walls.uid, walls.readable_paths)
    return reason


def _wait_for_child(child: int, program_input: int) -> int:
    """Wait for the end of a child, and reap others; return its exit status.

    `_FAILED` if it goes on although the program's input has ended.
    """
    wakeup_reader, wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll, deadline = select.poll(), math.inf
    poll.register(wakeup_reader, select.POLLIN)
    poll.register(program_input, 0)  # For the hang-up only.
    while child not in (statuses := container_walls.reap()):
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            return _FAILURE_STATUS
        for descriptor, _ in poll.poll(None if deadline == math.inf else 1000 * seconds_left):
            if descriptor == wakeup_reader:
                os.read(wakeup_reader, 4096)
            else:
                poll.unregister(program_input)
                deadline = time.monotonic() + _MAX_SECONDS_WITHOUT_INPUT
    return _exit_status(statuses[child])


def _run_in_container(walls: SandboxWalls, program: list[str], program_input: int) -> NoReturn:
    """Run the program as a child of this process, and end all its descendants."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_FAILURE_STATUS))
    syscalls.die_with_parent(signal.SIGTERM)
    syscalls.adopt_orphans()
    child = 0
    try:
        child = os.fork()
        if not child:
            _exec_in_container(walls, program)
        null = os.open(os.devnull, os.O_RDWR)
        for standard_fd in range(3):
            os.dup2(null, standard_fd)
        sys.exit(_wait_for_child(child, program_input))
    finally:
        if child:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            container_walls.end_descendants()


def _exec_in_container(walls: SandboxWalls, program: list[str]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The bot kills the process group of this process's parent, which then ends the descendants.
    os.setsid()
    confinement.prefer_as_oom_victim()
    container_limits = {
        "NPROC": _MAX_PROGRAMS_OF_USER * walls.rlimits["NPROC"],
        "FSIZE": walls.temporary_bytes,
    }
    confinement.set_limits(walls.rlimits | container_limits)
    uid = None if os.getuid() else walls.uid
    if uid is not None:
        os.chown(walls.temporary_directory, uid, uid)
    container_walls.confine_program(
        readable_paths=[*walls.readable_paths, *(_NETWORK_FILES if walls.has_network else ())],
        writable_directory=walls.temporary_directory,
        uid=uid,
        has_network=walls.has_network,
    )
    os.execvp(program[0], program)


def _enter_sandbox(walls: SandboxWalls) -> None:
    """Enter a root that shows the system's files and the directories of the walls."""
    readable_paths = walls.readable_paths
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    trees = rootfs.MountTrees(readable_paths, [], "", skills_directory="", layers_directory="")
    network_paths = _NETWORK_FILES if walls.has_network else ()
    network_trees = {
        path: syscalls.open_tree(path) for path in network_paths if os.path.exists(path)
    }
    directories = {path for path in network_trees if os.path.isdir(path)}
    trees.enter(visible_cores=os.cpu_count() or 1)
    for path, tree in network_trees.items():
        flags = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
        syscalls.set_mount_flags(tree, flags | syscalls.MOUNT_ATTR_NODEV)
        rootfs.attach(tree, path, is_directory=path in directories)
    trees.mount_temporary()
    rootfs.seal()
    confinement.enter_namespaces(
        temporary_bytes=walls.temporary_bytes,
        uid=0,
        readable_paths=readable_paths,
        has_network=walls.has_network,
    )


def _run_as_init(walls: SandboxWalls, program: list[str]) -> NoReturn:
    """Run the program as a child of this process, which reaps orphans."""
    entered_reader, entered_writer = os.pipe()
    masked_reader, masked_writer = os.pipe()
    child = os.fork()
    if not child:
        syscalls.die_with_parent(signal.SIGKILL)
        confinement.prefer_as_oom_victim()
        # While /proc is writable; then the parent masks it.
        confinement.enter_user_namespace(os.getuid())
        os.write(entered_writer, b"0")
        os.close(masked_writer)
        if not os.read(masked_reader, 1):
            os._exit(_FAILURE_STATUS)
        _exec_program(walls, program)
    os.close(entered_writer)
    if os.read(entered_reader, 1):
        confinement.mask_proc({})
        os.write(masked_writer, b"0")
    null = os.open(os.devnull, os.O_RDWR)
    for standard_fd in range(3):
        os.dup2(null, standard_fd)
    confinement.confine()
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(_exit_status(status))


def _exec_program(walls: SandboxWalls, program: list[str]) -> NoReturn:
    confinement.set_limits(walls.rlimits)
    if not landlock.restrict_kernel(walls.readable_paths) and walls.has_network:
        # Sockets of the host that have no file would be within reach.
        raise OSError("with a network, Landlock is needed")
    confinement.confine()
    syscalls.die_with_parent(signal.SIGKILL)
    os.chdir(rootfs.HOME)
    os.environ.update(HOME=rootfs.HOME, TMPDIR="/tmp")
    os.execvp(program[0], program)


def _exit_status(status: int) -> int:
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    main(sys.argv[1:])
