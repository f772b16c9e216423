"""The bot's end of a kernel's three channels, bounded against what the other end may send."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable
from typing import Literal

import zmq
import zmq.asyncio

from interpreter_bot import settings
from interpreter_bot.kernels import messages

Name = Literal["shell", "iopub", "stdin"]

_LARGEST_MESSAGE_BYTES = 16 * settings.MIB
# Messages the bot holds for a kernel whose output nobody has read yet: with the size above
# this bounds the bot's memory, and what does not fit waits as the kernel's own.
_WAITING_MESSAGES = 8
_WELCOME_SECONDS = 2.0


class Connection:
    """Shell, iopub and stdin of one kernel."""

    def __init__(self, info: dict[str, object], context: zmq.asyncio.Context) -> None:
        """Connect.

        Args:
            info: connection information as jupyter_client words it; `ipc` or `tcp`.
            context: makes the sockets.
        """
        key = info["key"]
        self._signer = messages.Signer(key if isinstance(key, bytes) else str(key).encode())
        identity = os.urandom(16)
        self.received_bytes = 0
        """All that came so far, for whoever paces the reading."""
        self._sockets: dict[Name, zmq.asyncio.Socket] = {}
        self._open: dict[Name, Callable[[], zmq.asyncio.Socket]] = {}
        kinds: tuple[tuple[Name, int], ...] = (
            ("shell", zmq.DEALER),
            ("iopub", zmq.SUB),
            ("stdin", zmq.DEALER),
        )
        for name, kind in kinds:
            address = _address(info, name)
            self._open[name] = functools.partial(_connected, context, kind, address, identity)
            self._sockets[name] = self._open[name]()

    async def renew_output(self) -> None:
        """Listen anew: a message over the size limit ends its connection, and nobody says so."""
        self._sockets["iopub"].close()
        self._sockets["iopub"] = self._open["iopub"]()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WELCOME_SECONDS):
                await self.await_welcome()

    async def await_welcome(self) -> None:
        """Wait until the kernel has seen our subscription; before that it speaks to nobody."""
        while True:
            try:
                message = await self.receive("iopub")
            except messages.MalformedMessage:
                continue
            if message.msg_type in ("iopub_welcome", "status"):
                return

    async def send(
        self, name: Name, msg_type: str, content: dict[str, object], *, parent_id: str = ""
    ) -> str:
        """Send a message; returns its id."""
        msg_id, frames = self._signer.pack(msg_type, content, parent_id=parent_id)
        await self._sockets[name].send_multipart(frames)
        return msg_id

    async def receive(self, name: Name, *, about: str = "") -> messages.Message:
        """Wait for the next message.

        Raises:
            ForeignMessage: it is not about the request named by `about`.
            MalformedMessage: what came is none; the next may be.
        """
        frames = await self._sockets[name].recv_multipart()
        self.received_bytes += sum(map(len, frames))
        return self._signer.unpack(frames, about=about)

    def close(self) -> None:
        """Close the sockets; what was not read is dropped."""
        for endpoint in self._sockets.values():
            endpoint.close()


def _connected(
    context: zmq.asyncio.Context, kind: int, address: str, identity: bytes
) -> zmq.asyncio.Socket:
    endpoint = context.socket(kind)
    endpoint.linger = 0
    endpoint.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE_BYTES)
    endpoint.rcvhwm = _WAITING_MESSAGES
    if kind == zmq.SUB:
        endpoint.subscribe(b"")
    else:
        # Input requests come to the identity that sent the code.
        endpoint.identity = identity
    endpoint.connect(address)
    return endpoint


def _address(info: dict[str, object], name: Name) -> str:
    transport, host, port = info["transport"], info["ip"], info[f"{name}_port"]
    if transport != "ipc":
        return f"{transport}://{host}:{port}"
    return f"ipc://{host}-{port}"
