"""Schedules and their runs: each time has one run, whichever bots ask at once."""

import asyncio
import datetime

import pytest

from interpreter_bot import values
from interpreter_bot.store import records

KEY = values.SessionKey("slack", "T1", "C1", "1.1")
START = datetime.datetime(2026, 10, 23, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
DONE = records.RunOutcome.DONE
FAILED = records.RunOutcome.FAILED


def new_schedule(key=KEY, person="U1", **fields):
    defaults = {"kind": records.ScheduleKind.PROMPT, "times": "daily", "cron": "0 9 * * *"}
    defaults |= {"zone": "Europe/Berlin", "task": "say hello", "due": START}
    return records.NewSchedule(key=key, person=person, **{**defaults, **fields})


@pytest.fixture
async def schedule(database):
    return await database.schedules.get(await database.schedules.add(new_schedule()))


async def test_the_same_schedule_is_added_once(opening):
    async with opening() as first, opening() as second:
        adding = [database.schedules.add(new_schedule()) for database in [first, second] * 5]
        (schedule_id,) = set(await asyncio.gather(*adding))
        assert len(await first.schedules.list_all(limit=9)) == 1
        await first.schedules.set_due(schedule_id, None, "no reason")
        paused = await second.schedules.get(schedule_id)
        assert (paused.due, paused.reason) == (None, "no reason")
        assert await first.schedules.add(new_schedule()) != schedule_id


@pytest.mark.first_case
async def test_people_see_and_count_their_schedules_and_those_of_the_channel(database):
    schedules = database.schedules
    private = values.SessionKey("slack", "T1", "C1", values.private_thread("1.2"))
    keys = [KEY, private, values.SessionKey("slack", "T1", "C2"), values.SessionKey("slack", "T2")]
    for key in keys:
        await schedules.add(new_schedule(key))
    assert [schedule.key for schedule in await schedules.list_visible(KEY, "U1")] == keys[:3]
    assert [schedule.key for schedule in await schedules.list_visible(KEY, "U2")] == [KEY]
    assert [schedule.key for schedule in await schedules.list_visible(private, "U2")] == keys[:2]
    assert await schedules.count(KEY, "U1") == 3
    assert await schedules.count(KEY) == 2
    assert await schedules.count(KEY, "U2") == 0


@pytest.mark.first_case
async def test_schedules_of_a_session_or_a_place_are_deleted_with_their_runs(database, schedule):
    schedules = database.schedules
    await schedules.claim(schedule, None)
    elsewhere = values.SessionKey("slack", "T1", "C2")
    await schedules.add(new_schedule(elsewhere))
    assert [deleted.id for deleted in await schedules.delete_for_session(KEY)] == [schedule.id]
    assert await schedules.list_unfinished_runs({"slack"}) == []
    await schedules.erase(values.Scope("slack", "T1", "C1"))
    assert [kept.key for kept in await schedules.list_all(limit=9)] == [elsewhere]
    await schedules.erase(values.Scope("slack", "T1"))
    assert await schedules.list_all(limit=9) == ()


async def test_exactly_one_of_all_who_claim_a_time_begins_its_run(opening):
    async with opening() as first, opening() as second:
        await first.schedules.add(new_schedule())
        assert await first.schedules.list_due(START, {"discord"}) == ()
        (schedule,) = await first.schedules.list_due(START, {"slack"})
        following = START + DAY
        claims = [database.schedules.claim(schedule, following) for database in [first, second] * 5]
        assert sorted(await asyncio.gather(*claims)) == [False] * 9 + [True]
        ((run, owner),) = await second.schedules.list_unfinished_runs({"slack"})
        assert (run.due, owner.due) == (START, following)
        assert await second.schedules.find_run(run.id) == (run, owner)
        assert await second.schedules.list_due(START, {"slack"}) == ()


async def test_one_run_waits_for_another_and_no_third_begins(opening):
    async with opening() as first, opening() as second:
        schedule_id = await first.schedules.add(new_schedule())
        beginning = [
            database.schedules.begin_run(schedule_id, START + number * DAY)
            for number, database in enumerate([first, second] * 5)
        ]
        assert sorted(await asyncio.gather(*beginning)) == [False] * 8 + [True] * 2
        (run, _), _ = await first.schedules.list_unfinished_runs({"slack"})
        schedule = await first.schedules.get(schedule_id)
        await first.schedules.finish_run(run, DONE, "", reason="", max_failures=3)
        assert not await first.schedules.begin_run(schedule_id, run.due)
        assert await first.schedules.begin_run(schedule_id, START + 20 * DAY)
        assert len(await first.schedules.list_runs(schedule.id, limit=9)) == 3


@pytest.mark.first_case
async def test_failures_in_a_row_pause_a_schedule(database, schedule):
    schedules = database.schedules
    paused = []
    for number, outcome in enumerate((FAILED, DONE, FAILED, FAILED)):
        await schedules.begin_run(schedule.id, START + number * DAY)
        ((run, _),) = await schedules.list_unfinished_runs({"slack"})
        await schedules.note_outcome(run.id, outcome, "a sentence")
        end = {"reason": "broken", "max_failures": 2}
        paused.append(await schedules.finish_run(run, outcome, "a sentence", **end))
        assert not await schedules.finish_run(run, FAILED, "", **end)
    assert paused == [False, False, False, True]
    stored = await schedules.get(schedule.id)
    assert (stored.due, stored.reason, stored.failures) == (None, "broken", 2)
    runs = await schedules.list_runs(schedule.id, limit=3)
    assert [run.outcome for run in runs] == [FAILED, FAILED, DONE]
    await schedules.set_due(schedule.id, START)
    stored = await schedules.get(schedule.id)
    assert (stored.due, stored.reason, stored.failures) == (START, "", 0)


@pytest.mark.first_case
async def test_an_alert_knows_whether_its_condition_was_true_before(database, schedule):
    were_true = []
    for number, holds in enumerate((False, True, True, False)):
        await database.schedules.begin_run(schedule.id, START + number * DAY)
        ((run, _),) = await database.schedules.list_unfinished_runs({"slack"})
        were_true.append(await database.schedules.note_condition(run, holds=holds))
        await database.schedules.finish_run(run, DONE, "", reason="", max_failures=3)
    assert were_true == [False, False, True, True]


@pytest.mark.first_case
async def test_only_the_latest_runs_of_a_schedule_are_stored(database, schedule):
    for number in range(52):
        await database.schedules.begin_run(schedule.id, START + number * DAY)
        ((run, _),) = await database.schedules.list_unfinished_runs({"slack"})
        await database.schedules.finish_run(run, DONE, "", reason="", max_failures=3)
    runs = await database.schedules.list_runs(schedule.id, limit=99)
    assert [run.due for run in runs] == [START + number * DAY for number in range(51, 1, -1)]


@pytest.mark.first_case
async def test_a_turn_of_a_dead_bot_that_did_nothing_leaves_its_run_to_the_next(opening):
    async with opening() as dead:
        await dead.schedules.add(new_schedule())
        (schedule,) = await dead.schedules.list_due(START, {"slack"})
        await dead.schedules.claim(schedule, None)
        ((run, _),) = await dead.schedules.list_unfinished_runs({"slack"})
        session = await dead.sessions.open(KEY)
        start = {"person": "U1", "text": "say hello", "schedule_run_id": run.id}
        turn = await dead.turns.start(session.id, **start)
        assert await dead.turns.find_by_schedule_run(run.id) == turn
    async with opening() as database:
        assert database.orphans == ()
        assert await database.turns.find_by_schedule_run(run.id) is None
        assert await database.schedules.find_run(run.id) is not None
