"""Many people at once while much goes wrong; and how soon they see that somebody works."""

import asyncio
import collections
import logging
import random
import re
import time

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import connect_platform

_log = logging.getLogger(__name__)

THREADS = 20
MENTIONS = 200
_CLEAN = ("auth.test", "apps.connections.open", "upload")


async def work(turn):
    """Answer as a model does: words, code, print-out, a file now and then, last words."""
    number = int(re.search(r"\d+", turn.request.text)[0])
    turn.reply.step(1)
    for word in (f"<begin {number}>\n", "let ", "me ", "see. "):
        turn.reply.text(word)
        await asyncio.sleep(0.005)
    await turn.reply.code(0, f"print({number})")
    turn.reply.output(0, values.Text("stdout", f"out {number}\n"))
    await asyncio.sleep(0.02)
    turn.reply.finished(0, fake.finished_well())
    turn.reply.step(2)
    text = f"<end {number}>"
    turn.reply.text(text)
    if number % 10 == 0:
        turn.make(0, f"file-{number}.txt", str(number).encode())
    return text


def said(message):
    written = [b["text"] for b in message.get("blocks", []) if b["type"] == "markdown"]
    return "".join(written) or message["text"]


def everything(slack):
    return "\n".join(said(m) for m in slack.world.messages.values() if m.get("bot_id"))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_soak(slack, service):
    chance = random.Random(20301)
    wrong = collections.Counter()

    def choose(method, arguments):
        if method in _CLEAN:
            return None
        roll = chance.random()
        if roll < 0.10:
            wrong["429"] += 1
            return Fault("ratelimited", seconds=0.05)
        if roll < 0.15:
            wrong["cut"] += 1
            return Fault(chance.choice(["drop", "drop after"]))
        return None

    service.script = work
    slack.choose_fault = choose
    roots, asked = [], {}
    started = time.monotonic()
    async with connect_platform(slack, service):
        for number in range(THREADS):
            channel = ("C1", "C2")[number % 2]
            roots.append((channel, slack.say(f"U{number % 3 + 1}", channel, f"<@UBOT> q{number}")))
            asked[number] = number
        for number in range(THREADS, MENTIONS):
            place = number % THREADS
            channel, root = roots[place]
            user = f"U{chance.randint(1, 3)}"
            times = 2 if chance.random() < 0.3 else 1
            slack.say(user, channel, f"<@UBOT> q{number}", thread=root, times=times)
            asked[number] = place
            await asyncio.sleep(0.005)
            if number % 40 == 0:
                wrong["sockets"] += 1
                slack.drop_sockets()
        await slack.until(lambda: len(service.ends) == MENTIONS, seconds=180)
        await slack.until(
            lambda: len(re.findall(r"end \d+>", everything(slack))) >= MENTIONS, seconds=60
        )
        await slack.until(lambda: len(slack.world.batches) >= MENTIONS // 10, seconds=60)
        await slack.until(
            lambda: all(slack.status(c, ts) == "active" for c, ts in roots), seconds=60
        )
    seconds = time.monotonic() - started
    assert len(service.requests) == MENTIONS, "an event was lost or taken twice"
    counted = collections.Counter()
    for place, (channel, root) in enumerate(roots):
        for message in slack.replies(channel, root):
            assert message.get("stream") != "open", "an answer is left unfinished"
            for kind, number in re.findall(r"<?\u200b?(begin|out|end) (\d+)", said(message)):
                counted[kind, int(number)] += 1
                assert asked[int(number)] == place, "an answer went astray"
            for file in message.get("files", ()):
                counted["file", int(re.search(r"\d+", file["name"])[0])] += 1
    for number in asked:
        # Only a brief answer shows what its code printed; one with a file is none.
        times = {"begin": 1, "out": int(number % 10 > 0), "end": 1}
        assert {kind: counted[kind, number] for kind in times} == times, number
    files = {number: counted["file", number] for number in range(0, MENTIONS, 10)}
    assert files == dict.fromkeys(files, 1)
    assert wrong["429"] > 50
    assert wrong["cut"] > 25
    _log.info(f"soak: {seconds:.1f} s, {len(slack.calls)} calls, {dict(wrong)}")


@pytest.mark.slow
async def test_first_sign_comes_soon(slack, service):
    service.script = work
    waits = []
    async with connect_platform(slack, service):
        for number in range(10):
            sent = time.monotonic()
            ts = slack.say("U1", "C1", f"<@UBOT> q{number}")
            await slack.until(lambda ts=ts: slack.status("C1", ts))
            [first] = [
                s["at"]
                for s in slack.world.statuses
                if s["thread_ts"] == ts and s["status"] == "processing"
            ]
            waits.append(first - sent)
            await slack.until(lambda ts=ts: slack.status("C1", ts) == "active")
    # The quickest, because the machine does other things too.
    assert min(waits) <= 0.150
