"""A host in a process of its own: found or started by bots, outliving those that are killed."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.commands import host as host_command
from interpreter_bot.hosts import host_processes, host_sockets, remote_host
from tests import unprivileged

pytestmark = pytest.mark.kernel

CELL = """
import time
kept = 'still here'
for n in range(12):
    print('tick', n, flush=True)
    time.sleep(0.1)
"""
# A bot that says which events it heard, and would listen to the end.
BOT = """
import asyncio, json, sys
from interpreter_bot import settings
from interpreter_bot.hosts import host_processes
config = settings.Settings.model_validate_json(sys.argv[1])
def show(output, number):
    print(json.dumps([number, output.plain]), flush=True)
async def main():
    async with host_processes.open_host(config, may_start=True) as host:
        async with host.lease("a") as lease:
            kernel = await lease.kernel()
            await kernel.execute(sys.argv[2], execution_id="e1", show=show)
asyncio.run(main())
"""


# A whole bot, which runs one cell in a session of its store.
WHOLE_BOT = """
import asyncio, sys
from interpreter_bot import errors, settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.sessions import requests
from tests import futures
from tests.fakes import replies
config = settings.Settings.model_validate_json(sys.argv[1])
async def main():
    async with bot_startup.open_service(config, {}, kernels_outlive_bot=True) as service:
        key, person = values.SessionKey("console", thread="t"), requests.Person("you")
        reply = replies.Reply()
        asked = requests.Request(key=key, person=person, text=sys.argv[2], is_code=True)
        await service.handle(asked, reply)
        print("".join(output.plain for output in reply.contents("output")), flush=True)
asyncio.run(main())
"""


@pytest.fixture
def config(tmp_path, short_path):
    config = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
        host=settings.Host(mode="own"),
    )
    yield config
    # Hosts whose bots were killed would wait for ten minutes.
    for path in host_sockets.directory(config.paths).glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(str(path))
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            os.kill(struct.unpack("3i", credentials)[0], signal.SIGTERM)


@pytest.fixture
def killed(config):
    """What a bot had heard of a cell until it was killed in the middle of it."""
    bot = subprocess.Popen(
        [
            sys.executable,
            "-c",
            BOT,
            config.model_dump_json(include={"kernels", "paths", "host"}),
            CELL,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLACK_BOT_TOKEN": "xoxb-secret", "OPENAI_API_KEY": "sk-secret"},
    )
    heard = [json.loads(bot.stdout.readline()) for _ in range(4)]
    os.kill(bot.pid, signal.SIGKILL)
    bot.communicate()
    return heard


def whole_bot(config, code):
    """Start a bot that runs a cell; returns its process."""
    groups = {"kernels", "paths", "host", "local"}
    return subprocess.Popen(
        [sys.executable, "-c", WHOLE_BOT, config.model_dump_json(include=groups), code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLACK_BOT_TOKEN": "xoxb-secret", "OPENAI_API_KEY": "sk-secret"},
    )


def test_variables_outlive_a_bot_that_is_killed_and_end_with_one_that_ends(config):
    with whole_bot(
        config, "kept = 7\nopen('ready', 'w').close()\nimport time; time.sleep(1)"
    ) as first:
        while not list(config.paths.data.glob("workspaces/*/data/ready")):
            assert first.poll() is None
            time.sleep(0.02)
        first.kill()
    with whole_bot(config, "print(kept)") as second:
        assert second.communicate(timeout=60)[0].strip() == "7"
        assert second.returncode == 0
    assert not list(host_sockets.directory(config.paths).glob("*.sock")), "its host went on"


async def test_bot_that_fails_ends_its_host(config):
    with pytest.raises(ZeroDivisionError):
        async with host_processes.open_host(config, may_start=True):
            raise ZeroDivisionError
    with pytest.raises(errors.KernelError):
        await host_processes.read_status(host_sockets.newest_link(config.paths))


@pytest.mark.gate
async def test_host_that_was_killed_is_replaced_and_says_what_it_lost(config):
    shown = []
    async with host_processes.open_host(config, may_start=True) as host, host.lease("a") as lease:
        running = asyncio.create_task(
            (await lease.kernel()).execute(
                CELL, execution_id="e1", show=lambda output, number: shown.append(number)
            )
        )
        async with asyncio.timeout(20):
            while len(shown) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        first = await host_processes.read_status(host_sockets.newest_link(config.paths))
        os.kill(first.pid, signal.SIGKILL)
        end = await running
        assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
        second = await host_processes.read_status(host_sockets.newest_link(config.paths))
        assert second.pid != first.pid
        assert shown == list(range(1, len(shown) + 1))
        kernel = await lease.kernel()
        end = await kernel.execute("kept = 1", execution_id="e2", show=lambda *_: None)
        assert end.finished.ending is values.Ending.OK
        names = {path.name for path in host_sockets.directory(config.paths).glob("*.sock")}
        assert names == {"host.sock", f"{second.pid}.sock"}


async def test_host_that_cannot_start_says_why(config):
    wrong = settings.Kernels(python=config.paths.data / "no-python", preload=(), spares=0)
    made = config.model_copy(update={"kernels": wrong})
    with pytest.raises(errors.KernelStartError, match="no-python"):
        async with host_processes.open_host(made, may_start=True):
            pass


async def test_none_is_started_where_one_is_only_looked_for(config):
    with pytest.raises(errors.KernelError, match="Start one with `interpreter-bot host`") as caught:
        async with host_processes.open_host(config, may_start=False):
            pass
    assert str(host_sockets.newest_link(config.paths)) in str(caught.value)


def environment(pid):
    """The variables of a process; empty where there is none, or it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.gate
async def test_killed_bot_loses_no_line_and_no_variable(config, killed):
    shown = [tuple(one) for one in killed]
    began = time.monotonic()
    first = None
    async with host_processes.open_host(config, may_start=True) as host:

        def show(output, number):
            nonlocal first
            first = first or time.monotonic() - began
            shown.append((number, output.plain))

        end = await host.follow("e1", after=shown[-1][0], show=show, ask=None)
        assert end.finished.ending is values.Ending.OK
        assert "".join(text for _, text in shown) == "".join(f"tick {n}\n" for n in range(12))
        assert [number for number, _ in shown] == list(range(1, len(shown) + 1))
        assert first < 20
        pid = (await host_processes.read_status(host_sockets.newest_link(config.paths))).pid
        assert b"secret" not in environment(pid)
        async with host.lease("a") as lease:
            later = []
            await (await lease.kernel()).execute(
                "print(kept)", execution_id="e2", show=lambda output, _: later.append(output.plain)
            )
        assert later == ["still here\n"]
        host.acknowledge("e1")
    assert environment(pid) == b"", "the host outlived an orderly end"
    assert not list(host_sockets.directory(config.paths).glob("*.sock"))


WAITING = """
import pathlib, time
kept = 'still here'
print('began', flush=True)
while not pathlib.Path('/mnt/data/go').exists():
    time.sleep(0.02)
print('went on', flush=True)
"""


@contextlib.asynccontextmanager
async def served(config, *options):
    """Run the command for a host, by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interpreter_bot", "host", *options),
        env={"PATH": os.environ["PATH"], **config.for_host()},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert b"HostReady" in await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_host_that_no_bot_comes_back_to_saves_variables_and_ends(config):
    config = config.model_copy(update={"snapshots": settings.Snapshots()})
    newest = host_sockets.newest_link(config.paths)
    async with served(config, "--linger", "0.5") as process:
        async with remote_host.RemoteHost.open(newest) as host, host.lease("a") as lease:
            await run(lease, "kept = 7; lost = (one for one in 'ab')", "e1")
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    async with (
        served(config),
        remote_host.RemoteHost.open(newest) as host,
        host.lease("a") as lease,
    ):
        told, kernel = await run(lease, "print(kept)", "e2")
    assert told == "7\n"
    assert [name for name, _ in kernel.restored_variables.lost] == ["lost"]


async def test_nothing_is_left_of_a_command_whose_host_was_killed(config):
    async with (
        served(config) as process,
        host_processes.open_compatible(config) as host,
        host.lease("once") as lease,
    ):
        await run(lease, "open('left', 'w').write('x')", "e1")
        assert list(config.paths.data.glob("workspaces/*/data/left"))
        process.kill()
        await process.wait()
        async with asyncio.timeout(30):
            while host.connection.is_connected:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert not list(config.paths.data.glob("workspaces/*/data"))


# A bot that runs a line, and ends.
LINE = """
import asyncio, sys
from interpreter_bot import settings
from interpreter_bot.hosts import host_processes
config = settings.Settings.model_validate_json(sys.argv[1])
async def main():
    opening = host_processes.open_host(config, may_start=False)
    async with opening as host, host.lease("theirs") as lease:
        kernel = await lease.kernel()
        await kernel.execute(
            "print(6 * 7)", execution_id="e1", show=lambda output, _: print(output.plain, end="")
        )
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can serve another user")
@pytest.mark.namespaces
async def test_host_of_root_serves_the_bots_of_the_user_that_it_names_and_of_nobody_else(
    config, short_path
):
    short_path.chmod(0o711)
    own = settings.Paths(data=short_path / "own", runtime=short_path / "r")
    met = {"host_sockets": short_path / "hosts"}
    theirs = config.model_copy(update={"paths": own.model_copy(update=met)})
    for user, line in ((unprivileged.USER, "42\n"), (unprivileged.USER + 1, "")):
        host = settings.Host(bot_user=str(user))
        paths = config.paths.model_copy(update=met)
        async with served(config.model_copy(update={"host": host, "paths": paths})):
            done = await asyncio.to_thread(
                subprocess.run,
                [
                    *(sys.executable, "-m", "tests.unprivileged", sys.executable, "-c", LINE),
                    theirs.model_dump_json(include={"paths"}),
                ],
                capture_output=True,
                text=True,
            )
        assert done.stdout == line, done.stderr
        assert bool(line) or "KernelError" in done.stderr


async def one_chunk(data):
    yield data


async def run(lease, code, execution_id):
    """Run code in a kernel of its own turn; returns what it printed, and the kernel."""
    shown = []
    kernel = await lease.kernel()
    end = await kernel.execute(
        code, execution_id=execution_id, show=lambda output, _: shown.append(output.plain)
    )
    assert end.finished.ending is values.Ending.OK, end
    return "".join(shown), kernel


async def test_new_host_takes_new_sessions_and_the_former_keeps_its_own_until_they_are_idle(config):
    snapshots = settings.Snapshots()
    brief = config.kernels.model_copy(update={"freeze_seconds": 1.0})
    config = config.model_copy(update={"snapshots": snapshots, "kernels": brief})
    async with contextlib.AsyncExitStack() as stack:
        former = await stack.enter_async_context(served(config))
        hosts = await stack.enter_async_context(host_processes.open_host(config, may_start=False))
        async with hosts.lease("old") as lease:
            shown = []
            kernel = await lease.kernel()
            running = asyncio.create_task(
                kernel.execute(
                    WAITING, execution_id="e1", show=lambda output, _: shown.append(output.plain)
                )
            )
            async with asyncio.timeout(30):
                while not shown:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            newer = await stack.enter_async_context(served(config))
            # A session that is new is the new one's at once; nothing happens to the other.
            async with hosts.lease("new") as another:
                assert (await run(another, "print(6 * 7)", "e2"))[0] == "42\n"
            assert former.returncode is None
            statuses = await hosts.statuses()
            assert statuses.keys() == {"old", "new"}
            path = host_sockets.newest_link(config.paths)
            assert (await host_processes.read_status(path)).pid == newer.pid
            everyone = await host_command.list_statuses(config)
            told = [(one["pid"], one["is_draining"]) for one in everyone]
            assert told == [(newer.pid, False), (former.pid, True)]
            # A bot that comes later follows what the former one runs.
            async with host_processes.open_host(config, may_start=False) as later:
                followed = []
                following = asyncio.create_task(
                    later.follow("e1", show=lambda one, _: followed.append(one.plain), ask=None)
                )
                await (await hosts.workspace("old")).put("go", one_chunk(b""))
                assert (await running).finished.ending is values.Ending.OK
                assert (await following).finished.ending is values.Ending.OK
            assert "".join(shown) == "".join(followed) == "began\nwent on\n"
            assert (await run(lease, "print(kept)", "e3"))[0] == "still here\n"
        async with asyncio.timeout(60):
            assert await former.wait() == 0
        async with hosts.lease("old") as lease:
            told, moved = await run(lease, "print(kept)", "e4")
            assert told == "still here\n"
            assert moved.id != kernel.id
            assert "kept" in str(moved.restored_variables)


async def test_of_two_hosts_one_has_a_session_until_it_is_killed(config):
    async with served(config), contextlib.AsyncExitStack() as stack:
        first = host_sockets.resolve(host_sockets.newest_link(config.paths))
        one = await stack.enter_async_context(remote_host.RemoteHost.open(first))
        lease = await stack.enter_async_context(one.lease("s"))
        await run(lease, "x = 1", "e1")
        newer = await stack.enter_async_context(served(config))
        second = host_sockets.resolve(host_sockets.newest_link(config.paths))
        assert second != first
        two = await stack.enter_async_context(remote_host.RemoteHost.open(second))
        other = await stack.enter_async_context(two.lease("s"))
        starting = asyncio.create_task(other.kernel())
        await asyncio.wait({starting}, timeout=1)
        assert not starting.done()
        assert (await run(lease, "print(x)", "e2"))[0] == "1\n"
        os.kill((await host_processes.read_status(first)).pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await starting
        assert newer.returncode is None


async def test_bot_of_other_settings_starts_a_host_of_its_own_and_ends_both(config, killed):
    former = await host_processes.read_status(host_sockets.newest_link(config.paths))
    stricter = config.limits.model_copy(update={"execution_seconds": 30})
    changed = config.model_copy(update={"limits": stricter})
    async with host_processes.open_host(changed, may_start=True) as hosts:
        newest = await host_processes.read_status(host_sockets.newest_link(config.paths))
        assert (newest.pid != former.pid, newest.is_draining) == (True, False)
        shown = []
        end = await hosts.follow(
            "e1", after=killed[-1][0], show=lambda one, _: shown.append(one.plain), ask=None
        )
        assert end.finished.ending is values.Ending.OK
        assert "".join(text for _, text in killed) + "".join(shown) == "".join(
            f"tick {n}\n" for n in range(12)
        )
    assert not list(host_sockets.directory(config.paths).glob("*.sock"))
