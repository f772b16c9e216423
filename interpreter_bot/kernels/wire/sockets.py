"""One channel of a kernel: a socket that is read from only while somebody waits for a message.

What nobody waits for stays with the kernel, as its own memory. There is no buffer of asyncio's in
between: a message that is there already is read without a switch of tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from interpreter_bot import errors, settings
from interpreter_bot.kernels.wire import jupyter_messages, zmtp

Address = str | tuple[str, int]
"""A path, or a host and its port."""

_Read = TypeVar("_Read")
_CHUNK_BYTES = 64 * 1024
# Read without once having waited: then others come first.
_BREATH_BYTES = settings.MIB
# Commands are few bytes each, and sent by the thousand only by who wants to keep us busy.
_BREATH_COMMANDS = 100
_BREATH_SECONDS = 0.005


class LostSocket(errors.KernelError):
    """The connection to the Python process broke."""


class Socket:
    """A client's end. One task at a time receives; connecting again replaces what was."""

    def __init__(self, kind: str, address: Address) -> None:
        """Connect nothing yet.

        Args:
            kind: `DEALER` or `SUB`.
            address: where the kernel listens.
        """
        self._kind = kind
        self._address = address
        self._decoder = zmtp.Decoder(kind)
        self._socket: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._unwaited_bytes = 0
        self._command_count = 0
        self.received_bytes = 0
        """All that came so far, over all connections."""

    async def connect(self, identity: bytes = b"") -> None:
        """Connect and introduce ourselves, without waiting for the other side to do so.

        Args:
            identity: by which a ROUTER finds us. It may refuse one that it had before, until
                it has seen that whoever had it went away.

        Raises:
            LostChannel: nobody listens there.
        """
        self.close()
        self._decoder = zmtp.Decoder(self._kind)
        try:
            self._socket = await _connected(self._address)
        except OSError as error:
            raise LostSocket from error
        await self._send(zmtp.opening(self._kind, identity))

    async def shake_hands(self) -> None:
        """Wait until the other side has introduced itself; whoever calls holds a deadline.

        Raises:
            LostChannel: it went away, or is none that we can talk to.
        """
        while not self._checked(self._decoder.greet):
            await self._read()

    async def subscribe(self, topic: bytes) -> None:
        """Ask for what begins with `topic`, after hands were shaken: libzmq refuses it before.

        Raises:
            LostChannel: the other side went away.
        """
        await self._send(zmtp.subscription(topic))

    async def send(self, parts: Sequence[bytes]) -> None:
        """Send a message; waits as long as the other side does not read.

        Raises:
            LostChannel: it went away.
        """
        await self._send(zmtp.message(parts))

    async def receive(self) -> list[zmtp.Part]:
        """Wait for the next message.

        Raises:
            OversizedMessage: it is left out; the next may be read.
            LostChannel: there will be none, unless we connect again.
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
        """Let go of what there is of a message that is not whole."""
        self._decoder.drop_unfinished()

    def close(self) -> None:
        """Close the socket; whoever waits is told that the channel is lost."""
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
        """Read what is there, or wait until something is."""
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
                    # Whoever sent gave up half-way: what would follow could not be told from it.
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


async def _connected(address: Address) -> socket.socket:
    """Connect to a socket.

    Raises:
        OSError: nobody listens there, or nobody accepts.
    """
    if isinstance(address, str):
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _closed_on_failure(endpoint):
            # At once or not at all: too many who wait already are no reason to wait.
            endpoint.connect(address)
        return endpoint
    loop = asyncio.get_running_loop()
    failures: list[OSError] = []
    for family, kind, _, _, exact in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        try:
            endpoint = socket.socket(family, kind)
            with _closed_on_failure(endpoint):
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(endpoint, exact)
        except OSError as error:
            failures.append(error)
        else:
            return endpoint
    raise failures[-1]


@contextlib.contextmanager
def _closed_on_failure(endpoint: socket.socket) -> Iterator[None]:
    endpoint.setblocking(False)
    try:
        yield
    except BaseException:
        endpoint.close()
        raise
