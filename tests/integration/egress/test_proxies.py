"""The proxy, spoken to byte by byte: each trick that could get more through than is listed."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.egress import (
    approvals,
    certificates,
    outbound_connections,
    policies,
    proxies,
    services_door,
    traffic_limits,
)
from tests.fakes import external_servers

HOST = "api.example.org"
KEY = "a-secret-of-the-bot"
LISTED = {"addresses": ["127.0.0.1"]}


class Door:
    """A proxy on this machine's loopback, in the place of a kernel's."""

    def __init__(self, context, port):
        self.context = context
        self.port = port
        self.contacts = []

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, raw: bytes) -> str:
        """Send bytes, and return all that comes back."""
        reader, writer = await self.connect()
        writer.write(raw)
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        return answer.decode("latin-1")

    async def tunnel(self, target: str, *, name: str | None, trusted=None):
        """CONNECT, then TLS for a name; returns the streams inside."""
        reader, writer = await self.connect()
        try:
            writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                context = ssl.create_default_context(cadata=trusted)
                if trusted is None:
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                await writer.start_tls(context, server_hostname=name or "")
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    async def inside(self, raw: bytes, *, port: int) -> str:
        """Send a request in a tunnel that the bot reads."""
        pem = self.context.authority.certificate
        reader, writer = await self.tunnel(f"{HOST}:{port}", name=HOST, trusted=pem)
        writer.write(raw)
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        return answer.decode("latin-1")


@contextlib.asynccontextmanager
async def door(
    *rules, upstream=None, resolve=None, traffic=None, kind=proxies.Proxy, ask=None, **context
):
    """Open a proxy with these rules."""
    listed = policies.compile_rules([settings.Egress(**rule) for rule in rules], {"KEY": KEY})
    dialler = outbound_connections.Dialler(resolve or external_servers.make_resolver(["127.0.0.1"]))
    contacts = []
    shared = proxies.ProxyContext(
        key="web///x",
        kernel_id="kernel",
        find_policy=lambda: policies.choose_policy(listed, values.SessionKey("web", thread="x")),
        traffic=traffic or traffic_limits.Traffic(settings.EgressLimits()),
        dialler=dialler,
        authority=certificates.Authority(b"seed"),
        approvals=approvals.Approvals(ask),
        outside_tls=ssl.create_default_context(cadata=upstream.authority.certificate)
        if upstream
        else ssl.create_default_context(),
        record_contact=contacts.append,
        **context,
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        listener.listen()

        async def accept():
            endpoint, _ = await asyncio.get_running_loop().sock_accept(listener)
            return endpoint

        serving = asyncio.create_task(kind(shared).serve(accept))
        opened = Door(shared, listener.getsockname()[1])
        opened.contacts = contacts
        try:
            yield opened
        finally:
            serving.cancel()
            await asyncio.wait({serving})


def to(server) -> dict[str, object]:
    """A rule for one port of one host."""
    return {"host": HOST, "ports": [server.port], **LISTED}


def status(answer: str) -> int:
    return int(answer.split(" ")[1])


def get(path="/ok/x", *headers, method="GET", host=HOST, port=0) -> bytes:
    place = f"{host}:{port}" if port else host
    lines = [f"{method} {path} HTTP/1.1", f"Host: {place}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


AMBIGUOUS = {
    "two lengths": b"POST http://{h}/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n"
    b"Content-Length: 5\r\n\r\nabcd",
    "length and chunks": b"POST http://{h}/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"GET http://{h}/ HTTP/1.1\r\nHost: {h}\r\nA: b\r\n c\r\n\r\n",
    "a bare line feed": b"GET http://{h}/ HTTP/1.1\r\nHost: {h}\nA: b\r\n\r\n",
    "two hosts": b"GET http://{h}/ HTTP/1.1\r\nHost: {h}\r\nHost: evil.org\r\n\r\n",
    "a space before the colon": b"GET http://{h}/ HTTP/1.1\r\nHost : {h}\r\n\r\n",
    "an older version": b"GET http://{h}/ HTTP/1.0\r\nHost: {h}\r\n\r\n",
    "other codings": b"POST http://{h}/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip, chunked"
    b"\r\n\r\n0\r\n\r\n",
    "no request": b"hello\r\n\r\n",
    "a long head": b"GET http://{h}/ HTTP/1.1\r\nHost: {h}\r\nA: " + b"x" * 200_000 + b"\r\n\r\n",
    "a path": b"GET / HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "another scheme": b"GET ftp://{h}/ HTTP/1.1\r\nHost: {h}\r\n\r\n",
}


async def test_ambiguous_http_is_not_passed_on():
    async with external_servers.ExternalServer.open() as server, door(to(server)) as one:
        for name, raw in AMBIGUOUS.items():
            answer = await one.ask(raw.replace(b"{h}", f"{HOST}:{server.port}".encode()))
            assert status(answer) in (400, 501), name
        assert server.connections == 0


async def test_plain_http_is_rebuilt_without_headers_of_one_connection():
    async with external_servers.ExternalServer.open() as server, door(to(server)) as one:
        raw = (
            f"POST http://{HOST.upper()}:{server.port}/a?b=c HTTP/1.1\r\n"
            f"Host: {HOST}:{server.port}\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
            "Proxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n"
            "X-Kept: 2\r\nContent-Length: 5\r\n\r\nhelloGET /second HTTP/1.1\r\n\r\n"
        ).encode()
        answer = await one.ask(raw)
    assert status(answer) == 200
    assert answer.endswith("outside")
    (head,) = server.heads
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n")
    names = {line.partition(":")[0].lower() for line in head.strip().splitlines()[1:]}
    assert names == {"host", "x-kept", "content-length", "connection"}
    assert server.bodies == [b"hello"]
    (contact,) = one.contacts
    assert (contact.method, contact.host, contact.path, contact.status) == ("POST", HOST, "/a", 200)
    received = len(external_servers.make_response(b"outside"))
    assert (contact.sent_bytes, contact.received_bytes) == (len(raw), received), "heads count too"


async def test_the_client_hello_has_to_name_the_host_of_the_tunnel():
    async with external_servers.ExternalServer.open(HOST) as server, door(to(server)) as one:
        reader, writer = await one.tunnel(
            f"{HOST}:{server.port}", name=HOST, trusted=server.authority.certificate
        )
        writer.write(get())
        assert (await reader.read()).endswith(b"outside")
        writer.close()
        for name in ("evil.org", None):
            with pytest.raises((ssl.SSLError, OSError)):
                await one.tunnel(f"{HOST}:{server.port}", name=name)
        reader, writer = await one.connect()
        target = f"{HOST}:{server.port}"
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(get())
        assert await reader.read() == b"", "what is no TLS goes nowhere"
        writer.close()
        assert len(server.heads) == 1
        async with asyncio.timeout(30):
            while len(one.contacts) < 4:  # noqa: ASYNC110 - it is looked up.
                await asyncio.sleep(0.01)
        told = sorted(contact.reason for contact in one.contacts)
        assert told[0] == ""
        assert [("another host" in reason, "begin with TLS" in reason) for reason in told[1:]] == [
            (True, False),
            (True, False),
            (False, True),
        ]


@pytest.mark.parametrize(
    "target",
    [
        *("127.0.0.1:443", "[::1]:443", "localhost:443", "169.254.169.254:80", "2130706433:443"),
        *(f"{HOST}:22", f"{HOST}:443x", f"x.{HOST}:443", f"{HOST}.evil.org:443", "evil.org:443"),
        f"{HOST}%2eevil.org:443",
    ],
)
async def test_an_unlisted_host_is_not_looked_up(target):
    resolve = external_servers.make_resolver(["127.0.0.1"])
    async with door({"host": HOST, **LISTED}, resolve=resolve) as one:
        answer = await one.ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status(answer) == 403
    assert "X-Proxy-Error: " in answer
    assert resolve.hosts == []


async def test_the_checked_address_of_a_name_is_dialled():
    async with external_servers.ExternalServer.open() as server:
        resolve = external_servers.make_resolver(
            ["10.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]
        )
        raw = get(f"http://{HOST}:{server.port}/", port=server.port)
        async with door(to(server), resolve=resolve) as one:
            refused = await one.ask(raw)
            assert status(refused) == 403
            assert "10.0.0.1" not in refused
            assert "127.0.0" not in refused
            assert server.connections == 0
            assert status(await one.ask(raw)) == 200, "the one that is allowed of several"
            assert len(resolve.hosts) == 2, "looked up once for each"


async def test_secrets_are_added_and_never_returned_to_code():
    def answer(head):
        path = head.split(" ")[1]
        if path == "/ok/head":
            return external_servers.make_response(b"", f"X-Echo: {head!r}")
        if path == "/ok/body":
            return external_servers.make_response(b"x" * 300_000 + head.encode() + b"y" * 300_000)
        if path == "/ok/packed":
            return external_servers.make_response(
                gzip.compress(head.encode()), "Content-Encoding: gzip"
            )
        if path == "/ok/moved":
            return external_servers.make_response(
                b"", "Location: https://evil.org/", status="302 Found"
            )
        if path == "/ok/piece":
            piece = KEY[:7].encode()
            return external_servers.make_response(
                piece, "Content-Range: bytes 0-6/99", status="206 Partial Content"
            )
        return external_servers.make_response(b"fine", "Set-Cookie: a=b")

    rule = {"host": HOST, "paths": ["/ok/"], "headers": {"X-Api-Key": "Token ${KEY}"}, **LISTED}
    async with external_servers.ExternalServer.open(HOST, answer) as server:
        rule["ports"] = port = [server.port]
        async with door(rule, upstream=server) as one:
            mine = ("x_api.key: forged", "X-API-KEY: forged", "Accept-Encoding: gzip")
            mine += ("Range: bytes=0-6", "If-Range: x", "A-IM: vcdiff")
            told = await one.inside(get("/ok/x", *mine, port=port[0]), port=port[0])
            assert status(told) == 200
            assert told.endswith("fine")
            assert server.heads[-1].count(KEY) == 1
            assert "forged" not in server.heads[-1]
            head = server.heads[-1].lower()
            assert not [word for word in ("gzip", "range:", "a-im") if word in head]
            for path in ("/ok/head", "/ok/body", "/ok/packed", "/ok/piece"):
                echoed = await one.inside(get(path, port=port[0]), port=port[0])
                assert (path == "/ok/body") is (status(echoed) == 200)
                assert KEY not in echoed
                assert KEY[:7] not in echoed or path == "/ok/body"
                assert "forged" not in echoed
            moved = await one.inside(get("/ok/moved", port=port[0]), port=port[0])
            assert status(moved) == 302, "the client's to follow, and judged anew"
            plain = await one.ask(get(f"http://{HOST}:{port[0]}/ok/x", port=port[0]))
            assert status(plain) == 403, "a secret goes nowhere unencrypted"
    assert KEY not in repr(one.contacts)


async def test_the_services_door_has_nothing_but_services():
    async with external_servers.ExternalServer.open(HOST, external_servers.make_response) as server:
        async with door(to(server), upstream=server, kind=services_door.ServicesDoor) as one:
            for path in ("/", "/connections", f"http://{HOST}:{server.port}/ok/x"):
                assert status(await one.ask(get(path, host="127.0.0.1"))) == 404, path
        assert not server.heads


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (get("/other"), 403),
        (get("/ok/../other"), 403),
        (get("/ok/%2e%2e/other"), 403),
        (get("/ok/..%2fother"), 403),
        (get("/ok/\\..\\other"), 403),
        (get("//ok/x"), 403),
        (get("/ok//x"), 403),
        (get("/ok/..;/other"), 403),
        (get("/ok/x", method="DELETE"), 405),
        (get("/ok/x", method="TRACE"), 405),
        (get("evil.org:443", method="CONNECT"), 405),
        (get("http://evil.org/ok/"), 400),
        (get("*", method="OPTIONS"), 405),
        (get("/ok/x", "Upgrade: websocket", "Connection: Upgrade"), 501),
        (get("/ok/x", "Upgrade: h2c", "HTTP2-Settings: x"), 501),
        (get("/ok/x", host="evil.org"), 421),
        (get("/ok/x", host=f"{HOST}.evil.org"), 421),
        (get("/ok/x", host="127.0.0.1"), 421),
        (get("/ok/x", port=80), 421),
    ],
)
async def test_a_request_against_its_rule_is_refused_instead_of_forwarded(raw, expected):
    rule = {"host": HOST, "paths": ["/ok/"], "methods": ["GET"], **LISTED}
    resolve = external_servers.make_resolver(["127.0.0.1"])
    async with door(rule, resolve=resolve) as one:
        assert status(await one.inside(raw, port=443)) == expected
    assert resolve.hosts == [], "what is refused reaches nobody"


async def test_a_host_that_cannot_prove_its_name_gets_nothing():
    rule = {"host": HOST, "paths": ["/ok/"], "headers": {"A": "${KEY}"}, **LISTED}
    async with (
        external_servers.ExternalServer.open("other.example.org") as server,
        door({**rule, "ports": [server.port]}, upstream=server) as one,
    ):
        told = await one.inside(get(port=server.port), port=server.port)
    assert status(told) == 502
    assert "is not trusted" in told
    assert server.heads == []


async def test_too_much_traffic_and_too_many_requests_are_refused():
    limits = settings.EgressLimits(sent_bytes=200, daily_bytes=5000)
    traffic = traffic_limits.Traffic(limits, max_hourly_requests=3)
    answers = iter([b"x" * 1001, b"x" * 900])
    async with external_servers.ExternalServer.open(
        answer=lambda _: external_servers.make_response(next(answers))
    ) as server:
        async with door(to(server), traffic=traffic) as one:
            url = f"http://{HOST}:{server.port}/"
            assert "xxx" not in await one.ask(get(url, port=server.port))
            assert (await one.ask(get(url, port=server.port))).count("x") >= 900
            raw = get(url, "Content-Length: 200", method="POST", port=server.port) + b"x" * 200
            assert status(await one.ask(raw)) == 413
            assert status(await one.ask(get(url, port=server.port))) == 429
        spent = [contact.reason for contact in one.contacts]
    assert "bytes allowed" in spent[0]
    assert "bytes allowed" in spent[2]


async def test_a_silent_server_times_out_and_the_client_learns_why():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with door({"host": HOST, "ports": [port], **LISTED}, idle_seconds=0.2) as one:
            told = await one.ask(get(f"http://{HOST}:{port}/", port=port))
    assert status(told) == 504
    assert "took too long" in told


async def test_a_tunnel_is_asked_for_without_a_body():
    async with external_servers.ExternalServer.open(HOST) as server, door(to(server)) as one:
        target = f"{HOST}:{server.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nContent-Length: 5\r\n\r\n"
        assert status(await one.ask(head.encode())) == 400
    assert server.connections == 0


async def test_a_person_approves_a_request_before_anything_is_sent():
    asked, answers = [], iter(["yes", "no", "session"])

    async def ask(request):
        asked.append(request)
        return next(answers)

    async with external_servers.ExternalServer.open(HOST) as server:
        rule = {**to(server), "approval": "ask"}
        async with door(rule, upstream=server, ask=ask) as one:
            body = "Content-Length: 6"
            posted = get("/x?key=1", body, method="POST", port=server.port) + b"secret"
            assert status(await one.inside(posted, port=server.port)) == 200
            assert server.bodies == [b"secret"]
            got = get(port=server.port)
            assert status(await one.inside(got, port=server.port)) == 403
            again = await one.inside(got, port=server.port)
            assert "was not allowed" in again, "who said no is not asked again at once"
            for _ in range(2):
                assert status(await one.inside(posted, port=server.port)) == 200
        async with door(rule, upstream=server) as nobody:
            assert "nobody could be asked" in await nobody.inside(got, port=server.port)
    assert len(asked) == 3, "an answer for the session counts for the session"
    assert f"POST to {HOST}" in asked[0].prompt
    assert "/x?key=1\nIt begins with b'secret'.\n" in asked[0].prompt
    assert (asked[0].subject, asked[0].grant) == ("request", f"POST {HOST}:{server.port}")


async def test_a_long_question_is_cut_and_a_refusal_is_repeated_for_a_while():
    asked = []

    async def ask(request):
        asked.append(request)
        raise errors.UnansweredError

    async with external_servers.ExternalServer.open(HOST) as server:
        rule = {**to(server), "approval": "ask"}
        async with door(rule, upstream=server, ask=ask) as one:
            for _ in range(2):
                told = await one.inside(get("/" + "x" * 2000, port=server.port), port=server.port)
                assert "nobody answered" in told
    (question,) = asked
    assert "/xx" in question.prompt
    assert "xx… (and 1,001 more characters)\n" in question.prompt
    assert server.connections == 0


async def test_a_client_that_disconnects_withdraws_its_question():
    begun, dropped, is_patient = asyncio.Event(), asyncio.Event(), False

    async def ask(request):
        begun.set()
        if is_patient:
            for _ in range(100):
                await asyncio.sleep(0)
            return "yes"
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()

    async with external_servers.ExternalServer.open(HOST) as server:
        rule = {**to(server), "approval": "ask"}
        async with asyncio.timeout(30), door(rule, upstream=server, ask=ask) as one:
            place = f"http://{HOST}:{server.port}/x"
            _, writer = await one.connect()
            head = get(place, "Content-Length: 5", method="POST", port=server.port)
            writer.write(head + b"hello")
            await begun.wait()
            writer.close()
            await dropped.wait()
            while not one.contacts:  # noqa: ASYNC110 - nobody tells of it.
                await asyncio.sleep(0.01)
            assert server.connections == 0
            is_patient, body = True, b"much" * 75_000
            size = f"Content-Length: {len(body)}"
            posted = get("/x", size, method="POST", port=server.port) + body
            assert status(await one.inside(posted, port=server.port)) == 200
    assert server.bodies == [body]


async def test_parallel_connections_are_limited():
    async with door({"host": HOST, **LISTED}, max_connections=2) as one:
        silent = [await one.connect() for _ in range(2)]
        waiting = asyncio.create_task(one.ask(b"CONNECT evil.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"))
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        silent[0][1].close()
        assert status(await waiting) == 403
        silent[1][1].close()
