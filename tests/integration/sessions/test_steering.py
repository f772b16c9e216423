"""What who asked writes while the turn runs: the model is told it in its next request."""

import asyncio
import json

from interpreter_bot import events, settings
from interpreter_bot.sessions import requests
from interpreter_bot.wording import session_words
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import KEY, attachment
from tests.integration.sessions.test_restarts import (
    copy_data,
    load_last_turn,
    resume_in_reply,
)

WAIT = """
import os, time
print("waiting")
while not os.path.exists("go"):
    time.sleep(0.05)
"""


async def test_who_asked_steers_the_turn_and_others_wait(open_bot):
    script = openai_server.code(WAIT), openai_server.text("As in b."), openai_server.text("Hi Bob.")
    async with open_bot(*script) as bot:
        first, steering, other = replies.Reply(), replies.Reply(), replies.Reply()
        bob = requests.Person("u2", "Bob")
        turn_tasks = [asyncio.create_task(bot.ask("Read a.csv", first, id="1"))]
        await first.until("output")
        file, put = attachment("b.csv", b"x\n1\n"), attachment("c.csv", b"y\n")
        await bot.service.put_file(KEY, put)
        more = {"attachments": (file,), "files": ("c.csv",), "may_steer": True, "id": "2"}
        turn_tasks.append(asyncio.create_task(bot.ask("Use the other file", steering, **more)))
        more = {"person": bob, "may_steer": True, "id": "3"}
        turn_tasks.append(asyncio.create_task(bot.ask("Hello", other, **more)))
        await asyncio.gather(steering.until("waiting"), other.until("waiting"))
        await bot.service.put_file(KEY, attachment("go", b"1"))
        await asyncio.gather(*turn_tasks)
        turns = await bot.service.queries.history(KEY)
        _, second, third = [json.dumps(request.messages) for request in bot.server.requests]
    assert "Use the other file" in second
    assert "b.csv" in second
    assert "c.csv" in second
    assert "Hello" not in second
    assert "Hello" in third
    assert first.files.keys() == {"go"}, "the files of the person are none that code made"
    assert [reply.end.text for reply in (first, steering, other)] == [
        "As in b.",
        session_words.MESSAGE_TAKEN_UP,
        "Hi Bob.",
    ]
    assert [turn.record.request for turn in turns] == ["Read a.csv", "Hello"]
    assert events.NoticeShown(session_words.taken_up("Use the other file")) in turns[0].events


async def test_what_comes_too_late_has_a_turn_of_its_own(open_bot):
    script = openai_server.text("One", delay_seconds=0.5), openai_server.text("Two")
    async with open_bot(*script) as bot:
        first, second = replies.Reply(), replies.Reply()
        turn_task = asyncio.create_task(bot.ask("Count", first, id="1"))
        await first.until("step")
        await bot.ask("Go on", second, id="2", may_steer=True)
        await turn_task
        turns = await bot.service.queries.history(KEY)
    assert (first.end.text, second.end.text) == ("One", "Two")
    assert [turn.record.request for turn in turns] == ["Count", "Go on"]


async def test_what_is_not_taken_up_before_a_stop_has_a_turn_of_its_own(open_bot):
    is_sent, may_end = asyncio.Event(), asyncio.Event()

    async def send_slowly():
        is_sent.set()
        await may_end.wait()
        yield b"x"

    async with open_bot(openai_server.code(WAIT), openai_server.text("As in b.")) as bot:
        first, steering = replies.Reply(), replies.Reply()
        turn_tasks = [asyncio.create_task(bot.ask("Read a.csv", first, id="1"))]
        await first.until("output")
        file = requests.Attachment("b.csv", send_slowly)
        more = {"attachments": (file,), "may_steer": True, "id": "2"}
        turn_tasks.append(asyncio.create_task(bot.ask("Use the other file", steering, **more)))
        await steering.until("waiting")
        await bot.service.put_file(KEY, attachment("go", b"1"))
        await is_sent.wait()
        assert await bot.service.stop(KEY)
        may_end.set()
        await asyncio.gather(*turn_tasks)
        turns = await bot.service.queries.history(KEY)
    assert steering.end.text == "As in b."
    assert [turn.record.request for turn in turns] == ["Read a.csv", "Use the other file"]


async def test_the_next_bot_tells_the_model_what_steered_the_turn(open_bot, shared_host):
    slow = openai_server.text(*"So slow", delay_seconds=0.5)
    async with open_bot(openai_server.code(WAIT), slow, closing_seconds=0.0) as bot:
        first, steering = replies.Reply(), replies.Reply()
        turn_tasks = [asyncio.create_task(bot.ask("Read a.csv", first, id="1"))]
        await first.until("output")
        more = {"may_steer": True, "id": "2"}
        turn_tasks.append(asyncio.create_task(bot.ask("Use the other file", steering, **more)))
        await steering.until("waiting")
        await bot.service.put_file(KEY, attachment("go", b"1"))
        await first.until("text")
    await asyncio.gather(*turn_tasks)
    assert steering.end.text == session_words.MESSAGE_TAKEN_UP
    async with open_bot(openai_server.text("As in b.")) as bot:
        reply = resume_in_reply(bot)
        await reply.until("over")
        (request,) = bot.server.requests
    assert request.messages[-1]["role"] == "user"
    assert "Use the other file" in json.dumps(request.messages[-1])
    assert reply.end.text == "As in b."
    assert session_words.taken_up("Use the other file") in reply.contents("announcement")


async def test_a_kill_after_steering_keeps_the_words_of_the_step_before(
    open_bot, shared_host, tmp_path
):
    """The bot is killed between taking a message up and the model's next request."""
    copy = tmp_path / "copy"

    class Reply(replies.Reply):
        def _show(self, event):
            if event == events.StepStarted(2):
                copy_data(tmp_path / "data", copy)
            super()._show(event)

    slow = openai_server.text(*"So slow", delay_seconds=0.5)
    async with open_bot(openai_server.code(WAIT, "I wait."), slow, closing_seconds=0.0) as bot:
        first, steering = Reply(), replies.Reply()
        turn_tasks = [asyncio.create_task(bot.ask("Read a.csv", first, id="1"))]
        await first.until("output")
        more = {"may_steer": True, "id": "2"}
        turn_tasks.append(asyncio.create_task(bot.ask("Use the other file", steering, **more)))
        await steering.until("waiting")
        await bot.service.put_file(KEY, attachment("go", b"1"))
        await first.until("step", 2)
        script = openai_server.text("As in b.")
        async with open_bot(script, paths=settings.Paths(data=copy)) as after:
            reply = resume_in_reply(after)
            # A bot numbers its own model calls from 1, after those that are replayed.
            reply.check_order = lambda _: None
            await reply.until("over")
            turn = await load_last_turn(after)
            (request,) = after.server.requests
    await asyncio.gather(*turn_tasks)
    assert "Use the other file" in json.dumps(request.messages[-1])
    texts = [event.text for event in turn.events if isinstance(event, events.TextAdded)]
    assert texts == ["I wait.", "As in b."]
