"""Turns in bad weather: cancelled anywhere, stopped anywhere, without a database, without files."""

import asyncio
import resource

import pytest

from interpreter_bot import errors, events, settings, values
from interpreter_bot.hosts import executions
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import host_words, model_words, storage_words
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import (
    ANNA,
    KEY,
    attachment,
    make_code_request,
    make_request,
)

pytestmark = pytest.mark.kernel

Status = values.TurnStatus


def make_stalled_attachment(name):
    async def read_chunks():
        yield b"x"
        await asyncio.Event().wait()

    return requests.Attachment(name, read_chunks)


async def test_a_turn_that_is_cancelled_anywhere_is_whole(open_bot):
    async with open_bot() as bot:
        for ticks in (*range(1, 60, 3), 100, 200):
            key = values.SessionKey("web", thread=str(ticks))
            reply = replies.Reply()
            turn_task = asyncio.create_task(
                bot.service.handle(make_code_request("print(1)", key=key), reply)
            )
            for _ in range(ticks):
                await asyncio.sleep(0)
            turn_task.cancel()
            await asyncio.wait({turn_task})
            turns = await bot.service.queries.history(key)
            assert not bot.service.is_busy(key), ticks
            assert reply.end.status in (Status.STOPPED, Status.DONE), ticks
            assert len(reply.contents("code")) == len(reply.contents("finished")), ticks
            assert [turn.record.status for turn in turns] in ([], [reply.end.status.value]), ticks


@pytest.mark.slow
async def test_code_whose_host_fails_is_shown_as_ended(open_bot, monkeypatch):
    follow = executions.Executions.follow

    async def fail(*args, **fields):
        await follow(*args, **fields)
        raise errors.KernelError(host_words.HOST_FAULT)

    async with open_bot(openai_server.code("print(1)"), openai_server.text("It failed.")) as bot:
        monkeypatch.setattr(executions.Executions, "follow", fail)
        for reply in (await bot.run("print(1)"), await bot.ask("go")):
            (finished,) = reply.contents("finished")
            assert (finished.ending, finished.reason) == (
                values.Ending.REFUSED,
                host_words.HOST_FAULT,
            )
            assert reply.end.status is Status.DONE
        turns = await bot.service.queries.history(KEY)
        assert host_words.HOST_FAULT in bot.server.requests[1].messages[-1]["content"]
    shown = [event for turn in turns for event in turn.events]
    ends = [event.finished for event in shown if isinstance(event, events.CodeFinished)]
    assert [end.reason for end in ends] == [host_words.HOST_FAULT] * 2


async def test_one_cancelled_while_it_is_begun_is_not_left_running(open_bot, monkeypatch):
    async with open_bot() as bot:
        turns = bot.service.services.database.turns
        start, is_started = turns.start, asyncio.Event()

        async def slow(*args, **fields):
            made = await start(*args, **fields)
            is_started.set()
            await asyncio.sleep(0.05)
            return made

        monkeypatch.setattr(turns, "start", slow)
        turn_task = asyncio.create_task(bot.service.handle(make_code_request("1"), replies.Reply()))
        await is_started.wait()
        turn_task.cancel()
        await asyncio.wait({turn_task})
        (turn,) = await bot.service.queries.history(KEY)
    assert turn_task.cancelled()
    assert turn.record.status == "stopped"


async def test_stopping_while_a_file_arrives(open_bot):
    async with open_bot(openai_server.text("I see.")) as bot:
        reply = replies.Reply()
        turn_task = asyncio.create_task(
            bot.ask("what is in it?", reply, attachments=(make_stalled_attachment("a.csv"),))
        )
        await reply.until("begun")
        await bot.service.stop(KEY)
        await turn_task
        await bot.ask("and now?")
        contents = [message["content"] for message in bot.server.requests[0].messages[1:]]
    assert reply.end.status is Status.STOPPED
    assert contents[0] == "what is in it?"
    assert "stopped this turn before" in contents[1]


@pytest.mark.slow
async def test_stopping_while_files_are_looked_into_does_not_wait_for_that(open_bot, monkeypatch):
    is_describing = asyncio.Event()

    async def described(infos, kernel):
        is_describing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("interpreter_bot.sessions.turn_inputs.describe_files", described)
    async with open_bot() as bot:
        attachments = (attachment("a.csv", b"a\n1\n"),)
        turn_task = asyncio.create_task(bot.ask("look", attachments=attachments))
        await is_describing.wait()
        await bot.service.stop(KEY)
        reply = await asyncio.wait_for(turn_task, 30)
    assert reply.end.status is Status.STOPPED


@pytest.mark.first_case
@pytest.mark.parametrize("is_code", [False, True])
async def test_time_that_is_over_before_anything_ran_is_not_called_a_stop(open_bot, is_code):
    async with open_bot(turn=settings.TurnLimits(seconds=1)) as bot:
        request = make_request(
            "1", attachments=(make_stalled_attachment("a.csv"),), is_code=is_code
        )
        reply = await bot.handle(request)
    assert reply.end.status is Status.FAILED
    assert reply.end.sentence == model_words.out_of_time(1)


async def test_code_of_a_person_that_takes_too_long_says_so(open_bot):
    async with open_bot(turn=settings.TurnLimits(seconds=2)) as bot:
        reply = await bot.run("while True: pass")
    assert (reply.end.status, reply.end.sentence) == (Status.FAILED, model_words.out_of_time(2))


@pytest.mark.slow
async def test_where_no_file_could_be_had_there_is_nothing_to_ask(open_bot):
    async with open_bot() as bot:
        lost = attachment("a.csv", error=errors.BotError("It is gone."))
        reply = await bot.ask("", attachments=(lost,))
    assert reply.end.status is Status.FAILED
    assert "None of the files could be fetched" in reply.end.sentence


@pytest.mark.slow
async def test_a_model_hears_of_files_that_could_not_be_had_and_of_missing_words(open_bot):
    async with open_bot(openai_server.text("Hm."), openai_server.text("Fine.")) as bot:
        lost = attachment("a.csv", error=errors.BotError("It is gone."))
        await bot.ask("plot it", attachments=(lost,))
        await bot.ask("", attachments=(attachment("void.csv"),))
        first, second = (request.messages[-1]["content"] for request in bot.server.requests)
    assert "'a.csv', which is not in /mnt/data: It is gone." in first
    assert first.endswith("plot it")
    assert "The file is empty" in second
    assert "without a word" in second


@pytest.mark.slow
async def test_a_table_from_elsewhere_is_described_as_it_is_to_be_read(open_bot):
    file_attachment = attachment(
        "städte.csv", "Stadt;Größe\nKöln;1,5\nBonn;2,25\n".encode("cp1252")
    )
    async with open_bot(openai_server.text("Ja.")) as bot:
        await bot.ask("Was ist das?", attachments=(file_attachment,))
        content = bot.server.requests[0].messages[-1]["content"]
    assert "Größe (number)" in content
    assert "sep=';', encoding='cp1252', decimal=','" in content


class SmallDiskReply(replies.Reply):
    """A reply whose copies of files may have 4 MB."""

    @property
    def spool(self):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, hard))
        return super().spool


@pytest.mark.slow
async def test_file_that_cannot_be_copied_costs_neither_the_answer_nor_the_others(open_bot):
    code = "for name in 'ab': open(name, 'wb').write(bytes(6_000_000 if name == 'a' else 1))"
    script = [
        openai_server.call("run_code", {"code": code}),
        openai_server.text("Written."),
    ]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        async with open_bot(*script) as bot:
            reply = await bot.ask("write", SmallDiskReply())
            (turn,) = await bot.service.queries.history(KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (reply.end.status, reply.end.text) == (Status.DONE, "Written.")
    assert reply.contents("announcement") == [
        "a was left out: it cannot be saved (File too large)."
    ]
    assert reply.files == {"b": b"\0"}
    assert turn.record.answer == "Written."


class DefectiveReply(replies.Reply):
    """A reply whose `spool` raises an error."""

    @property
    def spool(self):
        raise ArithmeticError("a defect")


async def test_defect_in_giving_files_back_costs_no_answer(open_bot):
    code = "open('a', 'w').write('1')"
    script = [
        openai_server.call("run_code", {"code": code}),
        openai_server.text("Written."),
    ]
    async with open_bot(*script) as bot:
        reply = await bot.ask("write", DefectiveReply())
    assert (reply.end.status, reply.end.text) == (Status.DONE, "Written.")
    assert any("went wrong" in sentence for sentence in reply.contents("announcement"))


class LockingReply(replies.Reply):
    """A reply that locks the database after an event."""

    def __init__(self, lock, is_due):
        super().__init__()
        self._lock, self._is_due = lock, is_due

    def emit(self, event):
        super().emit(event)
        if self._is_due(event):
            self._lock()


async def test_a_database_that_is_locked_ends_no_answer_and_loses_nothing(open_bot, lock_database):
    script = [openai_server.Reply(text=["One ", "answer."], fault=None, usage=(100, 10))]
    async with open_bot(*script) as bot:
        reply = LockingReply(lock_database, lambda event: event == events.TextAdded("One "))
        await bot.ask("go", reply)
        (turn,) = await bot.service.queries.history(KEY)
        assert (reply.end.status, reply.end.text) == (Status.DONE, "One answer.")
        assert (turn.record.status, turn.record.answer) == ("running", "")
        lock_database.unlock()
        await bot.service.services.write_retries.write()
        (turn,) = await bot.service.queries.history(KEY)
    assert (turn.record.status, turn.record.answer) == ("done", "One answer.")
    assert turn.events[2] == events.TextAdded("One answer.")
    (spent,) = [event.usage for event in turn.events if isinstance(event, events.UsageChanged)]
    assert (spent.input_tokens, spent.output_tokens) == (100, 10)


async def test_code_that_cannot_be_written_down_does_not_run_and_the_model_is_not_asked(
    open_bot, lock_database
):
    script = [openai_server.code("open('f', 'w').write('x')", "Let me see.")]
    async with open_bot(*script) as bot:
        reply = LockingReply(lock_database, lambda event: isinstance(event, events.StepStarted))
        await bot.ask("go", reply)
        lock_database.unlock()
        assert len(bot.server.requests) == 1
        assert await bot.service.queries.files(KEY) == ()
    assert (reply.end.status, reply.end.sentence) == (
        Status.FAILED,
        storage_words.DATABASE_DOWN,
    )
    assert any(
        "missing from the history" in sentence for sentence in reply.contents("announcement")
    )


async def test_what_could_not_be_recorded_is_recorded_when_the_next_turn_begins(
    open_bot, lock_database
):
    async with open_bot(openai_server.text("One."), openai_server.text("Two.")) as bot:
        reply = LockingReply(lock_database, lambda event: isinstance(event, events.StepStarted))
        await bot.ask("first", reply)
        lock_database.unlock()
        await bot.ask("second")
        contents = [message["content"] for message in bot.server.requests[1].messages[1:]]
        turns = await bot.service.queries.history(KEY)
    assert contents == ["first", "One.", "second"]
    assert [turn.record.status for turn in turns] == ["done", "done"]


async def test_a_turn_that_failed_is_remembered_with_its_reason(open_bot):
    script = [openai_server.text("Once upon", fault="stall")]
    async with open_bot(*script, turn=settings.TurnLimits(seconds=4)) as bot:
        reply = await bot.ask("go")
        (turn,) = await bot.service.queries.history(KEY)
        book = await bot.service.queries.export_notebook(KEY)
    assert (reply.end.status, reply.end.text) == (Status.FAILED, "Once upon")
    assert (turn.record.status, turn.record.answer) == ("failed", model_words.out_of_time(4))
    assert turn.events[2] == events.TextAdded("Once upon")
    assert turn.events[-1].sentence == model_words.out_of_time(4)
    assert b"Once upon" in book
    assert b"This took longer" in book


async def test_what_a_turn_costs_is_counted_while_it_runs(open_bot):
    slow = openai_server.code("print(1)\nimport time\ntime.sleep(60)", usage=(700, 30))
    async with open_bot(slow) as bot:
        reply = replies.Reply()
        turn_task = asyncio.create_task(bot.ask("go", reply, id="m1"))
        await reply.until("output")
        async with asyncio.timeout(30):
            counted = 0
            while not counted:
                await asyncio.sleep(0.01)
                usage = await bot.service.queries.usage(KEY, ANNA)
                (turn,) = await bot.service.queries.history(KEY)
                spent = [e.usage for e in turn.events if isinstance(e, events.UsageChanged)]
                counted = min(usage.today.input_tokens, sum(one.input_tokens for one in spent))
        await bot.service.stop(KEY)
        await turn_task
        after = await bot.service.queries.usage(KEY, ANNA)
    assert (usage.today.input_tokens, usage.today.output_tokens) == (700, 30)
    assert (turn.record.request_id, spent[0].input_tokens, spent[0].steps) == ("m1", 700, 1)
    assert after.today.input_tokens == 700


async def test_two_turns_at_once_do_not_spend_a_persons_allowance_twice(open_bot):
    prices = {"answer_tokens": 1000}
    stall = openai_server.Reply(text=["One."], fault="stall")
    limit = settings.DailyAllowance(tokens=7000)
    async with open_bot(stall, model=prices, allowance=limit) as bot:
        first = replies.Reply()
        turn_task = asyncio.create_task(bot.ask("x" * 9000, first))
        await first.until("text")
        other = values.SessionKey("web", thread="other")
        second = await bot.ask("x" * 9000, key=other)
        await bot.service.stop(KEY)
        await turn_task
    assert second.end.status is Status.FAILED
    assert "one person may use in a day" in second.end.sentence


@pytest.mark.slow
async def test_a_model_hears_that_its_code_was_changed(open_bot):
    script = [openai_server.code("print('one')"), openai_server.text("Done.")]
    reply = replies.Reply(approvals=["print('mine')"])
    async with open_bot(*script) as bot:
        await bot.ask("go", reply, approval="every")
        content = bot.server.requests[1].messages[-1]["content"]
    assert content.startswith("[The person changed the code before it ran.")
    assert "print('mine')" in content
    assert "mine\n" in reply.contents("output")[0].plain


@pytest.mark.slow
async def test_nobody_is_asked_about_their_own_code(open_bot):
    async with open_bot() as bot:
        reply = await bot.run("print(1)", approval="every")
    assert reply.contents("approve") == []
    assert reply.end.status is Status.DONE


async def test_stopping_while_a_person_is_asked_whether_code_may_run(open_bot):
    async with open_bot(openai_server.code("print(1)")) as bot:
        reply = replies.Reply(approvals=["print(2)"], is_answering=False)
        turn_task = asyncio.create_task(bot.ask("go", reply, approval="every"))
        await reply.until("approve")
        await bot.service.stop(KEY)
        await asyncio.wait_for(turn_task, 30)
    assert reply.end.status is Status.STOPPED
    assert reply.contents("code") == []


@pytest.mark.slow
async def test_an_answer_counts_though_its_links_cannot_be_looked_into(open_bot, monkeypatch):
    async def unlisted(self):
        raise errors.WorkspaceError

    monkeypatch.setattr("interpreter_bot.kernels.files.workspaces.Workspace.list", unlisted)
    async with open_bot(openai_server.text("See [it](sandbox:/mnt/data/a.csv).")) as bot:
        reply = await bot.ask("go")
    assert (reply.end.status, reply.end.text) == (Status.DONE, "See it (`a.csv`).")
    assert reply.contents("announcement") == []


async def test_who_waits_in_a_deleted_conversation_does_not_bring_it_back(open_bot):
    async with open_bot() as bot:
        first, second = replies.Reply(), replies.Reply()
        one = asyncio.create_task(bot.run("print(1)\nwhile True: pass", first))
        await first.until("output")
        two = asyncio.create_task(bot.run("2", second))
        await second.until("waiting")
        await bot.service.delete(KEY)
        await asyncio.gather(one, two)
        assert await bot.service.recent("web") == ()
    assert first.end.status is Status.STOPPED
    assert "was deleted" in second.end.sentence


@pytest.mark.slow
async def test_the_model_chosen_around_a_conversation_holds_where_it_chose_none(open_bot):
    listed = settings.Model(name="other", base_url="http://127.0.0.1:1/v1")
    async with open_bot(openai_server.text("Hi.")) as bot:
        service = bot.service
        services = service.services
        assert await service.queries.find_model_title(KEY) == "scripted"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                type(services.catalogue), "titles", property(lambda _: ("scripted", listed.title))
            )
            here = values.Scope("web")
            await service.places.choose(here, "model", "other")
            assert await service.queries.find_model_title(KEY) == "other"
            await service.places.choose(values.Scope("web", person="u1"), "model", "scripted")
            assert await service.queries.find_model_title(KEY, person="u1") == "scripted"
            assert (await bot.ask("hello")).end.status is Status.DONE
            asking_bob = await bot.ask("hello", person=requests.Person("u2"))
            assert "There are: scripted" in asking_bob.end.sentence
        # One that is gone from the settings is no choice any more.
        assert await service.queries.find_model_title(KEY) == "scripted"


async def test_people_are_told_one_by_one_whatever_becomes_of_the_others(open_bot):
    notices = []

    async def notify(key, sentence):
        if sentence == "one":
            raise RuntimeError("no way")
        notices.append(sentence)

    async with open_bot() as bot:
        for sentence in ("one", "two"):
            await bot.service.notify(KEY, sentence)
        bot.service.notify_through("web", notify)
        with pytest.raises(RuntimeError):
            await bot.service.send_unsent()
        await bot.service.send_unsent()
    assert notices == ["two"]
    assert isinstance(bot.service, session_service.SessionService)
