"""The first process of a session without namespaces: forks the kernel, ends all it leaves behind.

It is a copy of the fork server. The kernel is its child and waits, with everything imported and
nothing confined, until the bot names the session's directories: Landlock cannot be told later.
Processes that lose their parent become this process's children, so none of them can leave the
session. Its end is theirs; should it be killed, the fork server inherits and ends them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any

from . import (
    confinement,
    container_walls,
    control_channels,
    init_processes,
    supervised_connections,
    syscalls,
)


class Keeper(init_processes.Init):
    """Init of a session that shares the pid namespace of all."""

    def __init__(
        self,
        channel: socket.socket,
        spec: init_processes.Spec,
        run_kernel: Callable[[socket.socket, dict[str, Any]], None],
    ) -> None:
        """Start nothing yet.

        Args:
            channel: this end of the socket to the bot.
            spec: of the fork server and the kernel.
            run_kernel: is the kernel, given its end of the link and what it was told; ends the
                process.
        """
        super().__init__(channel, spec)
        self._run_kernel = run_kernel
        self._doors: dict[int, supervised_connections.Door] = {}
        self._supervisor: supervised_connections.Supervisor | None = None
        self._poll = select.poll()

    def _enter(self) -> None:
        confinement.prefer_as_oom_victim()
        syscalls.set_dumpable(False)
        syscalls.adopt_orphans()
        os.setsid()

    def _make_doors(self, ports: Iterable[int]) -> list[int]:
        far_ends = []
        for port in ports:
            own, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._doors[port] = supervised_connections.Door(own)
            far_ends.append(far_end.detach())
        return far_ends

    def _begin_kernel(
        self, kernel_spec: dict[str, Any], entrances: list[int], listeners: list[int]
    ) -> None:
        self._kernel = os.fork()
        if self._kernel == 0:
            for entrance in entrances:
                os.write(entrance, b"0")
            for descriptor in entrances:
                os.close(descriptor)
            signal.set_wakeup_fd(-1)
            # With these, code could speak for its keeper.
            doors = (door.channel for door in self._doors.values())
            for endpoint in (self._channel, self._link, *self._wakers, *doors):
                endpoint.close()
            self._run_kernel(self._far_end, kernel_spec | {"listeners": listeners})
        self._far_end.close()
        for descriptor in (*entrances, *listeners):
            os.close(descriptor)
        self._kernel_fd = os.pidfd_open(self._kernel)
        self._hear("entered")

    def _serve(self, wakeup: socket.socket) -> int:
        doors = {door.channel.fileno(): door for door in self._doors.values()}
        for endpoint in (self._channel.fileno(), wakeup.fileno(), *doors):
            self._poll.register(endpoint, select.POLLIN)
        try:
            while True:
                for descriptor, events in self._poll.poll():
                    if descriptor == wakeup.fileno():
                        wakeup.recv(512)
                    # Before any request, which an ended kernel would fail without saying why.
                    if (status := container_walls.reap().get(self._kernel)) is not None:
                        self._say({"event": "ended", "status": status})
                        return 0
                    if descriptor == self._channel.fileno():
                        if not self._obey():
                            return 0
                    elif descriptor in doors:
                        if not doors[descriptor].update():
                            self._poll.unregister(descriptor)
                    elif self._supervisor is not None and descriptor == self._supervisor.listener:
                        if events & select.POLLIN:
                            self._supervisor.answer()
                        else:
                            # No process is left that could connect.
                            self._poll.unregister(descriptor)
        finally:
            self._end_all()

    def _obey(self) -> bool:
        """Handle one request of the bot; False when the session is to end, or the bot is gone."""
        received = control_channels.receive(self._channel)
        if received is None:
            return False
        request, descriptors = received
        if request["op"] == "connect":
            self._hand_out("socket", 1)
        elif request["op"] == "attach":
            control_channels.send(self._link, request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _, descriptors = self._hear("confined")
            for listener in descriptors:
                self._supervise(listener)
            self._say({"event": "attached"})
        return bool(request["op"] != "end")

    def _supervise(self, listener: int) -> None:
        """Answer from now on what the session wants to connect to."""
        if self._spec["has_own_id"]:
            # As its parent with its user id, where root may not look into every process.
            syscalls.access_files_as(self._spec["uid"])
        self._supervisor = supervised_connections.Supervisor(listener, self._doors)
        self._poll.register(listener, select.POLLIN)

    def _end_all(self) -> None:
        """Kill every process of the session, and wait until none is left."""
        is_over = container_walls.end_descendants()
        if self._spec["has_own_id"]:
            self._clean_up(is_over=is_over)

    def _clean_up(self, *, is_over: bool) -> None:
        """Remove the shared memory of the session's user id, and kill what is left of it at once.

        Only if something is: in other containers, a session of another bot may have the same id.
        """
        pid = os.fork()
        if pid == 0:
            try:
                container_walls.become(self._spec["uid"])
                if not is_over:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(-1, signal.SIGKILL)
                container_walls.remove_shared_memory()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
