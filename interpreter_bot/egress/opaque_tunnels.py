"""TLS tunnels that the bot does not read: only the host name in the first message is checked.

OpenSSL reads that name, in a handshake that is never finished.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import code_activity
from interpreter_bot.egress import host_names, policies, traffic_limits
from interpreter_bot.wording import network_words

CHUNK_BYTES: Final = 128 * 1024
# Of one connection in one pass of the event loop: with asyncio's 256 KiB, fifty that download at
# once hold it for 30 ms.
_MAX_PASS_BYTES: Final = 48 * 1024
_MAX_HELLO_BYTES: Final = 16 * 1024
_CLOSING_SECONDS: Final = 2.0
REQUEST_SECONDS: Final = 600.0
"""The longest time for one connection or request."""

_Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class _ShortReads(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Streams that read a little in each pass of the event loop, into one buffer."""

    def __init__(self, reader: asyncio.StreamReader, connected: _Connected | None = None) -> None:
        super().__init__(reader, connected)
        self._buffer = memoryview(bytearray(_MAX_PASS_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        self.data_received(bytes(self._buffer[:nbytes]))


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of one connection of streams."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, endpoint: socket.socket, **options: Any) -> Ends:
        """Take over a connected socket; `options` are those of TLS."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        protocol = _ShortReads(reader)
        try:
            transport, _ = await loop.create_connection(lambda: protocol, sock=endpoint, **options)
        except BaseException:
            endpoint.close()
            raise
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @classmethod
    async def accepted(cls, endpoint: socket.socket) -> Ends:
        """Take over an accepted socket, whose writer can start TLS as a server.

        Raises:
            OSError: it is gone.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Ends] = loop.create_future()
        protocol = _ShortReads(
            asyncio.StreamReader(limit=CHUNK_BYTES),
            lambda reader, writer: ready.set_result(cls(reader, writer)),
        )
        try:
            await loop.connect_accepted_socket(lambda: protocol, endpoint)
            return await ready
        except BaseException:
            endpoint.close()
            raise

    async def close(self) -> None:
        """Send what is buffered, and close; a side that reads nothing is not waited for."""
        self.writer.close()
        # The other side is gone.
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.writer.wait_closed()
        except OSError:  # TimeoutError is one.
            self.writer.transport.abort()
        except asyncio.CancelledError:
            self.writer.transport.abort()
            raise


async def read_hello(client: Ends, host: str, first_bytes: bytes) -> bytes:
    """Read the first TLS message of a client, check that it is for `host`, and return it.

    `first_bytes` are what the client has sent already.

    Raises:
        Refusal: it is for another host, or no TLS; the client gets an alert.
        EOFError: the client is gone.
    """
    names: list[str | None] = []

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int:
        names.append(name)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = note
    incoming, alert = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, alert, server_side=True)
    raw = b""
    while not names:
        data, first_bytes = first_bytes or await client.reader.read(_MAX_HELLO_BYTES), b""
        if not data:
            raise EOFError
        raw += data
        incoming.write(data)
        try:
            handshake.do_handshake()
        except ssl.SSLWantReadError:
            if len(raw) < _MAX_HELLO_BYTES:
                continue
        except ssl.SSLError:
            pass  # It ends so in any case.
        if not names:
            raise policies.Refusal(network_words.not_tls(host))
    if not _is_for(names[0], host):
        client.writer.write(alert.read())
        raise policies.Refusal(network_words.other_name(host))
    return raw


def _is_for(name: str | None, host: str) -> bool:
    """Whether the name in a first message is the host's; for an address there is none."""
    if name is None:
        return host_names.literal(host) is not None
    try:
        return host_names.normalized(name) == host
    except host_names.NameRefusedError:
        return False


async def relay(
    client: Ends,
    server: Ends,
    *,
    traffic: traffic_limits.Traffic,
    contact: code_activity.Contact,
    idle_seconds: float,
) -> None:
    """Pass on what both sides send until both have ended or one breaks off.

    Raises:
        Refusal: it was too much, or took too long.
        OSError: a side is gone.
    """
    loop = asyncio.get_running_loop()
    idle = asyncio.timeout(idle_seconds)

    def sent(byte_count: int) -> None:
        idle.reschedule(loop.time() + idle_seconds)
        traffic.count_sent(contact, byte_count)

    def received(byte_count: int) -> None:
        idle.reschedule(loop.time() + idle_seconds)
        traffic.count_received(contact, byte_count)

    both = (
        asyncio.create_task(_copy(client, server, sent), name="egress up"),
        asyncio.create_task(_copy(server, client, received), name="egress down"),
    )
    try:
        async with asyncio.timeout(REQUEST_SECONDS), idle:
            await asyncio.gather(*both)
    except TimeoutError as error:
        raise policies.Refusal(network_words.idle_too_long(idle_seconds)) from error
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)


async def _copy(source: Ends, target: Ends, count: Callable[[int], None]) -> None:
    while data := await source.reader.read(CHUNK_BYTES):
        count(len(data))
        target.writer.write(data)
        # A slow reader slows its sender down.
        await target.writer.drain()
    if target.writer.can_write_eof():
        target.writer.write_eof()
