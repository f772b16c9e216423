"""HTTP transports: to one MCP server, and to authorization servers that MCP servers name.

The SDK limits events of a stream, but not JSON answers, so answers are limited here. An
authorization server must be at a public address and use TLS, unless the operator named it. The
connection is made to the address that was checked, no redirect is followed, and answers are short.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Final

import httpx2

from interpreter_bot import settings
from interpreter_bot.egress import address_rules

_log = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 2 * settings.MIB
"""The most that is read of one answer of a server."""

_MAX_ANSWERS_IN_STREAM: Final = 16
_UNCOMPRESSED_ENCODINGS: Final = frozenset({"", "identity"})
_COMPRESSED_ANSWER: Final = "the answer is compressed, though that was not asked for"
_MAX_ISSUER_ANSWER_BYTES: Final = 256 * 1024
_TIMEOUT_SECONDS: Final = 20.0
_PORTS: Final = {"https": 443, "http": 80}


class OversizedError(httpx2.TransportError):
    """A server sent more than is read."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to one server, and reads answers up to a limit."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Send requests only to the origins of `urls`: the server, and its authorization server."""
        self._origins = {origin(httpx2.URL(url)) for url in urls}
        # Requests contain secrets, so no proxy of the environment is used.
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            TransportError: it is for another origin, or the answer is too large.
        """
        if origin(request.url) not in self._origins:
            raise httpx2.UnsupportedProtocol("the server redirects", request=request)
        # A compressed answer may be far larger than it seems.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            raise OversizedError("the answer is not a stream", request=request)
        if response.headers.get("content-encoding", "").lower() not in _UNCOMPRESSED_ENCODINGS:
            await stream.aclose()
            raise OversizedError(_COMPRESSED_ANSWER)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        limit = MAX_ANSWER_BYTES * (_MAX_ANSWERS_IN_STREAM if is_stream else 1)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(stream, limit),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class PublicAddressTransport(httpx2.AsyncBaseTransport):
    """Sends requests to public addresses, each over a connection of its own."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Allow private addresses for the origins of `urls`, which the operator named."""
        self._trusted_origins = {origin(httpx2.URL(url)) for url in urls}
        # Connections are not reused: the same address may serve other hosts.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits)

    def is_safe(self, url: str) -> bool:
        """Return whether the bot may send secrets, or a person's browser, to a URL."""
        parsed = httpx2.URL(url)
        if parsed.userinfo or parsed.fragment:
            return False
        return parsed.scheme == "https" or origin(parsed) in self._trusted_origins

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            TransportError: the address is not allowed or not reached, or the answer is too large.
        """
        url = request.url
        if not self.is_safe(str(url)):
            raise httpx2.UnsupportedProtocol("the address is not safe", request=request)
        if origin(url) not in self._trusted_origins:
            address = await _find_public_address(request)
            request.extensions = request.extensions | {"sni_hostname": url.raw_host.decode("ascii")}
            # The header `Host` is set already, and keeps the name.
            request.url = url.copy_with(host=address)
        request.headers["Accept-Encoding"] = "identity"
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            response = await self._inner.handle_async_request(request)
            try:
                return await _read_bounded(response, request)
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL."""
    return url.scheme, url.host, url.port


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._remaining_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._remaining_bytes -= len(chunk)
            if self._remaining_bytes < 0:
                raise OversizedError("the server sent more than is read")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _find_public_address(request: httpx2.Request) -> str:
    """Return a public address of a request's host.

    Raises:
        ConnectError: the host has no public address.
    """
    host, port = request.url.host, request.url.port or _PORTS[request.url.scheme]
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            entries = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
    except (OSError, UnicodeError) as error:
        # UnicodeError: not a host name, such as one with a label of 64 letters.
        raise httpx2.ConnectError("the host cannot be found", request=request) from error
    for entry in entries:
        address = str(entry[4][0])
        if address_rules.is_allowed(address):
            return str(ipaddress.ip_address(address))
    _log.warning("the authorization server %s has no public address: %s", host, entries)
    raise httpx2.ConnectError("the host has no public address", request=request)


async def _read_bounded(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """Read a bounded answer."""
    if response.headers.get("content-encoding", "").lower() not in _UNCOMPRESSED_ENCODINGS:
        raise OversizedError(_COMPRESSED_ANSWER)
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101
    bounded = _BoundedStream(stream, _MAX_ISSUER_ANSWER_BYTES)
    content = b"".join([chunk async for chunk in bounded])
    return httpx2.Response(
        response.status_code, headers=response.headers, content=content, request=request
    )
