"""The init process of a kernel's pid namespace: builds its walls, requests the kernel, reaps.

It runs no user code, and when it ends, everything in the namespace ends. It gets requests by a
socket to the bot, and ends when the other end closes, however the bot died.

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
from typing import Any, NoReturn

from . import confinement, control_channels, rootfs, syscalls

Spec = dict[str, Any]

_NAMESPACES = ("mnt", "net", "ipc", "uts")


def run(
    channel: socket.socket, start: Spec, request: Spec, kernel_requests: socket.socket
) -> NoReturn:
    """Run this process from start to exit.

    Args:
        channel: this end of the socket to the bot.
        start: configuration that the bot sent the fork server.
        request: start parameters; see `kernels/provisioning/start_parameters`.
        kernel_requests: socket for requests to the fork server.
    """
    run_init(_NamespaceInit(channel, start | request, kernel_requests), channel, request)


def run_init(init: Init, channel: socket.socket, request: Spec) -> NoReturn:
    """Run an init until it ends, and exit."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        status = init.run_init(request)
    except Exception as error:
        # The only broad `except` of this process: it has no other way to report a failed start.
        with contextlib.suppress(OSError):
            control_channels.send(channel, control_channels.failure(error), [])
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

    def __init__(self, channel: socket.socket, spec: Spec) -> None:
        self._channel = channel
        self._spec = spec
        self._kernel = 0
        self._kernel_fd = -1
        # The other end is the kernel's while it starts, then the fork server's, which reports its
        # end.
        self._link, self._kernel_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The sockets by which SIGCHLD wakes up the poll.
        self._wakeup_sockets: tuple[socket.socket, ...] = ()

    @abc.abstractmethod
    def _enter(self) -> None:
        """Confine this process."""

    @abc.abstractmethod
    def _create_doors(self, ports: Iterable[int]) -> list[int]:
        """Create the bot's listening sockets at ports of the session's loopback."""

    @abc.abstractmethod
    def _fork_kernel(self, kernel_spec: Spec, entry_files: list[int], listeners: list[int]) -> None:
        """Start the kernel with its spec; sets `_kernel_fd`."""

    @abc.abstractmethod
    def _serve(self, wakeup: socket.socket) -> int:
        """Serve until the kernel or the bot ends; `wakeup` is readable when a child ended."""

    def run_init(self, request: Spec) -> int:
        """Confine this process, start the kernel, and serve until the kernel or the bot ends."""
        spec = self._spec
        self._enter()
        # The bot binds them to addresses that code cannot look up.
        listeners = _new_sockets(spec["channels"])
        pidfd = os.pidfd_open(os.getpid())
        doors = self._create_doors(spec["doors"])
        self._send({"event": "separated"}, pidfd, *listeners, *doors)
        _close([pidfd, *doors])
        received = control_channels.receive(self._channel)
        if received is None:
            return 0
        entry_files = received[1]
        for entry_file in entry_files:
            os.write(entry_file, b"0")
        wakeup, waker = self._wakeup_sockets = socket.socketpair()
        waker.setblocking(False)
        # Before there is a child, so that no end is missed.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        # The key comes directly from the bot: in the fork server's memory, later kernels would have
        # it.
        kernel_spec = request | {"key": received[0]["key"], "entrances": len(entry_files)}
        self._fork_kernel(kernel_spec, entry_files, listeners)
        self._send_sockets("started", spec["channels"], os.dup(self._kernel_fd))
        return self._serve(wakeup)

    def _wait_for_kernel(self, event: str) -> tuple[dict[str, Any], list[int]]:
        """Wait for an event of the kernel's process."""
        received = control_channels.receive(self._link)
        if received is None:
            raise control_channels.StartError("the fork server ended")
        message, _ = received
        if message["event"] == "ended":
            raise control_channels.StartError(f"it ended with status {message['status']}")
        if message["event"] != event:
            raise control_channels.StartError(message["reason"])
        return received

    def _send_sockets(self, event: str, count: int, *descriptors: int) -> None:
        """Send the bot descriptors and unconnected sockets, and close them here.

        The bot connects with sockets of this network: both ends of a connection belong to the
        network of the connecting socket, and code could query it for the interfaces of the host.
        """
        outgoing = [*descriptors, *_new_sockets(count)]
        self._send({"event": event}, *outgoing)
        for descriptor in outgoing:
            os.close(descriptor)

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        control_channels.send(self._channel, message, list(descriptors))


class _NamespaceInit(Init):
    def __init__(self, channel: socket.socket, spec: Spec, kernel_requests: socket.socket) -> None:
        super().__init__(channel, spec)
        self._has_namespaces = spec["walls"] == confinement.NAMESPACES
        self._kernel_requests = kernel_requests

    def _enter(self) -> None:
        if self._has_namespaces:
            confinement.enter_namespaces(
                temporary_bytes=self._spec["temporary_bytes"],
                uid=self._spec["uid"],
                readable=self._spec["readable"],
            )
        confinement.prefer_as_oom_victim()
        if self._has_namespaces:
            syscalls.set_dumpable(False)

    def _create_doors(self, ports: Iterable[int]) -> list[int]:
        """Bind sockets on this network's loopback without listening.

        Until the bot listens, code's connections are refused, and code cannot use the ports.
        """
        doors = []
        for port in ports:
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            door.bind(("127.0.0.1", port))
            doors.append(door.detach())
        return doors

    def _fork_kernel(self, kernel_spec: Spec, entry_files: list[int], listeners: list[int]) -> None:
        with self._kernel_requests:
            self._request_kernel(self._kernel_requests)
        self._start_kernel(kernel_spec, entry_files, listeners)

    def _request_kernel(self, kernel_requests: socket.socket) -> None:
        names = ["pid"] if self._has_namespaces else []
        namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        with self._kernel_end:
            outgoing = [self._kernel_end.fileno(), *namespaces]
            control_channels.send(kernel_requests, {"op": "fork"}, outgoing)
        _close(namespaces)

    def _start_kernel(
        self, kernel_spec: Spec, entry_files: list[int], listeners: list[int]
    ) -> None:
        """Send the kernel's process its spec, and wait until it is confined."""
        names = _NAMESPACES if self._has_namespaces else ()
        namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        outgoing = [*entry_files, *listeners, *namespaces]
        control_channels.send(self._link, kernel_spec, outgoing)
        _close(outgoing)
        # The kernel enters its user namespace while /proc/sys is writable; then this process makes
        # it read-only, and the kernel goes on.
        entered, (self._kernel_fd,) = self._wait_for_kernel("entered")
        self._kernel = entered["pid"]
        if self._has_namespaces:
            confinement.mask_proc(self._spec["proc_files"])
        control_channels.send(self._link, {"op": "go"}, [])
        self._wait_for_kernel("confined")

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
                    if (received := control_channels.receive(self._link)) is not None:
                        self._send(received[0])
                        return 0
                    # The fork server ended, so the kernel's status stays unknown.
                    poll.unregister(self._link)
                    poll.register(self._kernel_fd, select.POLLIN)
                elif descriptor == self._kernel_fd:
                    self._send({"event": "ended"})
                    return 0
                elif not self._handle_request():
                    return 0

    def _reap(self) -> None:
        """Reap orphans of the kernel."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _handle_request(self) -> bool:
        """Handle one request of the bot; return whether the bot is still there."""
        received = control_channels.receive(self._channel)
        if received is None:
            if not self._has_namespaces:
                # Without a pid namespace, the end of this process does not kill the kernel.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._kernel, signal.SIGKILL)
            return False
        request, descriptors = received
        if request["op"] == "connect":
            self._send_sockets("socket", 1)
        elif request["op"] == "attach":
            for tree, target in zip(descriptors, (rootfs.DATA, rootfs.VARIABLES), strict=True):
                syscalls.move_mount(tree, target)
                os.close(tree)
            # Privileges were kept for mounting only.
            confinement.confine()
            self._send({"event": "attached"})
        return True
