"""The start of `interpreter-bot run`: the page is there before the rest, and nothing is lost."""

import asyncio
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import socket
import sys

import aiohttp
import pytest
import yarl

pytestmark = pytest.mark.kernel


@contextlib.contextmanager
def database_held_up(tmp_path):
    """Let no database be opened meanwhile, as another bot's upgrade does."""
    directory = tmp_path / "data/interpreter-bot.db-instances"
    directory.mkdir(parents=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.asynccontextmanager
async def running(tmp_path, short_path, *, errors=asyncio.subprocess.PIPE, **variables):
    """Run the bot; gives its process."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
        "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
        "INTERPRETER_BOT_LOCAL__ENABLED": "false",
        "INTERPRETER_BOT_KERNELS__SPARES": "0",
        "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        "INTERPRETER_BOT_WEB__LISTEN": "127.0.0.1:0",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interpreter_bot", "run"),
        env=environment | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        end = asyncio.create_task(process.communicate())
        # The host of a killed bot would wait for the next one, with the pipes open.
        while not end.done():
            for pid in processes_of(tmp_path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            await asyncio.wait({end}, timeout=0.5)


async def address(process):
    line = (await process.stdout.readline()).decode()
    found = re.fullmatch(r"The web page: (http://\S+token=\S+)\n", line)
    assert found is not None, line
    return yarl.URL(found[1])


@contextlib.asynccontextmanager
async def tab(address):
    """Open the page; gives the status of other requests, and its websocket."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        async with session.get(address) as response:
            assert "<title>" in await response.text()
            key = response.real_url.fragment.removeprefix("key=")
        headers = {"Origin": str(address.origin()), "Interpreter-Bot-Key": key}
        async with session.ws_connect(address.origin() / "live", headers=headers) as socket:

            async def status(path):
                async with session.get(address.join(yarl.URL(path))) as response:
                    return response.status

            yield status, socket


async def heard(socket, word):
    """Read what a tab is sent, until a word comes."""
    text = ""
    async with asyncio.timeout(60):
        while word not in text:
            text += await socket.receive_str()
    return text


def processes_of(tmp_path):
    """Processes of bots and hosts with this data directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(tmp_path).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


async def gone(tmp_path):
    """Wait until nothing of a bot is left."""
    async with asyncio.timeout(30):
        while processes_of(tmp_path):  # noqa: ASYNC110 - other processes tell nobody.
            await asyncio.sleep(0.1)


@pytest.mark.gate
async def test_who_comes_during_the_start_waits_and_loses_nothing(tmp_path, short_path):
    thread = "a" * 32
    code = {"do": "send", "text": "print('ab' 'cde')", "files": [], "is_code": True, "id": "b" * 32}
    with contextlib.ExitStack() as meanwhile:
        meanwhile.enter_context(database_held_up(tmp_path))
        async with running(tmp_path, short_path) as process:
            async with tab(await address(process)) as (download, socket):
                assert (await socket.receive_json())[0] == {"kind": "starting"}
                await socket.send_json({"do": "watch", "thread": thread, "max_turns": 9})
                await socket.send_json(code | {"thread": thread})
                asking = asyncio.create_task(download(f"/download?thread={thread}&name=x"))
                done, _ = await asyncio.wait({asking}, timeout=0.5)
                assert not done
                meanwhile.close()
                text = await heard(socket, "abcde")
                assert text.index('"hello"') < text.index('"accepted"') < text.index("abcde")
                assert await asking == 404
            process.terminate()
            assert await process.wait() == 0
    await gone(tmp_path)


@pytest.mark.gate
async def test_strangers_get_nothing_during_the_start(tmp_path, short_path):
    with database_held_up(tmp_path):
        async with running(tmp_path, short_path) as process, aiohttp.ClientSession() as stranger:
            origin = (await address(process)).origin()
            for path in ("/", "/live", "/download?thread=x&name=y", "/nothing"):
                async with stranger.get(origin / path.lstrip("/")) as response:
                    assert response.status == 401
            async with stranger.get(origin, headers={"Host": "evil.example"}) as response:
                assert response.status == 421


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_during_the_start_leaves_nothing(tmp_path, short_path, signum):
    async with running(tmp_path, short_path) as process:
        await address(process)
        process.send_signal(signum)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        assert await process.stderr.read() == b""
    await gone(tmp_path)


async def test_a_signal_does_not_wait_for_kernels_that_do_not_start(tmp_path, short_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 25\n")
    python.chmod(0o755)
    variables = {"INTERPRETER_BOT_KERNELS__PYTHON": str(python)}
    async with (
        running(tmp_path, short_path, **variables) as process,
        tab(await address(process)) as (_, socket),
    ):
        assert (await socket.receive_json())[0] == {"kind": "starting"}
        # All else is open soon after.
        await asyncio.sleep(3)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_terminal_says_once_that_it_starts_and_that_it_stops(tmp_path, short_path):
    ours, theirs = os.openpty()
    try:
        async with running(tmp_path, short_path, errors=theirs) as process:
            async with tab(await address(process)) as (_, live):
                await heard(live, '"hello"')
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 30) == 0
        # The log may say there which walls the machine lacks.
        lines = [
            line.partition("…")[0]
            for line in os.read(ours, 65536).decode().splitlines()
            if " WARNING " not in line
        ]
        assert lines == ["Starting", "Stopping"]
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_kill_during_the_start_leaves_nothing(tmp_path, short_path):
    async with running(tmp_path, short_path) as process:
        await address(process)
        process.kill()
        await process.wait()
    await gone(tmp_path)


@pytest.mark.gate
async def test_a_port_that_is_taken_is_a_sentence_and_starts_nothing(tmp_path, short_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        async with running(
            tmp_path, short_path, INTERPRETER_BOT_WEB__LISTEN=f"127.0.0.1:{port}"
        ) as process:
            said, warned = await process.communicate()
            assert process.returncode == 2
    assert said == b""
    assert warned.count(f"The web page cannot be served at 127.0.0.1:{port}".encode()) == 1
    assert warned.count(b"\n") == 1
    assert not (tmp_path / "data/interpreter-bot.db").exists()
    await gone(tmp_path)


async def test_a_database_that_cannot_be_opened_ends_it_with_a_sentence(tmp_path, short_path):
    (tmp_path / "file").touch()
    url = f"sqlite:///{tmp_path}/file/bot.db"
    async with running(tmp_path, short_path, INTERPRETER_BOT_STORE__URL=url) as process:
        said, warned = await process.communicate()
        assert process.returncode == 2
    assert said == b""
    file = f"{tmp_path}/file/bot.db"
    # One line, without a traceback.
    assert warned.decode() == f"interpreter-bot: The database {file} cannot be used: File exists.\n"
    await gone(tmp_path)
