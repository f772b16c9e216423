"""What code tried to reach outside: recorded, found again, deleted when old."""

import dataclasses
import datetime
import time

from interpreter_bot import code_activity, values
from interpreter_bot.sessions import code_activity_recording
from interpreter_bot.store import records

KEY = values.SessionKey("slack", "T1", "C1", "1.2")


def contact(host, **fields):
    fields = {"method": "GET", "port": 443, "status": 200, "at": time.time()} | fields
    return code_activity.Contact(values.text(KEY), "kernel", host=host, **fields)


async def test_contacts_are_recorded_and_found_again(opening):
    async with opening() as database:
        recorder = code_activity_recording.ActivityRecorder(database.contacts, days=90)
        wanted = [
            contact("a.org", path="/x", sent_bytes=2**40, at=1000.0, seconds=0.5),
            contact("b\udc80.org" * 100, reason="It is not on the list.", status=403, at=2000.0),
        ]
        for one in wanted:
            recorder.add(one)
        await recorder.write()
        await recorder.write()
        latest, first = await database.contacts.latest(limit=9)
        assert first == wanted[0]
        assert (latest.status, latest.reason, latest.at) == (403, wanted[1].reason, 2000.0)


async def test_an_installation_that_is_told_again_is_recorded_once(opening):
    async with opening() as database:
        first = records.Installation(values.text(KEY), "kernel", "anna", "layer", "a==1", at=1000.0)
        again = dataclasses.replace(first, at=2000.0)
        others = [dataclasses.replace(again, kernel_id="k"), dataclasses.replace(again, layer="l")]
        await database.installations.add([first, first, again])
        await database.installations.add([again, *others])
        assert set(await database.installations.latest(limit=9)) == {first, *others}


async def test_old_ones_are_deleted(opening):
    async with opening() as database:
        old = time.time() - datetime.timedelta(days=2).total_seconds()
        await database.contacts.add([contact("old.org", at=old), contact("new.org")])
        await code_activity_recording.ActivityRecorder(database.contacts, days=1).tidy()
        assert [one.host for one in await database.contacts.latest(limit=9)] == ["new.org"]
