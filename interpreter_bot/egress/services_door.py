"""The services' door: services of the bot for code, by HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Final, Protocol

from interpreter_bot import code_activity
from interpreter_bot.egress import http_streams, policies, proxies
from interpreter_bot.wording import network_words

_MAX_BODY_BYTES: Final = 1024 * 1024
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n"
)


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

    async def body(self) -> bytes:
        """Return the body of the request.

        Raises:
            Refusal: it is too large.
        """
        body = bytearray()
        async for data in self.client.body(lambda _: None):
            body += data
            if len(body) > _MAX_BODY_BYTES:
                raise policies.Refusal(network_words.BODY_TOO_LARGE, status=413)
        return bytes(body)

    async def begin(self) -> None:
        """Begin an answer without a length; its content has to mark its own end."""
        await self.send(_HEAD)

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
    """Answers requests for services, at one kernel's door."""

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
        """Answer one request.

        Raises:
            Refusal: the session may not use such a service.
        """
        async with asyncio.timeout(self._context.idle_seconds):
            request = await client.read_request()
        name, _, path = request.target.decode("latin-1").removeprefix("/").partition("/")
        service, key = self._services.get(name), self._context.key
        if service is None or not service.is_offered(key):
            raise policies.Refusal(network_words.NO_SERVICE, status=404)
        await service.answer(ServiceCall(key, self._context.kernel_id, path, client))
