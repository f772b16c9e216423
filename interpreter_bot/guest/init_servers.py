"""The init server: a small process that forks the init process of each kernel.

It is as it was before the fork server imported anything, so what it forks has little to copy. It is
the first process of the namespace that the fork server and all kernels live in: they end with it,
and kernels whose fork server ended live on as its children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from typing import Any, NoReturn

from . import confinement, control_channels, init_processes, syscalls

# Not in `select`, but the same on every architecture here.
_POLLRDHUP = 0x2000


class InitServer:
    """Forks init processes until the bot lets go of it."""

    def __init__(
        self,
        start: dict[str, Any],
        *,
        channel: socket.socket,
        requests: socket.socket,
        kernel_requests: socket.socket,
        forkserver: int,
    ) -> None:
        """Serve nothing yet.

        Args:
            start: what the bot told the fork server at its start.
            channel: the fork server's to the bot; only watched.
            requests: where the fork server passes on what the bot wants forked.
            kernel_requests: where an init asks the fork server for its kernel.
            forkserver: pid of the fork server.
        """
        self._start = start
        self._channel = channel
        self._requests = requests
        self._kernel_requests = kernel_requests
        self._forkserver = forkserver
        self._pid_namespace = -1
        if start["walls"] == confinement.NAMESPACES:
            self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def serve(self) -> None:
        """Fork what is asked for; returns when nothing of it is wanted any more."""
        # Nobody asks how a child ended, so none waits to be asked.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._channel, _POLLRDHUP)
        is_given_up = False
        while True:
            for descriptor, events in poll.poll():
                if descriptor == self._channel.fileno():
                    # Whatever the bot still wants, it is no more kernels. A fork server that does
                    # not react would not wait for those that end, which then could not.
                    self._end_forkserver()
                    if events & select.POLLHUP:
                        return
                    is_given_up = True
                    poll.modify(self._channel, 0)
                elif (received := control_channels.receive(self._requests)) is not None:
                    self._fork(*received)
                else:
                    poll.unregister(self._requests)
                    if not (is_given_up or self._wants_no_more()):
                        # For the bot, the same as if the fork server alone had held the channel.
                        self._channel.shutdown(socket.SHUT_WR)

    def _wants_no_more(self) -> bool:
        """Return whether the bot asks for no more kernels, which the fork server may notice first.

        Shut on this side as well, the channel would look as if the bot were gone.
        """
        poll = select.poll()
        poll.register(self._channel, _POLLRDHUP)
        return bool(poll.poll(0))

    def _end_forkserver(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._forkserver, signal.SIGKILL)

    def _fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        (link,) = descriptors
        try:
            if self._pid_namespace >= 0:
                # This process stays in its pid namespace; each child is the first of a new one.
                syscalls.setns(self._pid_namespace, syscalls.CLONE_NEWPID)
                syscalls.unshare(syscalls.CLONE_NEWPID)
            if os.fork() == 0:
                self._be_init(socket.socket(fileno=link), message)
        except OSError as error:
            with socket.socket(fileno=link) as bot, contextlib.suppress(OSError):
                control_channels.send(bot, control_channels.failure(error), [])
        else:
            os.close(link)

    def _be_init(self, link: socket.socket, message: dict[str, Any]) -> NoReturn:
        gc.disable()
        self._channel.close()
        self._requests.close()
        if self._pid_namespace >= 0:
            os.close(self._pid_namespace)
        init_processes.run(link, self._start, message, self._kernel_requests)
