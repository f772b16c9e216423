"""Two bots on one database, both connected: Slack gives each event to one of them, whichever."""

import asyncio
import contextlib

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import connected


async def asking(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "name = input('Name? ')")
    answer = await turn.reply.ask(0, values.InputRequested("Name? ", is_password=False))
    turn.reply.output(0, values.Text("stdout", f"Hi {answer}\n"))
    turn.reply.finished(0, fake.done())


async def endless(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "while True: pass")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        turn.reply.finished(0, values.Finished(values.Ending.STOPPED, 1.0))
        raise


async def planned(turn):
    turn.reply.step(1)
    code = await turn.reply.approve(0, "print(1)")
    return f"ran {code}"


@pytest.fixture
async def bots(slack, tmp_path):
    """Two bots; the first gets all events until `slack.random.choice` is another."""
    slack.has_agents = False
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            service = await stack.enter_async_context(fake.opened(tmp_path / "bot"))
            # A connection that a busy machine kept silent would be made anew, and change places.
            await stack.enter_async_context(connected(slack, service, ping_seconds=10))
            found.append(service)
        to(slack, 0)
        yield found


def to(slack, number):
    """Let events from now on reach one of the bots."""
    slack.random.choice = lambda sockets: sockets[number]


async def shown(slack, root, button):
    """Wait for a message with a button; return it."""
    [found] = await slack.until(
        lambda: [one for one in slack.replies("C1", root) if button in str(one.get("blocks"))]
    )
    return found


async def test_answer_in_words_reaches_the_bot_that_asked(slack, bots):
    for bot in bots:
        bot.script = asking
    root = slack.say("U1", "C1", "<@UBOT> ask me")
    question = await shown(slack, root, "input_answer")
    to(slack, 1)
    slack.say("U1", "C1", "Ada", thread=root)
    await slack.until(lambda: bots[0].ends)
    await slack.until(lambda: "Hi Ada" in str(slack.replies("C1", root)))
    assert "Answered." in str(question["blocks"])
    assert [len(bot.requests) for bot in bots] == [1, 0]


async def test_buttons_reach_the_bot_that_asked(slack, bots):
    for bot in bots:
        bot.script = planned
    root = slack.say("U1", "C1", "<@UBOT> plan")
    plan = await shown(slack, root, "approval_run")
    to(slack, 1)
    slack.click("U2", "C1", plan["ts"], "approval_run")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "Only the person who asked" in told["text"]
    slack.click("U1", "C1", plan["ts"], "approval_run")
    await slack.until(lambda: "ran print(1)" in str(slack.replies("C1", root)))
    await slack.until(lambda: bots[0].ends)


async def test_stop_reaches_the_bot_that_runs_it(slack, bots):
    for bot in bots:
        bot.script = endless
    root = slack.say("U1", "C1", "<@UBOT> run")
    answer = await shown(slack, root, "stop")
    await slack.until(lambda: bots[0].running)
    to(slack, 1)
    slack.click("U1", "C1", answer["ts"], "stop")
    await slack.until(lambda: bots[0].ends)
    assert bots[0].ends[0].status is values.TurnStatus.STOPPED
    assert not slack.world.responses


@pytest.mark.parametrize("words", ["stop", "please stop", "cancel it"])
async def test_stop_in_words_reaches_the_bot_that_runs_it(slack, bots, words):
    for bot in bots:
        bot.script = endless
    root = slack.say("U1", "C1", "<@UBOT> run")
    await slack.until(lambda: bots[0].running)
    to(slack, 1)
    slack.say("U1", "C1", f"<@UBOT> {words}", thread=root)
    await slack.until(lambda: bots[0].ends)
    assert bots[0].ends[0].status is values.TurnStatus.STOPPED
    await slack.until(lambda: "Stopping." in str(slack.replies("C1", root)))
    assert not bots[1].requests


async def test_edit_that_reaches_another_bot_takes_the_place_of_the_message(slack, bots):
    bots[0].script = endless
    root = slack.say("U1", "C1", "<@UBOT> run")
    await slack.until(lambda: bots[0].running)
    to(slack, 1)
    slack.edit("C1", root, "<@UBOT> other words")
    await slack.until(lambda: bots[0].ends and bots[1].ends)
    assert bots[0].ends[0].status is values.TurnStatus.STOPPED
    assert [request.text for request in bots[1].requests] == ["other words"]


async def test_button_that_nobody_waits_for_any_more_says_so(slack, bots):
    bots[0].script = planned
    root = slack.say("U1", "C1", "<@UBOT> plan")
    plan = await shown(slack, root, "approval_run")
    buttons = dict(plan)
    slack.click("U1", "C1", plan["ts"], "approval_cancel")
    await slack.until(lambda: bots[0].ends)
    plan["blocks"] = buttons["blocks"]
    to(slack, 1)
    slack.click("U1", "C1", plan["ts"], "approval_run")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "has expired" in told["text"]
