"""The init process of a kernel's pid namespace: makes its walls, has the kernel forked, reaps.

It runs no user code, and its end ends everything in the namespace. It takes requests from one
socket, whose other end the bot holds: when that closes, however the bot died, this process ends.

The kernel is a copy of the fork server, which forks it into this namespace: it is no child of this
process, but processes that it leaves behind become so.
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
        start: what the bot told the fork server at its start.
        request: to fork; see `kernels/provisioning/start_parameters`.
        kernel_requests: where the fork server is asked for the kernel.
    """
    live(_NamespaceInit(channel, start | request, kernel_requests), channel, request)


def live(init: Init, channel: socket.socket, request: Spec) -> NoReturn:
    """Run this process as such an init, and exit."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        status = init.live(request)
    except Exception as error:
        # The only broad `except` of this process: it has no other way to report a failed start.
        with contextlib.suppress(OSError):
            control_channels.send(channel, control_channels.failure(error), [])
    finally:
        os._exit(status)


def _sockets(count: int) -> list[int]:
    """Make sockets in this network namespace."""
    return [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach() for _ in range(count)]


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Init(abc.ABC):
    """First process of a session: has the kernel forked and serves the bot."""

    def __init__(self, channel: socket.socket, spec: Spec) -> None:
        self._channel = channel
        self._spec = spec
        self._kernel = 0
        self._kernel_fd = -1
        # To the kernel while it starts, then to the fork server, which says how the kernel ended.
        self._link, self._far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Readable when a child has ended, and what makes it so.
        self._wakers: tuple[socket.socket, ...] = ()

    @abc.abstractmethod
    def _enter(self) -> None:
        """Confine this process."""

    @abc.abstractmethod
    def _make_doors(self, ports: Iterable[int]) -> list[int]:
        """Return what the bot listens by at ports of the session's loopback."""

    @abc.abstractmethod
    def _begin_kernel(self, kernel_spec: Spec, entrances: list[int], listeners: list[int]) -> None:
        """Have the kernel forked, which is told what it is to be; sets `_kernel_fd`."""

    @abc.abstractmethod
    def _serve(self, wakeup: socket.socket) -> int:
        """Serve until the kernel or the bot is gone; `wakeup` is readable when a child ended."""

    def live(self, request: Spec) -> int:
        """Confine, have the kernel forked, serve until the kernel or the bot is gone."""
        spec = self._spec
        self._enter()
        # The bot gives these an address, which nobody in here can look up.
        listeners = _sockets(spec["channels"])
        pidfd = os.pidfd_open(os.getpid())
        doors = self._make_doors(spec["doors"])
        self._say({"event": "separated"}, pidfd, *listeners, *doors)
        _close([pidfd, *doors])
        received = control_channels.receive(self._channel)
        if received is None:
            return 0
        entrances = received[1]
        for entrance in entrances:
            os.write(entrance, b"0")
        wakeup, waker = self._wakers = socket.socketpair()
        waker.setblocking(False)
        # Before there is a child whose end could be missed.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        # The key comes from the bot, past the fork server: later kernels begin with its memory.
        kernel_spec = request | {"key": received[0]["key"], "entrances": len(entrances)}
        self._begin_kernel(kernel_spec, entrances, listeners)
        self._hand_out("started", spec["channels"], os.dup(self._kernel_fd))
        return self._serve(wakeup)

    def _hear(self, event: str) -> tuple[dict[str, Any], list[int]]:
        """Wait for the kernel's process to say what it did."""
        received = control_channels.receive(self._link)
        if received is None:
            raise control_channels.StartError("the fork server ended")
        message, _ = received
        if message["event"] == "ended":
            raise control_channels.StartError(f"it ended with status {message['status']}")
        if message["event"] != event:
            raise control_channels.StartError(message["reason"])
        return received

    def _hand_out(self, event: str, count: int, *descriptors: int) -> None:
        """Send the bot unconnected sockets, and close here what was sent.

        A connection is of the network that the connecting socket is of, on both sides: were that
        the bot's, code could ask the accepted socket about the host's interfaces.
        """
        sent = [*descriptors, *_sockets(count)]
        self._say({"event": event}, *sent)
        for descriptor in sent:
            os.close(descriptor)

    def _say(self, message: dict[str, Any], *descriptors: int) -> None:
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

    def _make_doors(self, ports: Iterable[int]) -> list[int]:
        """Make sockets that are bound on this network's loopback and do not listen.

        So code is refused there, and can put nothing in their place, until the bot lets them
        listen.
        """
        doors = []
        for port in ports:
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            door.bind(("127.0.0.1", port))
            doors.append(door.detach())
        return doors

    def _begin_kernel(self, kernel_spec: Spec, entrances: list[int], listeners: list[int]) -> None:
        with self._kernel_requests:
            self._ask_for_kernel(self._kernel_requests)
        self._start_kernel(kernel_spec, entrances, listeners)

    def _ask_for_kernel(self, kernel_requests: socket.socket) -> None:
        names = ["pid"] if self._has_namespaces else []
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        with self._far_end:
            sent = [self._far_end.fileno(), *spaces]
            control_channels.send(kernel_requests, {"op": "fork"}, sent)
        _close(spaces)

    def _start_kernel(self, kernel_spec: Spec, entrances: list[int], listeners: list[int]) -> None:
        """Tell the kernel's process what it is to be, and wait until it is confined."""
        names = _NAMESPACES if self._has_namespaces else ()
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        sent = [*entrances, *listeners, *spaces]
        control_channels.send(self._link, kernel_spec, sent)
        _close(sent)
        # The kernel enters its user namespace while /proc/sys is writable, this process makes that
        # read-only, and only then does the kernel go on.
        entered, (self._kernel_fd,) = self._hear("entered")
        self._kernel = entered["pid"]
        if self._has_namespaces:
            confinement.mask_proc(self._spec["proc_files"])
        control_channels.send(self._link, {"op": "go"}, [])
        self._hear("confined")

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
                        self._say(received[0])
                        return 0
                    # The fork server ended, and can tell no status any more.
                    poll.unregister(self._link)
                    poll.register(self._kernel_fd, select.POLLIN)
                elif descriptor == self._kernel_fd:
                    self._say({"event": "ended"})
                    return 0
                elif not self._obey():
                    return 0

    def _reap(self) -> None:
        """Reap what the kernel left behind."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _obey(self) -> bool:
        """Handle one request of the bot; False when the bot is gone."""
        received = control_channels.receive(self._channel)
        if received is None:
            if not self._has_namespaces:
                # Without a pid namespace, the end of this process does not kill the kernel.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._kernel, signal.SIGKILL)
            return False
        request, descriptors = received
        if request["op"] == "connect":
            self._hand_out("socket", 1)
        elif request["op"] == "attach":
            for tree, target in zip(descriptors, (rootfs.DATA, rootfs.VARIABLES), strict=True):
                syscalls.move_mount(tree, target)
                os.close(tree)
            # Privileges were kept for mounting only.
            confinement.confine()
            self._say({"event": "attached"})
        return True
