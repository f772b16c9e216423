"""Two bots on one database: Discord gives an event to both, and one may be cut off just then."""

import asyncio
import contextlib
import copy
import json
import pathlib

import pytest

from interpreter_bot import values
from interpreter_bot.platforms.discord import modals
from interpreter_bot.sessions import replica_calls
from interpreter_bot.store import databases, engines
from tests.fakes import conversations
from tests.integration.discord import steps


async def ask_name(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "input('name? ')")
    answer = await turn.reply.ask(0, values.InputRequested("name? ", is_password=False))
    turn.reply.finished(0, conversations.done())
    return turn.done(f"Hello {answer}.")


async def planned(turn):
    turn.reply.step(1)
    code = await turn.reply.approve(0, "print(1)")
    return turn.done(f"Ran {code}.")


async def endless(turn):
    turn.reply.step(1)
    turn.reply.text("It goes on …")
    await asyncio.Event().wait()


@pytest.fixture
def place(lab):
    """Who asks, and where; both are there before the bots."""
    return lab.person("alice"), lab.channel("general")


@pytest.fixture
async def bots(discord_server, place, connect, tmp_path):
    """Open two bots with a script; what is said reaches the first alone."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(script):
            for _ in range(2):
                opened = conversations.opened(tmp_path / "bot", script)
                start.services.append(service := await stack.enter_async_context(opened))
                await stack.enter_async_context(connect(service=service, follow_threads=False))
            sessions = discord_server.gateway.sessions
            assert len(sessions) == 2
            discord_server.gateway.sessions = sessions[:1]
            return sessions

        start.services = []
        yield start


async def asked(discord_server, place, until, button):
    """Have Alice ask; return her, and where a button of a question is."""
    alice, channel = place
    discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
    thread = await steps.thread_in(channel)
    await until(lambda: thread.of_bots and button in thread.of_bots[-1].buttons)
    return alice, thread


@pytest.mark.parametrize("opening", [0, 1])
async def test_a_window_reaches_the_bot_that_asked(discord_server, place, bots, until, opening):
    sessions = await bots(ask_name)
    alice, thread = await asked(discord_server, place, until, "Answer")
    discord_server.gateway.sessions = sessions[opening : opening + 1]
    opened = await discord_server.click(alice, thread.of_bots[-1], "Answer")
    discord_server.gateway.sessions = sessions[1:]
    await discord_server.submit(opened, {"text": "Grace"})
    await steps.answered(thread)
    assert "Hello Grace." in thread.of_bots[-1].content


async def test_a_press_reaches_the_bot_that_asked(discord_server, place, bots, until):
    sessions = await bots(planned)
    alice, thread = await asked(discord_server, place, until, "Run")
    discord_server.gateway.sessions = sessions[1:]
    await discord_server.click(alice, thread.of_bots[-1], "Run")
    await steps.answered(thread)
    assert "Ran print(1)." in thread.of_bots[-1].content


async def test_a_press_that_reaches_both_counts_once(discord_server, place, bots, until):
    discord_server.expect(40060)
    sessions = await bots(planned)
    alice, thread = await asked(discord_server, place, until, "Run")
    discord_server.gateway.sessions = sessions
    pressed = await discord_server.click(alice, thread.of_bots[-1], "Run")
    await steps.answered(thread)
    assert "Ran print(1)." in thread.of_bots[-1].content
    assert "not open" not in pressed.text


@pytest.mark.parametrize(
    ("button", "told"),
    [("Run", "did not answer"), ("Edit", "Please press the button again")],
)
async def test_discord_has_a_first_sign_while_other_bots_are_asked(
    discord_server, place, bots, until, monkeypatch, tmp_path, button, told
):
    monkeypatch.setattr(discord_server.register, "first_seconds", 0.8)
    monkeypatch.setattr(modals, "LOOK_SECONDS", 0.4)
    monkeypatch.setattr(replica_calls, "_NOBODY_SECONDS", 1.5)
    sessions = await bots(planned)
    alice, thread = await asked(discord_server, place, until, "Run")
    # As of an answer of long ago.
    late = copy.copy(thread.of_bots[-1])
    number = late.buttons[button].split(":")[2]
    late.components = json.loads(json.dumps(late.components).replace(number, number[::-1]))
    discord_server.gateway.sessions = sessions[1:]
    url = engines.default(tmp_path / "bot/data")
    opening = databases.Database.open(url, files=pathlib.Path("unused"))
    async with opening as hanging, hanging.calls.served():
        pressed = await discord_server.click(alice, late, button)
        await until(lambda: told in pressed.text)
    discord_server.gateway.sessions = sessions[:1]
    await discord_server.click(alice, thread.of_bots[-1], "Run")
    await steps.answered(thread)


async def test_stop_reaches_the_bot_that_works(discord_server, place, bots, until):
    sessions = await bots(endless)
    alice, thread = await asked(discord_server, place, until, "Stop")
    discord_server.gateway.sessions = sessions[1:]
    await discord_server.click(alice, thread.of_bots[-1], "Stop")
    await steps.answered(thread)
    assert "Stopped." in thread.of_bots[-1].content


async def test_a_word_stops_the_work_of_another_bot_for_who_asked(
    discord_server, place, bots, until, lab
):
    bob = lab.person("bob")
    sessions = await bots(endless)
    alice, thread = await asked(discord_server, place, until, "Stop")
    stop = f"{discord_server.bot.mention} stop"
    discord_server.gateway.sessions = sessions[1:]
    discord_server.say(bob, thread, stop)
    await until(lambda: thread.of_bots[-1].content == "Nothing is running.")
    _, channel = place
    discord_server.say(bob, channel, stop)
    await until(lambda: channel.of_bots and channel.of_bots[-1].content == "Nothing is running.")
    discord_server.say(alice, channel, stop)
    pointer = f"That is running in <#{thread.id}>. Say stop there."
    await until(lambda: channel.of_bots[-1].content == pointer)
    discord_server.say(alice, thread, stop)
    await until(lambda: any("Stopped." in message.content for message in thread.of_bots))


async def test_a_notice_of_one_bot_leaves_what_the_other_one_writes(
    discord_server, place, bots, until
):
    await bots(endless)
    alice, thread = await asked(discord_server, place, until, "Stop")
    first, second = bots.services
    await second.notify(first.requests[0].key, "I was restarted.")
    assert "I was restarted." in thread.of_bots[-1].content
    answer = thread.of_bots[0]
    assert "interrupted" not in answer.content
    await discord_server.click(alice, answer, "Stop")
    await until(lambda: "Stopped." in answer.content)
