"""TLS tunnels that the bot does not read: only the host name in the client hello is checked.

OpenSSL parses that name, in a handshake that is never finished.
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
# Limit of one read from a connection. With asyncio's 256 KiB, fifty downloads at once block the
# event loop for 30 ms, and pass on a third less.
_MAX_PASS_BYTES: Final = 48 * 1024
_MAX_HELLO_BYTES: Final = 16 * 1024
_MAX_CLOSING_SECONDS: Final = 2.0
MAX_REQUEST_SECONDS: Final = 600.0
"""Longest time of one connection or request."""


@dataclasses.dataclass(frozen=True, slots=True)
class StreamPair:
    """Reader and writer of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        """Bound a pass; asyncio documents no way. Transports of TLS ignore the attribute."""
        self.writer.transport.max_size = _MAX_PASS_BYTES  # type: ignore[attr-defined]

    @classmethod
    async def open(cls, endpoint: socket.socket, **options: Any) -> StreamPair:
        """Take over a connected socket; `options` are those of TLS."""
        try:
            return cls(*await asyncio.open_connection(sock=endpoint, limit=CHUNK_BYTES, **options))
        except BaseException:
            endpoint.close()
            raise

    @classmethod
    async def accept(cls, endpoint: socket.socket) -> StreamPair:
        """Take over an accepted socket, whose writer can start TLS as a server.

        Raises:
            OSError: the client has disconnected.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[StreamPair] = loop.create_future()
        protocol = asyncio.StreamReaderProtocol(
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
        """Send buffered data, and close; abort if the other side does not read it soon."""
        self.writer.close()
        try:
            async with asyncio.timeout(_MAX_CLOSING_SECONDS):
                await self.writer.wait_closed()
        except OSError:  # TimeoutError is one.
            self.writer.transport.abort()
        except asyncio.CancelledError:
            self.writer.transport.abort()
            raise


async def read_client_hello(client: StreamPair, host: str, first_bytes: bytes) -> bytes:
    """Read a client hello, the first message of TLS, check that it is for `host`, and return it.

    `first_bytes` are bytes that were received already.

    Raises:
        Refusal: it is for another host, of which a TLS alert tells the client, or it is not TLS.
        EOFError: the client has disconnected.
    """
    names: list[str | None] = []

    def record_name(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int:
        names.append(name)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = record_name
    incoming, alert = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, alert, server_side=True)
    hello = b""
    while not names:
        data, first_bytes = first_bytes or await client.reader.read(_MAX_HELLO_BYTES), b""
        if not data:
            raise EOFError
        hello += data
        incoming.write(data)
        try:
            handshake.do_handshake()
        except ssl.SSLWantReadError:
            if len(hello) < _MAX_HELLO_BYTES:
                continue
        except ssl.SSLError:
            pass  # The handshake always fails; only the name matters.
        if not names:
            raise policies.Refusal(network_words.not_tls(host))
    if not _matches_host(names[0], host):
        client.writer.write(alert.read())
        raise policies.Refusal(network_words.other_name(host))
    return hello


def _matches_host(name: str | None, host: str) -> bool:
    """Return whether the name in a client hello is the host's; an address has none."""
    if name is None:
        return host_names.parse_address(host) is not None
    try:
        return host_names.normalize(name) == host
    except host_names.NameRefusedError:
        return False


async def relay(
    client: StreamPair,
    server: StreamPair,
    *,
    traffic: traffic_limits.Traffic,
    contact: code_activity.Contact,
    idle_seconds: float,
) -> None:
    """Pass on data both ways until both sides have ended, or one breaks off.

    Raises:
        Refusal: a limit is exceeded, or the time is over.
        OSError: a side has disconnected.
    """
    loop = asyncio.get_running_loop()
    idle_timeout = asyncio.timeout(idle_seconds)

    def count_sent(byte_count: int) -> None:
        idle_timeout.reschedule(loop.time() + idle_seconds)
        traffic.count_sent(contact, byte_count)

    def count_received(byte_count: int) -> None:
        idle_timeout.reschedule(loop.time() + idle_seconds)
        traffic.count_received(contact, byte_count)

    copy_tasks = (
        asyncio.create_task(_copy(client, server, count_sent), name="egress up"),
        asyncio.create_task(_copy(server, client, count_received), name="egress down"),
    )
    try:
        async with asyncio.timeout(MAX_REQUEST_SECONDS), idle_timeout:
            await asyncio.gather(*copy_tasks)
    except TimeoutError as error:
        is_idle = idle_timeout.expired()
        sentence = (
            network_words.idle_too_long(idle_seconds) if is_idle else network_words.TOOK_TOO_LONG
        )
        raise policies.Refusal(sentence) from error
    finally:
        for task in copy_tasks:
            task.cancel()
        await asyncio.wait(copy_tasks)


async def _copy(source: StreamPair, target: StreamPair, count_bytes: Callable[[int], None]) -> None:
    while data := await source.reader.read(CHUNK_BYTES):
        count_bytes(len(data))
        target.writer.write(data)
        # A slow reader slows the sender down.
        await target.writer.drain()
    if target.writer.can_write_eof():
        target.writer.write_eof()
