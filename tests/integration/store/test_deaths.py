"""Turns whose bot died, ended, or lost its database."""

import asyncio
import json
import sys
import time

import pytest
import sqlalchemy

from interpreter_bot import errors, values
from interpreter_bot.store import records
from tests.integration.store import servers

Status = values.TurnStatus

# A bot that begins a turn, reports it, and hangs.
HANGING_BOT = """
import asyncio, json, pathlib, sys
from interpreter_bot import values
from interpreter_bot.store import databases, records

async def main():
    opening = databases.Database.open(sys.argv[1], blobs_directory=pathlib.Path(sys.argv[2]))
    async with opening as database:
        session = await database.sessions.open(values.SessionKey("web", thread="t"))
        turn = await database.turns.start(session.id, person="p", text="Go on for ever")
        execution = await database.executions.start(turn.id, "while True: pass")
        kind = records.PartKind
        await database.parts.add(
            turn.id,
            records.NewPart(kind=kind.CODE, text="while True: pass", execution_id=execution),
            records.NewPart(kind=kind.OUTPUT, output=values.Text("stdout", "half of it")),
        )
        print(json.dumps([session.id, turn.id]), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""

# A command beside a bot: it reads once, and ends.
READING_COMMAND = """
import asyncio, pathlib, sys
from interpreter_bot.store import databases

async def main():
    opening = databases.Database.open(sys.argv[1], blobs_directory=pathlib.Path(sys.argv[2]))
    async with opening as database:
        print(await database.placements.find(sys.argv[3]))

asyncio.run(main())
"""


@pytest.fixture
async def hanging_bot(url, tmp_path):
    """The process, session and turn of another bot, which hangs in the middle of that turn."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", HANGING_BOT, url, tmp_path / "kept",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    session_id, turn_id = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
    yield process, session_id, turn_id
    if process.returncode is None:
        process.kill()
        await process.wait()


async def wait_for_orphan(database, turn_id):
    """Wait until the server has noticed that a bot died, and return the orphans."""
    deadline = time.monotonic() + 30
    orphans = database.orphans
    while turn_id not in [turn.id for turn in orphans]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
        orphans = await database.turns.take_orphans()
    return orphans


@pytest.mark.first_case
async def test_a_turn_of_a_killed_bot_is_shown_as_interrupted_with_all_its_parts(
    opening, hanging_bot
):
    process, session_id, turn_id = hanging_bot
    process.kill()
    await process.wait()
    async with opening() as database:
        await wait_for_orphan(database, turn_id)
        (turn,) = await database.turns.list_for_session(session_id)
        assert (turn.status, turn.request) == (Status.INTERRUPTED, "Go on for ever")
        assert turn.ended is not None
        code, output = await database.parts.list_for_turn(turn_id)
        assert (code.text, output.output.text) == ("while True: pass", "half of it")
        (execution,) = await database.executions.list_for_turn(turn_id)
        assert execution.ending is None
        # The conversation can be continued.
        next_turn = await database.turns.start(session_id, person="p", text="Again")
        assert await database.turns.finish(next_turn.id, Status.DONE, answer="Here")


@pytest.mark.first_case
async def test_a_bot_that_went_away_properly_leaves_orphans_as_well(opening):
    async with opening() as database:
        session = await database.sessions.open(values.SessionKey("web"))
        orphan = await database.turns.start(session.id, person="p", text="?")
    async with opening() as database:
        assert [turn.id for turn in await wait_for_orphan(database, orphan.id)] == [orphan.id]
        # The former owner can no longer finish it.
        assert not await database.turns.finish(orphan.id, Status.DONE)


async def test_a_server_that_restarts_is_used_again(opening, postgresql, url):
    if url.startswith("sqlite"):
        pytest.skip("a matter of servers")
    async with opening() as database:
        session = await database.sessions.open(values.SessionKey("web"))
        turn = await database.turns.start(session.id, person="p", text="?")
        postgresql.stop()
        with pytest.raises(errors.BotError, match="cannot be used right now"):
            await database.turns.get(turn.id)
        await asyncio.to_thread(postgresql.start)
        assert (await database.turns.get(turn.id)).status is Status.RUNNING
        assert servers.connections_in_use(database) == 0


@pytest.mark.first_case
async def test_cancelling_at_any_moment_leaves_all_or_nothing_and_no_connection(database, session):
    for step in range(60):
        parts = [records.NewPart(kind=records.PartKind.TEXT, text=str(n)) for n in range(20)]
        turn = await database.turns.start(session.id, person="p", text="?")
        add_task = asyncio.create_task(database.parts.add(turn.id, *parts))
        await asyncio.sleep(step * 0.0001)
        add_task.cancel()
        await asyncio.wait([add_task])
        assert len(await database.parts.list_for_turn(turn.id)) in {0, 20}
    assert servers.connections_in_use(database) == 0


@pytest.mark.parametrize("steps", [1, 8, 15])
async def test_what_is_cancelled_while_it_closes_leaves_no_connection(opening, steps):
    async with opening() as database:
        claims = [asyncio.create_task(database.events.claim("web", str(n))) for n in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for claim in claims:
            claim.cancel()
    done, _ = await asyncio.wait(claims, timeout=5)
    assert len(done) == len(claims), "connections come back to nobody"
    assert servers.connections_in_use(database) == 0


async def test_a_turn_that_another_bot_can_go_on_with_becomes_its_own(database):
    session = await database.sessions.open(values.SessionKey("web", thread="t"))
    turn = await database.turns.start(session.id, person="p", text="Go on")
    progress = {"messages": ["a\0b", 1]}
    execution = await database.executions.start(
        turn.id, "1", hosted_id="e1", progress={"messages": []}
    )
    await database.turns.note_progress(turn.id, progress)
    output = records.NewPart(
        kind=records.PartKind.OUTPUT, output=values.Text("stdout", "x"), execution_id=execution
    )
    rows = await database.parts.prepare_rows(turn.id, [output])
    await database.parts.insert(rows, output_numbers={execution: 3})
    (stored_execution,) = await database.executions.list_for_turn(turn.id)
    assert (stored_execution.hosted_id, stored_execution.last_output_number) == ("e1", 3)
    await _set_dead_owner(database, turn.id)
    (orphan,) = await database.turns.take_orphans()
    assert (orphan.id, orphan.status, orphan.progress) == (turn.id, Status.RUNNING, progress)
    assert await database.turns.take_orphans() == ()
    assert await database.turns.finish(turn.id, Status.DONE)
    assert (await database.turns.get(turn.id)).progress is None
    await database.turns.note_progress(turn.id, progress)
    assert (await database.turns.get(turn.id)).progress is None


async def _set_dead_owner(database, turn_id):
    """Set a dead bot as the owner of a turn."""
    async with database.engine.begin() as connection:
        turns = records.Turn
        update = sqlalchemy.update(turns).where(turns.id == turn_id).values(owner="f" * 32)
        await connection.execute(update)


@pytest.mark.first_case
async def test_a_database_that_is_opened_twice_is_still_locked_for_others(opening, url, tmp_path):
    async def find_in_other_process(key):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READING_COMMAND, url, str(tmp_path / "kept"), key),
            stdout=asyncio.subprocess.PIPE,
        )
        return (await process.communicate())[0].decode().strip()

    async with opening() as first:
        await first.placements.put("s", "a", former_epoch=0)
        # As a bot that has hosts of several machines does.
        async with opening():
            for key in ("s", "t"):
                # The end of the other process must not delete the log that this process writes.
                await first.placements.put(key, "a", former_epoch=0)
                assert "epoch=1" in await find_in_other_process(key)
