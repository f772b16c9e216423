"""One bot of a database acts, and the others stand by."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import pytest

from interpreter_bot import errors, values
from interpreter_bot.store import active_bot, engines

KEY = values.SessionKey("web", thread="t")

# A bot that writes without a pause while it is active.
WRITER = """
import asyncio, pathlib, sys
from interpreter_bot import values
from interpreter_bot.store import active_bot, databases

async def main():
    url = sys.argv[1]
    async with (
        active_bot.hold(url) as bot,
        databases.Database.open(
            url, blobs_directory=pathlib.Path(sys.argv[2]), bot=bot
        ) as database,
    ):
        session = await database.sessions.open(values.SessionKey("web", thread="t"))
        print("active", flush=True)
        while not bot.lost.is_set():
            await database.turns.start(session.id, person="p", text="?")

asyncio.run(main())
"""


@pytest.fixture
async def writer(url, tmp_path):
    """The process of another bot that is active."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", WRITER, url, tmp_path / "kept",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert await asyncio.wait_for(process.stdout.readline(), 30)
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@pytest.fixture
def needs_postgresql(url):
    if url.startswith("sqlite"):
        pytest.skip("a matter of servers")


async def test_second_bot_waits_and_is_active_when_the_first_ends(url):
    is_waiting, order = asyncio.Event(), []

    async def second():
        async with active_bot.hold(url, is_waiting.set) as bot:
            order.append("second")
            return bot.id

    async with active_bot.hold(url) as first:
        second_task = asyncio.create_task(second())
        await asyncio.wait_for(is_waiting.wait(), 10)
        await asyncio.sleep(0.5)
        order.append("first")
    ended_at = time.monotonic()
    assert await asyncio.wait_for(second_task, 10) != first.id
    assert time.monotonic() - ended_at < 1
    assert order == ["first", "second"]


async def test_bot_that_waits_can_be_ended(url):
    async with active_bot.hold(url):
        is_waiting = asyncio.Event()
        wait_task = asyncio.create_task(contextlib.AsyncExitStack().enter_async_context(
            active_bot.hold(url, is_waiting.set)))  # fmt: skip
        await asyncio.wait_for(is_waiting.wait(), 10)
        wait_task.cancel()
        await asyncio.wait({wait_task}, timeout=5)
        assert wait_task.cancelled()


async def test_killed_bot_is_followed_at_once(url, writer):
    writer.kill()
    killed_at = time.monotonic()
    async with active_bot.hold(url):
        assert time.monotonic() - killed_at < 2


@pytest.mark.usefixtures("needs_postgresql")
async def test_stopped_bot_is_followed_within_ten_seconds_and_writes_nothing_more(
    url, writer, opening
):
    os.kill(writer.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    async with active_bot.hold(url), opening() as database:
        assert time.monotonic() - stopped_at < 10
        session = await database.sessions.open(KEY)
        ids_before = [
            turn.id for turn in await database.turns.list_for_session(session.id, limit=100_000)
        ]
        os.kill(writer.pid, signal.SIGCONT)
        # What it writes next is refused.
        assert await asyncio.wait_for(writer.wait(), 30)
        ids_after = [
            turn.id for turn in await database.turns.list_for_session(session.id, limit=100_000)
        ]
        assert ids_after == ids_before


@pytest.mark.usefixtures("needs_postgresql")
async def test_lock_that_is_lost_is_noticed_and_nothing_is_written_any_more(
    url, opening, postgresql
):
    async with active_bot.hold(url) as bot, opening(bot=bot) as database:
        await database.sessions.open(KEY)
        postgresql.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'interpreter-bot active'"
        )
        await asyncio.wait_for(bot.lost.wait(), 5)
        with pytest.raises(errors.StoreError):
            await database.sessions.open(values.SessionKey("web", thread="other"))
        assert await database.sessions.find(KEY)


@pytest.mark.usefixtures("needs_postgresql")
async def test_bot_that_waits_outlasts_a_restart_of_the_server(url, postgresql):
    is_waiting = asyncio.Event()

    async def follow():
        async with active_bot.hold(url, is_waiting.set) as bot:
            return bot

    async with active_bot.hold(url) as first:
        second_task = asyncio.create_task(follow())
        await asyncio.wait_for(is_waiting.wait(), 10)
        postgresql.stop()
        await asyncio.wait_for(first.lost.wait(), 5)
        assert not second_task.done()
        third_task = asyncio.create_task(follow())
        await asyncio.to_thread(postgresql.start)
        bots = await asyncio.wait_for(asyncio.gather(second_task, third_task), 20)
    assert len({first.id, *(bot.id for bot in bots)}) == 3


async def test_turns_of_another_bot_are_not_ended(opening, url):
    async with active_bot.hold(url) as bot, opening(bot=bot) as database:
        session = await database.sessions.open(KEY)
        turn = await database.turns.start(session.id, person="p", text="?")
        async with opening(takes_orphans=False) as other_database:
            assert not await other_database.turns.finish(turn.id, values.TurnStatus.FAILED)
        assert await database.turns.finish(turn.id, values.TurnStatus.DONE)


async def test_a_commit_that_is_refused_is_undone_for_good(database):
    is_active = False

    async def ensure_active():
        if not is_active:
            raise errors.StoreError

    engines.check_commits(database.engine, ensure_active)
    with pytest.raises(errors.StoreError):
        await database.sessions.open(KEY)
    is_active = True
    # The same connection is used again, and its transaction is over.
    await database.sessions.open(values.SessionKey("web", thread="other"))
    assert await database.sessions.find(KEY) is None
