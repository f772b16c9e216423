"""What is written of a turn while it goes on, so that the next bot writes nothing of it again."""

import asyncio

import pytest

from interpreter_bot import events, values
from interpreter_bot.sessions import turn_recording
from interpreter_bot.store import databases
from tests.integration.sessions.conftest import make_code_request


async def write_nothing():
    pass


async def test_how_much_was_heard_is_written_with_what_was_heard_last(tmp_path):
    database_opening = databases.Database.open(
        f"sqlite:///{tmp_path}/bot.db", blobs_directory=tmp_path
    )
    async with database_opening as database:
        recorder = turn_recording.Recorder(database, lambda _: None)
        await recorder.begin(make_code_request("1"))
        await recorder.record_start("1", "hosted")
        recorder.record(events.OutputShown(0, values.Notice("first"), 1))
        async with database.transaction(is_writing=True):
            writing = asyncio.create_task(recorder.flush())
            # It waits to write the first output; meanwhile the code shows another one, and ends.
            await asyncio.sleep(0.05)
            recorder.record(events.OutputShown(0, values.Notice("second"), 2))
            recorder.record(events.CodeFinished(0, values.Finished(values.Ending.OK, 0.1)))
        await writing
        await recorder.close()
        # Unlike `flush`, it waits for a write of the recorder's own that is under way.
        assert await recorder.end(write_nothing)
        (execution,) = await database.executions.list_for_turn(recorder.turn_id)
        shown = [
            one.output.plain
            for one in await database.parts.list_for_turn(recorder.turn_id)
            if one.output
        ]
    assert (execution.last_output_number, shown) == (2, ["first", "second"])


async def test_a_batch_is_written_even_if_the_turn_is_stopped_meanwhile(tmp_path):
    database_opening = databases.Database.open(
        f"sqlite:///{tmp_path}/bot.db", blobs_directory=tmp_path
    )
    async with database_opening as database:
        recorder = turn_recording.Recorder(database, lambda _: None)
        await recorder.begin(make_code_request("1"))
        recorder.record(events.TextAdded("words"))
        async with database.transaction(is_writing=True):
            writing = asyncio.create_task(recorder.flush())
            # By then it waits for this transaction to end.
            for _ in range(10):
                await asyncio.sleep(0)
            writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await recorder.close()
        parts = await database.parts.list_for_turn(recorder.turn_id)
    assert [part.text for part in parts] == ["words"]
