"""Requests that the bot reads: checked against a rule, rebuilt, and sent with secrets that code
must not see; and their responses, which must not contain those secrets.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping
from typing import Final

import h11

from interpreter_bot import code_activity
from interpreter_bot.egress import (
    echoed_secrets,
    host_names,
    http_streams,
    opaque_tunnels,
    policies,
    traffic_limits,
)
from interpreter_bot.wording import network_words

_MAX_RECORDED_PATH_CHARACTERS: Final = 1000
_TARGET_PATTERN: Final = re.compile(rb"/[\x21-\x7e]*")
# Servers interpret these in different ways, so an allowed path could be another path there.
_AMBIGUOUS_PATH_PATTERN: Final = re.compile(
    r"//|\\|%2e|%2f|%5c|%00|;|(?:^|/)\.{1,2}(?:/|$)", re.IGNORECASE
)
_DEFAULT_PORTS: Final = frozenset((80, 443))
# If a secret is added, answers are searched, so they must be neither compressed nor partial.
_HIDING_HEADERS: Final = frozenset((b"accept-encoding", b"range", b"if-range", b"a-im", b"te"))


def check_request(request: h11.Request, host: str, port: int, rule: policies.Rule) -> str:
    """Check a request to a host; return its path without the query.

    Raises:
        Refusal: it may not be sent.
    """
    method = request.method.decode("ascii")
    if method in ("TRACE", "CONNECT"):
        raise policies.Refusal(network_words.NO_TRACE, status=405)
    if rule.methods and method not in rule.methods:
        sentence = network_words.wrong_method(host, sorted(rule.methods), method)
        raise policies.Refusal(sentence, status=405)
    headers = dict(request.headers)
    if b"upgrade" in headers or b"http2-settings" in headers:
        raise policies.Refusal(network_words.NO_UPGRADE, status=501)
    if not _names_host(headers.get(b"host", b""), host, port):
        raise policies.Refusal(network_words.OTHER_TARGET, status=421)
    if not _TARGET_PATTERN.fullmatch(request.target):
        raise policies.Refusal(network_words.NOT_A_PATH, status=400)
    path = request.target.decode("ascii").partition("?")[0]
    if rule.paths:
        is_below = any(f"{path}/".startswith(f"{prefix.rstrip('/')}/") for prefix in rule.paths)
        if not is_below or _AMBIGUOUS_PATH_PATTERN.search(path):
            raise policies.Refusal(network_words.wrong_path(host, rule.paths))
    return path[:_MAX_RECORDED_PATH_CHARACTERS]


def _names_host(value: bytes, host: str, port: int) -> bool:
    """Return whether the header Host names a host and port."""
    text = value.decode("latin-1")
    name, colon, port_text = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port_text = text, ""
    try:
        is_host = host_names.normalize(name) == host
    except host_names.NameRefusedError:
        return False
    is_port = port_text == str(port) or (not port_text and port in _DEFAULT_PORTS)
    return is_host and is_port


def _host_header(host: str, port: int) -> bytes:
    """Return the value of the header Host."""
    name = f"[{host}]" if ":" in host else host
    return (name if port in _DEFAULT_PORTS else f"{name}:{port}").encode("ascii")


async def exchange(
    client: http_streams.HttpStream,
    request: h11.Request,
    server: http_streams.HttpStream,
    *,
    secret_headers: Mapping[str, str],
    traffic: traffic_limits.Traffic,
    contact: code_activity.Contact,
    idle_seconds: float,
) -> None:
    """Send a checked request to a host, and pass its response back to the client.

    Args:
        client: the connection to code.
        request: the head of its request.
        server: the connection to the host.
        secret_headers: added to the request; code must not see them.
        traffic: counter of the session's bytes.
        contact: record of this request, with the host's normalized name and port.
        idle_seconds: time without traffic after which the exchange ends.

    Raises:
        Refusal: a part may not be passed on.
        OSError: a side has disconnected.
    """
    host = contact.host
    headers = [(b"Host", _host_header(host, contact.port))]
    headers += http_streams.forwardable_headers(
        request.headers, excluded_names=[*secret_headers, "host", "content-length"]
    )
    headers += http_streams.framing_headers(request.headers)
    headers += [
        (name.encode("ascii"), value.encode("ascii")) for name, value in secret_headers.items()
    ]
    if secret_headers:
        headers = [entry for entry in headers if entry[0].lower() not in _HIDING_HEADERS]
        headers.append((b"Accept-Encoding", b"identity"))
    headers.append((b"Connection", b"close"))
    transfer = _Transfer(
        client, server, traffic, contact, asyncio.timeout(idle_seconds), idle_seconds
    )
    secret_filter = echoed_secrets.SecretFilter(echoed_secrets.find_secrets(secret_headers), host)
    try:
        async with asyncio.timeout(opaque_tunnels.MAX_REQUEST_SECONDS), transfer.idle_timeout:
            target = request.target
            await server.send(h11.Request(method=request.method, target=target, headers=headers))
            await transfer.transfer_both_ways(request, secret_filter)
    except TimeoutError as error:
        raise policies.Refusal(network_words.host_too_slow(host), status=504) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Transfer:
    """One exchange: passes on both bodies, counts their bytes, and ends after a long silence."""

    client: http_streams.HttpStream
    server: http_streams.HttpStream
    traffic: traffic_limits.Traffic
    contact: code_activity.Contact
    idle_timeout: asyncio.Timeout
    idle_seconds: float

    async def transfer_both_ways(
        self,
        request: h11.Request,
        secret_filter: echoed_secrets.SecretFilter,
    ) -> None:
        """Pass on the body of a request, and the response to it."""
        send_task = asyncio.create_task(self._send(), name="egress request")
        receive_task = asyncio.create_task(
            self._receive(request, secret_filter), name="egress response"
        )
        tasks = {send_task, receive_task}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # If a response comes before the request is complete, the response takes precedence.
            if send_task.done() and isinstance(refusal := send_task.exception(), policies.Refusal):
                raise refusal
            await receive_task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _count_sent(self, byte_count: int) -> None:
        self._reset_idle()
        self.traffic.count_sent(self.contact, byte_count)

    def _count_received(self, byte_count: int) -> None:
        self._reset_idle()
        self.traffic.count_received(self.contact, byte_count)

    def _reset_idle(self) -> None:
        self.idle_timeout.reschedule(asyncio.get_running_loop().time() + self.idle_seconds)

    async def _send(self) -> None:
        async for data in self.client.body(self._count_sent):
            await self.server.send(h11.Data(data=data))
        await self.server.send(h11.EndOfMessage())

    async def _receive(
        self,
        request: h11.Request,
        secret_filter: echoed_secrets.SecretFilter,
    ) -> None:
        try:
            await self._pass_response_on(request, secret_filter)
        except http_streams.MalformedError as error:
            raise policies.Refusal(network_words.MALFORMED_ANSWER, status=502) from error

    async def _pass_response_on(
        self, request: h11.Request, secret_filter: echoed_secrets.SecretFilter
    ) -> None:
        while isinstance(response := await self.server.receive_event(), h11.InformationalResponse):
            if response.status_code == 101:
                raise policies.Refusal(network_words.NO_UPGRADE, status=502)
        if not isinstance(response, h11.Response):
            raise http_streams.MalformedError
        secret_filter.check_head(response)
        self.contact.status = response.status_code
        await self.client.send(_rebuild_response(response, request.method))
        async for data in self.server.body(self._count_received):
            if visible := secret_filter.filter(data):
                await self.client.send(h11.Data(data=visible))
        if remainder := secret_filter.flush():
            await self.client.send(h11.Data(data=remainder))
        await self.client.send(h11.EndOfMessage())


def _rebuild_response(response: h11.Response, method: bytes) -> h11.Response:
    """Rebuild the head of a response for the client."""
    headers = http_streams.forwardable_headers(response.headers, excluded_names=["content-length"])
    framing = http_streams.framing_headers(response.headers)
    has_body = method != b"HEAD" and response.status_code not in (204, 304)
    if not framing and has_body:
        framing = [(b"Transfer-Encoding", b"chunked")]
    headers += [*framing, (b"Connection", b"close")]
    status, reason = response.status_code, response.reason
    return h11.Response(status_code=status, headers=headers, reason=reason)
