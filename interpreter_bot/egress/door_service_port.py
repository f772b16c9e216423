"""What the bot itself offers to code behind the services' door, each under a path of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, Protocol

from interpreter_bot import code_activity
from interpreter_bot.egress import http_streams, policies

_BODY_BYTES: Final = 1024 * 1024
_LONG: Final = "More was sent than can be taken at a time."
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

    async def body(self, most_bytes: int = _BODY_BYTES) -> bytes:
        """Return the body of the request.

        Raises:
            Refusal: it is longer.
        """
        body = bytearray()
        async for data in self.client.body(lambda _: None):
            body += data
            if len(body) > most_bytes:
                raise policies.Refusal(_LONG, status=413)
        return bytes(body)

    async def begin(self, kind: bytes = b"application/octet-stream") -> None:
        """Begin an answer that ends with the connection; what `send` sends says where it ends."""
        await self.send(_HEAD % kind)

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer, as fast as code takes it."""
        self.client.ends.writer.write(data)
        await self.client.ends.writer.drain()

    async def left(self) -> None:
        """Return once code has gone, or is interrupted; what it still sends is dropped."""
        while await self.client.ends.reader.read(_BODY_BYTES):
            pass


class DoorService(Protocol):
    """Something that the bot offers to code.

    Attributes:
        name: of its part of the path, as `connections` of `/connections/…`.
    """

    name: str

    def offers(self, key: str) -> Sequence[code_activity.Offer]:
        """Return what of it a session may use, for people and models."""

    def note_opened(self, key: str) -> None:
        """Take that the doors of a session's kernel were opened, which another bot may have had."""

    def is_offered(self, key: str) -> bool:
        """Return whether a session may use something of it; else there is no such path."""

    async def answer(self, call: ServiceCall) -> None:
        """Answer a request of a session to which something is offered.

        Raises:
            Refusal: it is not done; the sentence is the answer, if none has begun.
        """
