"""Control channels for the event loop: JSON packets with descriptors over Unix sockets.

The other ends are the fork server and the init process of each kernel. They run our code beside
hostile code, so sizes and shapes are checked like any foreign input.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import socket
from collections.abc import Sequence

from interpreter_bot import errors

_MAX_PACKET_BYTES = 64 * 1024
_MAX_DESCRIPTORS = 8
# Not in `select`, but the same on every architecture here.
_POLLRDHUP = 0x2000


@dataclasses.dataclass(frozen=True, slots=True)
class Packet:
    """One control message.

    Attributes:
        content: a JSON object.
        descriptors: open file descriptors, which the receiver closes.
    """

    content: dict[str, object]
    descriptors: tuple[int, ...] = ()

    def text(self, name: str) -> str:
        """Return a text field of `content`, empty if there is none."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""

    def close(self) -> None:
        """Close the descriptors of an unused packet."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def number(self, name: str) -> int:
        """Return a whole-number field of `content`, 0 if there is none."""
        value = self.content.get(name)
        return value if isinstance(value, int) else 0


class ControlChannel:
    """One end of a pair of packet sockets."""

    def __init__(self, endpoint: socket.socket) -> None:
        endpoint.setblocking(False)
        self._endpoint = endpoint

    @classmethod
    def pair(cls) -> tuple[ControlChannel, socket.socket]:
        """Create a channel and the blocking socket at its other end."""
        bot_end, guest_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(bot_end), guest_end

    async def send(self, content: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send one packet; its descriptors stay open here.

        Raises:
            KernelStartError: the other end is closed.
        """
        packet = json.dumps(content).encode()
        try:
            # Requests are small and answered one by one: the socket's buffer never fills.
            socket.send_fds(self._endpoint, [packet], list(descriptors))
        except OSError as error:
            raise errors.KernelStartError from error

    async def receive(self) -> Packet | None:
        """Wait for one packet; None when the other end is closed."""
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return self._receive()
            ready = loop.create_future()
            descriptor = self._endpoint.fileno()
            loop.add_reader(descriptor, _resolve, ready)
            try:
                await ready
            finally:
                loop.remove_reader(descriptor)

    def _receive(self) -> Packet | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._endpoint, _MAX_PACKET_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return None
        try:
            content = json.loads(data) if data else None
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        return Packet(content, tuple(descriptors))

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
        """Close this end; the other end is notified."""
        self._endpoint.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
