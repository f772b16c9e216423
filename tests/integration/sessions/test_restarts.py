"""A restart of the bot loses nothing, where kernels outlive it: neither output, nor answer."""

import asyncio
import contextlib
import shutil
import sqlite3

import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.sessions import suspended_turns
from interpreter_bot.store import engines
from interpreter_bot.wording import session_words
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import KEY

pytestmark = pytest.mark.kernel

TICKS = """
import time
kept = 'here'
count = globals().get('count', 0) + 1
for i in range(6):
    print('tick', i, flush=True)
    time.sleep(0.3)
"""
ALL = [f"tick {number}" for number in range(6)]


class Notices:
    """The notices that people get."""

    def __init__(self, bot):
        self.sentences = []
        self._arrival = asyncio.Event()
        bot.service.notify_through("web", self.notify)

    async def notify(self, key, sentence):
        assert key == KEY
        self.sentences.append(sentence)
        self._arrival.set()

    async def wait_for_first(self):
        await asyncio.wait_for(self._arrival.wait(), 20)
        return self.sentences[0]


def resume_in_reply(bot, **options):
    """Return a reply in which resumed turns go on, as on platforms that can show them."""
    reply = replies.Reply(**options)

    async def go_on(request):
        reply.answer = bot.service.questions.answer
        await bot.service.handle(request, reply)

    async def notify(key, sentence):
        raise AssertionError(sentence)

    bot.service.notify_through("web", notify, go_on=go_on)
    return reply


def list_printed_lines(turn_events):
    """Return the lines that a recorded turn printed."""
    outputs = [getattr(event, "output", None) for event in turn_events]
    return "".join(one.text for one in outputs if isinstance(one, values.Text)).splitlines()


async def load_last_turn(bot):
    """Return the last turn, after all resumed turns have ended."""
    await bot.service.resumptions.close()
    return (await bot.service.queries.history(KEY))[-1]


async def begin_turn(bot, run, reply=None):
    """Begin a turn, and wait for its first output."""
    reply = reply or replies.Reply()
    turn_task = asyncio.create_task(run(reply))
    await reply.until("output")
    return turn_task, reply


@contextlib.asynccontextmanager
async def open_after_kill(open_bot, tmp_path, *script, **groups):
    """Open a bot on a copy of the present data, as if the former bot was killed now."""
    copy = copy_data(tmp_path / "data", tmp_path / "copy")
    async with open_bot(*script, paths=settings.Paths(data=copy), **groups) as after:
        yield after


def copy_data(data, copy):
    """Copy the data that a bot leaves if it is killed now; return the copy's directory."""
    copy.mkdir(parents=True)
    name = engines.database_file(engines.parse(engines.default_url(data))).name
    with contextlib.closing(sqlite3.connect(data / name)) as database:
        database.execute("VACUUM INTO ?", (str(copy / name),))
    if (data / "kept").exists():
        shutil.copytree(data / "kept", copy / "kept")
    return copy


async def test_code_goes_on_and_each_line_is_recorded_once_and_told(open_bot, shared_host):
    async with open_bot(closing_seconds=0.0) as bot:
        turn_task, reply = await begin_turn(bot, lambda reply: bot.run(TICKS, reply))
    await turn_task
    assert (reply.end.status, reply.end.sentence) == (
        values.TurnStatus.INTERRUPTED,
        session_words.ANSWER_CONTINUES,
    )
    assert reply.contents("finished") == []
    async with open_bot() as bot:
        (turn,) = await bot.service.queries.history(KEY)
        assert turn.record.status == "running"
        sentence = await Notices(bot).wait_for_first()
        turn = await load_last_turn(bot)
        assert (turn.record.status, list_printed_lines(turn.events)) == ("done", ALL)
        after = await bot.run("print(kept, count)")
    assert sentence.startswith(session_words.KEPT_RUNNING)
    assert sentence.splitlines()[-len(ALL) - 1 : -1] == ALL
    assert after.contents("output") == [values.Text("stdout", "here 1\n")]


@pytest.mark.slow
async def test_what_is_recorded_is_shown_again_once_in_a_new_reply(open_bot, shared_host):
    async with open_bot(closing_seconds=0.0) as bot:
        turn_task, _ = await begin_turn(bot, lambda reply: bot.run(TICKS, reply))
    await turn_task
    async with open_bot() as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
    assert reply.contents("code") == [TICKS]
    assert "".join(output.text for output in reply.contents("output")).splitlines() == ALL
    assert reply.contents("announcement") == [session_words.KEPT_RUNNING]
    assert [one.ending for one in reply.contents("finished")] == [values.Ending.OK]


@pytest.mark.slow
async def test_a_turn_that_goes_on_twice_says_so_once_after_all_that_is_recorded(
    open_bot, shared_host
):
    async with open_bot(closing_seconds=0.0) as bot:
        turn_task, _ = await begin_turn(bot, lambda reply: bot.run(TICKS, reply))
    await turn_task
    async with open_bot(closing_seconds=0.0) as bot:
        first = resume_in_reply(bot)
        await first.until("announcement")
        await first.until("output")
    async with open_bot() as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
    kinds = [kind for kind, _ in reply.received]
    assert first.end.sentence == session_words.ANSWER_CONTINUES
    assert "".join(output.text for output in reply.contents("output")).splitlines() == ALL
    assert reply.contents("announcement") == [session_words.KEPT_RUNNING]
    assert kinds.index("code") < kinds.index("output") < kinds.index("announcement")


async def test_a_model_goes_on_with_what_its_code_showed_and_runs_nothing_twice(
    open_bot, shared_host
):
    script = [openai_server.code(TICKS), openai_server.text("Six ticks.")]
    async with open_bot(script[0], closing_seconds=0.0) as bot:
        turn_task, reply = await begin_turn(bot, lambda reply: bot.ask("Tick!", reply))
    await turn_task
    async with open_bot(script[1]) as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
        turn = await load_last_turn(bot)
        (request,) = bot.server.requests
        after = await bot.run("print(count)")
        again = await bot.service.services.database.turns.take_orphans()
    assert [message["role"] for message in request.messages[-3:]] == ["user", "assistant", "tool"]
    assert request.messages[-1]["content"].splitlines()[: len(ALL)] == ALL
    assert reply.contents("announcement") == [session_words.KEPT_RUNNING]
    assert (reply.end.status, reply.end.text) == (values.TurnStatus.DONE, "Six ticks.")
    assert (turn.record.status, turn.record.answer) == ("done", "Six ticks.")
    assert list_printed_lines(turn.events) == ALL
    assert after.contents("output") == [values.Text("stdout", "1\n")]
    assert again == ()


@pytest.mark.slow
async def test_what_was_asked_of_the_model_is_asked_again_and_code_stays_done(
    open_bot, shared_host
):
    slow = openai_server.text(*"So slow", delay_seconds=0.5)
    script = [openai_server.code("count = 1\nprint(count)"), slow]
    async with open_bot(*script, closing_seconds=0.0) as bot:
        reply = replies.Reply()
        turn_task = asyncio.create_task(bot.ask("Count!", reply))
        await reply.until("step", 2)
        await reply.until("text")
    await turn_task
    assert reply.end.sentence == session_words.ANSWER_CONTINUES
    async with open_bot(openai_server.text("One.")) as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
        (request,) = bot.server.requests
        follow_up = await bot.run("print(count)")
        turn = (await bot.service.queries.history(KEY))[0]
    assert [message["role"] for message in request.messages[-3:]] == ["user", "assistant", "tool"]
    assert request.messages[-1]["content"].splitlines()[0] == "1"
    assert reply.contents("code") == ["count = 1\nprint(count)"], "as it is recorded, not run again"
    assert (reply.end.text, turn.record.answer) == ("One.", "One.")
    assert [event.text for event in turn.events if isinstance(event, events.TextAdded)] == ["One."]
    assert follow_up.contents("output") == [values.Text("stdout", "1\n")]


async def test_a_question_waits_for_the_next_bot(open_bot, shared_host):
    async with open_bot(closing_seconds=0.0) as bot:
        reply = replies.Reply(is_answering=False, answers=["never"])
        turn_task = asyncio.create_task(bot.run("print('Hello', input('Who?'))", reply))
        await reply.until("ask")
    await turn_task
    async with open_bot() as bot:
        reply = resume_in_reply(bot, answers=["Ada"])
        await reply.until("over")
        assert list_printed_lines((await load_last_turn(bot)).events) == ["Hello Ada"]
    assert [(asked.cell, asked.prompt) for asked in reply.contents("ask")] == [(0, "Who?")]
    assert reply.end.status is values.TurnStatus.DONE


@pytest.mark.slow
async def test_a_killed_bot_leaves_as_much_to_the_next_one(open_bot, shared_host, tmp_path):
    script = [openai_server.code(TICKS), openai_server.text(*"Too late", delay_seconds=30)]
    async with open_bot(*script, closing_seconds=0.0) as bot:
        turn_task, first = await begin_turn(bot, lambda reply: bot.ask("Tick!", reply))
        await first.until("output", 3)
        async with open_after_kill(open_bot, tmp_path, openai_server.text("Six ticks.")) as after:
            reply = resume_in_reply(after)
            await reply.until("over")
            turn = await load_last_turn(after)
        turn_task.cancel()
        await asyncio.wait({turn_task})
    assert (turn.record.status, turn.record.answer) == ("done", "Six ticks.")
    assert list_printed_lines(turn.events) == ALL


async def test_code_of_a_host_that_is_gone_is_not_run_again_and_the_model_is_told(
    open_bot, shared_host
):
    async with open_bot(openai_server.code(TICKS), closing_seconds=0.0) as bot:
        turn_task, _ = await begin_turn(bot, lambda reply: bot.ask("Tick!", reply))
    await turn_task
    await shared_host.replace()
    async with open_bot(openai_server.text("I do not know.")) as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
        (request,) = bot.server.requests
        after = await bot.run("print('count' in globals())")
    assert "it is unknown whether" in request.messages[-1]["content"]
    assert reply.end.text == "I do not know."
    assert after.contents("output")[-1] == values.Text("stdout", "False\n")


@pytest.mark.slow
async def test_files_that_were_made_meanwhile_are_given_back(open_bot, shared_host):
    code = "open('before.txt', 'w').write('1')\n" + TICKS + "open('after.txt', 'w').write('2')"
    async with open_bot(closing_seconds=0.0) as bot:
        turn_task, reply = await begin_turn(bot, lambda reply: bot.run(code, reply))
    await turn_task
    assert reply.contents("artifact") == []
    async with open_bot() as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
    assert reply.files == {"before.txt": b"1", "after.txt": b"2"}


async def test_a_turn_that_was_perhaps_not_shown_is_shown_again_with_its_files(open_bot):
    code = """
print('computed')
for name in ('made', 'changed', 'deleted'):
    open(f'{name}.txt', 'w').write(name)
"""
    async with open_bot() as bot:
        fields = {"key": KEY, "request_id": "r1"}
        assert await bot.service.events.claim("web", "E1", **fields)
        first = await bot.run(code, id="r1")
        await bot.run("import os\nopen('changed.txt', 'w').write('x')\nos.remove('deleted.txt')")
    async with open_bot() as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
        turns = await bot.service.queries.history(KEY)
        await bot.service.services.database.events.settle("web", "E1")
    async with open_bot() as bot:
        assert bot.service.services.database.unshown == ()
    assert [kind for kind, _ in reply.received if kind != "begun"] == [
        kind for kind, _ in first.received if kind != "begun"
    ]
    assert reply.contents("output") == first.contents("output")
    assert reply.contents("artifact") == first.contents("artifact")
    assert (first.files.keys(), reply.files) == (
        {"made.txt", "changed.txt", "deleted.txt"},
        {"made.txt": b"made"},
    )
    assert (reply.end.status, reply.end.turn_id) == (values.TurnStatus.DONE, first.end.turn_id)
    assert len(turns) == 2


@pytest.mark.slow
async def test_progress_of_another_release_is_told_as_an_interruption(open_bot, shared_host):
    async with open_bot(closing_seconds=0.0) as bot:
        turn_task, _ = await begin_turn(bot, lambda reply: bot.run(TICKS, reply))
        turns = bot.service.services.database.turns
        (turn,) = await turns.list_for_session(1)
        await turns.note_progress(turn.id, {"of": "another release"})
    await turn_task
    async with open_bot() as bot:
        heard = Notices(bot)
        await bot.service.send_unsent()
        assert await heard.wait_for_first() == session_words.ANSWER_INTERRUPTED
        assert (await load_last_turn(bot)).record.status == "interrupted"


def test_progress_is_stored_as_it_is_read():
    progress = suspended_turns.Progress(is_code=False, model="m", memory={"messages": []})
    assert suspended_turns.Progress(**progress.document()) == progress
