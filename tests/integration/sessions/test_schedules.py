"""Schedules: each time has one run, whatever happens to the bot meanwhile."""

import asyncio
import collections
import datetime
import random
import signal
import sys

import pytest
import sqlalchemy

from interpreter_bot import errors, values
from interpreter_bot import schedules as recurrences
from interpreter_bot.sessions import requests, schedules
from interpreter_bot.store import databases, engines, records
from tests.fakes import conversations, replies
from tests.integration.sessions.test_restarts import copy_data

START = datetime.datetime(2026, 10, 23, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
KEY = values.SessionKey("slack", "T1", "C1", "1.1")
ANNA = requests.Person("U1", "Anna")


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


class Bot:
    """A bot on virtual time, with a platform that shows the runs of schedules.

    Attributes:
        shown: the requests of schedules, and their replies.
        notices: sessions, and the sentences that their people got outside of turns.
        refusal: why owners may no longer use the bot; empty if they may.
    """

    def __init__(self, service, clock):
        self.service, self.clock = service, clock
        self.shown, self.notices, self.refusal = [], [], ""
        service.schedules.now = clock
        service.notify_through("slack", self._notify)
        platform = schedules.Platform(self._show, self._check)
        service.schedules.open_platform("slack", platform)

    async def _notify(self, key, sentence):
        self.notices.append((key, sentence))

    async def _check(self, key, person):
        if isinstance(self.refusal, Exception):
            raise self.refusal
        return self.refusal

    async def _show(self, request):
        reply = replies.Reply()
        self.shown.append((request, reply))
        await self.service.handle(request, reply)

    @property
    def table(self):
        return self.service.services.database.schedules

    async def add_schedule(self, cron="0 9 * * *", *, key=KEY, zone="Europe/Berlin", **fields):
        """Set up a schedule; return its id."""
        next_time = recurrences.Recurrence(cron, zone).next_after(self.clock())
        defaults = {"kind": records.ScheduleKind.PROMPT, "times": "daily", "task": "say hello"}
        defaults |= {"key": key, "person": ANNA.id, "cron": cron, "zone": zone, "due": next_time}
        return await self.table.add(records.NewSchedule(**{**defaults, **fields}))

    async def fire(self, *, at=None):
        """Set the clock to a later time, and wait for the runs that are due then."""
        if at is not None:
            self.clock.now = at
        await self.service.schedules.fire()
        await self.wait_until_idle()

    async def wait_until_idle(self):
        while tasks := list(self.service.schedules.run_tasks.values()):
            await asyncio.wait(tasks)

    async def list_outcomes(self, number):
        return [
            run[1] for run in await self.service.schedules.history(await self.table.get(number))
        ]

    @property
    def shown_texts(self):
        return [request.text for request, _ in self.shown]

    def find_notice(self, at=-1):
        """Return the sentence above a run."""
        (notice,) = self.shown[at][1].contents("announcement")
        return notice


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def bot(tmp_path, clock):
    async with conversations.opened(tmp_path) as service:
        yield Bot(service, clock)


def parse_time(text):
    return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)


async def test_it_runs_at_its_time_as_its_owner_and_once(bot):
    number = await bot.add_schedule()
    await bot.fire(at=parse_time("2026-10-24T08:59+02:00"))
    assert bot.shown == []
    for _ in range(3):
        await bot.fire(at=parse_time("2026-10-24T09:00+02:00"))
    ((request, reply),) = bot.shown
    assert (request.key, request.person.id, request.text) == (KEY, "U1", "say hello")
    assert reply.end.text == "echo: say hello"
    assert bot.find_notice() == f"Schedule {number}: say hello"
    assert await bot.list_outcomes(number) == ["done"]
    await bot.fire(at=parse_time("2026-10-25T09:00+01:00"))
    assert len(bot.shown) == 2, "clocks changed in between"


async def test_what_was_missed_runs_once_late_and_says_so(bot):
    number = await bot.add_schedule()
    await bot.fire(at=parse_time("2026-10-27T11:30+01:00"))
    assert bot.shown_texts == ["say hello"]
    assert bot.find_notice() == (
        f"Schedule {number}: say hello. It was planned for Sat 24 Oct 2026 09:00 (Europe/Berlin), "
        "and runs late."
    )
    await bot.fire(at=parse_time("2026-10-28T09:00+01:00"))
    assert bot.find_notice() == f"Schedule {number}: say hello"


async def test_the_same_is_not_set_up_twice(bot):
    numbers = [await bot.add_schedule() for _ in range(2)]
    other = await bot.add_schedule(task="say bye")
    await bot.service.schedules.pause(await bot.table.get(other))
    assert numbers[0] == numbers[1] != other
    assert await bot.add_schedule(task="say bye") != other, "a paused one is no substitute"


async def test_three_failures_in_a_row_pause_it_and_are_told(bot):
    async def fail(turn):
        raise errors.BotError("It is broken.")

    number = await bot.add_schedule("0 * * * *")
    for hour in range(1, 3):
        bot.service.script = fail
        await bot.fire(at=START + hour * HOUR)
    bot.service.script = conversations.echo
    await bot.fire(at=START + 3 * HOUR)
    bot.service.script = fail
    for hour in range(4, 9):
        await bot.fire(at=START + hour * HOUR)
    assert len(bot.shown) == 6
    ((key, sentence),) = bot.notices
    assert (key, sentence) == (
        KEY,
        f"Schedule {number} is paused. It failed 3 times in a row. It is broken. “schedules resume "
        f"{number}” resumes it.",
    )
    bot.service.script = conversations.echo
    await bot.service.schedules.resume(await bot.table.get(number))
    await bot.fire(at=START + 9 * HOUR)
    assert (await bot.list_outcomes(number))[:2] == ["done", "failed: It is broken."]


async def test_an_owner_who_may_no_longer_use_the_place_pauses_it(bot):
    number = await bot.add_schedule()
    bot.refusal = "You may not."
    await bot.fire(at=START + 24 * HOUR)
    bot.refusal = ""
    await bot.fire(at=START + 72 * HOUR)
    assert bot.shown == []
    assert [sentence for _, sentence in bot.notices] == [
        f"Schedule {number} is paused. You may not. “schedules resume {number}” resumes it."
    ]
    assert await bot.list_outcomes(number) == ["failed: You may not."]


async def test_a_place_that_is_gone_takes_its_schedules_with_it(bot):
    keys = [KEY, values.SessionKey("slack", "T1", "C2"), values.SessionKey("slack", "T2", "C1")]
    for key in keys:
        await bot.add_schedule(key=key)
    for scope, left in ((("slack", "T1", "C1"), keys[1:]), (("slack", "T1"), keys[2:])):
        await bot.service.places.erase(values.Scope(*scope))
        assert [schedule.key for schedule in await bot.table.list_all(limit=9)] == left


async def test_a_network_that_does_not_say_whether_the_owner_may_pauses_nothing(bot):
    number = await bot.add_schedule()
    bot.refusal = errors.BotError("It cannot be reached.")
    await bot.fire(at=START + 24 * HOUR)
    assert [sentence for _, sentence in bot.notices] == [
        f"Schedule {number} did not run. It cannot be reached."
    ]
    bot.refusal = ""
    await bot.fire(at=START + 48 * HOUR)
    assert bot.shown_texts == ["say hello"]


async def test_nothing_to_report_leaves_nothing_but_a_line_of_history(bot):
    async def be_quiet(turn):
        turn.reply.step(1)
        return turn.done(is_quiet=True)

    number = await bot.add_schedule()
    bot.service.script = be_quiet
    await bot.fire(at=START + 24 * HOUR)
    assert await bot.list_outcomes(number) == ["nothing to report"]
    assert await bot.service.queries.history(KEY) == ()


async def test_a_bot_that_is_killed_in_a_quiet_run_leaves_nothing_of_it_either(tmp_path, clock):
    """Whichever of its transactions was the last one."""

    async def be_quiet(turn):
        turn.reply.step(1)
        return turn.done(is_quiet=True)

    copies = []

    def copy(_):
        copies.append(copy_data(tmp_path / "data", tmp_path / f"{len(copies)}" / "data"))

    async with conversations.opened(tmp_path, be_quiet) as service:
        bot = Bot(service, clock)
        number = await bot.add_schedule()
        engine = service.services.database.engine.sync_engine
        sqlalchemy.event.listen(engine, "commit", copy)
        await bot.fire(at=START + 24 * HOUR)
        sqlalchemy.event.remove(engine, "commit", copy)
    assert len(copies) > 3
    for directory in copies:
        async with conversations.opened(directory.parent, be_quiet) as service:
            bot = Bot(service, clock)
            for _ in range(2):
                await bot.fire()
            assert await bot.list_outcomes(number) == ["nothing to report"]
            assert await service.queries.history(KEY) == ()


async def test_a_run_that_was_claimed_but_not_begun_is_begun_by_the_next_bot(tmp_path, clock):
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        number = await bot.add_schedule()
        clock.now += 24 * HOUR
        (due,) = await bot.table.list_due(clock(), {"slack"})
        assert await bot.table.claim(due, clock() + 24 * HOUR)
        assert not await bot.table.claim(due, clock() + 24 * HOUR)
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        await bot.fire()
        await bot.fire()
        assert bot.shown_texts == ["say hello"]
        assert await bot.list_outcomes(number) == ["done"]


async def test_a_turn_that_had_only_begun_begins_again_in_the_next_bot(tmp_path, clock):
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        number = await bot.add_schedule()
        clock.now += 24 * HOUR
        (due,) = await bot.table.list_due(clock(), {"slack"})
        await bot.table.claim(due, clock() + 24 * HOUR)
        ((run, _),) = await bot.table.list_unfinished_runs({"slack"})
        database = service.services.database
        session = await database.sessions.open(KEY)
        await database.turns.start(
            session.id, person="U1", text="say hello", schedule_run_id=run.id
        )
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        await bot.fire()
        assert bot.shown_texts == ["say hello"]
        assert await bot.list_outcomes(number) == ["done"]
        assert len(await service.queries.history(KEY)) == 1


async def test_a_bot_that_closes_leaves_what_waits_to_the_next_one(tmp_path, clock):
    begun = asyncio.Queue()

    async def hang(turn):
        begun.put_nowait(turn.request.text)
        await asyncio.sleep(60)

    async with conversations.opened(tmp_path, hang) as service:
        bot = Bot(service, clock)
        # Both in one conversation: one waits for the other, whichever comes first.
        numbers = {text: await bot.add_schedule(task=text) for text in ("say hi", "say bye")}
        clock.now += 24 * HOUR
        await service.schedules.fire()
        running = numbers.pop(await begun.get())
        ((waiting_text, waiting),) = numbers.items()
        await service.drain()
        await service.schedules.close()
        assert await bot.list_outcomes(waiting) == ["not finished"]
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        await bot.fire()
        assert bot.shown_texts == [waiting_text]
        assert await bot.list_outcomes(running) == ["interrupted by a restart"]
        assert await bot.list_outcomes(waiting) == ["done"]


BOT = """
import asyncio, itertools, os, pathlib, random, signal, sys
from interpreter_bot.sessions import schedules
from interpreter_bot.store import transactions
from tests.fakes import conversations, replies

directory = pathlib.Path(sys.argv[1])
moments_left = itertools.repeat(1)

def pass_moment():
    "Be killed here, if this bot has come to its last moment."
    if not next(moments_left):
        os.kill(os.getpid(), signal.SIGKILL)

change = transactions.Transactions.change

async def changing(self, statement):
    pass_moment()
    changed = await change(self, statement)
    pass_moment()
    return changed

transactions.Transactions.change = changing

async def script(turn):
    pass_moment()
    await turn.reply.code(0, "pass")
    pass_moment()
    await asyncio.sleep(random.random() / 20)
    pass_moment()
    turn.reply.finished(0, conversations.finished_well())
    return "done"

async def check(key, person):
    await asyncio.sleep(random.random() / 20)
    pass_moment()
    return ""

async def main():
    async with conversations.opened(directory, script) as service:
        async def show(request):
            pass_moment()
            await service.handle(request, replies.Reply())
            pass_moment()
        service.schedules.open_platform("slack", schedules.Platform(show, check))
        while True:
            await service.schedules.fire()
            if not service.schedules.run_tasks:
                return
            await asyncio.sleep(0.1)

# Each line begins a bot that lives so long; all of them are forked, as their imports take long.
for line in sys.stdin:
    if not (pid := os.fork()):
        moments_left = iter(range(int(line), -1, -1))
        asyncio.run(main())
        os._exit(0)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
KILLS = 20
COUNT = 1000


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_thousand_schedules_run_once_each_over_twenty_kills(tmp_path, clock):
    async with conversations.opened(tmp_path) as service:
        bot = Bot(service, clock)
        database = service.services.database
        async with database.transaction(is_writing=True):
            for number in range(COUNT):
                key = values.SessionKey("slack", "T1", "C1", f"{number}")
                await bot.add_schedule("0 9 29 2 *", key=key, person=f"U{number}", due=clock())
    draw = random.Random(1)
    bots = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BOT, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    for _ in range(KILLS):
        bots.stdin.write(f"{draw.randrange(draw.choice((400, 4000)))}\n".encode())
        assert await bots.stdout.readline() == b"%d\n" % signal.SIGKILL
    bots.stdin.write(b"1000000\n")
    assert await bots.stdout.readline() == b"0\n"
    bots.stdin.close()
    await bots.wait()
    url = engines.default_url(tmp_path / "data")
    async with databases.Database.open(url, blobs_directory=tmp_path / "kept") as database:
        outcomes = collections.Counter()
        for number in range(1, COUNT + 1):
            schedule = await database.schedules.get(number)
            (run,) = await database.schedules.list_runs(number, limit=9)
            session = await database.sessions.find(schedule.key)
            (turn,) = await database.turns.list_for_session(session.id)
            assert turn.schedule_run_id == run.id
            assert len(await database.executions.list_for_turn(turn.id)) <= 1
            assert schedule.due.year == 2028
            outcomes[run.outcome.value] += 1
        assert outcomes.keys() <= {"done", "interrupted"}
        # Of turns in which code ran, when the bot was killed, nobody knows the end.
        assert 0 < outcomes["interrupted"] < COUNT / 2


async def test_a_run_ends_although_its_host_does_not_answer(bot, monkeypatch):
    async def release(key):
        raise errors.KernelError("The machine cannot be reached.")

    await bot.service.create_session(KEY)
    monkeypatch.setattr(bot.service.services.hosts, "release", release)
    number = await bot.add_schedule(kind=records.ScheduleKind.REPLAY, code="print(1)")
    for day in range(24, 27):
        await bot.fire(at=datetime.datetime(2026, 10, day, 8, tzinfo=datetime.UTC))
    assert await bot.list_outcomes(number) == ["failed: The machine cannot be reached."] * 3
    assert any("paused" in text for _, text in bot.notices)
