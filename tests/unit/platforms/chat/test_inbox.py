"""Messages of a chat: in order, each once, and for whoever waits for them."""

import asyncio
import dataclasses

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.chat import inbox
from interpreter_bot.sessions import event_claims
from interpreter_bot.store import databases

KEY = values.SessionKey("small", "", "room", "thread")


class SmallChat:
    """A chat of one thread of the bot's, which notes what is done with its messages."""

    def __init__(self, events):
        self.done = []
        self.waits_for_answer = False
        self.reason = ""
        self.slow = asyncio.Event()
        self.inbox = inbox.Inbox("small", events, self)

    async def send(self, text, **facts):
        envelope = inbox.Envelope(name=text, key=KEY, request_id=text, content={})
        return await self.inbox.receive(text, dataclasses.replace(envelope, **facts))

    async def find_answer(self, message):
        async def answer():
            if message == "answer lost":
                raise errors.StoreError
            self.done.append(f"answered {message}")
            return self.waits_for_answer

        return answer if message.startswith("answer") else None

    async def is_in_own_thread(self, message):
        return "elsewhere" not in message

    async def mention_reason(self, message):
        return self.reason

    async def announce_mention(self, message, sentence):
        self.done.append(sentence)

    async def prepare(self, message, *, is_again):
        if message == "slow":
            await self.slow.wait()
        if message == "forbidden":
            raise errors.BotError("You may not.")
        if message == "broken":
            raise ValueError
        self.done.append(f"prepared {message}{' again' if is_again else ''}")

        async def start():
            self.done.append(f"ended {message}")

        return start

    async def refuse(self, message, sentence):
        self.done.append(sentence)


@pytest.fixture
async def events(tmp_path):
    async with databases.Database.open(
        f"sqlite:///{tmp_path}/bot.db", files=tmp_path / "kept"
    ) as database:

        async def notify(key, sentence):
            raise AssertionError(sentence)

        yield event_claims.EventClaims(database, settings.Settings(), notify)


async def test_messages_of_a_place_are_prepared_in_order(events):
    chat = SmallChat(events)
    first = asyncio.create_task(chat.send("slow"))
    second = asyncio.create_task(chat.send("quick"))
    other = asyncio.create_task(chat.send("beside", key=dataclasses.replace(KEY, thread="another")))
    await asyncio.wait_for(other, 5)
    assert chat.done == ["prepared beside", "ended beside"]
    chat.slow.set()
    await asyncio.gather(first, second)
    assert [one for one in chat.done if "prepared" in one][1:] == [
        "prepared slow",
        "prepared quick",
    ]


async def test_a_message_is_taken_by_one_bot_once(events):
    here, there = SmallChat(events), SmallChat(events)
    taken = await asyncio.gather(here.send("one"), there.send("one"), here.send("one"))
    assert sorted(taken) == [False, False, True]
    assert len(here.done + there.done) == 2


async def test_a_message_answers_a_question_or_else_is_a_request(events):
    chat = SmallChat(events)
    chat.waits_for_answer = True
    await chat.send("answer one")
    assert chat.done == ["answered answer one"]
    chat.waits_for_answer = False
    await chat.send("answer two")
    assert chat.done[1:] == ["answered answer two", "prepared answer two", "ended answer two"]


async def test_an_answer_that_cannot_be_stored_is_refused_and_no_request(events):
    chat = SmallChat(events)
    assert await chat.send("answer lost")
    assert chat.done == ["The conversation cannot be stored right now."]


async def test_what_is_not_for_the_bot_is_left_alone(events):
    chat = SmallChat(events)
    await chat.send("elsewhere")
    await chat.send("to others", is_for_others=True)
    assert chat.done == []
    await chat.send("elsewhere, with a mention", is_addressed=True)
    assert chat.done[0] == "prepared elsewhere, with a mention"


async def test_a_thread_is_told_once_that_it_takes_a_mention(events):
    chat = SmallChat(events)
    chat.reason = "Mention me."
    await chat.send("one")
    await chat.send("two")
    assert chat.done == ["Mention me."]
    # Nor is it taken later, though others may have left the thread by then.
    chat.reason = ""
    assert await chat.send("two") is False
    assert chat.done == ["Mention me."]


async def test_why_nothing_comes_of_a_message_is_said(events, caplog):
    chat = SmallChat(events)
    await chat.send("forbidden")
    assert chat.done == ["You may not."]
    await chat.send("broken")
    assert "could not be taken" in caplog.text
    assert len(chat.done) == 2
