"""The init process of a kernel's pid namespace: builds its walls, requests the kernel, reaps.

It runs no user code, and when it ends, everything in the namespace ends. It gets requests from the
bot over a socket, and ends when the bot's end is closed, even if the bot was killed.

The fork server forks the kernel into this namespace, so the kernel is not a child of this process;
orphans in the namespace become its children.
"""

from __future__ import annotations

import abc
import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterable
from typing import NoReturn, TypeVar

from . import confinement, control_messages, rootfs, syscalls

_NAMESPACES = ("mnt", "net", "ipc", "uts")

T = TypeVar("T", bound=control_messages.Message)


def run_init(init: Init, channel: socket.socket) -> NoReturn:
    """Run an init until it ends, and exit."""
    status = 1
    try:
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(signal_number, signal.SIG_IGN)
        status = init.run()
    except Exception as error:
        # The only broad `except` of this process: it has no other way to report a failed start.
        with contextlib.suppress(OSError):
            control_messages.send(channel, control_messages.describe_failure(error))
    finally:
        os._exit(status)


def _new_sockets(count: int) -> list[int]:
    """Create sockets in this network namespace."""
    return [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach() for _ in range(count)]


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Init(abc.ABC):
    """First process of a session: starts the kernel, and serves the bot."""

    def __init__(
        self,
        channel: socket.socket,
        configuration: control_messages.Configuration,
        kernel: control_messages.KernelParameters,
    ) -> None:
        self._channel = channel
        self._configuration = configuration
        self._kernel = kernel
        self._kernel_pid = 0
        self._kernel_fd = -1
        # The kernel has the other end while it starts; then the fork server, which reports the
        # kernel's end.
        self._link, self._kernel_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # SIGCHLD wakes up the poll through these sockets.
        self._wakeup_sockets: tuple[socket.socket, ...] = ()

    @abc.abstractmethod
    def _confine(self) -> None:
        """Confine this process."""

    @abc.abstractmethod
    def _create_doors(self, ports: Iterable[int]) -> list[int]:
        """Create the bot's listening sockets at ports of the session's loopback."""

    @abc.abstractmethod
    def _fork_kernel(self, signing_key: str, cgroup_files: list[int], listeners: list[int]) -> None:
        """Start the kernel; sets `_kernel_pid` and `_kernel_fd`."""

    @abc.abstractmethod
    def _serve(self, wakeup: socket.socket) -> int:
        """Serve until the kernel or the bot ends; `wakeup` is readable after a child's end."""

    def run(self) -> int:
        """Confine this process, start the kernel, and serve until the kernel or the bot ends."""
        self._confine()
        # The bot binds them to addresses that code cannot look up.
        listeners = _new_sockets(self._kernel.channel_count)
        pidfd = os.pidfd_open(os.getpid())
        doors = self._create_doors(self._kernel.doors)
        self._send(control_messages.InitReady(), pidfd, *listeners, *doors)
        _close([pidfd, *doors])
        received = control_messages.receive(self._channel)
        if received is None:
            return 0
        request, cgroup_files = received
        assert isinstance(request, control_messages.StartKernel)
        for cgroup_file in cgroup_files:
            os.write(cgroup_file, b"0")
        wakeup, waker = self._wakeup_sockets = socket.socketpair()
        waker.setblocking(False)
        # Before the first child is forked, so that no child's end is missed.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._fork_kernel(request.key, cgroup_files, listeners)
        start_message = control_messages.KernelStarted()
        self._send_sockets(start_message, self._kernel.channel_count, os.dup(self._kernel_fd))
        return self._serve(wakeup)

    def _wait_for_kernel(self, kind: type[T]) -> tuple[T, list[int]]:
        """Wait for a message of the kernel's process."""
        received = control_messages.receive(self._link)
        if received is None:
            raise control_messages.StartError("the fork server ended")
        message, descriptors = received
        if isinstance(message, control_messages.KernelEnded):
            raise control_messages.StartError(f"it ended with status {message.status}")
        if isinstance(message, control_messages.StartFailed):
            raise control_messages.StartError(message.reason)
        assert isinstance(message, kind)
        return message, descriptors

    def _send_sockets(
        self, message: control_messages.Message, count: int, *descriptors: int
    ) -> None:
        """Send the bot descriptors and unconnected sockets, and close them here.

        The bot connects with sockets of the kernel's network, because both ends of a connection
        belong to the network of the connecting socket. With a socket of the host's network, code
        could query the host's interfaces.
        """
        outgoing = [*descriptors, *_new_sockets(count)]
        self._send(message, *outgoing)
        _close(outgoing)

    def _send(self, message: control_messages.Message, *descriptors: int) -> None:
        control_messages.send(self._channel, message, descriptors)


class NamespaceInit(Init):
    """Init with a pid namespace of its own, or without any walls."""

    def __init__(
        self,
        channel: socket.socket,
        configuration: control_messages.Configuration,
        kernel: control_messages.KernelParameters,
        kernel_requests: socket.socket,
    ) -> None:
        super().__init__(channel, configuration, kernel)
        self._has_namespaces = configuration.walls == confinement.NAMESPACES
        self._kernel_requests = kernel_requests

    def _confine(self) -> None:
        if self._has_namespaces:
            confinement.enter_namespaces(
                temporary_bytes=self._kernel.temporary_bytes,
                uid=self._kernel.uid,
                readable_paths=self._configuration.readable_paths,
            )
        confinement.prefer_as_oom_victim()
        if self._has_namespaces:
            syscalls.set_dumpable(False)

    def _create_doors(self, ports: Iterable[int]) -> list[int]:
        """Bind sockets on this network's loopback without listening.

        Until the bot listens, connections of code are refused, and code cannot bind the ports.
        """
        doors = []
        for port in ports:
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            door.bind(("127.0.0.1", port))
            doors.append(door.detach())
        return doors

    def _fork_kernel(self, signing_key: str, cgroup_files: list[int], listeners: list[int]) -> None:
        with self._kernel_requests:
            self._request_kernel(self._kernel_requests)
        self._start_kernel(signing_key, cgroup_files, listeners)

    def _request_kernel(self, kernel_requests: socket.socket) -> None:
        names = ["pid"] if self._has_namespaces else []
        namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        with self._kernel_end:
            outgoing = [self._kernel_end.fileno(), *namespaces]
            control_messages.send(kernel_requests, control_messages.ForkKernel(), outgoing)
        _close(namespaces)

    def _start_kernel(
        self, signing_key: str, cgroup_files: list[int], listeners: list[int]
    ) -> None:
        """Send the kernel's process its parameters, and wait until it is confined."""
        names = _NAMESPACES if self._has_namespaces else ()
        namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        outgoing = [*cgroup_files, *listeners, *namespaces]
        request = control_messages.ConfineKernel(self._kernel, signing_key, len(cgroup_files))
        control_messages.send(self._link, request, outgoing)
        _close(outgoing)
        # The kernel enters its user namespace while /proc/sys is writable. Then this process makes
        # /proc read-only, and the kernel goes on.
        entered, (self._kernel_fd,) = self._wait_for_kernel(control_messages.KernelEntered)
        self._kernel_pid = entered.pid
        if self._has_namespaces:
            confinement.mask_proc(self._kernel.proc_files)
        control_messages.send(self._link, control_messages.ProcMasked())
        self._wait_for_kernel(control_messages.KernelConfined)

    def _serve(self, wakeup: socket.socket) -> int:
        poll = select.poll()
        for endpoint in (self._channel, wakeup, self._link):
            poll.register(endpoint, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wakeup.fileno():
                    wakeup.recv(512)
                    self._reap()
                elif descriptor == self._link.fileno():
                    if (received := control_messages.receive(self._link)) is not None:
                        self._send(received[0])
                        return 0
                    # The fork server ended, so the kernel's status stays unknown.
                    poll.unregister(self._link)
                    poll.register(self._kernel_fd, select.POLLIN)
                elif descriptor == self._kernel_fd:
                    self._send(control_messages.KernelEnded(None))
                    return 0
                elif not self._handle_request():
                    return 0

    def _reap(self) -> None:
        """Reap orphans of the kernel."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _handle_request(self) -> bool:
        """Handle one request of the bot; return False if it closed the channel."""
        received = control_messages.receive(self._channel)
        if received is None:
            if not self._has_namespaces:
                # Without a pid namespace, the end of this process does not kill the kernel.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._kernel_pid, signal.SIGKILL)
            return False
        request, descriptors = received
        if isinstance(request, control_messages.OpenSocket):
            self._send_sockets(control_messages.SocketOpened(), 1)
        elif isinstance(request, control_messages.Attach):
            for tree, target in zip(descriptors, (rootfs.DATA, rootfs.VARIABLES), strict=True):
                syscalls.move_mount(tree, target)
                os.close(tree)
            # Its privileges were needed only until these mounts.
            confinement.confine()
            self._send(control_messages.Attached())
        return True
