"""Socket of one channel, read only while a task waits for a message.

What is not waited for stays with the kernel, as its own memory. There is no buffer of asyncio's in
between: a message that has arrived is read without a switch of tasks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interpreter_bot import errors, settings
from interpreter_bot.kernels.wire import jupyter_messages, zmtp

Connect = Callable[[], Awaitable[socket.socket]]
"""Opens a connection, which does not block; OSError if that fails."""

_Read = TypeVar("_Read")
_CHUNK_BYTES = 64 * 1024
# Read without once having waited: then other tasks come first.
_BREATH_BYTES = settings.MIB
# Commands are few bytes each, and sent by the thousand only by a hostile kernel.
_BREATH_COMMANDS = 100
_BREATH_SECONDS = 0.005


class LostSocket(errors.KernelError):
    """The connection to the Python process broke."""


class Socket:
    """Client's end of a channel. One task at a time receives; connecting again replaces the
    connection.
    """

    def __init__(self, kind: str, connect: Connect) -> None:
        """Connect nothing yet.

        Args:
            kind: `DEALER` or `SUB`.
            connect: opens a connection to the kernel.
        """
        self._kind = kind
        self._connect = connect
        self._decoder = zmtp.Decoder(kind)
        self._socket: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._unwaited_bytes = 0
        self._command_count = 0
        self.received_bytes = 0
        """Bytes received so far, over all connections."""

    async def connect(self, identity: bytes = b"") -> None:
        """Connect and send the greeting, without waiting for the other side's.

        Args:
            identity: by which a ROUTER addresses this client. It may refuse one that it had before,
                until it has noticed that the former connection is closed.

        Raises:
            LostSocket: the kernel does not listen.
        """
        self.close()
        self._decoder = zmtp.Decoder(self._kind)
        try:
            self._socket = await self._connect()
        except OSError as error:
            raise LostSocket from error
        await self._send(zmtp.opening(self._kind, identity))

    async def handshake(self) -> None:
        """Wait for the other side's greeting; the caller holds a deadline.

        Raises:
            LostSocket: it went away, or is incompatible.
        """
        while not self._checked(self._decoder.greet):
            await self._read()

    async def subscribe(self, topic: bytes) -> None:
        """Subscribe to what begins with `topic`, after the handshake: libzmq refuses it before.

        Raises:
            LostSocket: the other side went away.
        """
        await self._send(zmtp.subscription(topic))

    async def send(self, parts: Sequence[bytes]) -> None:
        """Send a message; waits as long as the other side does not read.

        Raises:
            LostSocket: it went away.
        """
        await self._send(zmtp.message(parts))

    async def receive(self) -> list[zmtp.Part]:
        """Wait for the next message.

        Raises:
            OversizedMessage: it is skipped; the next may be read.
            LostSocket: there will be none, unless `connect` is called again.
        """
        while True:
            event = self._checked(self._decoder.next)
            if isinstance(event, list):
                return event
            if event is None:
                await self._read()
            else:
                await self._obey(event)

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

    async def _obey(self, command: zmtp.ZmtpCommand) -> None:
        if command.answer:
            await self._send(command.answer)
        self._command_count += 1
        if self._command_count % _BREATH_COMMANDS == 0:
            await asyncio.sleep(_BREATH_SECONDS)

    def _checked(self, read: Callable[[], _Read]) -> _Read:
        try:
            return read()
        except zmtp.MessageTooLargeError as error:
            raise jupyter_messages.OversizedMessage from error
        except zmtp.BrokenProtocolError as error:
            self.close()
            raise LostSocket from error

    async def _read(self) -> None:
        """Read what has arrived, or wait until something does."""
        if self._unwaited_bytes > _BREATH_BYTES:
            self._unwaited_bytes = 0
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
            self._unwaited_bytes += len(data)
            self._decoder.feed(data)
            return
        raise LostSocket

    async def _send(self, data: bytes) -> None:
        async with self._sending:
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
                    # The sender was cancelled half-way: what follows could not be told from its
                    # message.
                    self.close()
        raise LostSocket

    async def _wait(
        self,
        endpoint: socket.socket,
        watch: Callable[..., None],
        unwatch: Callable[[int], object],
    ) -> None:
        """Wait until a socket is ready, or closed.

        Nothing is read here: what a cancelled task had read would be missing in the stream.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        watch(endpoint.fileno(), _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            self._unwaited_bytes = 0
            if endpoint is self._socket:
                unwatch(endpoint.fileno())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
