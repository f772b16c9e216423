"""Servers outside: HTTPS and HTTP on loopback, with what they saw, and an authority for them."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator, Callable

from interpreter_bot.egress import certificates


class Outside:
    """What listens outside, whoever it is called.

    Attributes:
        authority: that signed for its hosts.
        heads: of the requests that came, each as text.
        bodies: of them.
        answer: makes the answer to a head; a whole response of HTTP.
        port: of all of it.
    """

    def __init__(self, answer: Callable[[str], bytes] | None = None) -> None:
        self.authority = certificates.Authority()
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.answer = answer or (lambda _: ok(b"outside"))
        self.port = 0
        self.connections = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, host: str = "", answer=None) -> AsyncIterator[Outside]:
        """Listen; with TLS as `host`, if one is named."""
        outside = cls(answer)
        tls = outside.authority.context(host) if host else None
        server = await asyncio.start_server(outside._serve, "127.0.0.1", 0, ssl=tls)
        outside.port = server.sockets[0].getsockname()[1]
        try:
            yield outside
        finally:
            server.close()

    async def _serve(self, reader, writer) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            length = next(
                (
                    int(line.split(":")[1])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                ),
                0,
            )
            self.bodies.append(await reader.readexactly(length))
            writer.write(self.answer(head))
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def trusted(self, directory: pathlib.Path) -> pathlib.Path:
        """Write its authority's certificate to a file."""
        path = directory / "outside.pem"
        path.write_text(self.authority.certificate)
        return path


def ok(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A response of HTTP."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def resolver(*rounds: list[str]):
    """Look every name up as the addresses of each round in turn, the last one for ever."""
    asked: list[str] = []

    async def resolve(host, port):
        addresses = rounds[min(len(asked), len(rounds) - 1)]
        asked.append(host)
        found = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            found.append((family, socket.SOCK_STREAM, 6, "", (address, port)))
        return found

    resolve.asked = asked
    return resolve
