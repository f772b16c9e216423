"""The services' door: plain HTTP to hosts as `/to/HOST/path`, and services of the bot.

`/to/…` is for programs that cannot use a proxy or trust only their own authorities: the bot speaks
TLS for them. The same rules hold as for the proxy.
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
_ALIAS: Final = re.compile(rb"/to/([^/?#]+)(/[^#]*)")
_MAX_BODY_BYTES: Final = 1024 * 1024
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceCall:
    """A request of one kernel's code to a service.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        path: what follows the service's own part, without a slash before it.
        client: that sent it.
    """

    key: str
    kernel_id: str
    path: str
    client: http_streams.HttpStream

    async def body(self, max_bytes: int = _MAX_BODY_BYTES) -> bytes:
        """Return the body of the request.

        Raises:
            Refusal: it is longer.
        """
        body = bytearray()
        async for data in self.client.body(lambda _: None):
            body += data
            if len(body) > max_bytes:
                raise policies.Refusal(network_words.BODY_TOO_LARGE, status=413)
        return bytes(body)

    async def begin(self, kind: bytes = b"application/octet-stream") -> None:
        """Begin an answer that ends with the connection; its content has to mark its end."""
        await self.send(_HEAD % kind)

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer, as fast as code reads it."""
        self.client.ends.writer.write(data)
        await self.client.ends.writer.drain()

    async def wait_closed(self) -> None:
        """Return once code has closed the connection; what it still sends is dropped."""
        while await self.client.ends.reader.read(_MAX_BODY_BYTES):
            pass


class DoorService(Protocol):
    """A service of the bot for code.

    Attributes:
        name: of its part of the path, as `connections` of `/connections/…`.
    """

    name: str

    def offers(self, key: str) -> Sequence[code_activity.Offer]:
        """Return what a session may use of it, for people and models."""

    def note_opened(self, key: str) -> None:
        """Record that a session's doors were opened; another bot may have had them before."""

    def is_offered(self, key: str) -> bool:
        """Return whether a session may use any of it; otherwise its path does not exist."""

    async def answer(self, call: ServiceCall) -> None:
        """Answer a request of a session that may use the service.

        Raises:
            Refusal: it is not done; the sentence is the answer, if none has begun.
        """


class ServicesDoor(proxies.Proxy):
    """Answers requests for `/to/HOST/…`, and to services, behind one kernel's door."""

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
            Refusal: it may not.
        """
        async with asyncio.timeout(self._context.idle_seconds):
            request = await client.request()
        name, _, path = request.target.decode("latin-1").removeprefix("/").partition("/")
        service, key = self._services.get(name), self._context.key
        if service is not None and service.is_offered(key):
            kernel_id = self._context.kernel_id
            await service.answer(ServiceCall(key, kernel_id, path, client))
            return
        contact.method = request.method[:40].decode("ascii")
        self._context.traffic.admit()
        alias = _ALIAS.fullmatch(request.target)
        if alias is None:
            raise policies.Refusal(network_words.HOW_TO_ADDRESS, status=404)
        host, rule = self._find(alias[1], 443, contact)
        local_host = dict(request.headers).get(b"host", b"")
        remote_host = forwarded_requests.authority(host, contact.port)
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        renamed_request = h11.Request(
            method=request.method, target=alias[2], headers=[(b"Host", remote_host), *headers]
        )
        contact.path = forwarded_requests.check(renamed_request, host, contact.port, rule)
        await self._approve(client, renamed_request, rule, contact)
        async with self._dialled(host, contact.port, rule, is_encrypted=True) as server:
            # Redirects within the host lead through this door, too.
            rewrite = (
                b"https://" + remote_host + b"/",
                b"http://" + local_host + PREFIX + alias[1] + b"/",
            )
            await self._exchange(client, renamed_request, server, rule, contact, rewrite=rewrite)
