"""HTTPS and HTTP servers on loopback in place of those outside, with a certificate authority."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from interpreter_bot.egress import certificates


class ExternalServer:
    """A server outside, for any host name.

    Attributes:
        authority: the authority that signed the server's certificate.
        heads: heads of the requests, each as text.
        bodies: bodies of the requests.
        answer: makes the complete HTTP response to a head.
    """

    def __init__(self, answer: Callable[[str], bytes] | None = None) -> None:
        self.authority = certificates.Authority(b"of the servers")
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.answer = answer or (lambda _: make_response(b"outside"))
        self.port = 0
        self.connections = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, host: str = "", answer=None) -> AsyncIterator[ExternalServer]:
        """Listen; with TLS as `host`, if one is named."""
        external_server = cls(answer)
        tls = external_server.authority.context(host) if host else None
        server = await asyncio.start_server(external_server._serve, "127.0.0.1", 0, ssl=tls)
        external_server.port = server.sockets[0].getsockname()[1]
        try:
            yield external_server
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


def make_response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Make an HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def make_resolver(*answers: list[str]):
    """Make a resolver that answers lookups with these addresses in turn, repeating the last."""
    hosts: list[str] = []

    async def resolve(host, port):
        addresses = answers[min(len(hosts), len(answers) - 1)]
        hosts.append(host)
        results = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            results.append((family, socket.SOCK_STREAM, 6, "", (address, port)))
        return results

    resolve.hosts = hosts
    return resolve
