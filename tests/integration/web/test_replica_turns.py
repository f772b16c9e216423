"""Two bots on one database: a tab is connected to one, what it shows runs in the other."""

import asyncio
import contextlib

import pytest

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import replica_turns
from interpreter_bot.sessions import replica_calls
from tests.fakes import conversations
from tests.integration.web import visits

THREAD = "0123456789abcdef"
ONE = "1" * 16


@pytest.fixture
def both(serving_fake, monkeypatch):
    """Open two bots with a script, and a tab of each once the first one's asks something."""
    monkeypatch.setattr(replica_turns, "_LOOK_SECONDS", 0.1)

    @contextlib.asynccontextmanager
    async def opened(script, until):
        async with (
            serving_fake({"go": script}, again="bot") as (_, client),
            serving_fake({"go": script}, again="bot") as (_, other),
            client.tab(THREAD) as here,
        ):
            await here.say("say", id=ONE, text="go")
            await here.event(until)
            async with other.tab(THREAD) as there:
                assert [turn["request_id"] for turn in there.whole["live"]] == [ONE]
                yield here, there

    return opened


async def _name(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "input('name? ')")
    answer = await turn.reply.ask(0, values.InputRequested("name? ", is_password=False))
    turn.reply.finished(0, conversations.done())
    return f"Hello {answer}."


async def test_input_is_asked_for_and_given_in_any_tab(both):
    async with both(_name, "asking") as (here, there):
        asked = await there.event("asking", ONE)
        assert asked["prompt"] == "name? "
        await there.say("answer", turn=ONE, question=asked["question"], text="Grace")
        for tab in (here, there):
            assert (await tab.event("over", ONE))["text"] == "Hello Grace."
        await there.say("watch", most=30)
        whole = await there.next("conversation")
        assert (whole["live"], [turn["request_id"] for turn in whole["past"]]) == ([], [ONE])


async def test_a_person_sees_and_answers_it_on_the_page(both, serving_fake, browsing):
    async with (
        both(_name, "asking") as (here, _),
        serving_fake(again="bot") as (_, third),
        browsing() as browser,
    ):
        page = await visits.opened(browser, third)
        await page.value(f"location.hash = '{THREAD}'")
        await page.until("document.querySelector('.question input')")
        assert "name?" in await page.text(".question")
        await page.click(".question input")
        await page.type("Grace")
        await page.press("Enter")
        await visits.answered(page)
        assert "Hello Grace." in await page.text(".turn")
        assert (await here.event("over", ONE))["text"] == "Hello Grace."


async def test_what_is_answered_there_is_asked_no_more(both):
    async with both(_name, "asking") as (here, there):
        asked = await there.event("asking", ONE)
        await here.say("answer", turn=ONE, question=1, text="Ada")
        assert (await there.event("settled", ONE))["question"] == asked["question"]
        assert (await there.event("over", ONE))["text"] == "Hello Ada."
        await there.say("answer", turn=ONE, question=asked["question"], text="Grace")
        assert "has expired" in (await there.next("refused"))["sentence"]


async def test_code_is_approved_and_refused_in_any_tab(both):
    async def planned(turn):
        turn.reply.step(1)
        first = await turn.reply.approve(0, "print(1)")
        return f"{first} {await turn.reply.approve(0, 'print(2)')}"

    async with both(planned, "approving") as (_, there):
        for text in ("print(3)", None):
            asked = await there.event("approving", ONE)
            await there.say("answer", turn=ONE, question=asked["question"], text=text)
        assert (await there.event("over", ONE))["text"] == "print(3) None"


async def test_what_is_shown_follows_as_it_is_recorded(both):
    gates = [asyncio.Event(), asyncio.Event()]

    async def talk(turn):
        turn.reply.step(1)
        turn.reply.text("one, ")
        await gates[0].wait()
        turn.reply.text("two")
        await turn.run(0, "1 + 1", values.Result(plain="2"))
        await gates[1].wait()
        turn.reply.step(2)
        turn.reply.text("Three.")
        return "Three."

    async with both(talk, "text") as (_, there):
        (turn,) = there.whole["live"]
        said = "".join(one["delta"] for one in turn["events"] if one["kind"] == "text")
        while said != "one, ":
            said += (await there.event("text", ONE))["delta"]
        gates[0].set()
        assert (await there.event("text", ONE))["delta"] == "two"
        assert (await there.event("code", ONE))["code"] == "1 + 1"
        assert (await there.event("output", ONE))["plain"] == "2"
        await there.event("finished", ONE)
        gates[1].set()
        assert (await there.event("step", ONE))["number"] == 2
        assert (await there.event("text", ONE))["delta"] == "Three."
        assert (await there.event("over", ONE))["status"] == "done"


async def test_stop_ends_it_in_any_tab(both):
    async def endless(turn):
        turn.reply.step(1)
        turn.reply.text("on and on")
        await asyncio.Event().wait()

    async with both(endless, "text") as (_, there):
        await there.say("stop")
        assert (await there.event("over", ONE))["status"] == "stopped"


async def test_what_is_shown_follows_though_another_bot_is_silent(both, monkeypatch):
    async def silent(*_):
        raise errors.BotError("A process of the bot does not answer.")

    async with both(_name, "asking") as (here, there):
        asked = await there.event("asking", ONE)
        monkeypatch.setattr(replica_calls.ReplicaCalls, "ask", silent)
        await here.say("answer", turn=ONE, question=1, text="Ada")
        assert (await there.event("over", ONE))["text"] == "Hello Ada."
        assert asked["question"]
