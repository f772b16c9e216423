"""The first process of a session without namespaces: forks the kernel, and ends all processes.

It is forked by the fork server, and the kernel is its child. The kernel imports everything, then
waits, unconfined, until the bot names the session's directories, because Landlock rules cannot be
added later. Orphans become children of the keeper, so no process can leave the session. Before the
keeper exits, it ends them all; if it is killed, the fork server adopts and ends them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable
from typing import NoReturn

from . import (
    confinement,
    container_walls,
    control_messages,
    init_processes,
    supervised_connections,
    syscalls,
)


class Keeper(init_processes.Init):
    """Init of a session without a pid namespace of its own."""

    def __init__(
        self,
        channel: socket.socket,
        configuration: control_messages.Configuration,
        kernel: control_messages.KernelParameters,
        run_kernel: Callable[
            [socket.socket, control_messages.KernelParameters, str, list[int]], NoReturn
        ],
    ) -> None:
        super().__init__(channel, configuration, kernel)
        self._run_kernel = run_kernel
        self._doors: dict[int, supervised_connections.Door] = {}
        self._supervisor: supervised_connections.Supervisor | None = None
        self._poll = select.poll()

    def _confine(self) -> None:
        confinement.prefer_as_oom_victim()
        syscalls.set_dumpable(False)
        syscalls.adopt_orphans()
        os.setsid()

    def _create_doors(self, ports: Iterable[int]) -> list[int]:
        far_ends = []
        for port in ports:
            near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._doors[port] = supervised_connections.Door(near_end)
            far_ends.append(far_end.detach())
        return far_ends

    def _fork_kernel(self, signing_key: str, cgroup_files: list[int], listeners: list[int]) -> None:
        self._kernel_pid = os.fork()
        if self._kernel_pid == 0:
            # The kernel joins control groups: 0 stands for the process that writes.
            for cgroup_file in cgroup_files:
                os.write(cgroup_file, b"0")
            for descriptor in cgroup_files:
                os.close(descriptor)
            # The kernel's signals must not wake up the keeper.
            signal.set_wakeup_fd(-1)
            # The kernel must not inherit these: code could impersonate the keeper.
            doors = (door.channel for door in self._doors.values())
            for endpoint in (self._channel, self._link, *self._wakeup_sockets, *doors):
                endpoint.close()
            self._run_kernel(self._kernel_end, self._kernel, signing_key, listeners)
        self._kernel_end.close()
        for descriptor in (*cgroup_files, *listeners):
            os.close(descriptor)
        self._kernel_fd = os.pidfd_open(self._kernel_pid)
        self._wait_for_kernel(control_messages.KernelEntered)

    def _serve(self, wakeup: socket.socket) -> int:
        doors = {door.channel.fileno(): door for door in self._doors.values()}
        for endpoint in (self._channel.fileno(), wakeup.fileno(), *doors):
            self._poll.register(endpoint, select.POLLIN)
        try:
            while True:
                for descriptor, events in self._poll.poll():
                    if descriptor == wakeup.fileno():
                        wakeup.recv(512)
                    # Before requests, so that the bot gets the exit status, not a broken pipe.
                    if (status := container_walls.reap().get(self._kernel_pid)) is not None:
                        self._send(control_messages.KernelEnded(status))
                        return 0
                    if descriptor == self._channel.fileno():
                        if not self._handle_request():
                            return 0
                    elif descriptor in doors:
                        if not doors[descriptor].update():
                            self._poll.unregister(descriptor)
                    elif self._supervisor is not None and descriptor == self._supervisor.listener:
                        if events & select.POLLIN:
                            self._supervisor.answer()
                        else:
                            # All processes that could connect have ended.
                            self._poll.unregister(descriptor)
        finally:
            self._end_all()

    def _handle_request(self) -> bool:
        """Handle one request of the bot; return whether the session goes on."""
        received = control_messages.receive(self._channel)
        if received is None:
            return False
        request, descriptors = received
        if isinstance(request, control_messages.OpenSocket):
            self._send_sockets(control_messages.SocketOpened(), 1)
        elif isinstance(request, control_messages.Attach):
            control_messages.send(self._link, request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _, descriptors = self._wait_for_kernel(control_messages.KernelConfined)
            for notifier in descriptors:
                self._supervise(notifier)
            self._send(control_messages.Attached())
        return not isinstance(request, control_messages.EndSession)

    def _supervise(self, notifier: int) -> None:
        """Start to answer the session's `connect` calls."""
        if self._kernel.has_own_id:
            # Without CAP_SYS_PTRACE, root cannot read another user's /proc, but that user can.
            syscalls.access_files_as(self._kernel.uid)
        self._supervisor = supervised_connections.Supervisor(notifier, self._doors)
        self._poll.register(notifier, select.POLLIN)

    def _end_all(self) -> None:
        """Kill all processes of the session, and wait until they have ended."""
        has_ended = container_walls.end_descendants()
        if self._kernel.has_own_id:
            self._clean_up(has_ended=has_ended)

    def _clean_up(self, *, has_ended: bool) -> None:
        """Remove the shared memory of the session's user id, and kill processes that remain.

        If none remain, no process is killed, because a session in another container may have the
        same id.
        """
        pid = os.fork()
        if pid == 0:
            try:
                container_walls.switch_user(self._kernel.uid)
                if not has_ended:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(-1, signal.SIGKILL)
                container_walls.remove_shared_memory()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
