"""Schedules over real kernels: proposals, refreshed answers, alerts and quiet answers."""

import asyncio
import datetime
import threading

import pytest

from interpreter_bot import errors, events, settings, values
from interpreter_bot.sessions import schedules, variable_uses
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import KEY
from tests.integration.sessions.test_restarts import (
    ALL,
    TICKS,
    open_after_kill,
    resume_in_reply,
)

pytestmark = pytest.mark.kernel


class Calendar:
    """The schedules of a bot, on virtual time."""

    def __init__(self, bot):
        self.bot = bot
        self.shown, self.notices = [], []
        self.schedules = bot.service.schedules
        self.schedules.now = lambda: self.now
        self.now = datetime.datetime.now(datetime.UTC)
        bot.service.notify_through("web", self._notify, go_on=self._show)
        self.schedules.open_platform("web", schedules.Platform(self._show, self._check))

    async def _notify(self, key, sentence):
        self.notices.append(sentence)

    async def _check(self, key, person):
        return ""

    async def _show(self, request):
        self.shown.append(await self.bot.handle(request))

    async def propose(self, text, *approvals):
        """Set up a schedule by its command, without a model; return the reply's sentence."""
        reply = replies.Reply(approvals=list(approvals) or [True])
        await self.bot.run(f"/schedule {text}", reply)
        return (reply.contents("announcement") or [reply.end.sentence])[-1]

    async def next_day(self):
        """Set the clock to the schedule's next time, and wait until its run has ended."""
        (schedule,) = await self.schedules.visible(KEY, "u1")
        self.now = schedule.due or self.now + datetime.timedelta(days=1)
        await self.schedules.fire()
        while tasks := list(self.schedules.run_tasks.values()):
            await asyncio.wait(tasks)

    async def history(self):
        (schedule,) = await self.schedules.visible(KEY, "u1")
        return [outcome for _, outcome in await self.schedules.history(schedule)]


def join_output(reply):
    return "".join(
        output.text for output in reply.contents("output") if isinstance(output, values.Text)
    )


async def test_refresh_runs_the_code_again_in_a_new_python_with_copies_of_the_files(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("open('n.txt', 'w').write('1')")
        await bot.run("import pathlib\nunused = 1")
        await bot.run(
            "n = int(pathlib.Path('n.txt').read_text())\nprint('n is', n, len(dir()) < 40)"
        )
        sentence = await calendar.propose("daily 9:00 UTC: refresh this")
        assert sentence.startswith("Schedule 1 is set up. It runs first on ")
        await bot.run("open('n.txt', 'w').write('2')\nn = unused = None")
        await calendar.next_day()
        (reply,) = calendar.shown
        assert join_output(reply).startswith("n is 2")
        assert reply.contents("announcement") == ["Schedule 1: refresh this"]
        await bot.run("print(n)")
        await calendar.next_day()
        assert await calendar.history() == ["done", "done"]
        statuses = await bot.service.services.hosts.statuses()
        assert list(statuses) == [values.format_key(KEY)], "its Python has ended"
        assert (await bot.service.queries.history(KEY))[-1].record.request == "print(n)"


async def test_who_deletes_a_conversation_deletes_the_copies_of_its_files(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("open('n.txt', 'w').write('1')")
        await calendar.propose("daily 9:00 UTC: refresh this")
        await calendar.next_day()
        runs, queries = KEY.for_schedule(1), bot.service.queries
        assert [info.name for info in await queries.files(runs)] == ["n.txt"]
        await bot.service.delete(KEY)
        assert not await queries.exists(runs)
        assert await queries.files(runs) == ()


async def test_code_that_fails_is_shown_and_pauses_after_three_times(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("print(open('n.txt', 'a+').name)")
        await calendar.propose("daily 9:00 UTC: refresh it")
        await bot.run("import os; os.remove('n.txt'); os.mkdir('n.txt')")
        for _ in range(4):
            await calendar.next_day()
        assert [reply.end.sentence for reply in calendar.shown] == ["The code failed."] * 3
        (sentence,) = calendar.notices
        assert "is paused. It failed 3 times in a row. The code failed." in sentence


async def test_an_alert_speaks_when_its_condition_becomes_true(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)

        async def write(text):
            await bot.run(f"open('queue.txt', 'w').write({text!r})")

        await write("1")
        await bot.run("queue = float(open('queue.txt').read())\nprint('queue:', queue)")
        await calendar.propose("daily 9:00 UTC: alert if queue > 100")
        for text in ("5", "101", "102", "7", "200", "none", "300"):
            await write(text)
            await calendar.next_day()
        seen = [join_output(reply) for reply in calendar.shown if not reply.end.is_quiet]
        assert seen == ["queue: 101.0\n", "queue: 200.0\n"]
        assert (await calendar.history())[::-1] == [
            "nothing to report",
            "done",
            "nothing to report",
            "nothing to report",
            "done",
            "failed: The code failed.",
            "nothing to report",
        ]
        runs = KEY.for_schedule(1)
        assert len(await bot.service.queries.history(runs)) == 2, "of quiet ones nothing is kept"


async def test_a_condition_that_is_no_answer_is_a_failure(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("n = float('nan')")
        await calendar.propose("daily 9:00 UTC: alert if n")
        await calendar.next_day()
        assert calendar.shown[0].end.is_quiet
        assert await calendar.history() == ["failed: The condition is neither true nor false."]


async def test_the_card_says_what_will_be_and_can_be_changed_before_it_is_confirmed(open_bot):
    asked = []

    class Reply(replies.Reply):
        def _show(self, event):
            if isinstance(event, events.QuestionAsked):
                asked.append(event.question)
            super()._show(event)

    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("print(1)")
        reply = Reply(approvals=["weekdays 10:30 UTC: refresh this", True])
        await bot.run("/schedule daily 9:00 Europe/Berlin: refresh this", reply)
        assert [question.code for question in asked] == [
            "daily 9:00 Europe/Berlin: refresh this",
            "weekdays 10:30 UTC: refresh this",
        ]
        assert all(question.is_personal for question in asked)
        next_times, kind = asked[0].facts.splitlines()
        assert next_times.count("09:00 (Europe/Berlin)") == 3
        assert kind.startswith("Runs the code of the last answer again")
        (schedule,) = await calendar.schedules.visible(KEY, "u1")
        assert (schedule.cron, schedule.zone) == ("30 10 * * mon-fri", "UTC")
        assert await calendar.propose("daily 9:00 UTC: refresh", None) == "No schedule was set up."


async def test_cells_are_parsed_beside_the_event_loop(open_bot, monkeypatch):
    threads, find_needed_cells = [], variable_uses.find_needed_cells

    def find(*arguments):
        threads.append(threading.current_thread())
        return find_needed_cells(*arguments)

    monkeypatch.setattr(variable_uses, "find_needed_cells", find)
    async with open_bot(has_model=False) as bot:
        await bot.run("print(1)")
        await Calendar(bot).propose("daily 9:00 UTC: refresh this")
    assert threads
    assert threading.main_thread() not in threads


async def test_a_schedule_asks_the_model_of_its_place(open_bot):
    models = [
        settings.Model(name=name, base_url="http://127.0.0.1:9/v1") for name in ("first", "second")
    ]
    async with open_bot(models=tuple(models), place=(settings.Place(model="second"),)) as bot:
        calendar = Calendar(bot)
        await calendar.propose("daily 9:00 UTC: say hello")
        (schedule,) = await calendar.schedules.visible(KEY, "u1")
        assert schedule.model == "second"


async def test_what_cannot_be_set_up_is_a_sentence(open_bot):
    limits = settings.Schedules(per_person=1)
    async with open_bot(has_model=False, schedules=limits) as bot:
        calendar = Calendar(bot)
        propose = calendar.propose
        assert "ran code, so there is nothing to refresh" in await propose(
            "daily 9:00 UTC: refresh this"
        )
        assert "No model is set up" in await propose("daily 9:00 UTC: say hello")
        assert "Write when, a time zone" in await propose("tomorrow")
        await bot.run("print(1)")
        await propose("daily 9:00 UTC: refresh this")
        assert "You have 1 schedule" in await propose("daily 9:00 UTC: refresh this")


CRON = {"kind": "ask", "cron": "0 9 * * *", "zone": "UTC", "what": "what is new?"}


async def test_a_model_proposes_and_is_asked_again_and_need_not_answer(open_bot):
    script = (
        openai_server.call("propose_schedule", CRON),
        openai_server.text("It is set up."),
        openai_server.text("All is new."),
        openai_server.call("nothing_to_report", {}),
    )
    async with open_bot(*script) as bot:
        calendar = Calendar(bot)
        reply = replies.Reply(approvals=[True])
        await bot.ask("tell me every day what is new", reply)
        assert reply.contents("approve") == ["0 9 * * * UTC: what is new?"]
        await calendar.next_day()
        await calendar.next_day()
        assert [reply.end.is_quiet for reply in calendar.shown] == [False, True]
        assert calendar.shown[0].end.text == "All is new."
        assert await calendar.history() == ["nothing to report", "done"]
        assert len(await bot.service.queries.history(KEY)) == 2
        asked = [request.body for request in bot.server.requests]
        offered = [{tool["function"]["name"] for tool in one["tools"]} for one in asked]
        assert all("nothing_to_report" not in names for names in offered[:2])
        assert all("propose_schedule" not in names for names in offered[2:])


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_card_is_confirmed_in_the_next_bot(open_bot, shared_host, tmp_path, is_killed):
    former = replies.Reply(is_answering=False, approvals=[True])
    async with open_bot(closing_seconds=0.0) as bot:
        proposing = asyncio.create_task(bot.run("/schedule daily 9:00 UTC: look", former))
        await former.until("approve")
        if is_killed:
            for _ in range(400):
                if (await bot.service.queries.history(KEY))[-1].record.progress:
                    break
                await asyncio.sleep(0.05)
            async with open_after_kill(open_bot, tmp_path) as after:
                await confirm_card(after, former)
            await bot.service.stop(KEY)
    await proposing
    if not is_killed:
        assert former.end.goes_on
        async with open_bot() as after:
            await confirm_card(after, former)


async def confirm_card(bot, former):
    """Confirm the card that a former bot showed."""
    reply = resume_in_reply(bot, approvals=[True])
    await reply.until("over")
    assert reply.contents("approve") == former.contents("approve")
    assert "Schedule 1 is set up" in reply.contents("announcement")[-1]
    assert len(await bot.service.services.database.schedules.list_all(limit=9)) == 1


async def test_a_run_goes_on_in_the_next_bot_and_is_shown_once(open_bot, shared_host):
    async with open_bot(closing_seconds=0.0) as bot:
        calendar = Calendar(bot)
        await bot.run(TICKS)
        await calendar.propose("daily 9:00 UTC: refresh it")
        running = replies.Reply()

        async def show(request):
            await bot.handle(request, running)

        calendar.schedules.open_platform("web", schedules.Platform(show, calendar._check))
        (schedule,) = await calendar.schedules.visible(KEY, "u1")
        calendar.now = schedule.due
        await calendar.schedules.fire()
        await running.until("output")
    assert running.end.goes_on
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.service.resumptions.close()
        await calendar.schedules.fire()
        await calendar.schedules.close()
        (reply,) = calendar.shown
        assert join_output(reply).splitlines() == ALL
        assert await calendar.history() == ["done"]


async def test_runs_of_a_schedule_follow_each_other_and_do_not_pile_up(open_bot):
    async with open_bot() as bot:
        calendar = Calendar(bot)
        await bot.run("import time\ntime.sleep(1.5)\nprint('whole')")
        await calendar.propose("daily 9:00 UTC: refresh it")
        (schedule,) = await calendar.schedules.visible(KEY, "u1")
        for _ in range(2):
            await asyncio.sleep(1)
            await calendar.schedules.run_now(schedule)
            calendar.now += datetime.timedelta(seconds=1)
        with pytest.raises(errors.BotError, match="its next run is waiting already"):
            await calendar.schedules.run_now(schedule)
        while calendar.schedules.run_tasks:
            await asyncio.sleep(0.05)
            await calendar.schedules.fire()
        assert [join_output(reply) for reply in calendar.shown] == ["whole\n"] * 2
        assert await calendar.history() == ["done", "done"]


async def test_what_its_owner_writes_meanwhile_is_answered_by_a_turn_of_its_own(open_bot):
    script = [
        openai_server.call("propose_schedule", CRON),
        openai_server.text("It is set up."),
        openai_server.code("import time; print('waits', flush=True); time.sleep(2)"),
        openai_server.call("nothing_to_report", {}),
        openai_server.text("Hello."),
    ]
    async with open_bot(*script) as bot:
        calendar = Calendar(bot)
        await bot.ask("tell me every day what is new", replies.Reply(approvals=[True]))
        running = replies.Reply()

        async def show(request):
            await bot.handle(request, running)

        calendar.schedules.open_platform("web", schedules.Platform(show, calendar._check))
        (schedule,) = await calendar.schedules.visible(KEY, "u1")
        await calendar.schedules.run_now(schedule)
        await running.until("output")
        reply = await bot.ask("Hello", may_steer=True, id="m1")
    assert running.end.is_quiet
    assert reply.end.text == "Hello."
