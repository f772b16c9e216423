"""Answers in Slack whose bot is killed, or ends in order: the next goes on in the same messages."""

import contextlib
import html
import json

import pytest

from bench import bot_processes
from interpreter_bot import settings
from tests.fakes.slack_server import servers

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

MODEL = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
COUNT = """py import time
for number in range(25):
    print(f"line {number}", flush=True)
    time.sleep(0.3)
print("the end")"""


@contextlib.asynccontextmanager
async def being(short_path, slack):
    """Run the bot on a loopback Slack, again when it is killed; gives its process."""
    bot = bot_processes.BotProcess(short_path, MODEL, "none")
    config = {
        "BOT_TOKEN": slack.world.teams["T1"].token,
        "APP_TOKEN": slack.app_token,
        "API_BASE_URL": slack.base_url,
    }
    bot.environment |= {f"INTERPRETER_BOT_SLACK__{n}": str(value) for n, value in config.items()}
    async with bot.running(lambda address: None):
        await slack.until(lambda: slack.is_connected)
        yield bot


def shown(slack, channel, root):
    messages = [json.dumps(message.get("blocks")) for message in slack.replies(channel, root)]
    return html.unescape("\n".join(messages))


@pytest.mark.gate
@pytest.mark.parametrize("way", ["kill", "restart"])
async def test_answer_goes_on_in_the_same_messages(short_path, way):
    async with servers.Server(speed=20) as slack, being(short_path, slack) as bot:
        root = slack.say("U1", "C1", f"<@UBOT> {COUNT}")
        await slack.until(lambda: "line 3" in shown(slack, "C1", root), seconds=60)
        slack.say("U1", "C1", "<@UBOT> py print('second')", thread=root)
        await slack.until(lambda: "Queued: 1 request ahead" in shown(slack, "C1", root))
        before = [message["ts"] for message in slack.replies("C1", root)]
        former = bot.pid
        getattr(bot, way)()
        await slack.until(lambda: bot.pid != former and slack.is_connected, seconds=60)
        await slack.until(lambda: "the end" in shown(slack, "C1", root), seconds=60)
        await slack.until(lambda: "\\nsecond\\n" in shown(slack, "C1", root), seconds=60)
        await slack.until(lambda: "'action_id': 'stop'" not in str(slack.replies("C1", root)))
        text = shown(slack, "C1", root)
        assert all(f"line {number}\\n" in text for number in range(25)), text
        assert [message["ts"] for message in slack.replies("C1", root)] == before
