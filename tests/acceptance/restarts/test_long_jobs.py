"""A long run in Slack, with default settings, whose bot is killed again and again.

JOB_MINUTES in the environment sets the length of the run; it has to exceed a minute, for which an
answer waits for its code.
"""

import asyncio
import contextlib
import html
import json
import os
import time

import pytest

from bench import bot_processes
from interpreter_bot import settings
from interpreter_bot.text import quantities
from interpreter_bot.wording import job_words
from tests.fakes import openai_server
from tests.fakes.slack_server import servers

JOB_SECONDS = float(os.environ.get("JOB_MINUTES", "1.5")) * 60
SECONDS_PER_TICK = 0.5
TICK_COUNT = round(JOB_SECONDS / SECONDS_PER_TICK)
SLACK_SECONDS = 120

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(JOB_SECONDS + 5 * SLACK_SECONDS),
]

CODE = f"""
import pathlib, time
state = pathlib.Path("/mnt/data/ticks.txt")
began = time.monotonic()
for number in range({TICK_COUNT}):
    with state.open("a") as file:
        print(number, file=file)
    if number % 20 == 0:
        print("tick", number, flush=True)
    time.sleep(max(0.0, began + (number + 1) * {SECONDS_PER_TICK} - time.monotonic()))
lines = state.read_text().split()
print("ticks in order:", lines == [str(number) for number in range({TICK_COUNT})])
pathlib.Path("/mnt/data/result.txt").write_text("computed")
"""


@contextlib.asynccontextmanager
async def running_bot(short_path, slack, model_server):
    """Run the bot with default settings on a loopback Slack, and again after each kill."""
    model = settings.Model(name="scripted", base_url=model_server.base_url, protocol="chat")
    bot = bot_processes.BotProcess(short_path, model, model_server.api_key)
    for name in ("KERNELS__PRELOAD", "KERNELS__SPARES", "HOST__MODE"):
        del bot.environment[f"INTERPRETER_BOT_{name}"]
    bot.environment |= {
        "INTERPRETER_BOT_SLACK__BOT_TOKEN": slack.world.teams["T1"].token,
        "INTERPRETER_BOT_SLACK__APP_TOKEN": slack.app_token,
        "INTERPRETER_BOT_SLACK__API_BASE_URL": slack.base_url,
    }
    async with bot.running(lambda address: None):
        await slack.until(lambda: slack.is_connected, SLACK_SECONDS)
        yield bot


async def kill_bot(slack, bot):
    killed = bot.pid
    bot.kill()
    await slack.until(lambda: bot.pid != killed and slack.is_connected, SLACK_SECONDS)


async def test_a_long_run_survives_kills_of_its_bot_and_its_end_is_posted_once(short_path):
    run = openai_server.call("run_code", {"code": CODE, "timeout": JOB_SECONDS + 300})
    script = [run, openai_server.text("It runs."), openai_server.text("It is done.")]
    async with (
        openai_server.Server(script) as model_server,
        servers.Server(speed=20) as slack,
        running_bot(short_path, slack, model_server) as bot,
    ):
        root = slack.say("U1", "C1", "<@UBOT> Compute for long!")

        def texts():
            # Messages of files have no blocks.
            replies = [reply for reply in slack.replies("C1", root) if "blocks" in reply]
            return [html.unescape(json.dumps(reply["blocks"])) for reply in replies]

        def count(words):
            return sum(text.count(words) for text in texts())

        # The first kill: the turn still waits for its code.
        await slack.until(lambda: count("tick 20"), SLACK_SECONDS)
        began = time.monotonic()
        await kill_bot(slack, bot)
        # The second: the run goes on in the background.
        await slack.until(lambda: count("It runs."), 2 * SLACK_SECONDS)
        await asyncio.sleep(max(JOB_SECONDS * 0.85 - (time.monotonic() - began), 0.0))
        assert not count("ticks in order: True")
        await kill_bot(slack, bot)
        await slack.until(lambda: count("ticks in order: True"), JOB_SECONDS + SLACK_SECONDS)

        def count_results():
            return sum(file["name"] == "result.txt" for file in slack.world.files.values())

        # The third: its end has been posted, and must not be posted again; its file may follow.
        post_count = len(texts())
        await kill_bot(slack, bot)
        await slack.until(count_results, SLACK_SECONDS)
        slack.say("U1", "C1", "<@UBOT> What came out?", thread=root)
        await slack.until(lambda: count("It is done."), SLACK_SECONDS)
        assert len(texts()) == post_count + 1
        [end] = [text for text in texts() if "The code in the background is done" in text]
        durations = [quantities.duration(round(JOB_SECONDS) + late) for late in range(10)]
        assert any(f"after {duration}." in end for duration in durations), end
        assert "ticks in order: True" in end
        assert count("ticks in order: True") == count(job_words.JOB_GOES_ON) == 1
        assert count_results() == 1
