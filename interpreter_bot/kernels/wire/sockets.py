"""Socket of one channel, read only while a task waits for a message.

Unread messages stay in the kernel's queue and count as its memory. asyncio's streams are not used:
they would need a switch of tasks to read a message that has already arrived.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interpreter_bot import errors, settings
from interpreter_bot.kernels.wire import jupyter_messages, zmtp

Connect = Callable[[], Awaitable[socket.socket]]
"""Opens a non-blocking connection; OSError if that fails."""

_Result = TypeVar("_Result")
_CHUNK_BYTES = 64 * 1024
# After this many bytes without a wait, other tasks run first.
_PAUSE_EVERY_BYTES = settings.MIB
# Only a hostile kernel sends thousands of commands.
_PAUSE_EVERY_COMMANDS = 100
_PAUSE_SECONDS = 0.005


class LostSocket(errors.KernelError):
    """The connection to the Python process broke."""


class Socket:
    """Client's end of a channel. One task at a time receives; `connect` replaces the connection."""

    def __init__(self, kind: str, connect: Connect) -> None:
        self._kind = kind
        self._connect = connect
        self._decoder = zmtp.Decoder(kind)
        self._socket: socket.socket | None = None
        self._send_lock = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._bytes_since_wait = 0
        self._command_count = 0
        self.received_bytes = 0
        """Bytes received so far, over all connections."""

    async def connect(self, identity: bytes = b"") -> None:
        """Connect and send the greeting, without waiting for the other side's.

        A ROUTER addresses this client by `identity`. It may refuse a used identity until it has
        noticed that the earlier connection is closed.

        Raises:
            LostSocket: the kernel does not listen.
        """
        self.close()
        self._decoder = zmtp.Decoder(self._kind)
        try:
            self._socket = await self._connect()
        except OSError as error:
            raise LostSocket from error
        await self._send(zmtp.build_opening(self._kind, identity))

    async def handshake(self) -> None:
        """Wait for the other side's greeting; the caller sets a deadline.

        Raises:
            LostSocket: the other side closed the connection, or is incompatible.
        """
        while not self._translate_errors(self._decoder.greet):
            await self._read()

    async def subscribe(self, topic: bytes) -> None:
        """Subscribe to messages that begin with `topic`; call it after the handshake.

        Raises:
            LostSocket: the other side closed the connection.
        """
        await self._send(zmtp.build_subscription(topic))

    async def send(self, parts: Sequence[bytes]) -> None:
        """Send a message; waits while the other side does not read.

        Raises:
            LostSocket: the other side closed the connection.
        """
        await self._send(zmtp.build_message(parts))

    async def receive(self) -> list[zmtp.Part]:
        """Wait for the next message.

        Raises:
            OversizedMessage: it was skipped; the next can be read.
            LostSocket: the connection is closed, until `connect` is called.
        """
        while True:
            event = self._translate_errors(self._decoder.next)
            if isinstance(event, list):
                return event
            if event is None:
                await self._read()
            else:
                await self._answer_command(event)

    def drop_unfinished(self) -> None:
        """Drop the received part of an unfinished message."""
        self._decoder.drop_unfinished()

    def close(self) -> None:
        """Close the socket; waiting tasks get LostSocket."""
        endpoint, self._socket = self._socket, None
        if endpoint is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(endpoint.fileno())
        loop.remove_writer(endpoint.fileno())
        endpoint.close()
        for waiter in self._waiters:
            _wake(waiter)

    async def _answer_command(self, command: zmtp.ZmtpCommand) -> None:
        if command.answer:
            await self._send(command.answer)
        self._command_count += 1
        if self._command_count % _PAUSE_EVERY_COMMANDS == 0:
            await asyncio.sleep(_PAUSE_SECONDS)

    def _translate_errors(self, decode: Callable[[], _Result]) -> _Result:
        try:
            return decode()
        except zmtp.MessageTooLargeError as error:
            raise jupyter_messages.OversizedMessage from error
        except zmtp.BrokenProtocolError as error:
            self.close()
            raise LostSocket from error

    async def _read(self) -> None:
        """Read available bytes, or wait until some arrive."""
        if self._bytes_since_wait > _PAUSE_EVERY_BYTES:
            self._bytes_since_wait = 0
            await asyncio.sleep(0)
        while self._socket is not None:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._wait(self._socket, loop.add_reader, loop.remove_reader)
                continue
            except OSError as error:
                self.close()
                raise LostSocket from error
            if not data:
                self.close()
                break
            self.received_bytes += len(data)
            self._bytes_since_wait += len(data)
            self._decoder.feed(data)
            return
        raise LostSocket

    async def _send(self, data: bytes) -> None:
        async with self._send_lock:
            endpoint, sent_bytes = self._socket, 0
            try:
                while endpoint is not None and endpoint is self._socket:
                    try:
                        sent_bytes += endpoint.send(memoryview(data)[sent_bytes:])
                    except BlockingIOError:
                        loop = asyncio.get_running_loop()
                        await self._wait(endpoint, loop.add_writer, loop.remove_writer)
                    if sent_bytes == len(data):
                        return
            except OSError as error:
                self.close()
                raise LostSocket from error
            finally:
                if 0 < sent_bytes < len(data) and endpoint is self._socket:
                    # The sender was cancelled half-way, so the peer would take the next message for
                    # the rest of this one.
                    self.close()
        raise LostSocket

    async def _wait(
        self,
        endpoint: socket.socket,
        watch: Callable[..., None],
        unwatch: Callable[[int], object],
    ) -> None:
        """Wait until a socket is ready, or closed.

        The caller reads: bytes that a cancelled task has read would be lost.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        watch(endpoint.fileno(), _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            self._bytes_since_wait = 0
            if endpoint is self._socket:
                unwatch(endpoint.fileno())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
