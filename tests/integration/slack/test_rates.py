"""Many messages and pictures at once: as fast as Slack's documented rates allow."""

import asyncio
import time

import aiohttp
import pytest

from interpreter_bot import values
from interpreter_bot.platforms.slack import installations, web_api
from tests.fakes import conversations as fake
from tests.fakes.slack_server import servers
from tests.integration.slack.worlds import connect_platform, make_settings

PIXEL = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def drawing(count):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Look:")
        await turn.reply.code(0, "plot()")
        for number in range(count):
            turn.reply.output(
                0, values.Image(mime="image/png", data=PIXEL, plain=f"Figure: {number}")
            )
        turn.reply.finished(0, fake.finished_well())

    return script


def pictures(slack, channel, root):
    return str(slack.replies(channel, root)).count("'slack_file'")


async def test_pictures_of_one_answer_go_in_one_call(slack, service, app):
    service.script = drawing(30)
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: pictures(slack, "C1", ts) == 30)
    assert len(slack.called("files.completeUploadExternal")) == 1
    assert len(slack.called("files.getUploadURLExternal")) == 30


async def test_pictures_of_one_channel_hold_up_no_other(tmp_path):
    async with servers.Server(speed=1) as slack, fake.opened(tmp_path / "bot") as service:
        service.script = drawing(5)
        async with connect_platform(slack, service):
            asked = [(c, slack.say("U1", c, "<@UBOT> go")) for c in ("C1", "C2", "DU1")]
            began = time.monotonic()
            await slack.until(lambda: all(pictures(slack, *one) == 5 for one in asked))
            assert time.monotonic() - began < 6


async def test_words_are_shown_while_pictures_are_uploaded(slack, service, app):
    service.script = drawing(2)
    slack.fail("upload", servers.Fault("slow", seconds=1.0))
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: "Look:" in str(slack.replies("C1", ts)))
    assert pictures(slack, "C1", ts) == 0
    await slack.until(lambda: pictures(slack, "C1", ts) == 2)


async def test_a_call_does_not_wait_for_ever_for_slacks_rates(slack):
    workspace = installations.InstalledWorkspace(
        "T1", "UBOT", "BBOT", slack.world.teams["T1"].token
    )
    known = installations.InstalledWorkspaces(workspace)
    message = {"channel": "C1", "unfurl_links": False, "unfurl_media": False}
    slack.fail("chat.postMessage", servers.Fault("ratelimited", seconds=10))
    async with aiohttp.ClientSession() as session:
        api = web_api.WebApi(session, make_settings(slack), known, max_rate_limit_seconds=0.5)
        began = time.monotonic()
        with pytest.raises(web_api.WaitError):
            await api.call(workspace, "chat.postMessage", text="one", **message)
        assert time.monotonic() - began < 5
        # Whoever waited behind it posts.
        await api.call(workspace, "chat.postMessage", text="two", **message)
    assert [message["text"] for message in slack.world.messages.values()] == ["two"]


async def test_twenty_mentions_at_once_are_seen_at_once_and_first_signs_come_first(tmp_path):
    gate = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        if turn.request.text == "0":
            turn.reply.text("long " * 6_000)
        await gate.wait()

    async with (
        servers.Server(speed=2) as slack,
        fake.opened(tmp_path / "bot", script) as service,
        connect_platform(slack, service, editing_seconds=0.2),
    ):
        began = time.monotonic()
        asked = [slack.say("U1", "C1", f"<@UBOT> {number}") for number in range(20)]
        await slack.until(lambda: all(slack.status("C1", ts) == "processing" for ts in asked))
        assert time.monotonic() - began < 4
        await slack.until(lambda: all(slack.replies("C1", ts) for ts in asked))
        # Two a second, but for the first ones.
        assert time.monotonic() - began < 20 / 2 + 2
        assert len(slack.replies("C1", asked[0])) == 1
        gate.set()
        await slack.until(lambda: len(service.ends) == 20)
