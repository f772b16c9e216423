"""`interpreter-bot sessions`: with a host, with none, and where nobody knows."""

import asyncio
import contextlib
import json
import os
import pty
import sys

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import host as host_command
from interpreter_bot.commands import options, sessions_command
from interpreter_bot.hosts import host_sockets, local_startup, remote_host

pytestmark = pytest.mark.kernel

HOSTILE = "\x1b[2J\u202e[red]sales[/red]\nrm -rf"


@pytest.fixture
def config(tmp_path, short_path):
    return settings.Settings(
        # Nothing is saved but by a command, or by the end of the host.
        kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=3600),
        snapshots=settings.Snapshots(checkpoints=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )


@pytest.fixture
def call(config, capsys, monkeypatch):
    """Call the command; returns its exit status and what it printed."""
    monkeypatch.setenv("COLUMNS", "300")

    async def called(*arguments):
        given = options.read(["sessions", *arguments])
        capsys.readouterr()
        status = await asyncio.to_thread(sessions_command.run, config, given)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return called


async def listed(call, *arguments):
    _, printed = await call("--json", *arguments)
    return {one["key"]: one for one in json.loads(printed)["sessions"]}


@contextlib.asynccontextmanager
async def hosting(config):
    """A host behind its socket; that it is in the same process is nothing it could notice."""
    async with (
        host_command._open_server(config, None),
        remote_host.RemoteHost.open(host_sockets.newest_link(config.paths)) as host,
    ):
        yield host


async def begin(config, host, thread):
    """Let a session be in the database, with a variable in its kernel; returns its key."""
    key = values.SessionKey("slack", "T1", "C1", thread)
    async with execution_startup.open_database(config) as database:
        session = await database.sessions.open(key)
        await database.sessions.set_title(session.id, HOSTILE)
        await database.turns.start(session.id, person="U1\x1b[31m", text="?")
    async with host.lease(values.format_key(key)) as lease:
        kernel = await lease.kernel()
        code = "kept = 1"
        end = await kernel.execute(code, execution_id=f"e{thread}", show=lambda *_: None)
        assert end.finished.ending is values.Ending.OK
    return values.format_key(key)


async def test_sessions_of_a_host_are_listed_saved_ended_and_deleted(config, call):
    async with hosting(config) as host:
        first, second = [await begin(config, host, thread) for thread in ("11", "22")]
        found = await listed(call)
        assert [found[key]["state"] for key in (first, second)] == ["live", "live"]
        assert (found[first]["title"], found[first]["saved_bytes"]) == (HOSTILE, 0)
        name, other = found[first]["name"], found[second]["name"]
        _, shown = await call()
        assert not {"\x1b", "\u202e"} & set(shown)
        assert "[red]sales[/red] rm -rf" in shown
        status, shown = await call("save", name[:8], second)
        assert (status, shown.count("1 variable saved.")) == (0, 2)
        status, shown = await call("end", name)
        assert (status, "Variables that can be saved are saved" in shown) == (0, True)
        found = await listed(call)
        assert [found[key]["state"] for key in (first, second)] == ["saved", "live"]
        assert found[first]["saved_bytes"] > 0
        with pytest.raises(errors.BotError, match="--yes"):
            await call("forget", other)
        status, shown = await call("forget", "--yes", other)
        assert (status, "are deleted" in shown) == (0, True)
        assert list(await listed(call)) == [first]
        assert (await listed(call, "--all")).keys() == {first, second}
    async with execution_startup.open_database(config) as database:
        gone = await database.sessions.find(values.parse_key(second))
        assert "operator" in gone.file_notice


async def test_without_a_host_saved_sessions_are_listed_and_can_be_deleted(
    config, call, monkeypatch
):
    async with hosting(config) as host:
        key = await begin(config, host, "11")
    found = await listed(call)
    assert (found[key]["state"], found[key]["saved_bytes"] > 0) == ("saved", True)
    name = found[key]["name"]
    status, shown = await call("end", name)
    assert (status, "No Python host" in shown) == (1, True)
    for wrong in ("", "zz", "../../etc", "slack/T1"):
        with pytest.raises(errors.BotError, match="no session"):
            await call("end", wrong)
    async with local_startup.open_host(config) as inside, inside.lease(key) as lease:
        await lease.kernel()
        # A bot of its own has the session, without a process that could be asked.
        status, shown = await call("forget", "--yes", name)
        assert (status, "is using it" in shown) == (1, True)
    async with execution_startup.open_database(config) as database:
        assert not (await database.sessions.find(values.parse_key(key))).files
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        for answer in ("\n", "no\n"):
            os.write(ours, answer.encode())
            with pytest.raises(errors.BotError, match="Nothing was deleted"):
                await call("forget", name)
        os.write(ours, b"y\n")
        assert (await call("forget", name))[0] == 0
    os.close(ours)
    assert await listed(call) == {}


async def test_an_ambiguous_name_is_refused(config, call):
    async with execution_startup.open_database(config) as database:
        for thread in range(17):
            await database.sessions.open(values.SessionKey("web", thread=f"{thread}"))
    names = [one["name"] for one in (await listed(call, "--all")).values()]
    assert len(names) == 17
    twice = next(name for name in names if sum(one[0] == name[0] for one in names) > 1)
    with pytest.raises(errors.BotError, match="Several sessions begin with"):
        await call("forget", "--yes", twice[0])
