"""`interpreter-bot mcp` as an agent starts it: the real command, and the SDK's own client."""

import contextlib
import itertools
import json
import pathlib
import subprocess
import sys
import time

import mcp
import pytest
from mcp.client import stdio

pytestmark = pytest.mark.kernel

COMMAND = pathlib.Path(sys.executable).with_name("interpreter-bot")


@pytest.fixture
def parameters(tmp_path, short_path):
    return stdio.StdioServerParameters(
        command=str(COMMAND),
        args=["mcp"],
        env={
            "HOME": str(tmp_path),
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
        },
    )


def _said(result):
    return "\n".join(one.text for one in result.content if one.type == "text")


def _handle(result):
    return _said(result).rpartition("[session: ")[2].rstrip("]")


@pytest.mark.gate
async def test_an_agent_runs_code_and_moves_files(parameters, tmp_path):
    async with mcp.Client(parameters, read_timeout_seconds=60) as client:
        listed = await client.list_tools()
        names = [tool.name for tool in listed.tools]
        assert names == ["run_code", "list_files", "get_file", "put_file", "reset"]
        put = await client.call_tool("put_file", {"name": "a.csv", "text": "x\n1\n2\n"})
        session = _handle(put)
        code = "import csv; n = sum(int(r['x']) for r in csv.DictReader(open('a.csv'))); n"
        ran = await client.call_tool("run_code", {"session": session, "code": code})
        assert not ran.is_error
        assert _said(ran).startswith("3\n")
        # Its variables stay, and what it writes can be read.
        code = "open('out.txt', 'w').write(f'sum {n}')"
        ran = await client.call_tool("run_code", {"session": session, "code": code})
        assert "out.txt (5 bytes)" in _said(ran)
        got = await client.call_tool("get_file", {"session": session, "name": "out.txt"})
        assert _said(got) == "sum 3"
        files = await client.call_tool("list_files", {"session": session})
        assert _said(files) == "a.csv (6 bytes)\nout.txt (5 bytes)"
        raised = await client.call_tool("run_code", {"session": session, "code": "1 / 0"})
        assert raised.is_error
        assert "ZeroDivisionError: division by zero" in _said(raised)
        await client.call_tool("reset", {"session": session})
        gone = await client.call_tool("run_code", {"session": session, "code": "n"})
        assert "NameError" in _said(gone)
    # The sessions of a client end with it.
    assert list((tmp_path / "data").rglob("out.txt")) == []


class Client:
    """A client that writes messages by hand."""

    def __init__(self, process):
        self._process = process
        self._numbers = itertools.count(1)

    def ask(self, method, params=None, *, version=None):
        if version:
            prefix = "io.modelcontextprotocol/"
            about = {"protocolVersion": version, "clientCapabilities": {}}
            about |= {"clientInfo": {"name": "x", "version": "1"}}
            params = (params or {}) | {"_meta": {prefix + key: about[key] for key in about}}
        request = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        request |= {"params": params} if params is not None else {}
        self.tell(request)
        answer = self.answer()
        assert answer["id"] == request["id"]
        return answer["result"]

    def answer(self):
        return json.loads(self._process.stdout.readline())

    def tell(self, message):
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def initialize(self, version="2025-06-18"):
        about = {"name": "x", "version": "1"}
        wanted = {"protocolVersion": version, "capabilities": {}, "clientInfo": about}
        result = self.ask("initialize", wanted)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result


@contextlib.contextmanager
def connected(parameters, **environment):
    with subprocess.Popen(
        [parameters.command, *parameters.args],
        env=parameters.env | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Client(process)
        process.stdin.close()


SLOW_SECONDS = 15
CODE = {"name": "run_code", "arguments": {"code": "6 * 7"}}


def test_tools_are_listed_before_anything_can_run_code(parameters, tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep {SLOW_SECONDS}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    began = time.monotonic()
    with connected(parameters, INTERPRETER_BOT_KERNELS__PYTHON=str(slow)) as client:
        client.initialize()
        assert client.ask("tools/list")["tools"][0]["name"] == "run_code"
        client.ask("ping")
        assert time.monotonic() - began < SLOW_SECONDS, "nothing can run code yet"
        result = client.ask("tools/call", CODE)
        assert result["content"][0]["text"].startswith("42")
    with connected(parameters) as client:
        version = "2026-07-28"
        assert client.ask("server/discover", version=version)["supportedVersions"] == [version]
        assert client.ask("tools/call", CODE, version=version)["content"]


def test_garbage_is_survived_and_a_signal_ends_it_though_its_client_stays(parameters):
    with subprocess.Popen(
        [parameters.command, *parameters.args],
        env=parameters.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"\xff\xfe{{{\n[]\n" + b"[" * 100_000 + b"\n")
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        process.stdin.flush()
        while b'"id":7' not in process.stdout.readline():
            pass
        process.terminate()
        assert process.wait(60) == 130
