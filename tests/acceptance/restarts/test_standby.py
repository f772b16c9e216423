"""Two real bots on one database: one acts, the other stands by and takes over."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
import uuid

import pytest

from bench import bot_processes, page_visitors
from interpreter_bot import settings
from interpreter_bot.kernels.metering import procfs
from tests.integration.store import servers

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

MODEL = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
HELD, AFTER = "1" * 32, "2" * 32
STANDS_BY = "This one stands by"
# It goes on until the file is there.
HOLD = """
import os, time
print('once', flush=True)
open('begun', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.05)
print('over')
"""


@pytest.fixture(autouse=True)
def _quick_commands():
    """Start commands for real: a copy of another process has other arguments to begin again."""


@pytest.fixture(scope="module")
def postgresql():
    if servers.find_programs() is None:
        pytest.skip("PostgreSQL is not installed here")
    with servers.Server.run() as server:
        yield server


@pytest.fixture
def server_url(postgresql):
    with postgresql.database() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """Where the database is; a file in the data directory by default."""
    return "" if request.param == "sqlite" else request.getfixturevalue("server_url")


class Bot:
    """One process of a bot, and what it says, in a file: its host may hold a pipe for longer."""

    def __init__(self, process, log):
        self.process = process
        self._log = log

    async def until(self, pattern, *, after=0):
        """Wait until it says something after so many characters; return that."""
        async with asyncio.timeout(60):
            while not (found := re.search(pattern, self.said[after:])):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found[0]

    @property
    def said(self):
        return self._log.read_text()

    async def address(self, *, after=0):
        return await self.until(r"http://\S+/\?token=\S+", after=after)

    async def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@pytest.fixture
async def start(short_path, url):
    """Start bots on the database; they share data and a host."""
    place = bot_processes.BotProcess(short_path, MODEL, "none")
    environment = place.environment | {"INTERPRETER_BOT_STORE__URL": url}
    bots = []

    async def started():
        log = short_path / f"{uuid.uuid4().hex}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "interpreter_bot", "run"),
                env=environment,
                stdout=file,
                stderr=file,
            )
        bots.append(Bot(process, log))
        return bots[-1]

    started.paths, started.host_pid = place.paths, place.host_pid
    yield started
    for bot in bots:
        await bot.end()
    if host := await place.host_pid():
        os.kill(host, signal.SIGTERM)
        # It still saves variables, in directories that are removed next.
        async with asyncio.timeout(60):
            while not procfs.has_ended(procfs.stat_fields(host)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture
async def visitor():
    async with page_visitors.Visitor("session-of-two-bots", lambda prompt: prompt) as visitor:
        yield visitor


@pytest.fixture
async def pair(start, visitor):
    """Start an active bot, whose page is visited, and one that stands by."""
    active = await start()
    visitor.address = await active.address()
    standby = await start()
    await standby.until(STANDS_BY)
    # Until its imports are done.
    await asyncio.sleep(3)
    return active, standby


async def over(visitor, name):
    """Wait until a turn is over; return what it printed."""
    async with asyncio.timeout(60):
        while not any(one["type"] == "over" for one in visitor.shown.get(name, ())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return page_visitors.list_printed_lines(visitor.shown[name])


async def begun(start):
    """Wait until the code runs; return the file that ends it."""
    async with asyncio.timeout(60):
        while not (found := list(start.paths.data.rglob("begun"))):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found[0].with_name("go")


@pytest.mark.gate
async def test_killed_bot_is_followed_within_ten_seconds_and_its_turn_goes_on(pair, start, visitor):
    active, standby = pair
    await visitor.send_message(HELD, HOLD, is_code=True)
    go = await begun(start)
    active.process.kill()
    began = time.monotonic()
    visitor.address = await standby.address()
    go.touch()
    assert await over(visitor, HELD) == ["once", "over"]
    await visitor.send_message(AFTER, "print(6 * 7)", is_code=True)
    assert await over(visitor, AFTER) == ["42"]
    assert time.monotonic() - began < 10


async def test_bot_that_ends_in_order_is_followed_at_once(pair, start, visitor):
    active, standby = pair
    await visitor.send_message(HELD, HOLD, is_code=True)
    go = await begun(start)
    active.process.send_signal(signal.SIGTERM)
    assert await active.process.wait() == 0
    ended = time.monotonic()
    visitor.shown = {}
    visitor.address = await standby.address()
    assert time.monotonic() - ended < 5
    go.touch()
    assert await over(visitor, HELD) == ["once", "over"]


async def test_of_two_that_start_together_one_acts_and_the_other_ends_when_asked(start):
    bots = await asyncio.gather(start(), start())
    acting = [asyncio.create_task(bot.address()) for bot in bots]
    standing = [asyncio.create_task(bot.until(STANDS_BY)) for bot in bots]
    await asyncio.wait(acting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(1)
    assert [task.done() for task in acting] == [not task.done() for task in standing]
    assert sum(task.done() for task in acting) == 1
    standby = bots[acting[0].done()]
    standby.process.send_signal(signal.SIGTERM)
    assert await standby.process.wait() == 0
    for task in (*acting, *standing):
        task.cancel()
    # The page is there before the host answers, and only a host that answers is found and ended.
    async with asyncio.timeout(60):
        while not await start.host_pid():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_stopped_bot_that_goes_on_after_another_took_over_stands_by(pair, start, visitor):
    active, standby = pair
    await visitor.send_message(HELD, HOLD, is_code=True)
    go = await begun(start)
    os.kill(active.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    visitor.address = await standby.address()
    assert time.monotonic() - began < 12
    before = len(active.said)
    os.kill(active.process.pid, signal.SIGCONT)
    await active.until("another bot may have taken over", after=before)
    await active.until(STANDS_BY, after=before)
    go.touch()
    assert await over(visitor, HELD) == ["once", "over"]
    # And it takes over in its turn.
    standby.process.kill()
    visitor.shown = {}
    visitor.address = await active.address(after=before)
    await visitor.send_message(AFTER, "print(6 * 7)", is_code=True)
    assert await over(visitor, AFTER) == ["42"]
