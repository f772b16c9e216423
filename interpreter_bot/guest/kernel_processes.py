"""The process of a kernel, a copy of the fork server: it joins its init, confines itself and runs.

What it is to be it hears from its init alone, over a link that is closed before any user code runs:
the fork server, whose memory every later kernel starts with, knows nothing of a kernel.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from . import confinement, container_walls, control_channels, landlock, syscalls

# Where no cgroup sets CPU weights, the bot still has priority over the sessions.
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
        start: what the bot told the fork server at its start.
        run_kernel: runs the kernel, once it is confined.
        data_bytes: private writable memory that every kernel begins with.
    """

    def confined() -> dict[str, Any]:
        spec = start | _join(link)
        spec["rlimits"]["DATA"] += data_bytes
        _confine(link, spec)
        return spec

    _run(link, confined, run_kernel)


def run_in_container(
    link: socket.socket,
    spec: dict[str, Any],
    run_kernel: Callable[[dict[str, Any]], None],
    *,
    data_bytes: int,
) -> NoReturn:
    """Run this process from its fork to its exit, where there are no namespaces.

    Args:
        link: to the session's keeper.
        spec: what the bot told the fork server and the keeper.
        run_kernel: runs the kernel, once it is confined.
        data_bytes: private writable memory that every kernel begins with.
    """

    def confined() -> dict[str, Any]:
        syscalls.die_with_parent(signal.SIGKILL)
        _detach()
        control_channels.send(link, {"event": "entered"}, [])
        _, directories = _receive(link)
        spec["rlimits"]["DATA"] += data_bytes
        # While so many descriptors are allowed.
        container_walls.pin(directories)
        _come_last(spec)
        own, listeners = container_walls.confine(spec)
        control_channels.send(link, {"event": "confined"}, listeners)
        for listener in listeners:
            # With it, code could answer for its keeper.
            os.close(listener)
        return own

    _run(link, confined, run_kernel)


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
        raise BrokenPipeError("the first process is gone")
    return received


def _join(link: socket.socket) -> dict[str, Any]:
    """Enter the cgroups and namespaces of the init; returns the spec of the kernel."""
    spec, descriptors = _receive(link)
    count, channels = spec["entrances"], spec["channels"]
    entrances, descriptors = descriptors[:count], descriptors[count:]
    # Into the cgroups first, before anything is allocated for the kernel.
    for entrance in entrances:
        os.write(entrance, b"0")
        os.close(entrance)
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
    _come_last(spec)
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


def _come_last(spec: dict[str, Any]) -> None:
    """Bound what this process may use, and let it wait for others."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICENESS)
    syscalls.come_last_at_disks()
    confinement.limit(spec["rlimits"])
    if spec["affinity"] and spec["walls"] != confinement.NOTHING:
        os.sched_setaffinity(0, spec["affinity"])
