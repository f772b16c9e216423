"""The init server: a small process that forks the init process of each kernel.

It splits off before the fork server imports anything, so it is small, and forking it is cheap. It
is the first process of the namespace that the fork server and all kernels live in, so they end with
it, and it adopts the kernels of a fork server that ended.
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
        forkserver_pid: int,
    ) -> None:
        """Prepare the server; `serve` starts it.

        Args:
            configuration: what the bot sent the fork server.
            channel: the fork server's socket to the bot; this server only watches for its end.
            requests: socket on which the fork server passes on requests for inits.
            kernel_requests: socket for inits' requests for kernels, which each init inherits.
            forkserver_pid: pid of the fork server.
        """
        self._configuration = configuration
        self._channel = channel
        self._requests = requests
        self._kernel_requests = kernel_requests
        self._forkserver_pid = forkserver_pid
        self._pid_namespace = -1
        if configuration.walls == confinement.NAMESPACES:
            self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def serve(self) -> None:
        """Fork requested inits; return when the bot closes the channel."""
        # Linux then reaps the children.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._channel, _POLLRDHUP)
        has_ended_forkserver = False
        while True:
            for descriptor, events in poll.poll():
                if descriptor == self._channel.fileno():
                    # The bot wants no more kernels. The fork server is killed, because it may
                    # hang, and then would not reap its kernels.
                    self._end_forkserver()
                    if events & select.POLLHUP:
                        return
                    has_ended_forkserver = True
                    poll.modify(self._channel, 0)
                elif (received := control_messages.receive(self._requests)) is not None:
                    self._fork_init(*received)
                else:
                    poll.unregister(self._requests)
                    if not (has_ended_forkserver or self._has_bot_stopped_requests()):
                        # The fork server ended. The bot must notice, though this process goes on.
                        self._channel.shutdown(socket.SHUT_WR)

    def _has_bot_stopped_requests(self) -> bool:
        """Return whether the bot shut down its side, which the fork server may notice first.

        Then this side must stay open: with both sides shut down, the channel looks closed.
        """
        poll = select.poll()
        poll.register(self._channel, _POLLRDHUP)
        return bool(poll.poll(0))

    def _end_forkserver(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._forkserver_pid, signal.SIGKILL)

    def _fork_init(self, request: control_messages.Message, descriptors: list[int]) -> None:
        assert isinstance(request, control_messages.ForkInit)
        (link_fd,) = descriptors
        try:
            if self._pid_namespace >= 0:
                # This process stays in its pid namespace; each child is process 1 of a new one.
                syscalls.setns(self._pid_namespace, syscalls.CLONE_NEWPID)
                syscalls.unshare(syscalls.CLONE_NEWPID)
            if os.fork() == 0:
                self._run_as_init(socket.socket(fileno=link_fd), request.kernel)
        except OSError as error:
            with socket.socket(fileno=link_fd) as bot, contextlib.suppress(OSError):
                control_messages.send(bot, control_messages.describe_failure(error))
        else:
            os.close(link_fd)

    def _run_as_init(
        self, link: socket.socket, kernel: control_messages.KernelParameters
    ) -> NoReturn:
        gc.disable()
        self._channel.close()
        self._requests.close()
        if self._pid_namespace >= 0:
            os.close(self._pid_namespace)
        init = init_processes.NamespaceInit(
            link, self._configuration, kernel, self._kernel_requests
        )
        init_processes.run_init(init, link)
