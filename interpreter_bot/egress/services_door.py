"""The services' door: plain HTTP to hosts as `/to/HOST/path`, and services of the bot.

`/to/…` is for programs that cannot use a proxy, or that trust only their own certificate
authorities: the bot speaks TLS for them. The same rules hold as for the proxy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from typing import Final, Protocol

import h11

from interpreter_bot import code_activity
from interpreter_bot.egress import (
    forwarded_requests,
    http_streams,
    policies,
    proxies,
)
from interpreter_bot.wording import network_words

PREFIX: Final = b"/to/"
_ALIAS_PATTERN: Final = re.compile(rb"/to/([^/?#]+)(/[^#]*)")
_MAX_BODY_BYTES: Final = 1024 * 1024
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceCall:
    """A request of one kernel's code to a service.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        path: the rest of the path after the name of the service, without a leading slash.
        client: connection of the code.
    """

    key: str
    kernel_id: str
    path: str
    client: http_streams.HttpStream

    async def body(self, max_bytes: int = _MAX_BODY_BYTES) -> bytes:
        """Return the body of the request.

        Raises:
            Refusal: it is longer than `max_bytes`.
        """
        body = bytearray()
        async for data in self.client.body(lambda _: None):
            body += data
            if len(body) > max_bytes:
                raise policies.Refusal(network_words.BODY_TOO_LARGE, status=413)
        return bytes(body)

    async def begin(self, content_type: bytes = b"application/octet-stream") -> None:
        """Begin an answer without a length; its content has to mark its own end."""
        await self.send(_HEAD % content_type)

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer, as fast as code reads it."""
        self.client.streams.writer.write(data)
        await self.client.streams.writer.drain()

    async def wait_closed(self) -> None:
        """Return once code has closed the connection; drop the bytes that it still sends."""
        while await self.client.streams.reader.read(_MAX_BODY_BYTES):
            pass


class DoorService(Protocol):
    """A service of the bot for code.

    Attributes:
        name: first part of its paths, such as `connections` in `/connections/…`.
    """

    name: str

    def offers(self, key: str) -> Sequence[code_activity.Offer]:
        """Return the parts that a session may use, for people and models."""

    def note_opened(self, key: str) -> None:
        """Handle the opening of a session's doors, which another bot may have had before."""

    def is_offered(self, key: str) -> bool:
        """Return whether a session may use the service; otherwise its paths do not exist."""

    async def answer(self, call: ServiceCall) -> None:
        """Answer a request of a session that may use the service.

        Raises:
            Refusal: the request is refused; the sentence is the answer, unless one has begun.
        """


class ServicesDoor(proxies.Proxy):
    """Answers requests for `/to/HOST/…` and for services, at one kernel's door."""

    def __init__(
        self,
        context: proxies.ProxyContext,
        services: Sequence[DoorService] = (),
    ) -> None:
        super().__init__(context)
        self._services = {service.name: service for service in services}

    async def _serve_request(
        self, client: http_streams.HttpStream, contact: code_activity.Contact
    ) -> None:
        """Answer one request, or forward it to the host in its path if that is allowed.

        Raises:
            Refusal: the request is not allowed.
        """
        async with asyncio.timeout(self._context.idle_seconds):
            request = await client.read_request()
        name, _, path = request.target.decode("latin-1").removeprefix("/").partition("/")
        service, key = self._services.get(name), self._context.key
        if service is not None and service.is_offered(key):
            kernel_id = self._context.kernel_id
            await service.answer(ServiceCall(key, kernel_id, path, client))
            return
        contact.method = request.method[:40].decode("ascii")
        self._context.traffic.admit()
        alias = _ALIAS_PATTERN.fullmatch(request.target)
        if alias is None:
            raise policies.Refusal(network_words.HOW_TO_ADDRESS, status=404)
        host, rule = self._find_rule(alias[1], 443, contact)
        door_host = dict(request.headers).get(b"host", b"")
        outside_host = forwarded_requests.host_header(host, contact.port)
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        renamed_request = h11.Request(
            method=request.method, target=alias[2], headers=[(b"Host", outside_host), *headers]
        )
        contact.path = forwarded_requests.check_request(renamed_request, host, contact.port, rule)
        await self._require_approval(client, renamed_request, rule, contact)
        async with self._open_host_stream(host, contact.port, rule, is_encrypted=True) as server:
            # Redirects within the host lead through this door, too.
            rewrite = (
                b"https://" + outside_host + b"/",
                b"http://" + door_host + PREFIX + alias[1] + b"/",
            )
            await self._exchange(client, renamed_request, server, rule, contact, rewrite=rewrite)
