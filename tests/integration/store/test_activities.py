"""What code tried to reach outside: recorded, found again, deleted when old."""

import asyncio
import dataclasses
import datetime
import time

import pytest

from interpreter_bot import code_activity, values
from interpreter_bot.sessions import code_activity_recording

KEY = values.SessionKey("slack", "T1", "C1", "1.2")


def contact(host, **fields):
    fields = {"method": "GET", "port": 443, "status": 200, "happened_at": time.time()} | fields
    return code_activity.Contact(values.format_key(KEY), "kernel", host=host, **fields)


@pytest.mark.first_case
async def test_contacts_are_recorded_and_found_again(opening):
    async with opening() as database:
        recorder = code_activity_recording.ActivityRecorder(database.activities, days=90)
        contacts = [
            contact("a.org", path="/x", sent_bytes=2**40, happened_at=1000.0, seconds=0.5),
            contact(
                "b\udc80.org" * 100, reason="It is not on the list.", status=403, happened_at=2000.0
            ),
        ]
        for new_contact in contacts:
            recorder.add(new_contact)
        await recorder.write()
        await recorder.write()
        assert await database.activities.list_latest(code_activity.Query, limit=9) == ()
        latest = await database.activities.list_latest(code_activity.Contact, limit=9)
        assert latest == (contacts[1], contacts[0])


async def test_activities_are_recorded_even_if_the_bot_ends_meanwhile(opening):
    async with opening() as database:
        recorder = code_activity_recording.ActivityRecorder(database.activities, days=90)
        recorder.add(contact("a.org"))
        async with database.transaction(is_writing=True):
            writing = asyncio.create_task(recorder.write())
            # By then it waits for this transaction to end, on SQLite.
            for _ in range(10):
                await asyncio.sleep(0)
            writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await recorder.write()
        latest = await database.activities.list_latest(code_activity.Contact, limit=9)
        assert [activity.host for activity in latest] == ["a.org"]


async def test_an_installation_that_is_told_again_is_recorded_once(opening):
    async with opening() as database:
        first = code_activity.Installation(
            values.format_key(KEY), "kernel", "anna", "layer", "a==1", happened_at=1000.0
        )
        repeated = dataclasses.replace(first, happened_at=2000.0)
        others = [
            dataclasses.replace(repeated, kernel_id="k"),
            dataclasses.replace(repeated, layer="l"),
        ]
        await database.activities.add([first, first, repeated])
        await database.activities.add([repeated, *others])
        assert set(await database.activities.list_latest(code_activity.Installation, limit=9)) == {
            first,
            *others,
        }


async def test_old_ones_are_deleted(opening):
    async with opening() as database:
        old_time = time.time() - datetime.timedelta(days=2).total_seconds()
        await database.activities.add(
            [contact("old.org", happened_at=old_time), contact("new.org")]
        )
        await code_activity_recording.ActivityRecorder(database.activities, days=1).delete_old()
        assert [
            recorded.host
            for recorded in await database.activities.list_latest(code_activity.Contact, limit=9)
        ] == ["new.org"]
