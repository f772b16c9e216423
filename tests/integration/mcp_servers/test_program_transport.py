"""MCP servers that are programs: behind walls, ended and started again."""

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels.provisioning import start_parameters
from interpreter_bot.mcp_servers import (
    call_results,
    program_cgroups,
    program_transport,
    server_connections,
)
from tests import machine

pytestmark = pytest.mark.kernel
in_container = pytest.mark.skipif(
    machine.offers_namespaces(), reason="tried by `make test-in-container`"
)

# What a bot does that lost its database: nothing of it may act any more.
EXECUTED_ANEW = """
import asyncio, os, pathlib, sys
from interpreter_bot import settings
from interpreter_bot.mcp_servers import program_cgroups, program_transport

async def main():
    script = pathlib.Path(sys.argv[1])
    server = settings.McpServer(
        name="local", command=("python3", str(script)), readable=(script.parent,))
    groups = program_cgroups.ProgramGroups(settings.Sandbox().without_cgroups(), [server])
    program = program_transport.start_program(server, {}, groups=groups, on_end=print)
    async with program as (heard, _):
        await heard.receive()
        os.execv(sys.executable, [sys.executable, "-c", "print('anew', flush=True); input()"])

asyncio.run(main())
"""
HEEDS_NOTHING = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"jsonrpc": "2.0", "method": "ready"}', flush=True)
time.sleep(600)
"""

PROGRAM = pathlib.Path(__file__).parents[2] / "fakes/mcp_program.py"


async def ignored(progress, total, message):
    pass


class Programs:
    """Connections to programs, all by one clock."""

    def __init__(self, groups, place):
        self.groups, self.script = groups, place / PROGRAM.name
        self.seconds = 0.0
        self._server = settings.McpServer(
            name="local",
            command=("python3", str(self.script)),
            readable=(place,),
            environment={"KEY": "${LOCAL_KEY}"},
            memory_bytes=256 * settings.MIB,
        )
        self._opened = []

    def connect(self, **changes):
        connection = server_connections.ServerConnection(
            self._server.model_copy(update=changes),
            {"LOCAL_KEY": "hunter2-hunter2"},
            self.groups,
            clock=lambda: self.seconds,
        )
        self._opened.append(connection)
        return connection

    async def close(self):
        for connection in self._opened:
            await connection.close()
        await self.groups.close()


@pytest.fixture(params=["auto", "off"])
async def programs(request, tmp_path, monkeypatch):
    # Where a bot has its temporary files, nobody else can walk.
    (tmp_path / "spool").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))
    place = tmp_path / "installed"
    place.mkdir()
    shutil.copy(PROGRAM, place)
    listed = [settings.McpServer(name=name, command=("x",)) for name in ("local", "other")]
    sandbox = settings.Sandbox()
    if request.param == "off":
        sandbox = sandbox.without_cgroups()
    groups = program_cgroups.ProgramGroups(sandbox, listed)
    started = Programs(groups, place)
    yield started
    await started.close()


@pytest.fixture
def program(programs):
    return programs.connect()


async def told(connection, tool, **arguments):
    result = await connection.call(tool, arguments, progress=ignored)
    return call_results.as_json(result, connection.secrets)["parts"][0]["text"]


def children():
    file = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(file.read_text().split())


async def test_a_program_sees_its_own_files_and_reaches_nothing(
    program, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("BOT_SECRET", "x")
    caplog.set_level(logging.INFO)
    secret = tmp_path / "secret"
    secret.write_text("of the bot")
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        pid = os.getpid() + 2**20 if machine.offers_namespaces() else os.getpid()
        seen = json.loads(await told(program, "look", port=port, file=str(secret), pid=pid))
    if machine.offers_namespaces():
        assert seen.pop("processes") == 2
        reasons = ("ConnectionRefusedError", "FileNotFoundError", "OSError", "ProcessLookupError")
    else:
        del seen["processes"]
        reasons = ("OSError", "PermissionError", "PermissionError", "PermissionError")
    expected = dict(zip(("host", "file", "write", "kill"), reasons, strict=True))
    assert seen == expected | {"own": "1", "secrets": []}
    assert await told(program, "environment") == "[redacted]"
    with pytest.raises(errors.BotError, match="broke during the call"):
        await told(program, "memory", bytes=2 * settings.GIB)
    assert "sent an invalid message" in caplog.text
    assert "the MCP server local printed: begun" in caplog.text


def processes_with(script):
    """Return the ids of all processes that run a script."""
    script = os.fsencode(script)
    ids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[1:2] == [script]:
                ids.append(int(path.parent.name))
    return ids


@in_container
async def test_in_a_container_a_program_has_a_user_of_its_own_and_changes_no_file_of_the_bot(
    program, tmp_path
):
    secret = tmp_path / "secret"
    secret.write_text("of the bot")
    secret.chmod(0o644)
    user = os.getuid() or settings.Sandbox().first_uid
    assert await told(program, "try", code="os.getuid(), os.getgid()") == repr((user, user))
    await told(program, "try", code=f"os.chmod({str(secret)!r}, 0)")
    assert secret.stat().st_mode & 0o777 == 0o644
    assert await told(program, "try", code="os.listdir('/tmp')") == "PermissionError"
    assert await told(program, "try", code="tempfile.TemporaryFile('w').write('four')") == "4"
    assert await told(program, "try", code="open('/dev/shm/x', 'w')") == "PermissionError"
    bound = "socket.socket(socket.AF_UNIX).bind('x')"
    assert await told(program, "try", code=bound) == "PermissionError"


@in_container
async def test_in_a_container_each_program_has_a_user_of_its_own_and_signals_no_other(programs):
    program, other = programs.connect(), programs.connect(name="other")
    pid = await told(program, "try", code="os.getpid()")
    users = [await told(each, "try", code="os.getuid()") for each in (program, other)]
    assert await told(other, "try", code=f"os.kill({pid}, 0)") == "PermissionError"
    assert len(set(users)) == (1 if os.getuid() else 2)


def test_no_session_has_the_user_of_a_program():
    uids = start_parameters.Uids(count=1000, first_uid=5000, are_separate=True)
    kernels = {uids.take() for _ in range(1000)}
    assert kernels == {(number, 5000 + number) for number in range(256, 1000)}


@in_container
async def test_in_a_container_a_program_with_a_network_has_no_sockets_of_files(
    programs, short_path
):
    program = programs.connect(network=True)
    path = str(short_path / "s")
    async with (
        await asyncio.start_unix_server(lambda *_: None, path),
        await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as listener,
    ):
        os.chmod(path, 0o777)
        port = listener.sockets[0].getsockname()[1]
        code = f"socket.create_connection(('127.0.0.1', {port}), 5).getpeername()[1]"
        assert await told(program, "try", code=code) == str(port)
        code = f"socket.socket(socket.AF_UNIX).connect({path!r})"
        assert await told(program, "try", code=code) == "OSError"
        pair = f"socket.socketpair(socket.AF_UNIX, socket.{{}})[0].connect({path!r})"
        for kind in ("SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"):
            assert await told(program, "try", code=pair.format(kind)) == "OSError"


@in_container
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("[open(str(n), 'wb').write(bytes(10_000_000)) for n in range(8)]", "too large ones"),
        (
            "[(f := open('x', 'wb'), f.write(bytes(10**7)), os.unlink('x')) for _ in range(8)]",
            "too large ones",
        ),
        (
            "(f := open('x', 'wb+', 0), f.write(bytes(9)), __import__('ctypes').CDLL(None)"
            ".mmap(None, 4096, 1, 1, f.fileno(), 0), os.unlink('x'), f.close())",
            "too large ones",
        ),
        ("__import__('ctypes').CDLL(None).prctl(4, 0)", "cannot be measured"),
        ("[os.mkdir(str(n)) for n in range(30_000)]", "too many files"),
        ("[os.fork() or time.sleep(600) for _ in range(400)]", "too many processes"),
    ],
)
async def test_in_a_container_a_program_that_takes_too_much_is_ended_with_all_it_started(
    programs, program, code, reason, caplog
):
    with pytest.raises(errors.BotError, match="broke during the call"):
        await told(program, "try", code=f"({code}, time.sleep(600))")
    assert reason in caplog.text
    await program.close()
    assert not processes_with(programs.script)
    while os.listdir(tempfile.gettempdir()):  # noqa: ASYNC110 - many files take a while
        await asyncio.sleep(0.1)


@in_container
async def test_who_demands_more_than_a_container_has_gets_the_reason(programs, program):
    programs.groups.sandbox = settings.Sandbox(level="standard")
    with pytest.raises(errors.BotError, match=r"no sandbox for programs here \(.*not permitted"):
        await told(program, "environment")


async def test_a_program_that_crashes_or_floods_is_started_again_after_a_pause(programs, program):
    for tool in ("crash", "flood"):
        with pytest.raises(errors.BotError, match="broke during the call"):
            await told(program, tool)
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await told(program, "environment")
        programs.seconds += 61
        assert await told(program, "environment") == "[redacted]"


async def test_a_program_is_ended_that_takes_too_much_by_many_processes(program, caplog):
    # Each of them has less than one may, which is 256 MiB.
    async with asyncio.timeout(60):
        with pytest.raises(errors.BotError, match="broke during the call"):
            await told(program, "spread", count=5, bytes=100 * settings.MIB)
    assert "took too much memory" in caplog.text


@pytest.mark.parametrize("programs", ["auto"], indirect=True)
async def test_what_a_program_takes_in_a_moment_is_bounded_where_there_are_groups(
    programs, program, caplog
):
    group = await programs.groups.create(settings.McpServer(name="local", command=("x",)), 8)
    if group is None:
        pytest.skip("this machine has no control groups")
    await asyncio.to_thread(group.remove)
    # Whoever looks finds only what the group has ended.
    with pytest.raises(errors.BotError, match="broke during the call"):
        await told(program, "grasp", count=6, bytes=100 * settings.MIB)
    await program.close()
    assert "took too much memory" in caplog.text


async def test_a_program_that_answers_nothing_is_started_again(programs):
    program = programs.connect(call_seconds=1.0)
    with pytest.raises(errors.BotError, match="did not answer within 1 seconds"):
        await told(program, "hang")
    with pytest.raises(errors.BotError, match="cannot be reached"):
        await told(program, "environment")
    programs.seconds += 61
    assert await told(program, "environment") == "[redacted]"


async def test_a_program_ends_soon_after_its_bot_executed_itself_anew(tmp_path):
    script = tmp_path / "installed" / "script.py"
    script.parent.mkdir()
    script.write_text(HEEDS_NOTHING)
    bot = await asyncio.create_subprocess_exec(
        sys.executable, "-c", EXECUTED_ANEW, str(script),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert await asyncio.wait_for(bot.stdout.readline(), 60) == b"anew\n"
    assert processes_with(str(script))
    async with asyncio.timeout(30):
        while processes_with(str(script)):  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(0.1)
    assert bot.returncode is None
    bot.stdin.close()
    await bot.wait()


async def test_a_start_that_fails_counts_once(programs, caplog):
    program = programs.connect(command=("false",))
    for starts in (1, 1, 2):
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await told(program, "environment")
        assert caplog.text.count("lost the MCP server local") == starts
        programs.seconds += 0.6


async def test_a_program_that_nobody_uses_ends_with_all_that_it_started(programs, program):
    assert await told(program, "leave") == "left"
    await program.end_if_idle()
    before = children()
    programs.seconds += 301
    async with asyncio.timeout(60):
        await program.end_if_idle()
    assert len(before - children()) == 1
    assert not processes_with(programs.script)
    assert await told(program, "environment") == "[redacted]"


async def test_what_a_program_prints_is_logged_by_whole_lines(caplog):
    script = "printf 'the key hunter2-' >&2; sleep 0.5; printf 'hunter2\\nlast' >&2"
    server = settings.McpServer(name="local", command=("sh", "-c", script))
    groups = program_cgroups.ProgramGroups(settings.Sandbox().without_cgroups(), [server])
    async with (
        program_transport.start_program(server, {}, groups=groups, on_end=lambda: None),
        asyncio.timeout(60),
    ):
        while "last" not in caplog.text:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.02)
    records = [one for one in caplog.records if one.name == program_transport.__name__]
    printed = [record.getMessage().partition(": ")[2] for record in records]
    assert printed == ["the key hunter2-hunter2", "last"]


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"url": "http://127.0.0.1/mcp", "command": ("x",)},
        {"url": "http://127.0.0.1/mcp", "environment": {"KEY": "x"}},
        {"command": ("x",), "headers": {"X-Key": "x"}},
        {"command": ("x",), "readable": ("relative",)},
    ],
)
def test_a_server_is_an_address_or_a_program(told):
    with pytest.raises(ValueError, match=r"either a url|program|absolute"):
        settings.McpServer(name="local", **told)
