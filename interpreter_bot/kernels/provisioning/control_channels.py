"""Control channels for the event loop: messages with descriptors over Unix sockets.

The other ends are the fork server and the init process of each kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import select
import socket
from collections.abc import Sequence

from interpreter_bot import errors
from interpreter_bot.guest import control_messages

_MAX_DESCRIPTORS = 8
# Not in `select`, but the same on every architecture here.
_POLLRDHUP = 0x2000


@dataclasses.dataclass(frozen=True, slots=True)
class Packet:
    """One control message with open file descriptors, which the receiver closes."""

    message: control_messages.Message
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class ControlChannel:
    """One end of a pair of packet sockets."""

    def __init__(self, endpoint: socket.socket) -> None:
        endpoint.setblocking(False)
        self._endpoint = endpoint
        # Of the task that waits in `receive`; callers receive one at a time.
        self._readable: asyncio.Future[None] | None = None

    @classmethod
    def pair(cls) -> tuple[ControlChannel, socket.socket]:
        """Create a channel and the blocking socket at its other end.

        Raises:
            KernelStartError: no descriptors are left.
        """
        try:
            bot_end, guest_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise errors.KernelStartError from error
        return cls(bot_end), guest_end

    async def send(
        self, message: control_messages.Message, descriptors: Sequence[int] = ()
    ) -> None:
        """Send one message; its descriptors stay open here.

        Raises:
            KernelStartError: the other end is closed.
        """
        try:
            # Requests are small and answered one by one: the socket's buffer never fills.
            control_messages.send(self._endpoint, message, descriptors)
        except OSError as error:
            raise errors.KernelStartError from error

    async def receive(self) -> Packet | None:
        """Wait for one packet; None when either end is closed, or the other sent no message."""
        loop = asyncio.get_running_loop()
        while self._endpoint.fileno() >= 0:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return self._receive()
            self._readable = loop.create_future()
            loop.add_reader(self._endpoint.fileno(), _resolve, self._readable)
            try:
                await self._readable
            finally:
                self._stop_waiting()
        return None

    def _receive(self) -> Packet | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._endpoint,
                control_messages.MAX_PACKET_BYTES,
                _MAX_DESCRIPTORS,
                socket.MSG_CMSG_CLOEXEC,
            )
        except ConnectionError:
            return None
        try:
            return Packet(control_messages.decode(data), tuple(descriptors))
        except ValueError:
            for descriptor in descriptors:
                os.close(descriptor)
            return None

    @property
    def has_ended(self) -> bool:
        """Whether the other end is closed, or will send nothing more."""
        poll = select.poll()
        poll.register(self._endpoint, _POLLRDHUP)
        return bool(poll.poll(0))

    def end_sending(self) -> None:
        """Signal the other end that nothing more comes; the channel stays open."""
        with contextlib.suppress(OSError):  # The other end is closed.
            self._endpoint.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end, notify the other one, and end `receive`."""
        # Before the descriptor is closed: the event loop would take the next socket that gets its
        # number for this one, and never report that one as readable.
        self._stop_waiting()
        self._endpoint.close()

    def _stop_waiting(self) -> None:
        if self._readable is not None:
            asyncio.get_running_loop().remove_reader(self._endpoint.fileno())
            _resolve(self._readable)
            self._readable = None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
