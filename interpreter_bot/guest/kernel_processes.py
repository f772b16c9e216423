"""The process of a kernel, a copy of the fork server: it joins its init, confines itself and runs.

It gets its spec from its init, over a link that is closed before user code runs. The fork server
never has the spec, because later kernels inherit the fork server's memory.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from . import confinement, container_walls, control_channels, landlock, syscalls

# Gives the bot priority over sessions even if no cgroup sets weights.
_NICENESS = 10


def run(
    link: socket.socket,
    start: dict[str, Any],
    run_kernel: Callable[[dict[str, Any]], None],
    *,
    data_bytes: int,
) -> NoReturn:
    """Run this process from its fork to its exit.

    Args:
        link: to the kernel's init.
        start: configuration that the bot sent the fork server.
        run_kernel: runs the kernel, once it is confined.
        data_bytes: private writable memory that every kernel starts with.
    """

    def confine() -> dict[str, Any]:
        spec = start | _join(link)
        spec["rlimits"]["DATA"] += data_bytes
        _confine(link, spec)
        return spec

    _run(link, confine, run_kernel)


def run_in_container(
    link: socket.socket,
    spec: dict[str, Any],
    run_kernel: Callable[[dict[str, Any]], None],
    *,
    data_bytes: int,
) -> NoReturn:
    """Run this process from its fork to its exit, without namespaces.

    Args:
        link: to the session's keeper.
        spec: configuration of the fork server and start parameters of the kernel.
        run_kernel: runs the kernel, once it is confined.
        data_bytes: private writable memory that every kernel starts with.
    """

    def confine() -> dict[str, Any]:
        syscalls.die_with_parent(signal.SIGKILL)
        _detach()
        control_channels.send(link, {"event": "entered"}, [])
        _, directories = _receive(link)
        spec["rlimits"]["DATA"] += data_bytes
        # Before the limit of descriptors, which is below the pinned numbers.
        container_walls.pin(directories)
        _limit_and_lower_priority(spec)
        kernel_spec, listeners = container_walls.confine(spec)
        control_channels.send(link, {"event": "confined"}, listeners)
        for listener in listeners:
            # With it, code could answer its own calls.
            os.close(listener)
        return kernel_spec

    _run(link, confine, run_kernel)


def _run(
    link: socket.socket,
    confine: Callable[[], dict[str, Any]],
    run_kernel: Callable[[dict[str, Any]], None],
) -> NoReturn:
    status = 1
    gc.disable()
    try:
        try:
            spec = confine()
        except Exception as error:
            # The only broad `except` of this process: it cannot report a failed start otherwise.
            control_channels.send(link, control_channels.failure(error), [])
        else:
            link.close()
            run_kernel(spec)
            status = 0
    finally:
        os._exit(status)


def _receive(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    received = control_channels.receive(link)
    if received is None:
        raise BrokenPipeError("the first process has ended")
    return received


def _join(link: socket.socket) -> dict[str, Any]:
    """Join the cgroups and namespaces of the init; return the spec of the kernel."""
    spec, descriptors = _receive(link)
    count, channels = spec["entrances"], spec["channels"]
    entry_files, descriptors = descriptors[:count], descriptors[count:]
    # Join the cgroups first, before memory is allocated for the kernel.
    for entry_file in entry_files:
        os.write(entry_file, b"0")
        os.close(entry_file)
    spec["listeners"], namespaces = descriptors[:channels], descriptors[channels:]
    for namespace in namespaces:
        syscalls.setns(namespace, 0)
        os.close(namespace)
    if namespaces:
        confinement.enter_cgroup_namespace()
    return spec


def _confine(link: socket.socket, spec: dict[str, Any]) -> None:
    """Confine this process, which becomes the kernel."""
    confinement.prefer_as_oom_victim()
    _detach()
    is_walled = spec["walls"] == confinement.NAMESPACES
    if is_walled:
        confinement.enter_user_namespace(spec["uid"])
    pidfd = os.pidfd_open(os.getpid())
    control_channels.send(link, {"event": "entered", "pid": os.getpid()}, [pidfd])
    os.close(pidfd)
    _receive(link)
    _limit_and_lower_priority(spec)
    if is_walled:
        landlock.restrict_kernel(spec["readable"])
        confinement.confine()
    control_channels.send(link, {"event": "confined"}, [])


def _detach() -> None:
    """Leave the fork server's process session, and its standard streams."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)


def _limit_and_lower_priority(spec: dict[str, Any]) -> None:
    """Set resource limits and a low priority."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICENESS)
    syscalls.lower_disk_priority()
    confinement.limit(spec["rlimits"])
    if spec["affinity"] and spec["walls"] != confinement.NOTHING:
        os.sched_setaffinity(0, spec["affinity"])
