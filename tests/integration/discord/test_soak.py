"""Many requests at once, while everything goes wrong that may."""

import asyncio
import json
import os
import random
import time

import pytest

from interpreter_bot import values
from tests import waiting
from tests.integration.discord import steps

_THREADS, _EACH = 20, 10
_MAX_LOST = 3


async def _work(turn):
    """Answer in several stretches, with code, outputs and sometimes a file."""
    name = turn.request.text
    turn.reply.step(1)
    for part in ("Let ", "me ", "see. "):
        turn.reply.text(part)
        await asyncio.sleep(0.01)
    await turn.reply.code(0, f"work({name!r})")
    await asyncio.sleep(0.02)
    turn.reply.output(0, values.Text("stdout", f"working on {name}\n"))
    turn.reply.finished(0, values.Finished(values.Ending.OK, 0.05))
    turn.reply.step(2)
    if int(name.split("-")[1]) % 5 == 0:
        turn.make(0, f"{name}.txt", name.encode())
    return turn.done(f"The answer to {name} is here.")


async def _disturb(server, chance):
    """Let connections drop, deliveries double and requests fail, until cancelled."""
    kinds = ("limit", "limit", "cut", "status")
    lost = 0
    while True:
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        method, path = chance.choice(
            [("POST", r"/messages$"), ("PATCH", r"/messages/\d+$"), ("POST", r"/typing$")]
        )
        kind = chance.choice(kinds)
        server.plan(method, path, kind=kind, status=502, is_global=chance.random() < 0.2)
        server.gateway.duplicates = chance.randrange(3)
        if not any(session.socket for session in server.gateway.sessions):
            # The client waits five seconds before it may identify anew: let it come back.
            continue
        how = chance.random()
        if how < 0.25:
            await server.gateway.drop(code=4000)
        elif how < 0.45:
            server.gateway.abort()
        elif how < 0.6 and lost < _MAX_LOST:
            lost += 1
            server.gateway.forget()


def _figures(server, seconds):
    rest = server.rest
    return {
        "requests": _THREADS * _EACH,
        "seconds": round(seconds, 1),
        "http": len(rest.request_log),
        "limited": len(rest.buckets.breaches)
        + sum(fault.kind == "limit" and not fault.times for fault in rest.planned_faults),
        "faults": sum(not fault.times for fault in rest.planned_faults),
        "identifies": len(server.gateway.identifies),
        "resumes": len(server.gateway.resumes),
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_hundred_requests_in_twenty_threads(discord_server, lab, connect, capsys):
    chance = random.Random(int(os.environ.get("SOAK_SEED", "7")))
    people = [lab.person(f"person{n}") for n in range(_THREADS)]
    channels = [lab.channel(f"channel{n}") for n in range(_THREADS)]
    started = time.monotonic()
    async with connect(_work, pace_seconds=0.3, closing_seconds=120.0) as service:
        disturbing = asyncio.create_task(_disturb(discord_server, chance))

        async def speak(number):
            person, channel = people[number], channels[number]
            discord_server.say(person, channel, f"{discord_server.bot.mention} request{number}-0")
            thread = await steps.wait_for_thread(channel)
            for count in range(1, _EACH):
                await asyncio.sleep(chance.uniform(0.0, 1.5))
                discord_server.say(person, thread, f"request{number}-{count}")
            return thread

        try:
            threads = await asyncio.gather(*(speak(number) for number in range(_THREADS)))
            await waiting.until(
                lambda: len(service.handled_requests) == _THREADS * _EACH,
                seconds=200,
                subject="all requests",
            )
        finally:
            disturbing.cancel()
    seconds = time.monotonic() - started

    for number, thread in enumerate(threads):
        text = "\n".join(message.content for message in thread.bot_messages)
        for count in range(_EACH):
            said = text.count(f"The answer to request{number}-{count} is here.")
            assert said == 1, "\n=====\n".join(
                f"{message.id} {message.forms}" for message in thread.bot_messages
            )
        assert text.count("The answer to") == _EACH
        files = [name for message in thread.bot_messages for name in message.files]
        assert sorted(files) == [f"request{number}-{count}.txt" for count in (0, 5)]
        assert not any("Stop" in message.buttons for message in thread.bot_messages)
    assert len(service.handled_requests) == _THREADS * _EACH
    with capsys.disabled():
        print(json.dumps(_figures(discord_server, seconds)))  # noqa: T201
