"""What is done with conversations as a whole, and how they end."""

import asyncio
import functools
import os
import signal
import sys

import nbformat
import pytest

from interpreter_bot import settings, values
from interpreter_bot.sessions import event_claims, maintenance, requests
from interpreter_bot.store import databases
from interpreter_bot.wording import session_words
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import (
    ANNA,
    KEY,
    attachment,
    make_code_request,
    make_request,
)

pytestmark = pytest.mark.kernel

PNG = "import base64\nfrom IPython.display import Image, display\ndisplay(Image(base64.b64decode('"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


async def test_a_reset_forgets_variables_and_words_but_keeps_files(open_bot):
    async with open_bot(openai_server.text("Hi."), openai_server.text("Who?")) as bot:
        await bot.ask("I am Eve")
        await bot.run("x = 1; open('f.txt', 'w').write('f')")
        await bot.service.reset(KEY)
        after = await bot.run("'x' in dir()")
        await bot.ask("who am I?")
        contents = [message["content"] for message in bot.server.requests[1].messages[1:]]
        files = [info.name for info in await bot.service.queries.files(KEY)]
        turns = await bot.service.queries.history(KEY)
    assert after.contents("output")[0].plain == "False"
    assert not any("Eve" in one for one in contents)
    assert files == ["f.txt"]
    assert "history are cleared" in turns[2].events[1].text


async def test_a_reset_with_files_stops_the_turn_and_empties_the_workspace(open_bot):
    async with open_bot() as bot:
        reply = replies.Reply()
        endless = "open('f', 'w').write('f')\nprint(1)\nwhile True: pass"
        turn_task = asyncio.create_task(bot.run(endless, reply))
        await reply.until("output")
        await bot.service.reset(KEY, files=True)
        await turn_task
        assert await bot.service.queries.files(KEY) == ()
    assert reply.end.status is values.TurnStatus.STOPPED


async def test_a_deleted_conversation_is_gone(open_bot):
    async with open_bot() as bot:
        await bot.run("open('f', 'w').write('f')")
        assert len(await bot.service.recent("web")) == 1
        await bot.service.delete(KEY)
        assert await bot.service.recent("web") == ()
        assert await bot.service.queries.history(KEY) == ()
        assert await bot.service.queries.files(KEY) == ()


async def test_lists_show_titles_models_and_kernels(open_bot):
    async with open_bot() as bot:
        await bot.run("1")
        await bot.service.rename(KEY, "My data")
        other = values.SessionKey("web", thread="other")
        await bot.service.choose_model(other, "scripted")
        first, second = await bot.service.recent("web")
        mine = await bot.service.recent("web", person="u1")
    assert (first.record.key, first.record.model, first.has_kernel) == (other, "scripted", False)
    assert (second.record.title, second.has_kernel, second.is_busy) == ("My data", True, False)
    assert [one.record.title for one in mine] == ["My data"]


async def test_files_are_read_in_pieces(open_bot):
    async with open_bot() as bot:
        name = await bot.service.put_file(KEY, attachment("a.bin", b"x" * 3_000_000))
        async with bot.service.queries.open_file(KEY, name) as (info, chunks):
            size = sum([len(chunk) async for chunk in chunks])
    assert (info.size_bytes, size) == (3_000_000, 3_000_000)


async def test_a_notebook_holds_everything_and_is_valid(open_bot):
    script = [
        openai_server.code(f"{PNG}{PIXEL}')))", "A dot."),
        openai_server.text("Done: **dot**."),
    ]
    async with open_bot(*script) as bot:
        await bot.ask("a dot please", attachments=(attachment("a*b.txt", b"x"),))
        await bot.run("print('own')\n1/0")
        notebook = nbformat.reads(
            (await bot.service.queries.export_notebook(KEY)).decode(), as_version=4
        )
    nbformat.validate(notebook)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds == ["markdown", "markdown", "code", "markdown", "code"]
    assert notebook.cells[2].outputs[0].data["image/png"] == PIXEL
    assert notebook.cells[3].source == "Done: **dot**."
    assert [output.output_type for output in notebook.cells[4].outputs] == ["stream", "error"]


async def test_closing_lets_a_turn_end_by_itself(open_bot):
    async with open_bot() as bot:
        reply = replies.Reply()
        turn_task = asyncio.create_task(
            bot.run("import time; time.sleep(1); print('whole')", reply)
        )
        await reply.until("code")
    await turn_task
    assert reply.end.status is values.TurnStatus.DONE
    assert reply.contents("output")[0].plain == "whole\n"


async def test_closing_stops_a_turn_that_does_not_end_and_refuses_new_ones(open_bot):
    async with open_bot(closing_seconds=0.1) as bot:
        reply, waiting = replies.Reply(), replies.Reply()
        turn_task = asyncio.create_task(bot.run("print(1)\nwhile True: pass", reply))
        await reply.until("output")
        second = asyncio.create_task(bot.run("2", waiting))
        await waiting.until("waiting")
    await asyncio.gather(turn_task, second)
    late = await bot.run("3")
    assert reply.end.status is values.TurnStatus.INTERRUPTED
    assert "The bot was restarted" in reply.end.sentence
    assert "Stopped" not in reply.end.sentence + reply.contents("finished")[0].reason
    for refused in (waiting, late):
        assert "shut down" in refused.end.sentence
    async with open_bot() as bot:
        (turn,) = await bot.service.queries.history(KEY)
        assert turn.record.status == "interrupted"
    assert "restarted in the middle" in turn.events[-1].sentence


async def test_a_cancelled_request_is_recorded_as_stopped_and_its_code_ends(open_bot):
    async with open_bot() as bot:
        reply = replies.Reply()
        turn_task = asyncio.create_task(bot.run("a = 1\nprint(1)\nwhile True: pass", reply))
        await reply.until("output")
        turn_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn_task
        assert reply.end.status is values.TurnStatus.STOPPED
        (turn,) = await bot.service.queries.history(KEY)
        assert turn.record.status == "stopped"
        after = await bot.run("a")
    assert after.contents("output")[0].plain == "1"


async def test_whatever_is_cancelled_while_the_bot_closes_hears_that_it_does(open_bot):
    async with open_bot() as bot:
        reply, waiting = replies.Reply(), replies.Reply()
        turn_task = asyncio.create_task(bot.run("print(1)\nwhile True: pass", reply))
        await reply.until("output")
        second = asyncio.create_task(bot.run("2", waiting))
        await waiting.until("waiting")
        draining = asyncio.create_task(bot.service.drain())
        await asyncio.sleep(0)
        # As a platform does that is told to hurry.
        for task in (turn_task, second):
            task.cancel()
        await asyncio.gather(turn_task, second, return_exceptions=True)
        await draining
    assert "shut down" in waiting.end.sentence
    assert reply.end.status is values.TurnStatus.INTERRUPTED
    assert "The bot was restarted" in reply.end.sentence


async def test_people_are_warned_before_a_kernel_is_released_and_once(open_bot):
    notices = []

    async def notify(key, sentence):
        notices.append((key, sentence))

    async with open_bot() as bot:
        bot.service.notify_through("web", notify)
        await bot.run("1")
        services = bot.service.services
        caretaker = maintenance.Maintenance(services, bot.service)
        assert await caretaker.warn_idle() == 0
        (kernel,) = services.hosts.pool.kernels.values()
        kernel.last_used -= 26 * 60
        assert await caretaker.warn_idle() == 1
        assert await caretaker.warn_idle() == 0
    ((key, sentence),) = notices
    assert key == KEY
    assert "26 min" in sentence
    assert "4 min" in sentence


async def test_a_message_with_which_a_killed_bot_had_not_begun_is_taken_once_more_or_told(
    open_bot, tmp_path
):
    notices = []

    async def notify(key, sentence):
        notices.append((key, sentence))

    async with open_bot() as bot:
        bot.service.notify_through("web", notify)
        (file,) = (tmp_path / "data").glob("*.db")
        opening = databases.Database.open(f"sqlite:///{file}", blobs_directory=tmp_path / "kept")
        async with opening as database:
            other = event_claims.EventClaims(
                database, bot.service.services.config, bot.service.notify
            )
            assert await other.claim("web", "m1", key=KEY, request_id="r1")
            assert await other.claim("web", "m2", key=KEY, request_id="r2")
            async with other.settling("web", "m2"):
                pass
            large = {"text": "x" * 300_000}
            assert await other.claim("web", "m3", key=KEY, request_id="r3", content=large)
            secret = {"key": KEY, "request_id": "r4", "content": {"token": "tok-4"}}
            assert await other.claim("web", "m4", **secret, is_secret=True)
            stored = [one for one in file.parent.glob("*.db*") if one.is_file()]
            assert b"tok-4" not in b"".join(one.read_bytes() for one in stored)
            assert await other.claim("web", "m5", key=KEY, request_id="r5", content={"n": 5})
            # Nothing is known to have run of the one, but of the other.
            session = await database.sessions.open(KEY)
            for number in (4, 5):
                begun = await database.turns.start(
                    session.id, person="p", text="?", request_id=f"r{number}"
                )
            await database.executions.start(begun.id, "1", hosted_id="h")
        await bot.service.send_unsent()
        caretaker = maintenance.Maintenance(bot.service.services, bot.service)
        taken = []
        await caretaker.take_over(await bot.service.services.database.turns.take_orphans())
        # Nobody could begin with it again.
        assert notices == [(KEY, session_words.ANSWER_INTERRUPTED)]
        bot.service.events.open_platform("web", taken.append)
        await bot.service.events.close()
        assert notices == [
            (KEY, session_words.ANSWER_INTERRUPTED),
            (KEY, session_words.MESSAGE_LOST),
        ]
        assert taken == [event_claims.LostEvent(KEY, "m4", {"token": "tok-4"})]
        (left,) = await bot.service.queries.history(KEY)
        assert (left.record.request_id, left.record.status) == ("r5", "interrupted")
    # That one died as well, before it had begun.
    del notices[:]
    async with open_bot() as bot:
        bot.service.notify_through("web", notify)
        bot.service.events.open_platform("web", taken.append)
        await bot.service.events.close()
    assert notices == [(KEY, session_words.MESSAGE_LOST)]
    assert len(taken) == 1


async def test_a_message_that_another_release_claimed_keeps_none_from_being_taken(
    open_bot, tmp_path
):
    notices, taken = [], []

    async def notify(key, sentence):
        notices.append(sentence)

    async with open_bot() as bot:
        bot.service.notify_through("web", notify)
        (file,) = (tmp_path / "data").glob("*.db")
        opening = databases.Database.open(f"sqlite:///{file}", blobs_directory=tmp_path / "kept")
        async with opening as database:
            contents = {"m1": {"said": "x"}, "m2": {"text": 7}, "m3": {"text": "Y"}}
            for name, content in contents.items():
                address = values.format_key(KEY)
                await database.events.claim("web", name, address=address, content=content)
        bot.service.events.open_platform(
            "web", lambda event: taken.append(event.content["text"].lower())
        )
        await bot.service.events.close()
    assert (notices, taken) == ([session_words.MESSAGE_LOST], ["y"])


async def test_what_happens_before_a_platform_is_there_is_told_when_it_is(open_bot):
    notices = []

    async def notify(key, sentence):
        notices.append(sentence)

    async with open_bot() as bot:
        await bot.service.notify(KEY, "The bot was restarted.")
        bot.service.notify_through("web", notify)
        await bot.service.send_unsent()
        await bot.service.send_unsent()
    assert notices == ["The bot was restarted."]


_VICTIM = """
import asyncio, json, pathlib, sys
from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.sessions import requests
from tests.fakes import openai_server, replies

async def main(data, runtime):
    slow = "print('before', flush=True)\\nimport time\\ntime.sleep(600)"
    script = [openai_server.code(slow, "Let me see.")]
    async with openai_server.Server(script) as server:
        bot = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=data, runtime=runtime),
            models=(settings.Model(name="scripted", base_url=server.base_url),),
        )
        keys = {"OPENAI_API_KEY": server.api_key}
        async with bot_startup.open_service(bot, keys) as service:
            reply = replies.Reply()
            request = requests.Request(
                key=values.SessionKey("web", thread="t"), person=requests.Person("u1"), text="go"
            )
            turn = asyncio.create_task(service.handle(request, reply))
            await reply.until("output")
            await asyncio.sleep(1)
            print("ready", flush=True)
            await turn

asyncio.run(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
"""


async def test_after_a_kill_in_the_middle_of_a_turn_it_shows_what_was_and_goes_on(
    open_bot, tmp_path, short_path
):
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _VICTIM, str(tmp_path / "data"), str(short_path)),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    assert await victim.stdout.readline() == b"ready\n"
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    notices = []

    async def notify(key, sentence):
        notices.append((key, sentence))

    async with open_bot(openai_server.text("Going on.")) as bot:
        bot.service.notify_through("web", notify)
        await bot.service.send_unsent()
        (turn,) = await bot.service.queries.history(KEY)
        reply = await bot.ask("go on")
        messages = [message["content"] for message in bot.server.requests[0].messages[1:]]
    assert turn.record.status == "interrupted"
    assert "restarted in the middle" in turn.events[-1].sentence
    shown = [event.output.plain for event in turn.events if hasattr(event, "output")]
    assert shown == ["before\n"]
    assert notices[0][0] == KEY
    assert "restarted" in notices[0][1]
    assert reply.end.text == "Going on."
    assert messages[0] == "go"
    assert "before" in messages[1]
    assert "cut off" in messages[1]


async def test_a_conversations_kernel_is_of_whoever_asked_last(open_bot):
    async with open_bot() as bot:
        seen = []
        for person in ("u1", "u2", "u2"):
            await bot.run("1", person=requests.Person(person))
            (kernel,) = bot.service.services.hosts.pool.kernels.values()
            seen.append(kernel.person)
    assert seen[0] != seen[1] == seen[2]


async def test_a_model_names_a_conversation_once_unless_a_person_did_or_it_costs_too_much(open_bot):
    script = [
        openai_server.text("It is 4."),
        openai_server.text('\n "**Sum of two\u202e numbers.**"\nand more'),
        openai_server.text("x" * 500),
    ]
    async with open_bot(*script, allowance=settings.DailyAllowance(tokens=20_000)) as bot:
        service, question = bot.service, make_request("What is 2 + 2?")
        answered = await service.handle(question, replies.Reply())
        await service.rename(KEY, "What is")
        improved = functools.partial(service.improve_title, title="What is")
        before = (await service.queries.usage(KEY, ANNA)).session.tokens
        assert await improved(question, answered)
        (one,) = await service.recent("web")
        assert one.record.title == r"Sum of two\u202e numbers"
        told = bot.server.requests[-1].messages
        assert "What is 2 + 2?" in told[-1]["content"]
        assert "It is 4." in told[-1]["content"]
        assert (await service.queries.usage(KEY, ANNA)).session.tokens > before
        # A person's stays; code is not read; of what is long, a line's worth is left.
        assert not await improved(question, answered)
        assert not await improved(make_code_request("1"), answered)
        assert await service.improve_title(question, answered, title=one.record.title)
        (one,) = await service.recent("web")
        assert one.record.title == "x" * 59 + "…"
        # Nothing more is asked once the day's allowance is used up.
        assert len(bot.server.requests) == 3
        turn = values.Usage(input_tokens=20_000)
        await service.services.database.usage.add(answered.turn_id, turn)
        assert not await service.improve_title(question, answered, title=one.record.title)
        assert len(bot.server.requests) == 3
