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
from typing import NoReturn

from . import confinement, control_messages, init_processes, syscalls

# Not in `select`, but the same on every architecture here.
_POLLRDHUP = 0x2000


class InitServer:
    """Forks init processes until the bot closes the channel."""

    def __init__(
        self,
        configuration: control_messages.Configuration,
        *,
        channel: socket.socket,
        requests: socket.socket,
        kernel_requests: socket.socket,
        forkserver: int,
    ) -> None:
        """Serve nothing yet.

        Args:
            configuration: what the bot sent the fork server.
            channel: the fork server's socket to the bot; here it is only watched.
            requests: socket on which the fork server passes on requests for inits.
            kernel_requests: socket for inits' requests for kernels, passed to each init.
            forkserver: pid of the fork server.
        """
        self._configuration = configuration
        self._channel = channel
        self._requests = requests
        self._kernel_requests = kernel_requests
        self._forkserver = forkserver
        self._pid_namespace = -1
        if configuration.walls == confinement.NAMESPACES:
            self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def serve(self) -> None:
        """Fork requested inits; return when the bot closes the channel."""
        # Ignored children are reaped by Linux.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._channel, _POLLRDHUP)
        is_forkserver_ended = False
        while True:
            for descriptor, events in poll.poll():
                if descriptor == self._channel.fileno():
                    # The bot wants no more kernels. A hanging fork server would not reap its
                    # kernels, so it is killed.
                    self._end_forkserver()
                    if events & select.POLLHUP:
                        return
                    is_forkserver_ended = True
                    poll.modify(self._channel, 0)
                elif (received := control_messages.receive(self._requests)) is not None:
                    self._fork_init(*received)
                else:
                    poll.unregister(self._requests)
                    if not (is_forkserver_ended or self._has_bot_stopped_requests()):
                        # The fork server ended: let the bot see that, though this process goes on.
                        self._channel.shutdown(socket.SHUT_WR)

    def _has_bot_stopped_requests(self) -> bool:
        """Return whether the bot ended its requests, which the fork server may notice first.

        If this side ended, too, the channel would look as if the bot had closed it.
        """
        poll = select.poll()
        poll.register(self._channel, _POLLRDHUP)
        return bool(poll.poll(0))

    def _end_forkserver(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._forkserver, signal.SIGKILL)

    def _fork_init(self, request: control_messages.Message, descriptors: list[int]) -> None:
        assert isinstance(request, control_messages.ForkInit)
        (link,) = descriptors
        try:
            if self._pid_namespace >= 0:
                # This process stays in its pid namespace; each child is process 1 of a new one.
                syscalls.setns(self._pid_namespace, syscalls.CLONE_NEWPID)
                syscalls.unshare(syscalls.CLONE_NEWPID)
            if os.fork() == 0:
                self._run_as_init(socket.socket(fileno=link), request.kernel)
        except OSError as error:
            with socket.socket(fileno=link) as bot, contextlib.suppress(OSError):
                control_messages.send(bot, control_messages.describe_failure(error))
        else:
            os.close(link)

    def _run_as_init(
        self, link: socket.socket, kernel: control_messages.KernelParameters
    ) -> NoReturn:
        gc.disable()
        self._channel.close()
        self._requests.close()
        if self._pid_namespace >= 0:
            os.close(self._pid_namespace)
        init_processes.run(link, self._configuration, kernel, self._kernel_requests)
