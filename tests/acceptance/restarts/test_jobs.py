"""A bot process is killed -9 while code goes on in the background: it is told of once."""

import asyncio
import uuid

import pytest

from bench import page_visitors
from interpreter_bot import settings
from interpreter_bot.wording import job_words
from tests.acceptance.restarts import test_questions
from tests.fakes import openai_server

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

COUNT = 120
CODE = f"""
import pathlib, time
for i in range({COUNT}):
    print("tick", i, flush=True)
    time.sleep(0.2)
pathlib.Path("made.txt").write_text("made")
"""
SHORT = {"INTERPRETER_BOT_LIMITS__EXECUTION_SECONDS": "1"}


def is_over(shown):
    return any(one["type"] == "over" for one in shown)


@pytest.mark.parametrize("way", ["kill", "restart"])
async def test_a_job_survives_the_bot_and_is_told_of_once(short_path, way):
    later = uuid.uuid4().hex
    run = openai_server.call("run_code", {"code": CODE, "timeout": 600})
    script = [run, openai_server.text("It runs."), openai_server.text("Nearly.")]
    async with openai_server.Server(script) as server:
        model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
        being = test_questions.being_there(short_path, model, server.api_key, **SHORT)
        async with being as (_, person):
            visitor = person.visitor
            await visitor.send_message(person.name, "Compute!", is_code=False)
            _, over = await person.ended()
            assert (over["status"], over["text"]) == ("done", "It runs.")
            notices = [one["text"] for one in person.events if one["type"] == "announcement"]
            assert notices == [job_words.JOB_GOES_ON]

            def events():
                [name] = visitor.shown.keys() - {person.name, later} or [""]
                return visitor.shown.get(name, [])

            await person.until(lambda: "tick 5" in page_visitors.list_printed_lines(events()))
            for _ in range(2):
                await person.is_restarted(way)
                await person.until(lambda: page_visitors.list_printed_lines(events()))
            await visitor.send_message(later, "How far is it?", is_code=False)
            await person.until(lambda: is_over(visitor.shown.get(later, ())))
            assert not is_over(events())
            await person.until(lambda: is_over(events()))
            # As it is recorded, too.
            await visitor.watch_session()
            await asyncio.sleep(0.5)
            job = events()
            assert page_visitors.list_printed_lines(job) == [
                f"tick {number}" for number in range(COUNT)
            ]
            assert [one["name"] for one in job if one["type"] == "artifact"] == ["made.txt"]
            assert [one["status"] for one in job if one["type"] == "over"] == ["done"]
            assert len(visitor.shown) == 3
        asked = str(server.requests[-1].messages)
    assert "has been running in the background for" in asked
