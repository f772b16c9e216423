"""Requests that the bot reads: checked against a rule, made anew, and sent with what code must not
know; their responses, in which that must not come back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import h11

from interpreter_bot import network_reach, settings
from interpreter_bot.egress import host_names, http_streams, policies, traffic

# Of what code asks for, as much is recorded.
_NOTED_CHARACTERS: Final = 1000
_TARGET: Final = re.compile(rb"/[\x21-\x7e]*")
# What servers resolve in different ways: a path that a rule allows may be another one to them.
_AMBIGUOUS_PATH: Final = re.compile(r"//|\\|%2e|%2f|%5c|%00|;|(?:^|/)\.{1,2}(?:/|$)", re.IGNORECASE)
_SPELLINGS: Final = {80: ("",), 443: ("",)}
_NO_TRACE: Final = "The method TRACE is not passed on."
_METHOD: Final = "{host} may be asked here with {methods} only, not with {method}."
_PATH: Final = "Of {host}, only what is below {paths} may be asked for here."
_MISDIRECTED: Final = "The request names another host than the one it is sent to."
_UPGRADE: Final = "Changing the protocol of a connection is not passed on."
_ECHO: Final = "{host} sent back what only the bot may know; the answer is not passed on."
_SHORTEST_SECRET: Final = 6
_PACKED: Final = "{host} packs what the bot has to look into; the answer is not passed on."
_NO_ANSWER: Final = "What the host answered is no HTTP that can be passed on."
_TARGETLESS: Final = "The request asks for something else than a path."


class SecretsSieve:
    """Finds in a stream what must not be passed on, also where it comes in pieces."""

    def __init__(self, secrets: Sequence[str], host: str) -> None:
        self._secrets = [secret.encode("ascii") for secret in secrets]
        self._host = host
        self._held = b""

    def check(self, *texts: bytes) -> None:
        """Look into whole texts.

        Raises:
            Refusal: one holds a secret.
        """
        if any(secret in text for secret in self._secrets for text in texts):
            raise policies.Refusal(_ECHO.format(host=self._host), status=502)

    def check_head(self, response: h11.Response) -> None:
        """Look into the head of a response, and see that the rest can be looked into.

        Raises:
            Refusal: it holds a secret, or the body is packed.
        """
        self.check(bytes(response.reason), *(value for _, value in response.headers))
        codings = {value.lower() for name, value in response.headers if name == b"content-encoding"}
        if self._secrets and codings - {b"identity"}:
            raise policies.Refusal(_PACKED.format(host=self._host), status=502)

    def passed(self, data: bytes) -> bytes:
        """Return what may be passed on of a stream so far; the rest may be a secret's beginning.

        Raises:
            Refusal: there is a secret.
        """
        if not self._secrets:
            return data
        data = self._held + data
        self.check(data)
        keep = max(_overlap(data, secret) for secret in self._secrets)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return what is held back, at the end of the stream."""
        return self._held


def _overlap(data: bytes, secret: bytes) -> int:
    """Return how much of a secret's beginning ends the data."""
    for length in range(min(len(data), len(secret) - 1), 0, -1):
        if data.endswith(secret[:length]):
            return length
    return 0


def check(request: h11.Request, host: str, port: int, rule: policies.Rule) -> str:
    """Check a request to a host; returns its path, without what follows a question mark.

    Raises:
        Refusal: it may not be sent.
    """
    method = request.method.decode("ascii")
    if method in ("TRACE", "CONNECT"):
        raise policies.Refusal(_NO_TRACE, status=405)
    if rule.methods and method not in rule.methods:
        methods = ", ".join(sorted(rule.methods))
        raise policies.Refusal(
            _METHOD.format(host=host, methods=methods, method=method), status=405
        )
    headers = dict(request.headers)
    if b"upgrade" in headers or b"http2-settings" in headers:
        raise policies.Refusal(_UPGRADE, status=501)
    if not _is_named(headers.get(b"host", b""), host, port):
        raise policies.Refusal(_MISDIRECTED, status=421)
    if not _TARGET.fullmatch(request.target):
        raise policies.Refusal(_TARGETLESS, status=400)
    path = request.target.decode("ascii").partition("?")[0]
    if rule.paths:
        is_below = any(f"{path}/".startswith(f"{one.rstrip('/')}/") for one in rule.paths)
        if not is_below or _AMBIGUOUS_PATH.search(path):
            raise policies.Refusal(_PATH.format(host=host, paths=", ".join(rule.paths)))
    return path[:_NOTED_CHARACTERS]


def _is_named(value: bytes, host: str, port: int) -> bool:
    """Whether the header Host names a host and port."""
    text = value.decode("latin-1")
    name, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, number = text, ""
    try:
        is_host = host_names.normalized(name) == host
    except host_names.NameRefusedError:
        return False
    return is_host and number in (str(port), *_SPELLINGS.get(port, ()))


def authority(host: str, port: int) -> bytes:
    """Write a host and port as the header Host has them."""
    name = f"[{host}]" if ":" in host else host
    return (name if port in _SPELLINGS else f"{name}:{port}").encode("ascii")


async def exchange(
    client: http_streams.HttpStream,
    request: h11.Request,
    server: http_streams.HttpStream,
    *,
    host: str,
    port: int,
    added: Mapping[str, str],
    count: traffic.Traffic,
    contact: network_reach.Contact,
    limits: settings.EgressLimits,
    moved: tuple[bytes, bytes] | None = None,
) -> None:
    """Send a checked request, and pass its response back.

    Args:
        client: that sent it.
        request: its head.
        server: gets it.
        host: in its one form.
        port: of it.
        added: headers that code must not know.
        count: of the session.
        contact: is noted.
        limits: of time.
        moved: how addresses of the host begin, and what that is written as for the client.

    Raises:
        Refusal: something of it may not be passed on.
        OSError: a side is gone.
    """
    headers = [(b"Host", authority(host, port))]
    headers += http_streams.passed_on(request.headers, without=[*added, "host", "content-length"])
    headers += http_streams.framing(request.headers)
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in added.items()]
    if added:
        # What is packed cannot be looked into.
        headers = [entry for entry in headers if entry[0].lower() != b"accept-encoding"]
        headers.append((b"Accept-Encoding", b"identity"))
    headers.append((b"Connection", b"close"))
    await server.send(h11.Request(method=request.method, target=request.target, headers=headers))
    sieve = SecretsSieve(secrets_of(added), host)
    sending = asyncio.create_task(_send(client, server, count, contact), name="egress request")
    receiving = asyncio.create_task(
        _receive(client, server, request, sieve, count=count, contact=contact, moved=moved),
        name="egress response",
    )
    both = {sending, receiving}
    try:
        async with asyncio.timeout(limits.request_seconds):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # A response may come before the request is whole, and is the better answer then.
            if sending.done() and isinstance(refusal := sending.exception(), policies.Refusal):
                raise refusal
            await receiving
    finally:
        for one in both:
            one.cancel()
        await asyncio.wait(both)


def secrets_of(added: Mapping[str, str]) -> list[str]:
    """Return what nobody may see of added headers: values, and what follows a word like Bearer."""
    parts = [part for value in added.values() for part in {value, value.rpartition(" ")[2]}]
    return [part for part in parts if len(part) >= _SHORTEST_SECRET]


async def _send(
    client: http_streams.HttpStream,
    server: http_streams.HttpStream,
    count: traffic.Traffic,
    contact: network_reach.Contact,
) -> None:
    """Pass on the body of a request."""
    while isinstance(event := await client.receive(), h11.Data):
        count.sent(contact, len(event.data))
        await server.send(h11.Data(data=bytes(event.data)))
    # Trailers are dropped.
    await server.send(h11.EndOfMessage())


async def _receive(
    client: http_streams.HttpStream,
    server: http_streams.HttpStream,
    request: h11.Request,
    sieve: SecretsSieve,
    *,
    count: traffic.Traffic,
    contact: network_reach.Contact,
    moved: tuple[bytes, bytes] | None,
) -> None:
    """Pass back a response."""
    while isinstance(response := await _heard(server), h11.InformationalResponse):
        if response.status_code == 101:
            raise policies.Refusal(_UPGRADE, status=502)
    if not isinstance(response, h11.Response):
        raise policies.Refusal(_NO_ANSWER, status=502)
    sieve.check_head(response)
    contact.status = response.status_code
    headers = http_streams.passed_on(response.headers, without=["content-length"])
    if moved is not None:
        headers = [(name, _moved(name, value, *moved)) for name, value in headers]
    lengths = http_streams.framing(response.headers)
    has_body = request.method != b"HEAD" and response.status_code not in (204, 304)
    if not lengths and has_body:
        lengths = [(b"Transfer-Encoding", b"chunked")]
    headers += [*lengths, (b"Connection", b"close")]
    status, reason = response.status_code, response.reason
    await client.send(h11.Response(status_code=status, headers=headers, reason=reason))
    while isinstance(event := await _heard(server), h11.Data):
        count.received(contact, len(event.data))
        if data := sieve.passed(bytes(event.data)):
            await client.send(h11.Data(data=data))
    if not isinstance(event, h11.EndOfMessage):
        raise policies.Refusal(_NO_ANSWER, status=502)
    if rest := sieve.rest():
        await client.send(h11.Data(data=rest))
    await client.send(h11.EndOfMessage())


def _moved(name: bytes, value: bytes, there: bytes, here: bytes) -> bytes:
    """Return a header's value; where it leads to a place within the host, by the client's name."""
    if name in (b"location", b"content-location") and value.startswith(there):
        return here + value.removeprefix(there)
    return value


async def _heard(server: http_streams.HttpStream) -> Any:  # noqa: ANN401 - h11's events.
    """Return the next event of a response.

    Raises:
        Refusal: it is no HTTP.
    """
    try:
        return await server.receive()
    except http_streams.MalformedError as error:
        raise policies.Refusal(_NO_ANSWER, status=502) from error
