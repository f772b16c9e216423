"""The bot's end of a kernel's three channels, bounded against what the other end may send."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Literal

from interpreter_bot.kernels.wire import jupyter_messages, sockets

Name = Literal["shell", "iopub", "stdin"]

_RENEWAL_SECONDS = 2.0


class Client:
    """Shell, iopub and stdin of one kernel."""

    def __init__(self, info: dict[str, object]) -> None:
        """Connect nothing yet.

        Args:
            info: connection information as jupyter_client words it; `ipc` or `tcp`.
        """
        key = info["key"]
        self._signer = jupyter_messages.Signer(key if isinstance(key, bytes) else str(key).encode())
        self._channels: dict[Name, sockets.Socket] = {
            "shell": sockets.Socket("DEALER", _address(info, "shell")),
            "iopub": sockets.Socket("SUB", _address(info, "iopub")),
            "stdin": sockets.Socket("DEALER", _address(info, "stdin")),
        }
        self.reading_seconds = 0.0
        """What reading messages took so far of the event loop, which is everybody's."""

    @property
    def received_bytes(self) -> int:
        """All that came so far, for whoever paces the reading."""
        return sum(channel.received_bytes for channel in self._channels.values())

    async def open(self) -> None:
        """Connect, and wait until the kernel hears and is heard; whoever calls holds a deadline.

        Again, too: what was under way is lost then.

        Raises:
            LostChannel: the kernel went away, or does not speak as kernels do.
        """
        # Input requests come to the identity that sent the code.
        identity = os.urandom(16).hex().encode()
        for channel in self._channels.values():
            await channel.connect(identity)
        for channel in self._channels.values():
            await channel.shake_hands()
        await self._channels["iopub"].subscribe(b"")
        await self._await_welcome()

    async def renew(self) -> None:
        """Connect all channels anew, between executions.

        Raises:
            LostChannel: the kernel does not answer any more.
        """
        try:
            async with asyncio.timeout(_RENEWAL_SECONDS):
                await self.open()
        except TimeoutError as error:
            self.close()
            raise sockets.LostSocket from error

    async def renew_output(self) -> None:
        """Listen to the output anew; what of it was under way is lost.

        Raises:
            LostChannel: the kernel does not answer there any more.
        """
        channel = self._channels["iopub"]
        try:
            async with asyncio.timeout(_RENEWAL_SECONDS):
                await channel.connect()
                await channel.shake_hands()
                await channel.subscribe(b"")
                # The kernel welcomes nobody to what it believes we listen to still.
                await channel.subscribe(os.urandom(8).hex().encode())
                await self._await_welcome()
        except TimeoutError as error:
            channel.close()
            raise sockets.LostSocket from error

    async def _await_welcome(self) -> None:
        """Wait until the kernel has seen our subscription; before that it speaks to nobody."""
        while True:
            # Whoever floods us here must not keep the deadline from being seen.
            await asyncio.sleep(0)
            with contextlib.suppress(jupyter_messages.MalformedMessage):
                message = await self.receive("iopub")
                if message.msg_type in ("iopub_welcome", "status"):
                    return

    async def send(
        self, name: Name, msg_type: str, content: dict[str, object], *, parent_id: str = ""
    ) -> str:
        """Send a message; returns its id. Waits as long as the kernel does not read.

        Raises:
            LostChannel: it cannot be sent, unless it is renewed.
        """
        msg_id, frames = self._signer.pack(msg_type, content, parent_id=parent_id)
        await self._channels[name].send(frames)
        return msg_id

    async def receive(self, name: Name, *, about: str = "") -> jupyter_messages.Message:
        """Wait for the next message.

        Raises:
            ForeignMessage: it is not about the request named by `about`.
            OversizedMessage: it is too large and left out; the next may not be.
            MalformedMessage: what came is none; the next may be.
            LostChannel: there will be none, unless it is renewed.
        """
        frames = await self._channels[name].receive()
        began = time.thread_time()
        try:
            return self._signer.unpack(frames, about=about)
        finally:
            self.reading_seconds += time.thread_time() - began

    def rest(self) -> None:
        """Hold nothing of what came and is not whole, as long as nobody listens."""
        for channel in self._channels.values():
            channel.drop_unfinished()

    def close(self) -> None:
        """Close the sockets; what was not read is dropped."""
        for channel in self._channels.values():
            channel.close()


def _address(info: dict[str, object], name: Name) -> sockets.Address:
    host, port = str(info["ip"]), str(info[f"{name}_port"])
    return f"{host}-{port}" if info["transport"] == "ipc" else (host, int(port))
