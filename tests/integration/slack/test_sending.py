"""Rates, lost answers, dropped connections: each thing is said once."""

import asyncio
import time

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import connect_platform

WRITES = (
    *("chat.startStream", "chat.appendStream", "chat.stopStream", "files.completeUploadExternal"),
    *("agents.sessions.setStatus", "files.getUploadURLExternal", "upload"),
)


async def with_file(turn):
    turn.reply.step(1)
    turn.reply.text("I see.\nhello")
    await turn.reply.code(0, "x")
    turn.reply.output(0, values.Text("stdout", "left out\n"))
    await asyncio.sleep(0.15)
    turn.reply.finished(0, fake.finished_well())
    turn.make(0, "a.txt", b"abc")
    turn.reply.step(2)
    turn.reply.text("the end of it")


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("kind", ["ratelimited", "drop", "drop after", "status"])
async def test_whatever_breaks_once_everything_arrives_once(slack, service, method, kind):
    if (method, kind) == ("upload", "ratelimited"):
        pytest.skip("uploads go to another server, which has no rates")
    service.script = with_file
    slack.fail(method, Fault(kind, seconds=0.1))
    # Leaving it lets everything be said that is still to be said.
    async with connect_platform(slack, service, drain_seconds=10):
        ts = slack.say("U1", "DU1", "<@UBOT> go")
        await slack.until(lambda: slack.world.batches and service.ends)
    said = slack.replies("DU1", ts)
    text = "".join(
        "".join(b["text"] for b in m.get("blocks", []) if b["type"] == "markdown") or m["text"]
        for m in said
    )
    assert text.count("hello") == 1
    assert text.count("the end of it") == 1
    assert len(slack.world.batches) == 1
    assert len(said) == 2, [m["text"] for m in said]
    assert [m for m in said if m.get("stream") == "open"] == []


@pytest.mark.parametrize("kind", ["ratelimited", "drop", "drop after", "status"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_posted_answer_arrives_once_whatever_breaks_once(slack, service, app, method, kind):
    slack.has_agents = False
    service.script = with_file
    slack.fail(method, *[Fault(kind, seconds=0.1)] * 2)
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.world.batches)
    answer, files = slack.answers("C1", ts)
    assert answer["blocks"][0]["text"].count("hello") == 1
    assert answer["blocks"][-1]["type"] == "context_actions"
    assert files["files"]


@pytest.mark.parametrize("kind", ["drop", "drop after"])
async def test_what_begins_a_thread_is_posted_once_whatever_breaks(slack, service, app, kind):
    slack.fail("chat.postMessage", Fault(kind))
    slack.command("U1", "C1", "/py", "1")
    await slack.until(lambda: service.ends)
    await slack.until(lambda: slack.called("conversations.history"))
    await slack.until(lambda: "echo: 1" in str(slack.world.messages))
    begun = [
        message
        for (where, ts), message in slack.world.messages.items()
        if where == "C1" and message.get("thread_ts") in (None, ts)
    ]
    assert len(begun) == 1


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_limit_of_which_slack_does_not_say_how_long_it_lasts_is_waited_for(
    slack, service, app, method
):
    slack.fail(method, *[Fault("error", error="rate_limited")] * 3)
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: slack.status("C1", ts) == "active")
    [answer] = slack.answers("C1", ts)
    assert answer["blocks"][0]["text"] == "echo: one"


async def test_stream_that_would_wait_long_is_posted_instead(slack, service, app):
    slack.fail("chat.startStream", Fault("ratelimited", seconds=60))
    ts = slack.say("U1", "DU1", "<@UBOT> one")
    [answer] = await slack.until(
        lambda: slack.status("DU1", ts) == "active" and slack.answers("DU1", ts)
    )
    assert answer["blocks"][0]["text"] == "echo: one"


async def test_messages_of_one_channel_stay_in_order_and_within_its_rate(slack, service):
    slack.has_agents = False
    # A tenth of a second between two: less is lost in the delays of a busy machine.
    slack.speed = 10
    async with connect_platform(slack, service):
        roots = [slack.say("U1", "C1", f"<@UBOT> {number}") for number in range(30)]
        await slack.until(lambda: all(slack.answers("C1", ts) for ts in roots), seconds=30)
        await slack.until(lambda: len(service.ends) == 30)
        for number, ts in enumerate(roots):
            await slack.until(
                lambda ts=ts, number=number: (
                    slack.answers("C1", ts)[0]["blocks"][0]["text"] == f"echo: {number}"
                )
            )
    limited = [name for name, error, _ in slack.errors if error == "ratelimited"]
    assert "chat.postMessage" not in limited, "the queue keeps within the rate by itself"


async def test_slack_that_is_gone_for_a_while_is_waited_for(slack, service, app):
    slack.choose_fault = lambda *_: Fault("status") if time.monotonic() < back else None
    back = time.monotonic() + 1
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: slack.answers("C1", ts))
    assert "echo: one" in str(slack.answers("C1", ts))


async def test_channel_that_refuses_messages_ends_the_turn_quietly(slack, service, app):
    def archived(method, arguments):
        # After the first sign of life.
        is_archived = method.startswith("chat.") and slack.replies("C1", ts)
        is_refused = is_archived and arguments.get("channel") == "C1"
        return Fault("error", error="is_archived") if is_refused else None

    slack.choose_fault = archived
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    other = slack.say("U1", "C2", "<@UBOT> two")
    await slack.until(lambda: slack.answers("C2", other))
