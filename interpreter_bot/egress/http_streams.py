"""HTTP/1.1 on streams by h11, with checks that h11 lacks.

A connection carries one request, so code and host cannot disagree about where a second one begins
(request smuggling).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

import h11

from interpreter_bot.egress import opaque_tunnels, policies
from interpreter_bot.wording import network_words

Headers: TypeAlias = list[tuple[bytes, bytes]]

MAX_HEAD_BYTES: Final = 64 * 1024
_BAD_REQUEST: Final = 400
# Lines without a carriage return, or that continue on the next line.
_AMBIGUOUS_LINE_END_PATTERN: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")
# Headers about one connection, which are not passed on.
_HOP_BY_HOP_HEADERS: Final = frozenset(
    b"""connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer
    transfer-encoding upgrade expect http2-settings""".split()
)
# Headers that could override the checked request, or forge its sender.
_OVERRIDING_HEADERS: Final = frozenset(
    b"""x-http-method-override x-http-method x-method-override x-original-url x-rewrite-url
    forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip""".split()
)
_UNPRINTABLE_PATTERN: Final = re.compile(r"[^\x20-\x7e]")
_MAX_REASON_CHARACTERS: Final = 300
_MAX_BEGINNING_BYTES: Final = 200
# Limit of data that a client sends while the bot waits until it disconnects.
_MAX_BUFFERED_BYTES: Final = 1024 * 1024
# After this many events other tasks run: in a body of tiny chunks, each byte may be an event.
_MAX_EVENTS_IN_A_ROW: Final = 32


class MalformedError(policies.Refusal):
    """A message is not valid HTTP, and is not passed on."""

    def __init__(self, sentence: str = network_words.MALFORMED_REQUEST) -> None:
        super().__init__(sentence, status=_BAD_REQUEST)


class HttpStream:
    """One side of HTTP/1.1 for one request and its response.

    Attributes:
        streams: reader and writer of the connection.
        has_body: whether the request has a body.
    """

    def __init__(
        self, streams: opaque_tunnels.StreamPair, role: type[h11.CLIENT] | type[h11.SERVER]
    ) -> None:
        self.streams = streams
        self._protocol = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._event_count = 0
        self._uncounted_bytes = 0
        self._body_beginning = b""
        self.has_body = False

    @property
    def unread_bytes(self) -> bytes:
        """Bytes that the client sent after its request for a tunnel."""
        return self._protocol.trailing_data[0]

    async def read_request(self) -> h11.Request:
        """Read the head of a request.

        Raises:
            MalformedError: it is invalid, or client and host might parse it differently.
            EOFError: the client has disconnected.
        """
        try:
            head = await self.streams.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise MalformedError(network_words.HEAD_TOO_LONG) from error
        self._uncounted_bytes += len(head)
        if len(head) > MAX_HEAD_BYTES:
            raise MalformedError(network_words.HEAD_TOO_LONG)
        if _AMBIGUOUS_LINE_END_PATTERN.search(head):
            raise MalformedError
        self._protocol.receive_data(head)
        event = self._parse_event()
        if not isinstance(event, h11.Request):
            raise MalformedError
        # Python's own clients ask for tunnels by HTTP/1.0.
        is_accepted_version = event.http_version == b"1.1" or event.method == b"CONNECT"
        names = {name for name, _ in event.headers}
        if {b"content-length", b"transfer-encoding"} <= names or not is_accepted_version:
            raise MalformedError
        self.has_body = not names.isdisjoint((b"content-length", b"transfer-encoding"))
        return event

    def _parse_event(self) -> Any:  # noqa: ANN401 - h11 says so.
        try:
            return self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            raise MalformedError from error

    async def receive_event(self) -> Any:  # noqa: ANN401 - h11's events share no type.
        """Return h11's next event.

        Raises:
            MalformedError: it is not valid HTTP.
        """
        while (event := await self._next_event()) is h11.NEED_DATA:
            await self._receive_bytes()
        return event

    async def read_body_beginning(self) -> bytes:
        """Return the beginning of a request's body, with its framing; empty if there is none."""
        if self.has_body and not self._body_beginning:
            await self._receive_bytes()
        return self._body_beginning

    async def wait_closed(self) -> None:
        """Wait until the client closes the connection; data that it sends meanwhile is buffered.

        If it sends too much, its end is not noticed, and this waits until it is cancelled.
        """
        buffered_bytes = 0
        while buffered_bytes < _MAX_BUFFERED_BYTES:
            if not (byte_count := await self._receive_bytes()):
                return
            buffered_bytes += byte_count
        await asyncio.Event().wait()

    async def body(self, count_bytes: Callable[[int], None]) -> AsyncIterator[bytes]:
        """Yield a body in pieces as they come, without trailers.

        `count_bytes` receives the number of bytes read since its last call, including heads and
        framing.

        Raises:
            MalformedError: it is not valid HTTP.
        """
        pending_data = bytearray()
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                pending_data += event.data
                continue
            if event is not h11.NEED_DATA:
                raise MalformedError
            self._report_bytes(count_bytes)
            if pending_data:
                yield bytes(pending_data)
                pending_data.clear()
            await self._receive_bytes()
        self._report_bytes(count_bytes)
        if pending_data:
            yield bytes(pending_data)

    def _report_bytes(self, count_bytes: Callable[[int], None]) -> None:
        byte_count, self._uncounted_bytes = self._uncounted_bytes, 0
        count_bytes(byte_count)

    async def _next_event(self) -> Any:  # noqa: ANN401 - h11's events share no type.
        self._event_count += 1
        if not self._event_count % _MAX_EVENTS_IN_A_ROW:
            await asyncio.sleep(0)
        return self._parse_event()

    async def _receive_bytes(self) -> int:
        if self._protocol.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        data = await self.streams.reader.read(opaque_tunnels.CHUNK_BYTES)
        self._uncounted_bytes += len(data)
        self._body_beginning = self._body_beginning or data[:_MAX_BEGINNING_BYTES]
        self._protocol.receive_data(data)
        return len(data)

    async def send(self, *events: Any) -> None:
        """Send h11's events.

        Raises:
            MalformedError: they are no valid sequence, for example if a body has a wrong length.
        """
        for event in events:
            try:
                data = self._protocol.send(event)
            except h11.LocalProtocolError as error:
                raise MalformedError from error
            if data:
                self.streams.writer.write(data)
        await self.streams.writer.drain()

    @property
    def can_refuse(self) -> bool:
        """Whether a response can still begin."""
        return self._protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    async def refuse(self, refusal: policies.Refusal) -> None:
        """Refuse a request; the reason is in each part of the answer that any client shows."""
        sentence = str(refusal)
        reason = _UNPRINTABLE_PATTERN.sub("?", sentence)[:_MAX_REASON_CHARACTERS].encode("ascii")
        body = f"{sentence}\n".encode()
        headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", str(len(body)).encode()),
            (b"X-Proxy-Error", reason),
            (b"Connection", b"close"),
        ]
        if self._protocol.our_state is h11.IDLE:
            # h11 cannot answer a request that it could not parse.
            lines = [b"HTTP/1.1 %d %s" % (refusal.status, reason)]
            lines += [b"%s: %s" % header for header in headers]
            self.streams.writer.write(b"\r\n".join([*lines, b"", body]))
            await self.streams.writer.drain()
            return
        response = h11.Response(status_code=refusal.status, headers=headers, reason=reason)
        await self.send(response, h11.Data(data=body), h11.EndOfMessage())


def forwardable_headers(
    headers: Iterable[tuple[bytes, bytes]], *, excluded_names: Collection[str] = ()
) -> Headers:
    """Return the headers to pass on, without those about one connection and `excluded_names`.

    Names in `headers` are in lower case.
    """
    entries = list(headers)
    connection_headers = {
        name.strip().lower()
        for key, value in entries
        if key == b"connection"
        for name in value.split(b",")
    }
    dropped_names = {fold_header_name(name) for name in _OVERRIDING_HEADERS}
    dropped_names |= {fold_header_name(name.encode("ascii")) for name in excluded_names}
    return [
        (name, value)
        for name, value in entries
        if name not in _HOP_BY_HOP_HEADERS | connection_headers
        and fold_header_name(name) not in dropped_names
    ]


def fold_header_name(name: bytes) -> bytes:
    """Normalize the name of a header, so that names are equal if any server takes them as equal."""
    return re.sub(rb"[-_.]", b"", name.lower())


def framing_headers(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Return the header that gives the length of a body, if there is one."""
    for name, value in headers:
        if name == b"content-length":
            return [(b"Content-Length", value)]
    is_chunked = any(name == b"transfer-encoding" for name, _ in headers)
    return [(b"Transfer-Encoding", b"chunked")] if is_chunked else []
