"""Launcher of foreign programs, each in a sandbox of its own, like those of kernels.

`python -m interpreter_bot.guest.sandbox_launcher WALLS PROGRAM ARGUMENT…` becomes three processes:
this one waits, its child is process 1 of a pid namespace, and PROGRAM is a child of that one. At
the level `container`, PROGRAM is a child of this process, which ends all its descendants. WALLS is
JSON. Without PROGRAM, the launcher only tries whether such a sandbox is possible.

PROGRAM is ended if it goes on after the end of its input, because the bot has ended then, or has
executed itself anew.
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
# The bot waits for less, and then ends the program by a signal.
_MAX_SECONDS_WITHOUT_INPUT = 4.0
# Linux limits the processes of a user id, which other programs and containers may have, too. The
# bot limits those of each program.
_MAX_PROGRAMS_OF_USER = 16
# Files for name resolution and certificates.
_NETWORK_FILES = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services"),
    *("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
)


def main(arguments: list[str]) -> NoReturn:
    """Run a program behind walls, and exit with its status.

    Args:
        arguments: the walls, then the program and its own arguments.

    Raises:
        OSError: a wall cannot be built, so the program does not run.
    """
    walls = SandboxWalls(**json.loads(arguments[0]))
    program = arguments[1:]
    program_input = os.dup(0)
    for cgroup_file in walls.cgroup_files:
        os.write(cgroup_file, b"0")
        os.close(cgroup_file)
    refusal = "" if walls.level == confinement.CONTAINER else _find_namespaces_refusal()
    has_namespaces = not refusal and walls.level != confinement.CONTAINER
    if refusal and walls.level != "auto":
        sys.exit(refusal)
    if not has_namespaces and (reason := _find_container_refusal(walls)):
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
    # After the change of privileges, which resets the signal.
    syscalls.die_with_parent(signal.SIGKILL)
    if init := os.fork():
        os._exit(_wait_for_child(init, program_input))
    syscalls.die_with_parent(signal.SIGKILL)
    _enter_sandbox(walls)
    _run_as_init(walls, program)


def _find_namespaces_refusal() -> str:
    """Return why a program cannot have namespaces of its own; empty if it can."""

    def attempt() -> str:
        try:
            uid, gid = os.getuid(), os.getgid()
            syscalls.unshare(_NAMESPACES)
            confinement.map_to_root(uid, gid)
            syscalls.unshare(syscalls.CLONE_NEWPID)
            # The child is in the new pid namespace.
            if os.fork():
                os._exit(0)
            syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            # Linux refuses this mount if parts of the present /proc are covered, as in Docker.
            syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
        except OSError as error:
            return str(error)
        return ""

    return container_walls.try_in_child(attempt)


def _find_container_refusal(walls: SandboxWalls) -> str:
    """Return why a program cannot have the walls of the level `container`; empty if it can."""
    is_root = not os.getuid()
    reason = container_walls.describe_missing_support(has_own_ids=is_root)
    if is_root and not reason:
        reason = container_walls.find_own_id_refusal(walls.uid, walls.readable_paths)
    return reason


def _wait_for_child(child: int, program_input: int) -> int:
    """Reap processes until a child ends, and return its exit status.

    The status is `_FAILURE_STATUS` if the child goes on after the end of the program's input.
    """
    wakeup_reader, wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll, deadline = select.poll(), math.inf
    poll.register(wakeup_reader, select.POLLIN)
    poll.register(program_input, 0)  # Reports only a hang-up.
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
    # The bot signals the launcher's process group, which must not reach the program: the launcher
    # ends it with all its descendants.
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
        # This needs a writable /proc, so the parent masks /proc afterwards.
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
        # Only Landlock denies access to the host's abstract Unix sockets.
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
