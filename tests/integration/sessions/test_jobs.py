"""Code that outlasts the patience of its turn goes on in the background, and is told of once."""

import asyncio
import contextlib

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import requests
from interpreter_bot.wording import job_words, session_words
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import ANNA, KEY
from tests.integration.sessions.test_restarts import list_printed_lines, open_after_kill

pytestmark = pytest.mark.kernel

LIMITS = settings.Limits(execution_seconds=1.0)
SHORT = {"limits": LIMITS, "jobs": settings.Jobs(seconds=60)}
LONG = """
import pathlib, time
for i in range({count}):
    print("tick", i, flush=True)
    time.sleep(0.25)
pathlib.Path("made.txt").write_text("by the job")
kept = {count}
"""
OTHER = values.SessionKey("web", thread="other")


def make_code_call(count=8, *, timeout=30, code=None):
    source = LONG.format(count=count) if code is None else code
    return openai_server.call("run_code", {"code": source, "timeout": timeout})


class JobReplies:
    """The replies that show jobs, one for each job."""

    def __init__(self, bot, *, platform="web"):
        self._bot = bot
        self.replies = []
        self.requests = []
        self.arrival = asyncio.Event()
        bot.service.notify_through(platform, self._notify, go_on=self._go_on)

    async def _go_on(self, request):
        reply = replies.Reply()
        reply.answer = self._bot.service.questions.answer
        self.replies.append(reply)
        self.requests.append(request)
        self.arrival.set()
        await self._bot.service.handle(request, reply)

    async def _notify(self, key, sentence):
        raise AssertionError(sentence)

    async def wait_for_first(self):
        async with asyncio.timeout(30):
            await self.arrival.wait()
        return self.replies[0]


def list_job_lines(reply):
    """Return the lines that a job has printed."""
    texts = (output.text for output in reply.contents("output") if isinstance(output, values.Text))
    return "".join(texts).splitlines()


def make_tick_lines(count=8):
    return [f"tick {number}" for number in range(count)]


def list_call_results(bot):
    messages = bot.server.requests[-1].messages
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_a_turn_ends_while_its_code_goes_on_and_comes_with_its_files(open_bot, shared_host):
    script = [
        openai_server.code("open('first.txt', 'w').write('1')"),
        make_code_call(),
        openai_server.text("It runs."),
        openai_server.code("print(kept)"),
        openai_server.text("It is 8."),
    ]
    async with open_bot(*script, **SHORT) as bot:
        jobs = JobReplies(bot)
        reply = await bot.ask("Compute")
        job = await jobs.wait_for_first()
        assert (reply.end.text, job.end) == ("It runs.", None)
        assert job_words.JOB_GOES_ON in reply.contents("announcement")
        assert [one.ending for one in reply.contents("finished")][-1] is values.Ending.BACKGROUND
        assert set(reply.files) == {"first.txt"}
        assert list_call_results(bot)[1].endswith("and end your answer.]")
        schema = bot.server.requests[0].body["tools"][0]["function"]["parameters"]
        assert (schema["required"], "timeout" in schema["properties"]) == (["code"], True)
        await job.until("over")
        later = await bot.ask("And?")
        assert later.contents("output") == [values.Text("stdout", "8\n")]
        first, second, _ = await bot.service.queries.history(KEY)
    assert (job.end.status, job.end.sentence) == (values.TurnStatus.DONE, "")
    assert list_job_lines(job) == make_tick_lines()
    assert job.files == {"made.txt": b"by the job"}
    assert job.contents("announcement") == [job_words.JOB_WENT_ON]
    # Its code is recorded once.
    assert list_printed_lines(first.events) == []
    assert (list_printed_lines(second.events), second.record.status, second.is_code) == (
        make_tick_lines(),
        "done",
        True,
    )
    request_text = str(bot.server.requests[-2].messages)
    assert "This code of yours went on in the background, and has ended" in request_text


async def test_meanwhile_questions_are_answered_and_no_other_code_runs(open_bot, shared_host):
    script = [make_code_call(24), openai_server.text("It runs."), openai_server.code("1 + 1")]
    async with open_bot(*script, openai_server.text("Not yet."), **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        job = await jobs.wait_for_first()
        await job.until("output")
        reply = await bot.ask("How far is it?")
        request_text = str(bot.server.requests[-2].messages)
        own = await bot.run("2 + 2")
        with pytest.raises(errors.BotError, match="running in the background"):
            await bot.service.save_table(KEY, "t1", ANNA)
        assert bot.service.is_busy(KEY)
        await job.until("over")
        await bot.service.resumptions.close()
        assert not bot.service.is_busy(KEY)
    assert "has been running in the background for" in request_text
    # What code prints cannot pass for words of the person.
    assert '\\n"tick 0' in request_text
    assert "running in the background" in list_call_results(bot)[-1]
    assert (reply.contents("code"), reply.end.text) == ([], "Not yet.")
    assert "Other code can run once it is done" in own.end.sentence
    assert list_job_lines(job) == make_tick_lines(24)


async def test_code_that_ends_in_time_is_an_ordinary_run(open_bot, shared_host):
    async with open_bot(make_code_call(1), openai_server.text("Done."), **SHORT) as bot:
        jobs = JobReplies(bot)
        reply = await bot.ask("Compute")
        assert not bot.service.is_busy(KEY)
    assert (jobs.replies, set(reply.files)) == ([], {"made.txt"})


@pytest.mark.parametrize("groups", [{"jobs": settings.Jobs(seconds=0)}, {}])
async def test_where_nothing_may_go_on_the_turn_waits(open_bot, shared_host, groups):
    """The operator allows none, or the end could not be shown."""
    script = [make_code_call(), openai_server.text("Done.")]
    async with open_bot(*script, **SHORT | groups) as bot:
        if groups:
            JobReplies(bot)
        reply = await bot.ask("Compute")
        schema = bot.server.requests[0].body["tools"][0]["function"]["parameters"]
    assert [one.ending for one in reply.contents("finished")] == [values.Ending.OK]
    assert list(schema["properties"]) == ["code"]


@pytest.mark.parametrize("stop", ["session", "request", "reset"])
async def test_a_job_is_stopped(open_bot, shared_host, stop):
    async with open_bot(make_code_call(100), openai_server.text("It runs."), **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        job = await jobs.wait_for_first()
        await job.until("output")
        if stop == "session":
            assert await bot.service.stop(KEY)
        elif stop == "request":
            assert await bot.service.cancel(KEY, jobs.requests[0].id)
        else:
            await bot.service.reset(KEY)
        await job.until("over")
        assert not await bot.service.stop(KEY)
        again = await bot.run("3 + 3")
    assert job.end.status is values.TurnStatus.STOPPED
    assert [one.ending for one in job.contents("finished")] == [values.Ending.STOPPED]
    assert [
        output.plain for output in again.contents("output") if isinstance(output, values.Result)
    ] == ["6"]


async def test_a_job_ends_at_its_limit(open_bot, shared_host):
    jobs = settings.Jobs(seconds=2.0)
    async with open_bot(
        make_code_call(100, timeout=900), openai_server.text("Go."), limits=LIMITS, jobs=jobs
    ) as bot:
        job_replies = JobReplies(bot)
        await bot.ask("Compute")
        job = await job_replies.wait_for_first()
        await job.until("over")
    (finished,) = job.contents("finished")
    assert (finished.ending, finished.reason) == (
        values.Ending.TIMED_OUT,
        "The code was stopped after 2 s.",
    )


async def test_sessions_have_jobs_side_by_side_up_to_the_limit(open_bot, shared_host):
    script = [reply for _ in range(2) for reply in (make_code_call(24), openai_server.text("Go."))]
    script += [make_code_call(24), openai_server.text("Full.")]
    sessions = settings.Sessions(concurrent_turns=16)
    async with open_bot(*script, **SHORT, sessions=sessions) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        await bot.ask("Compute", key=OTHER)
        third = await bot.ask("Compute", key=values.SessionKey("web", thread="third"))
        assert "2 long runs may go on at a time" in list_call_results(bot)[-1]
        await asyncio.gather(*(job.until("over") for job in jobs.replies))
    assert third.contents("code") == []
    assert [list_job_lines(job) for job in jobs.replies] == [make_tick_lines(24)] * 2
    assert {request.key for request in jobs.requests} == {KEY, OTHER}


async def test_a_person_may_have_so_many_jobs_and_others_theirs(open_bot, shared_host):
    kernels = settings.Kernels(preload=(), spares=0, per_person=2)
    script = [
        make_code_call(24),
        openai_server.text("Go."),
        make_code_call(24),
        openai_server.text("Full."),
    ]
    script += [make_code_call(24), openai_server.text("Go.")]
    async with open_bot(*script, **SHORT, kernels=kernels) as bot:
        job_replies = JobReplies(bot)
        await bot.ask("Compute")
        second = await bot.ask("Compute", key=OTHER)
        assert "One person may have 1 long run at a time" in list_call_results(bot)[-1]
        other_key = values.SessionKey("web", thread="third")
        await bot.ask("Compute", key=other_key, person=requests.Person("u2"))
        await asyncio.gather(*(job.until("over") for job in job_replies.replies))
    assert second.contents("code") == []
    assert {request.key for request in job_replies.requests} == {KEY, other_key}


async def test_a_flood_is_bounded_and_its_end_is_told(open_bot, shared_host):
    code = "import time\nend = time.time() + 3\nwhile time.time() < end: print('x' * 1000)"
    code += "\nprint('END')"
    async with open_bot(make_code_call(code=code), openai_server.text("Go."), **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        job = await jobs.wait_for_first()
        await job.until("over")
        await bot.service.resumptions.close()
        (*_, turn) = await bot.service.queries.history(KEY)
    assert list_job_lines(job)[-1] == "END"
    assert sum(map(len, list_job_lines(job))) < 3_000_000
    assert sum(map(len, list_printed_lines(turn.events))) < 3_000_000


async def test_a_job_may_ask_and_take_the_answer(open_bot, shared_host):
    code = "import time\ntime.sleep(2)\nprint('hi', input('name? '))"
    async with open_bot(make_code_call(code=code), openai_server.text("Go."), **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        job = await jobs.wait_for_first()
        job.answers.append("Ada")
        await job.until("over")
    assert "hi Ada" in list_job_lines(job)


async def test_an_approved_job_is_not_approved_again(open_bot, shared_host):
    async with open_bot(make_code_call(), openai_server.text("It runs."), **SHORT) as bot:
        jobs = JobReplies(bot)
        reply = replies.Reply(approvals=[True])
        await bot.ask("Compute", reply, approval="every")
        job = await jobs.wait_for_first()
        await job.until("over")
    assert (len(reply.contents("approve")), job.contents("approve")) == (1, [])


async def test_an_orderly_restart_leaves_a_job_to_the_next_bot(open_bot, shared_host):
    async with open_bot(
        make_code_call(24), openai_server.text("It runs."), closing_seconds=0.0, **SHORT
    ) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        former = await jobs.wait_for_first()
        await former.until("output")
    assert former.end.sentence == session_words.ANSWER_CONTINUES
    async with open_bot(openai_server.text("Still on it."), **SHORT) as bot:
        # Also before its platform is there.
        assert bot.service.is_busy(KEY)
        own = await bot.run("2 + 2")
        jobs = JobReplies(bot)
        job = await jobs.wait_for_first()
        await job.until("over")
        await bot.service.resumptions.close()
        turns = await bot.service.queries.history(KEY)
        await bot.ask("And?")
    assert "Other code can run once it is done" in own.end.sentence
    assert (len(jobs.replies), list_job_lines(job), set(job.files)) == (
        1,
        make_tick_lines(24),
        {"made.txt"},
    )
    assert job.contents("announcement") == [job_words.JOB_WENT_ON]
    assert [turn.record.status for turn in turns] == ["done", "done", "failed"]
    assert list_printed_lines(turns[1].events) == make_tick_lines(24)


@pytest.mark.parametrize("moment", ["waiting", "handed over", "answered"])
async def test_a_killed_bot_loses_no_job_and_none_is_told_of_twice(
    open_bot, shared_host, tmp_path, moment
):
    """It is killed while the turn waits for the code, or is told, or has ended."""
    seconds = {"limits": settings.Limits(execution_seconds=3.0)} if moment == "waiting" else {}
    groups = SHORT | seconds
    answer = openai_server.text("It runs.", **({} if moment == "answered" else {"fault": "stall"}))
    async with contextlib.AsyncExitStack() as stack:
        opening = open_bot(make_code_call(24), answer, closing_seconds=0.0, **groups)
        bot = await stack.enter_async_context(opening)
        job_replies, reply = JobReplies(bot), replies.Reply()
        turn_task = asyncio.create_task(bot.ask("Compute", reply))
        await reply.until("output")
        if moment == "handed over":
            await reply.until("announcement")
        elif moment == "answered":
            await turn_task
            await (await job_replies.wait_for_first()).until("output")
        again = [] if moment == "answered" else [openai_server.text("It runs on.")]
        after = await stack.enter_async_context(
            open_after_kill(open_bot, tmp_path, *again, **groups)
        )
        next_job_replies = JobReplies(after)
        await asyncio.wait_for(next_job_replies.arrival.wait(), 30)
        # A turn that goes on ends before its job is followed.
        await asyncio.wait_for(after.service.resumptions.close(), 60)
        await asyncio.wait_for(after.service.resumptions.close(), 60)
        turns = await after.service.queries.history(KEY)
        assert [turn.record.status for turn in turns] == ["done", "done"]
        assert list_printed_lines(turns[0].events) == []
        assert list_printed_lines(turns[1].events) == make_tick_lines(24)
        all_job_replies = [
            one
            for one in next_job_replies.replies
            if job_words.JOB_WENT_ON in one.contents("announcement")
        ]
        assert [list_job_lines(one) for one in all_job_replies] == [make_tick_lines(24)]
        assert len(next_job_replies.replies) == (1 if moment == "answered" else 2)
        turn_task.cancel()
        await asyncio.wait({turn_task})


async def test_a_job_whose_host_is_lost_is_told_of_as_lost(open_bot, shared_host):
    script = [make_code_call(100), openai_server.text("It runs.")]
    async with open_bot(*script, closing_seconds=0.0, **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Compute")
        await (await jobs.wait_for_first()).until("output")
    await shared_host.replace()
    async with open_bot(**SHORT) as bot:
        jobs = JobReplies(bot)
        job = await jobs.wait_for_first()
        await job.until("over")
        again = await bot.run("3 + 3")
    (finished,) = job.contents("finished")
    assert finished.reason == session_words.CODE_UNKNOWN
    assert [
        output.plain for output in again.contents("output") if isinstance(output, values.Result)
    ] == ["6"]


async def test_code_that_cannot_be_handed_over_is_stopped_and_the_turn_says_so(
    open_bot, shared_host, lock_database
):
    reply = replies.Reply()
    async with open_bot(make_code_call(100), **SHORT) as bot:
        jobs = JobReplies(bot)
        turn_task = asyncio.create_task(bot.ask("Compute", reply))
        await reply.until("output")
        await lock_database.when_free()
        await turn_task
        lock_database.unlock()
        assert not bot.service.is_busy(KEY)
        again = await bot.run("3 + 3")
    assert (reply.end.status, jobs.replies) == (values.TurnStatus.FAILED, [])
    assert [
        output.plain for output in again.contents("output") if isinstance(output, values.Result)
    ] == ["6"]


async def test_a_job_is_stopped_while_its_turn_still_answers(open_bot, shared_host):
    slow = openai_server.text(*["word "] * 40, delay_seconds=0.5)
    async with open_bot(make_code_call(60), slow, **SHORT) as bot:
        jobs = JobReplies(bot)
        reply = replies.Reply()
        turn_task = asyncio.create_task(bot.ask("Compute", reply))
        await reply.until("text")
        async with asyncio.timeout(8):
            await bot.service.reset(KEY)
        await turn_task
        assert not bot.service.is_busy(KEY)
        job = await jobs.wait_for_first()
    assert job.end.status is values.TurnStatus.STOPPED


async def test_a_job_is_undone_with_the_turn_that_began_it(open_bot, shared_host):
    script = [openai_server.code("kept = 1"), openai_server.text("One.")]
    script += [make_code_call(), openai_server.text("It runs.")]
    await shared_host.replace(snapshots=settings.Snapshots())
    async with open_bot(*script, **SHORT) as bot:
        jobs = JobReplies(bot)
        await bot.ask("Begin")
        await bot.ask("Compute")
        job = await jobs.wait_for_first()
        await job.until("over")
        await bot.service.resumptions.close()
        undone = await bot.service.branches.undo(KEY)
        turns = await bot.service.queries.history(KEY)
        reply = await bot.run("import os; print(kept, os.path.exists('made.txt'))")
    assert undone.request == "Compute"
    assert [turn.record.request for turn in turns] == ["Begin"]
    assert reply.contents("output")[-1] == values.Text("stdout", "1 False\n")
