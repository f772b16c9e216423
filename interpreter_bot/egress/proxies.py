"""The proxy at one kernel's door, which forwards requests of code or refuses them with a reason.

Only that kernel's code can connect to the door, so there is no authentication.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import h11

from interpreter_bot import cancellation, code_activity
from interpreter_bot.egress import (
    approvals,
    certificates,
    forwarded_requests,
    http_streams,
    opaque_tunnels,
    outbound_connections,
    policies,
    traffic_limits,
)
from interpreter_bot.wording import network_words

_log = logging.getLogger(__name__)

_MAX_HANDSHAKE_SECONDS: Final = 10.0
# Refusals are delayed, because clients may retry at once.
_REFUSAL_PAUSE_SECONDS: Final = 0.1
_MAX_LINGER_SECONDS: Final = 1.0
_ACCEPT_PAUSE_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyContext:
    """The objects that all connections of a kernel share.

    Attributes:
        key: of its session.
        kernel_id: of the kernel.
        find_policy: returns the current rules of the session.
        traffic: of the session.
        dialler: opens connections.
        authority: makes certificates that the kernel trusts.
        approvals: of people, for this kernel.
        outside_tls: context for TLS to outside hosts.
        record_contact: called with the contact of each ended connection.
        max_connections: number of connections at a time.
        idle_seconds: a connection without traffic for this long is closed.
    """

    key: str
    kernel_id: str
    find_policy: Callable[[], policies.Policy]
    traffic: traffic_limits.Traffic
    dialler: outbound_connections.Dialler
    authority: certificates.Authority
    approvals: approvals.Approvals
    outside_tls: ssl.SSLContext
    record_contact: Callable[[code_activity.Contact], None]
    max_connections: int = 32
    idle_seconds: float = 60.0


class Proxy:
    """Answers requests through one kernel's door, until `serve` is cancelled."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._slots = asyncio.Semaphore(context.max_connections)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, accept: Callable[[], Awaitable[socket.socket]]) -> None:
        """Accept connections up to the limit; others wait in the kernel's own network."""
        try:
            while True:
                await self._slots.acquire()
                try:
                    endpoint = await accept()
                except OSError:
                    # Probably the process has no descriptors left, so try again later.
                    _log.exception("no connection of a kernel can be accepted")
                    self._slots.release()
                    await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                    continue
                task = asyncio.create_task(
                    self._serve_connection(endpoint), name="egress connection"
                )
                self._tasks.add(task)
                task.add_done_callback(self._on_connection_done)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _on_connection_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection of a kernel failed", exc_info=error)

    async def _serve_connection(self, endpoint: socket.socket) -> None:
        """Serve one connection, and record its outcome."""
        contact = code_activity.Contact(self._context.key, self._context.kernel_id)
        started_at = time.monotonic()
        try:
            streams = await opaque_tunnels.StreamPair.accept(endpoint)
        except OSError:
            return  # The client has disconnected.
        client = http_streams.HttpStream(streams, h11.SERVER)
        try:
            await self._serve_request(client, contact)
        except policies.Refusal as refusal:
            contact.status, contact.reason = refusal.status, str(refusal)
            await asyncio.sleep(_REFUSAL_PAUSE_SECONDS)
            await _refuse(client, refusal)
        except TimeoutError:
            contact.reason = network_words.TOOK_TOO_LONG
        except (OSError, EOFError) as error:  # This includes errors of TLS.
            contact.reason = network_words.BROKE_OFF
            _log.debug("a connection broke off", exc_info=error)
        finally:
            contact.seconds = time.monotonic() - started_at
            if contact.host:
                self._context.record_contact(contact)
            await client.streams.close()

    async def _serve_request(
        self, client: http_streams.HttpStream, contact: code_activity.Contact
    ) -> None:
        """Read one request, and forward it if that is allowed."""
        async with asyncio.timeout(self._context.idle_seconds):
            request = await client.read_request()
        contact.method = request.method[:40].decode("ascii")
        self._context.traffic.admit()
        if request.method == b"CONNECT":
            await self._open_tunnel(client, request, contact)
            return
        scheme, _, location = request.target.partition(b"://")
        if scheme.lower() != b"http":
            raise policies.Refusal(network_words.ONLY_HTTP, status=400)
        host_and_port, slash, path = location.partition(b"/")
        rule = self._find_rule(host_and_port, 80, contact)
        direct_request = h11.Request(
            method=request.method, target=slash + path or b"/", headers=request.headers
        )
        if rule.headers:
            # Secrets would be sent in the clear.
            raise policies.Refusal(network_words.only_https(contact.host, contact.port))
        await self._forward(client, direct_request, rule, contact, is_encrypted=False)

    def _find_rule(
        self, host_and_port: bytes, port: int, contact: code_activity.Contact
    ) -> policies.Rule:
        """Return the rule for a host and port as written in a request; record both."""
        text = host_and_port.decode("latin-1")
        name, colon, port_text = text.rpartition(":")
        if not colon or text.endswith("]"):
            name, port_text = text, str(port)
        is_port = port_text.isascii() and port_text.isdigit() and len(port_text) < 6
        contact.host, contact.port = name[:253], int(port_text) if is_port else 0
        contact.host, rule = self._context.find_policy().find(name, contact.port)
        return rule

    async def _open_tunnel(
        self, client: http_streams.HttpStream, request: h11.Request, contact: code_activity.Contact
    ) -> None:
        """Open a tunnel, which is opaque or read by the bot, as the rule says."""
        rule = self._find_rule(request.target, 443, contact)
        host = contact.host
        host_header = dict(request.headers).get(b"host", b"")
        is_same_host = host_header.lower() in (b"", request.target.lower(), host.encode("ascii"))
        if client.has_body or not is_same_host:
            raise http_streams.MalformedError
        response = h11.Response(status_code=200, reason=b"Connection established", headers=[])
        await client.receive_event()  # This is the end of the request.
        if rule.must_be_read:
            await client.send(response)
            await self._answer_for_host(client, rule, contact)
            return
        endpoint = await self._context.dialler.dial(host, contact.port, rule)
        server = await opaque_tunnels.StreamPair.open(endpoint)
        try:
            await client.send(response)
            contact.status = 200
            async with asyncio.timeout(_MAX_HANDSHAKE_SECONDS):
                client_hello = await opaque_tunnels.read_client_hello(
                    client.streams, host, client.unread_bytes
                )
            self._context.traffic.count_sent(contact, len(client_hello))
            server.writer.write(client_hello)
            await opaque_tunnels.relay(
                client.streams,
                server,
                traffic=self._context.traffic,
                contact=contact,
                idle_seconds=self._context.idle_seconds,
            )
        finally:
            await server.close()

    async def _answer_for_host(
        self,
        tunnel: http_streams.HttpStream,
        rule: policies.Rule,
        contact: code_activity.Contact,
    ) -> None:
        """Answer as if the bot were the host, to read and check the requests."""
        tls = self._context.authority.context(contact.host)
        async with asyncio.timeout(_MAX_HANDSHAKE_SECONDS):
            await tunnel.streams.writer.start_tls(tls)
        client = http_streams.HttpStream(tunnel.streams, h11.SERVER)
        try:
            async with asyncio.timeout(self._context.idle_seconds):
                request = await client.read_request()
            contact.method = request.method[:40].decode("ascii")
            await self._forward(client, request, rule, contact, is_encrypted=True)
        except policies.Refusal as refusal:
            contact.status, contact.reason = refusal.status, str(refusal)
            await asyncio.sleep(_REFUSAL_PAUSE_SECONDS)
            await _refuse(client, refusal)

    async def _forward(
        self,
        client: http_streams.HttpStream,
        request: h11.Request,
        rule: policies.Rule,
        contact: code_activity.Contact,
        *,
        is_encrypted: bool,
    ) -> None:
        """Check a request, send it to its host, and pass the response back."""
        contact.path = forwarded_requests.check_request(request, contact.host, contact.port, rule)
        await self._require_approval(client, request, rule, contact)
        async with self._open_host_stream(contact, rule, is_encrypted=is_encrypted) as server:
            await forwarded_requests.exchange(
                client,
                request,
                server,
                secret_headers=rule.headers,
                traffic=self._context.traffic,
                contact=contact,
                idle_seconds=self._context.idle_seconds,
            )

    async def _require_approval(
        self,
        client: http_streams.HttpStream,
        request: h11.Request,
        rule: policies.Rule,
        contact: code_activity.Contact,
    ) -> None:
        """Ask a person if the rule needs approval, before the name is looked up.

        Raises:
            Refusal: the person did not allow it.
            EOFError: the client has disconnected.
        """
        if not rule.needs_approval:
            return
        async with asyncio.timeout(self._context.idle_seconds):
            body_beginning = await client.read_body_beginning()
        target = request.target.decode("ascii")
        approval = self._context.approvals.require(
            contact, target=target, body_beginning=body_beginning
        )
        if not await cancellation.run_until(
            approval, client.wait_closed(), name="approval of a request"
        ):
            raise EOFError

    @contextlib.asynccontextmanager
    async def _open_host_stream(
        self, contact: code_activity.Contact, rule: policies.Rule, *, is_encrypted: bool
    ) -> AsyncIterator[http_streams.HttpStream]:
        """Connect to a host, and yield its stream for one request."""
        host = contact.host
        endpoint = await self._context.dialler.dial(host, contact.port, rule)
        options = (
            {"ssl": self._context.outside_tls, "server_hostname": host} if is_encrypted else {}
        )
        try:
            async with asyncio.timeout(_MAX_HANDSHAKE_SECONDS):
                server = await opaque_tunnels.StreamPair.open(endpoint, **options)
        except OSError as error:
            _log.info("no TLS with %s", host, exc_info=error)
            raise policies.Refusal(network_words.certificate_untrusted(host), status=502) from error
        try:
            yield http_streams.HttpStream(server, h11.CLIENT)
        finally:
            await server.close()


async def _refuse(client: http_streams.HttpStream, refusal: policies.Refusal) -> None:
    """Answer with the reason of a refusal; abort an answer that has begun."""
    if not client.can_refuse:
        client.streams.writer.transport.abort()
        return
    with contextlib.suppress(OSError):  # TimeoutError is a subclass.
        async with asyncio.timeout(_MAX_LINGER_SECONDS):
            await client.refuse(refusal)
            # Closing a connection with unread data would discard the answer.
            while client.has_body and await client.streams.reader.read(opaque_tunnels.CHUNK_BYTES):
                pass
