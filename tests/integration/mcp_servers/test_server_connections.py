"""Connections to MCP servers of the SDK that behave, and to servers that do not."""

import asyncio
import base64
import contextlib
import itertools
import json

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.mcp_servers import call_results, program_cgroups, server_connections
from tests.fakes import tool_servers

NO_GROUPS = program_cgroups.ProgramGroups("off", [])


@pytest.fixture
async def server():
    async with tool_servers.ToolServer(tool_servers.make_tool("echo", a="A.")).serving() as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server, **options):
    entry = settings.McpServer(name="test", url=server.url, **options)
    connection = server_connections.ServerConnection(entry, {}, NO_GROUPS)
    try:
        yield connection
    finally:
        await connection.close()


async def ignored(progress, total, message):
    pass


async def test_a_call_reports_progress_and_its_end_reaches_the_server(server):
    heard = asyncio.Event()

    async def progress(progress, total, message):
        assert (progress, total) == (1, 4)
        heard.set()

    async def answer(context, name, arguments):
        await context.session.report_progress(1, 4, "a quarter")
        await asyncio.Event().wait()

    server.answer = answer
    async with connected(server) as connection, asyncio.timeout(60):
        calling = asyncio.create_task(connection.call("echo", {}, progress=progress))
        await heard.wait()
        calling.cancel()
        await server.cancelled.wait()


async def test_a_slow_call_is_cancelled_with_a_sentence(server):
    async def answer(context, name, arguments):
        await asyncio.Event().wait()

    server.answer = answer
    async with connected(server, call_seconds=0.5) as connection, asyncio.timeout(60):
        with pytest.raises(errors.BotError, match="did not answer within"):
            await connection.call("echo", {}, progress=ignored)
        await server.cancelled.wait()


ENDLESS = (b": x" * 1000 + b"\n" for _ in itertools.count())
LIES = {
    "huge": tool_servers.fixed_response(b" " * 3_000_000),
    "endless": tool_servers.fixed_response(ENDLESS, media_type="text/event-stream"),
    "packed": tool_servers.fixed_response(b"x", content_encoding="gzip"),
    "malformed": tool_servers.fixed_response(b"{]"),
    "not of the protocol": tool_servers.fixed_response(b'{"jsonrpc": "2.0", "id": 1, "result": 7}'),
    "a page": tool_servers.fixed_response(b"<html>", media_type="text/html"),
    "refused": tool_servers.fixed_response(b"no", status=401),
    "elsewhere": tool_servers.fixed_response(b"", status=307, location="http://127.0.0.1:9/mcp"),
    "downgraded": tool_servers.fixed_response(b"", status=302, location="/other"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_is_refused_with_a_sentence(server, lie):
    async with connected(server) as connection, asyncio.timeout(100):
        server.raw = LIES[lie]
        with pytest.raises(errors.BotError, match="test"):
            await connection.listing()


async def test_a_server_that_lies_later_is_refused_and_works_again(server):
    async with connected(server, call_seconds=20) as connection:
        async with asyncio.timeout(100):
            assert [*(await connection.listing()).tools] == ["echo"]

            async def answer(context, name, arguments):
                return "x" * 3_000_000

            server.answer = answer
            with pytest.raises(errors.BotError, match="test"):
                await connection.call("echo", {}, progress=ignored)
            server.answer = server.echo
            result = await connection.call("echo", {"a": 1}, progress=ignored)
            assert result.content[0].text == "echo {'a': 1}"


async def test_a_server_that_is_gone_is_not_tried_at_once_again(server):
    async with connected(server) as connection:
        server.raw = tool_servers.fixed_response(b"", status=500)
        for _ in range(3):
            with pytest.raises(errors.BotError, match="cannot be reached"):
                await connection.listing()
        tried = len(server.headers)
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await connection.listing()
        assert len(server.headers) == tried


async def test_a_token_comes_from_a_private_file_and_is_read_again(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    file.chmod(0o600)
    async with connected(server, token_file=file) as connection:
        await connection.listing()
        assert server.headers[-1]["authorization"] == "Bearer first"
        file.write_text("second\n")
        await connection.close()
        await connection.listing()
        assert server.headers[-1]["authorization"] == "Bearer second"


async def test_a_log_says_why_a_token_cannot_be_used(server, tmp_path, caplog):
    file = tmp_path / "token"
    file.write_text("first\n")
    file.chmod(0o644)
    async with connected(server, token_file=file) as connection:
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await connection.listing()
    assert str(file) in caplog.text
    assert "first" not in caplog.text


async def test_two_calls_that_hear_the_session_is_gone_connect_again_once(server):
    sessions, gone, heard, both = set(), set(), [], asyncio.Event()

    async def raw(scope, receive, send):
        headers = dict(scope["headers"])
        session = headers.get(b"mcp-session-id")
        if session in gone and scope["method"] == "POST":
            heard.append(session)
            if len(heard) == 2:
                both.set()
            await both.wait()
        # Only in older versions of the protocol are there sessions.
        elif headers.get(b"mcp-protocol-version", b"") < b"2026":
            sessions.update({session} - {None})
            return await server.answer_by_sdk(scope, receive, send)
        return await tool_servers.fixed_response(b"", status=404)(scope, receive, send)

    server.raw = raw
    async with connected(server) as connection, asyncio.timeout(60):
        await connection.listing()
        assert len(sessions) == 1
        gone.update(sessions)
        calls = (connection.call("echo", {"a": number}, progress=ignored) for number in (1, 2))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        # One of them may have been cut off by the end of the connection, before it heard.
        done = [end for end in ends if not isinstance(end, BaseException)]
        lost = [end for end in ends if isinstance(end, errors.BotError)]
        assert done
        assert len(done) + len(lost) == 2
        assert len(sessions) == 2


class Issuer:
    """Gives tokens for servers, at an origin of its own."""

    def __init__(self, server):
        self._server = server
        self.origin = server.url.removesuffix("/mcp")
        self.given = []
        self.logins = []
        server.raw = self._answer

    async def _answer(self, scope, receive, send):
        said = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
        }
        if scope["path"] == "/token":
            self.logins.append(self._server.headers[-1].get("authorization"))
            self.given.append(f"secret-token-{len(self.given)}")
            said = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": 3600}
        await tool_servers.fixed_response(json.dumps(said).encode())(scope, receive, send)


@pytest.fixture
async def issuers():
    """One that the settings name, and another."""
    one, other = tool_servers.ToolServer(), tool_servers.ToolServer()
    async with one.serving(), other.serving():
        yield Issuer(one), Issuer(other), other.headers


async def test_the_bot_logs_in_at_the_issuer_of_the_settings_and_nowhere_else(server, issuers):
    issuer, foreign, heard_by_foreign = issuers
    advertised = foreign

    async def raw(scope, receive, send):
        token = dict(scope["headers"]).get(b"authorization", b"").decode()
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            said = {"resource": server.url, "authorization_servers": [advertised.origin]}
            return await tool_servers.fixed_response(json.dumps(said).encode())(
                scope, receive, send
            )
        if token not in [f"Bearer {given}" for given in issuer.given]:
            return await tool_servers.fixed_response(b"", status=401)(scope, receive, send)
        return await server.answer_by_sdk(scope, receive, send)

    async def echo(context, name, arguments):
        return f"{server.headers[-1]['authorization']} hush-hush"

    server.raw, server.answer = raw, echo
    login = settings.OAuthLogin(issuer=issuer.origin, client_id="bot", client_secret="hush-hush")
    async with connected(server, oauth=login) as connection, asyncio.timeout(60):
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await connection.listing()
    assert (heard_by_foreign, issuer.logins) == ([], [])
    advertised = issuer
    async with connected(server, oauth=login) as connection, asyncio.timeout(60):
        assert [*(await connection.listing()).tools] == ["echo"]
        result = await connection.call("echo", {}, progress=ignored)
        assert result.content[0].text == "Bearer secret-token-0 hush-hush"
        told = call_results.as_json(result, connection.secrets)
        assert told["parts"] == [{"text": "Bearer [redacted] [redacted]"}]
    assert issuer.logins == ["Basic " + base64.b64encode(b"bot:hush-hush").decode()]


def test_a_secret_is_known_for_one_without_the_words_around_it():
    key = "hunter2-hunter2"
    for told in (
        {"url": "http://127.0.0.1/mcp", "headers": {"Authorization": "token ${KEY}"}},
        {"command": ("x",), "environment": {"ADDRESS": "db://bot:${KEY}@db/x"}},
    ):
        entry = settings.McpServer(name="test", **told)
        connection = server_connections.ServerConnection(entry, {"KEY": key}, NO_GROUPS)
        assert key in connection.secrets
