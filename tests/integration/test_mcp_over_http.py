"""MCP over HTTP: the SDK's client with a token, and clients that mean harm."""

import asyncio
import base64
import contextlib

import httpx2
import mcp
import pytest
from mcp.client import streamable_http

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms import client_tokens, request_limits
from interpreter_bot.platforms.mcp import startup

pytestmark = pytest.mark.kernel

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Served:
    """A served sandbox, and clients of it."""

    def __init__(self, service, address, tokens):
        self.service = service
        self.address = address
        self.tokens = tokens

    @contextlib.asynccontextmanager
    async def client(self, name, mode="auto"):
        token = self.tokens.get(name, name)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http.streamable_http_client(self.address, http_client=http)
            async with mcp.Client(transport, mode=mode, read_timeout_seconds=60) as client:
                yield client

    async def past(self, name, session):
        """What is recorded of a client's session."""
        key = values.SessionKey("mcp", channel=name, thread=session)
        return await self.service.queries.history(key)


@pytest.fixture
async def serving(tmp_path, short_path):
    """Serve a sandbox: `async with serving(limits) as served`."""
    data = tmp_path / "data"
    tokens = {
        name: client_tokens.add(data / client_tokens.MCP_FILE, name) for name in ("anna", "ben")
    }
    config = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=data, runtime=short_path),
        limits=settings.Limits(upload_bytes=1_000_000),
        mcp=settings.Mcp(listen="127.0.0.1:0"),
    )

    @contextlib.asynccontextmanager
    async def start(limits=request_limits.DEFAULT_LIMITS):
        async with (
            bot_startup.open_service(config, {}) as service,
            startup.serve(service, config.mcp, data, limits) as address,
        ):
            yield Served(service, address, tokens)

    return start


@pytest.fixture
async def served(serving):
    async with serving() as opened:
        yield opened


def _said(result):
    return "\n".join(one.text for one in result.content if one.type == "text")


def _handle(result):
    return _said(result).rpartition("[session: ")[2].rstrip("]")


@pytest.mark.first_case
@MODES
async def test_code_runs_with_pictures_progress_and_a_record(served, mode):
    begun = asyncio.Event()

    async def progress(done, total, message):
        if message == "working":
            begun.set()

    code = (
        "import time\nfrom IPython.display import Image, display\n"
        f"display(Image(data={PNG!r}))\nprint('working')\n"
        "while not __import__('os').path.exists('go'): time.sleep(0.05)\nprint('done')"
    )
    async with served.client("anna", mode) as client:
        session = _handle(await client.call_tool("put_file", {"name": "x", "text": ""}))
        running = asyncio.create_task(
            client.call_tool(
                "run_code", {"code": code, "session": session}, progress_callback=progress
            )
        )
        await asyncio.wait_for(begun.wait(), 60)
        await client.call_tool("put_file", {"name": "go", "text": "1", "session": session})
        ran = await running
    assert [one.type for one in ran.content] == ["image", "text"]
    assert base64.b64decode(ran.content[0].data) == PNG
    assert "working\ndone" in _said(ran)
    begun, turn = await served.past("anna", session)
    assert begun.record.person == "anna", "a file belongs to somebody from the beginning"
    assert turn.record.status is values.TurnStatus.DONE
    assert turn.record.person == "anna"


@pytest.mark.first_case
@MODES
async def test_a_call_that_is_cancelled_stops_its_code(served, mode):
    begun = asyncio.Event()

    async def progress(done, total, message):
        if message == "begun":
            begun.set()

    async with served.client("anna", mode) as client:
        session = _handle(await client.call_tool("run_code", {"code": "n = 1"}))
        code = "n = 2; print('begun', flush=True)\nimport time; time.sleep(50)"
        running = asyncio.create_task(
            client.call_tool(
                "run_code", {"code": code, "session": session}, progress_callback=progress
            )
        )
        await asyncio.wait_for(begun.wait(), 60)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        # Behind it in the lane, so that it is over by then; its variables are kept.
        after = await client.call_tool("run_code", {"code": "n", "session": session})
        assert _said(after).startswith("2\n")
    stopped = (await served.past("anna", session))[1]
    assert stopped.record.status is values.TurnStatus.STOPPED


@MODES
async def test_a_handle_is_worth_nothing_to_another_client(served, mode):
    async with served.client("anna", mode) as anna, served.client("ben", mode) as ben:
        session = _handle(await anna.call_tool("run_code", {"code": "secret = 1"}))
        for tool, arguments in (
            ("run_code", {"code": "secret"}),
            ("list_files", {}),
            ("get_file", {"name": "x"}),
            ("put_file", {"name": "x", "text": "x"}),
            ("reset", {"files": True}),
        ):
            for handle in (session, f"../anna/{session}", "é", "s" * 10_000):
                refused = await ben.call_tool(tool, arguments | {"session": handle})
                assert refused.is_error
                assert _said(refused).startswith("There is no such session.")
        still = await anna.call_tool("run_code", {"code": "secret", "session": session})
        assert _said(still).startswith("1\n")


async def test_hostile_arguments_are_refused_in_a_sentence(served):
    async with served.client("anna") as client:
        session = _handle(await client.call_tool("run_code", {"code": "1"}))
        for tool, arguments, said in (
            ("run_code", {"code": "#" * 200_000}, "the limit is 100,000 characters"),
            ("run_code", {"code": 7}, "The arguments of run_code are wrong. code:"),
            ("run_code", {"code": "1", "sesion": "x"}, "sesion: Extra inputs"),
            ("get_file", {"name": "../../../etc/passwd"}, "no such file"),
            ("get_file", {"name": "/etc/passwd"}, "no such file"),
            ("put_file", {"name": "x"}, "either as text or as base64"),
            ("put_file", {"name": "x", "base64": "§"}, "not valid Base64"),
            ("put_file", {"name": "x", "text": "x" * 1_000_001}, "too large: the limit is"),
        ):
            given = arguments if "code" in arguments else arguments | {"session": session}
            refused = await client.call_tool(tool, given)
            assert refused.is_error
            assert said in _said(refused)
        for name in ("../../x.txt", "/etc/x.txt", "a\x00b\u202e.txt"):
            put = await client.call_tool(
                "put_file", {"name": name, "text": "x", "session": session}
            )
            assert not put.is_error
            assert "/mnt/data/" in _said(put)
            assert ".." not in _said(put)
        asked = await client.call_tool("run_code", {"code": "input('?')", "session": session})
        assert asked.is_error
        assert "put the value into the code" in _said(asked)


async def test_results_stay_below_what_a_client_takes(served):
    code = (
        "import os\nfrom IPython.display import Image, display\n"
        f"for n in range(4): display(Image(data={PNG!r} + bytes(400_000)))\n"
        "print('\\x01é' * 400_000)\n"
        "open('big', 'wb').write(b'\\xff' * 1_200_000)\nopen('text', 'w').write('\\x01é' * 300_000)"
    )
    async with served.client("anna") as client:
        ran = await client.call_tool("run_code", {"code": code})
        session = _handle(ran)
        assert [one.type for one in ran.content].count("image") == 1
        assert "is not sent" in _said(ran)
        for name in ("big", "text"):
            got = await client.call_tool("get_file", {"name": name, "session": session})
            whole, parts = b"", 0
            while True:
                parts += 1
                one = got.content[0]
                whole += (
                    one.text.encode() if one.type == "text" else base64.b64decode(one.resource.blob)
                )
                if len(got.content) == 1:
                    break
                start = int(got.content[1].text.rpartition("start=")[2].rstrip("]"))
                assert start == len(whole)
                got = await client.call_tool(
                    "get_file", {"name": name, "session": session, "start": start}
                )
            assert parts > 2
            wanted = b"\xff" * 1_200_000 if name == "big" else ("\x01é" * 300_000).encode()
            assert whole == wanted


async def test_without_a_good_token_nothing_is_told(served):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=60) as http:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer é".encode()}):
            got = await http.post(served.address, json=body, headers=accept | headers)
            assert got.status_code == 401
            assert "tools" not in got.text
        good = accept | {"Authorization": f"Bearer {served.tokens['anna']}"}
        for other in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            got = await http.post(served.address, json=body, headers=good | other)
            assert got.status_code in (403, 421)
        huge = await http.post(served.address, content=b"x" * 5_000_000, headers=good)
        assert huge.status_code == 413
        for garbage in (b"\xff", b"[" * 100_000, b"{}", b"null"):
            got = await http.post(served.address, content=garbage, headers=good)
            assert 400 <= got.status_code < 500


async def _opened(served, *tokens):
    """Ask for a session, with several tokens; returns the status."""
    told = {"protocolVersion": "2025-03-26", "capabilities": {}}
    told["clientInfo"] = {"name": "two", "version": "1"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told}
    headers = [("Accept", "application/json, text/event-stream")]
    headers += [("Authorization", one) for one in tokens]
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(served.address, json=body, headers=headers)).status_code


async def test_a_client_that_opens_too_many_sessions_leaves_others_theirs(served, monkeypatch):
    monkeypatch.setattr(startup, "_MAX_CLIENT_SESSIONS", 2)
    async with contextlib.AsyncExitStack() as stack:
        for name in ("anna", "anna", "ben", "ben"):
            await stack.enter_async_context(served.client(name, "legacy"))
        with pytest.raises(ExceptionGroup):
            await stack.enter_async_context(served.client("anna", "legacy"))
        # A second token makes nobody another client.
        for second in (f"Bearer {served.tokens['ben']}", "Bearer x"):
            assert await _opened(served, f"Bearer {served.tokens['anna']}", second) == 503
            assert await _opened(served, "Bearer x", second) == 401
        await stack.enter_async_context(served.client("anna"))
    async with served.client("anna", "legacy") as client:
        assert (await client.list_tools()).tools, "those that ended count no more"


async def test_bodies_of_unanswered_requests_are_limited_per_client_and_in_all(serving):
    limits = request_limits.Limits(client_body_bytes=100_000, total_body_bytes=150_000)
    body = b'{"padding": "' + b"x" * 80_000 + b'"}'

    async def in_pieces():
        yield body[:40_000]
        yield body[40_000:]

    async def post(served, name, content):
        headers = {
            "Authorization": f"Bearer {served.tokens[name]}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        async with httpx2.AsyncClient(timeout=60, headers=headers) as http:
            return await http.post(served.address, content=content)

    async with serving(limits) as served, served.client("anna") as client:
        is_running = asyncio.Event()

        async def note_progress(done, total, message):
            if message == "working":
                is_running.set()

        session = _handle(await client.call_tool("put_file", {"name": "x", "text": ""}))
        code = (
            "import os, time\nprint('working')\n"
            f"while not os.path.exists('go'): time.sleep(0.05)\n# {'x' * 80_000}"
        )
        call = {"code": code, "session": session}
        running = asyncio.create_task(
            client.call_tool("run_code", call, progress_callback=note_progress)
        )
        await asyncio.wait_for(is_running.wait(), 60)
        for content in (body, in_pieces()):
            refusal = await post(served, "anna", content)
            assert refusal.status_code == 429
            assert refusal.text.startswith("Your requests that are not answered yet have more than")
        refusal = await post(served, "ben", body)
        assert refusal.status_code == 503
        assert refusal.text.endswith("Send the request again in a minute.")
        await client.call_tool("put_file", {"name": "go", "text": "1", "session": session})
        assert "working" in _said(await running)
        # Nothing is charged any more: these are refused for what they say.
        for name in ("anna", "ben"):
            assert (await post(served, name, body)).status_code == 400


async def test_a_removed_client_is_refused_at_once(served, tmp_path):
    headers = {"Authorization": f"Bearer {served.tokens['anna']}"}
    async with httpx2.AsyncClient(timeout=60, headers=headers) as http:
        before = await http.post(served.address, json={})
        client_tokens.remove(tmp_path / "data" / client_tokens.MCP_FILE, "anna")
        after = await http.post(served.address, json={})
    assert before.status_code != 401
    assert after.status_code == 401
