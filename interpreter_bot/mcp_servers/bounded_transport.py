"""A transport of HTTP that reads no more of an answer than it may, and keeps to one server.

The SDK bounds events of a stream, and nothing else: an answer of JSON is read to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

import httpx2

_STREAM_TIMES: Final = 16
IDENTITY: Final = frozenset({"", "identity"})
"""Encodings of an answer that is as long as it seems."""


class OversizedError(httpx2.TransportError):
    """The server sent more than is read."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to one server, and reads bounded answers."""

    def __init__(self, urls: Iterable[str], most_bytes: int) -> None:
        """Connect to nothing yet.

        Args:
            urls: of the server, and of who gives tokens for it; requests to another origin are
                refused.
            most_bytes: of an answer; a stream of several may have a multiple.
        """
        self._origins = {origin(httpx2.URL(url)) for url in urls}
        self._most_bytes = most_bytes
        # No proxy of the environment: what is sent has secrets.
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            TransportError: it goes elsewhere, or what comes is too much.
        """
        if origin(request.url) not in self._origins:
            raise httpx2.UnsupportedProtocol("The server leads elsewhere.", request=request)
        # What is packed may be far more than it seems.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            raise OversizedError("The answer is no stream.", request=request)
        if response.headers.get("content-encoding", "").lower() not in IDENTITY:
            await stream.aclose()
            raise OversizedError("The answer is packed, though that was not wanted.")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        most = self._most_bytes * (_STREAM_TIMES if is_stream else 1)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=BoundedStream(stream, most),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a number."""

    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._stream = stream
        self._left_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left_bytes -= len(chunk)
            if self._left_bytes < 0:
                raise OversizedError("The server sent more than is read.")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Return what tells who gets a request."""
    return url.scheme, url.host, url.port
