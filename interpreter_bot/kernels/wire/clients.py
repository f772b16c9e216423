"""Client of a kernel's three channels, bounded against what the kernel may send."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from interpreter_bot.kernels.wire import jupyter_messages, sockets, zmtp

ChannelName = Literal["shell", "iopub", "stdin"]

_RENEWAL_SECONDS = 2.0
# Longer messages take over a millisecond to check and parse, so a thread does it.
_MAX_INLINE_BYTES = 256 * 1024


class Client:
    """Shell, iopub and stdin channels of one kernel."""

    def __init__(self, key: bytes, connect: Callable[[str], Awaitable[socket.socket]]) -> None:
        self._signer = jupyter_messages.Signer(key)
        kinds: dict[ChannelName, str] = {"shell": "DEALER", "iopub": "SUB", "stdin": "DEALER"}
        self._channels = {
            name: sockets.Socket(kind, functools.partial(connect, name))
            for name, kind in kinds.items()
        }
        self.reading_seconds = 0.0
        """Processor time that reading messages has taken so far."""

    @property
    def received_bytes(self) -> int:
        """Bytes received so far on all channels."""
        return sum(channel.received_bytes for channel in self._channels.values())

    async def open(self) -> None:
        """Connect, and wait until the channels work both ways; the caller sets a deadline.

        If it is called again, unread messages are lost.

        Raises:
            LostSocket: the kernel ended, or does not speak the protocol.
        """
        # Input requests are addressed to the identity that sent the code.
        identity = os.urandom(16).hex().encode()
        for channel in self._channels.values():
            await channel.connect(identity)
        for channel in self._channels.values():
            await channel.handshake()
        await self._channels["iopub"].subscribe(b"")
        await self._wait_for_welcome()

    async def renew(self) -> None:
        """Reconnect all channels, between executions.

        Raises:
            LostSocket: the kernel does not answer any more.
        """
        try:
            async with asyncio.timeout(_RENEWAL_SECONDS):
                await self.open()
        except TimeoutError as error:
            self.close()
            raise sockets.LostSocket from error

    async def renew_output(self) -> None:
        """Reconnect the iopub channel; unread messages are lost.

        Raises:
            LostSocket: the kernel does not answer there any more.
        """
        channel = self._channels["iopub"]
        try:
            async with asyncio.timeout(_RENEWAL_SECONDS):
                await channel.connect()
                await channel.handshake()
                await channel.subscribe(b"")
                # The kernel sends its welcome only to a new subscription.
                await channel.subscribe(os.urandom(8).hex().encode())
                await self._wait_for_welcome()
        except TimeoutError as error:
            channel.close()
            raise sockets.LostSocket from error

    async def _wait_for_welcome(self) -> None:
        """Wait until the kernel knows the subscription; until then it sends nothing."""
        while True:
            # Let the deadline's timer run even if the kernel floods this channel.
            await asyncio.sleep(0)
            with contextlib.suppress(jupyter_messages.MalformedMessage):
                message = await self.receive("iopub")
                if message.msg_type in ("iopub_welcome", "status"):
                    return

    async def send(
        self,
        channel: ChannelName,
        msg_type: str,
        content: dict[str, object],
        *,
        parent_id: str = "",
    ) -> str:
        """Send a message, and return its id. Waits while the kernel does not read.

        Raises:
            LostSocket: the channel is broken, until it is renewed.
        """
        msg_id, frames = self._signer.pack(msg_type, content, parent_id=parent_id)
        await self._channels[channel].send(frames)
        return msg_id

    async def receive(
        self, channel: ChannelName, *, expected_parent: str = ""
    ) -> jupyter_messages.Message:
        """Wait for the next message.

        Raises:
            ForeignMessage: its parent is not the request `expected_parent`.
            OversizedMessage: it is too large and was skipped; the next can be read.
            MalformedMessage: it is invalid; the next can be read.
            LostSocket: the channel is broken, until it is renewed.
        """
        frames = await self._channels[channel].receive()
        if sum(map(len, frames)) > _MAX_INLINE_BYTES:
            return await asyncio.to_thread(self._unpack, frames, expected_parent)
        return self._unpack(frames, expected_parent)

    def _unpack(
        self, frames: Sequence[zmtp.Part], expected_parent: str
    ) -> jupyter_messages.Message:
        started_at = time.thread_time()
        try:
            return self._signer.unpack(frames, expected_parent=expected_parent)
        finally:
            self.reading_seconds += time.thread_time() - started_at

    def drop_unfinished(self) -> None:
        """Drop partly received messages; call it only while no execution reads."""
        for channel in self._channels.values():
            channel.drop_unfinished()

    def close(self) -> None:
        """Close the sockets; unread messages are dropped."""
        for channel in self._channels.values():
            channel.close()
