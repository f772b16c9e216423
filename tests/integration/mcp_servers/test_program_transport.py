"""MCP servers that are programs: behind walls, ended and started again."""

import asyncio
import json
import logging
import os
import pathlib
import shutil

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.mcp_servers import (
    call_results,
    program_cgroups,
    program_transport,
    server_connections,
)

pytestmark = [pytest.mark.kernel, pytest.mark.namespaces]

PROGRAM = pathlib.Path(__file__).parents[2] / "fakes/mcp_program.py"


async def ignored(progress, total, message):
    pass


@pytest.fixture(params=["auto", "off"])
async def program(request, tmp_path):
    place = tmp_path / "installed"
    place.mkdir()
    shutil.copy(PROGRAM, place)
    server = settings.McpServer(
        name="local",
        command=("python3", str(place / PROGRAM.name)),
        readable=(place,),
        environment={"KEY": "${LOCAL_KEY}"},
        memory_bytes=256 * settings.MIB,
    )
    groups = program_cgroups.ProgramGroups(request.param)
    connection = server_connections.ServerConnection(
        server, {"LOCAL_KEY": "hunter2-hunter2"}, groups
    )
    yield connection
    await connection.close()
    await groups.close()


async def told(connection, tool, **arguments):
    result = await connection.call(tool, arguments, progress=ignored)
    return call_results.read(result, connection.secrets)["parts"][0]["text"]


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
        seen = json.loads(
            await told(program, "look", port=port, file=str(secret), pid=os.getpid() + 2**20)
        )
    assert seen == {
        "host": "ConnectionRefusedError",
        "file": "FileNotFoundError",
        "write": "OSError",
        "own": "1",
        "processes": 2,
        "kill": "ProcessLookupError",
        "secrets": [],
    }
    assert await told(program, "environment") == "[redacted]"
    with pytest.raises(errors.BotError, match="broke during the call"):
        await told(program, "memory", bytes=2 * settings.GIB)
    assert "said what is no message" in caplog.text
    assert "the MCP server local printed: begun" in caplog.text


async def test_a_program_that_crashes_or_floods_is_started_again_after_a_pause(
    program, monkeypatch
):
    monkeypatch.setattr(server_connections, "_LONGEST_PAUSE_SECONDS", 3600)
    monkeypatch.setattr(server_connections, "_FIRST_PAUSE_SECONDS", 3600)
    for tool in ("crash", "flood"):
        with pytest.raises(errors.BotError, match="broke during the call"):
            await told(program, tool)
        with pytest.raises(errors.BotError, match="cannot be reached"):
            await told(program, "environment")
        program._failed_at -= 4000
        assert await told(program, "environment") == "[redacted]"


async def test_a_program_is_ended_that_takes_too_much_by_many_processes(program, caplog):
    # Each of them has less than one may, which is 256 MiB.
    async with asyncio.timeout(60):
        with pytest.raises(errors.BotError, match="broke during the call"):
            await told(program, "spread", count=5, bytes=100 * settings.MIB)
    assert "took too much memory" in caplog.text


@pytest.mark.parametrize("program", ["auto"], indirect=True)
async def test_what_a_program_takes_in_a_moment_is_bounded_where_there_are_groups(
    program, monkeypatch, caplog
):
    await told(program, "environment")
    if not program._groups._found.version:
        pytest.skip(f"this machine has {program._groups._found.reason}")
    # Nobody looks in time: what bounds it does not wait for that.
    monkeypatch.setattr(program_transport, "_MEASURE_SECONDS", 3600)
    await program.close()
    with pytest.raises(errors.BotError, match="broke during the call"):
        await told(program, "grasp", count=6, bytes=100 * settings.MIB)
    await program.close()
    assert "took too much memory" in caplog.text


async def test_a_program_that_answers_nothing_is_started_again(tmp_path, program, monkeypatch):
    monkeypatch.setattr(server_connections, "_ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(server_connections, "_FIRST_PAUSE_SECONDS", 3600)
    monkeypatch.setattr(server_connections, "_LONGEST_PAUSE_SECONDS", 3600)
    program._server = program._server.model_copy(update={"call_seconds": 1.0})
    with pytest.raises(errors.BotError, match="did not answer within 1 seconds"):
        await told(program, "hang")
    with pytest.raises(errors.BotError, match="cannot be reached"):
        await told(program, "environment")
    program._failed_at -= 4000
    assert await told(program, "environment") == "[redacted]"


async def test_a_start_that_fails_counts_once(program):
    program._server = program._server.model_copy(update={"command": ("false",)})
    with pytest.raises(errors.BotError, match="cannot be reached"):
        await told(program, "environment")
    assert program._pause_seconds == server_connections._FIRST_PAUSE_SECONDS


async def test_a_program_that_nobody_uses_ends_with_all_that_it_started(program, monkeypatch):
    assert await told(program, "leave") == "left"
    await program.rest()
    before = children()
    monkeypatch.setattr(server_connections, "_IDLE_SECONDS", 0.0)
    async with asyncio.timeout(60):
        await program.rest()
    assert len(before - children()) == 1
    assert await told(program, "environment") == "[redacted]"


async def test_what_a_program_prints_is_logged_by_whole_lines(caplog):
    script = "printf 'the key hunter2-' >&2; sleep 0.5; printf 'hunter2\\nlast' >&2"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stderr=asyncio.subprocess.PIPE
    )
    await program_transport._log_errors("local", process)
    await process.wait()
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
