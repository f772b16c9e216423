"""The process of a kernel: forked by the fork server, it joins its init and confines itself.

It gets its spec from its init, over a link that is closed before user code runs. The fork server
never has the spec, because later kernels inherit the fork server's memory.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from . import confinement, container_walls, control_messages, landlock, rootfs, syscalls

# Gives the bot priority over sessions even if no cgroup sets weights.
_NICENESS = 10


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """Parameters of a kernel that starts in a confined process.

    Attributes:
        configuration: what the bot sent the fork server.
        signing_key: signs the messages of the kernel and the bot.
        listeners: sockets of its channels.
        home: working directory.
        variables_directory: of saved variables.
    """

    configuration: control_messages.Configuration
    signing_key: str
    listeners: list[int]
    home: str
    variables_directory: str = rootfs.VARIABLES


def run(
    link: socket.socket,
    configuration: control_messages.Configuration,
    run_kernel: Callable[[KernelSpec], None],
    *,
    data_bytes: int,
) -> NoReturn:
    """Run this process from its fork to its exit."""

    def confine() -> KernelSpec:
        request, listeners = _join(link)
        _confine(link, configuration, request.kernel, data_bytes=data_bytes)
        return KernelSpec(configuration, request.key, listeners, request.kernel.home)

    _run(link, confine, run_kernel)


def run_in_container(
    link: socket.socket,
    configuration: control_messages.Configuration,
    kernel: control_messages.KernelParameters,
    run_kernel: Callable[[KernelSpec], None],
    *,
    signing_key: str,
    listeners: list[int],
    data_bytes: int,
) -> NoReturn:
    """Run this process from its fork to its exit, without namespaces."""

    def confine() -> KernelSpec:
        syscalls.die_with_parent(signal.SIGKILL)
        _detach()
        control_messages.send(link, control_messages.KernelEntered(os.getpid()))
        _, directories = _receive(link)
        # Before the limit of open files is set, because the pinned numbers exceed it.
        container_walls.pin(directories)
        _limit_and_lower_priority(configuration, kernel, data_bytes=data_bytes)
        home, variables_directory, notifiers = container_walls.confine(
            configuration.readable_paths, kernel
        )
        control_messages.send(link, control_messages.KernelConfined(), notifiers)
        for notifier in notifiers:
            # Code with this descriptor could answer its own calls.
            os.close(notifier)
        return KernelSpec(configuration, signing_key, listeners, home, variables_directory)

    _run(link, confine, run_kernel)


def _run(
    link: socket.socket,
    confine: Callable[[], KernelSpec],
    run_kernel: Callable[[KernelSpec], None],
) -> NoReturn:
    status = 1
    gc.disable()
    try:
        try:
            spec = confine()
        except Exception as error:
            # The only broad `except` of this process: it cannot report a failed start otherwise.
            control_messages.send(link, control_messages.describe_failure(error))
        else:
            link.close()
            run_kernel(spec)
            status = 0
    finally:
        os._exit(status)


def _receive(link: socket.socket) -> tuple[control_messages.Message, list[int]]:
    received = control_messages.receive(link)
    if received is None:
        raise BrokenPipeError("the first process has ended")
    return received


def _join(link: socket.socket) -> tuple[control_messages.ConfineKernel, list[int]]:
    """Join the cgroups and namespaces of the init; return its request and the listeners."""
    request, descriptors = _receive(link)
    assert isinstance(request, control_messages.ConfineKernel)
    cgroup_count, channel_count = request.cgroup_file_count, request.kernel.channel_count
    cgroup_files, descriptors = descriptors[:cgroup_count], descriptors[cgroup_count:]
    # Join the cgroups first, before memory is allocated for the kernel.
    for cgroup_file in cgroup_files:
        os.write(cgroup_file, b"0")
        os.close(cgroup_file)
    listeners, namespaces = descriptors[:channel_count], descriptors[channel_count:]
    for namespace in namespaces:
        syscalls.setns(namespace, 0)
        os.close(namespace)
    if namespaces:
        confinement.enter_cgroup_namespace()
    return request, listeners


def _confine(
    link: socket.socket,
    configuration: control_messages.Configuration,
    kernel: control_messages.KernelParameters,
    *,
    data_bytes: int,
) -> None:
    """Confine this process, which becomes the kernel."""
    confinement.prefer_as_oom_victim()
    _detach()
    has_namespaces = configuration.walls == confinement.NAMESPACES
    if has_namespaces:
        confinement.enter_user_namespace(kernel.uid)
    pidfd = os.pidfd_open(os.getpid())
    control_messages.send(link, control_messages.KernelEntered(os.getpid()), [pidfd])
    os.close(pidfd)
    _receive(link)
    _limit_and_lower_priority(configuration, kernel, data_bytes=data_bytes)
    if has_namespaces:
        landlock.restrict_kernel(configuration.readable_paths)
        confinement.confine()
    control_messages.send(link, control_messages.KernelConfined())


def _detach() -> None:
    """Leave the fork server's process session, and its standard streams."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard_fd in range(3):
        os.dup2(null, standard_fd)


def _limit_and_lower_priority(
    configuration: control_messages.Configuration,
    kernel: control_messages.KernelParameters,
    *,
    data_bytes: int,
) -> None:
    """Set resource limits and a low priority."""
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signal_number, signal.SIG_DFL)
    os.nice(_NICENESS)
    syscalls.lower_disk_priority()
    confinement.set_limits(kernel.rlimits, initial_data_bytes=data_bytes)
    if kernel.affinity and configuration.walls != confinement.NOTHING:
        os.sched_setaffinity(0, kernel.affinity)
