"""A bot on Discord that is killed, or ends in order, while code prints: one answer, whole."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import pytest

from interpreter_bot import settings
from tests import waiting
from tests.fakes import openai_server
from tests.fakes.discord_server import servers
from tests.integration.discord import steps

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

BOT = """
import sys, yarl
import discord
from interpreter_bot import cli
origin = sys.argv[1]
discord.http.Route.BASE = origin + "/api/v10"
gateway = yarl.URL(origin.replace("http", "ws") + "/gw")
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = gateway
sys.argv = ["interpreter-bot", "run"]
sys.exit(cli.main())
"""
LINES = 24
CODE = f"""
import time
for number in range({LINES}):
    print("line", number, flush=True)
    time.sleep(0.25)
"""


@pytest.fixture
async def discord_server():
    async with servers.Server(window_seconds=0.5) as server:
        yield server


@pytest.fixture
def start(short_path, discord_server):
    """Start the bot as a process, once more each time; gives it when it is connected."""
    paths = settings.Paths(data=short_path / "data", runtime=short_path / "r")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(short_path),
        "OPENAI_API_KEY": "none",
        "INTERPRETER_BOT_HOST__MODE": "own",
        "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        "INTERPRETER_BOT_KERNELS__SPARES": "0",
        "INTERPRETER_BOT_LOCAL__ENABLED": "false",
        "INTERPRETER_BOT_WEB__LISTEN": "",
        "INTERPRETER_BOT_DISCORD__TOKEN": discord_server.token,
        "INTERPRETER_BOT_PATHS__DATA": str(paths.data),
        "INTERPRETER_BOT_PATHS__RUNTIME": str(paths.runtime),
    }

    @contextlib.asynccontextmanager
    async def started(base_url="http://127.0.0.1:9/v1"):
        models = json.dumps([{"name": "none", "base_url": base_url}])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", BOT, discord_server.origin),
            env={**environment, "INTERPRETER_BOT_MODELS": models},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(60):
                while b"Discord" not in await process.stdout.readline():
                    assert process.returncode is None
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.communicate()

    return started


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "end"])
@pytest.mark.parametrize("is_direct", [True, False])
async def test_an_answer_goes_on_in_its_messages(discord_server, start, how, is_direct):
    lab = discord_server.guild("Lab")
    alice = lab.person("alice")
    place = discord_server.direct(alice) if is_direct else lab.channel("general")
    async with start() as process:
        await discord_server.command(alice, place, "py", {"code": CODE})
        await waiting.until(
            lambda: place.bot_messages and "line 8" in place.bot_messages[-1].content
        )
        process.send_signal(how)
        await process.wait()
        assert "Stop" in place.bot_messages[-1].buttons
        texts = [message.content for message in place.bot_messages]
        assert not any("interrupted" in text for text in texts)
        await asyncio.sleep(discord_server.gateway.identify_seconds)
    async with start():
        await waiting.until(
            lambda: f"line {LINES - 1}" in place.bot_messages[-1].content, seconds=60
        )
        await waiting.until(lambda: steps.is_final(place))
    [answer] = place.bot_messages
    printed = [row for row in answer.content.split("\n") if row.startswith("line ")]
    assert printed == [f"line {number}" for number in range(LINES)]
    assert "interrupted" not in answer.content
    assert "⏳" not in answer.content


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "end"])
async def test_an_answer_that_began_its_thread_goes_on_in_its_message(discord_server, start, how):
    lab = discord_server.guild("Lab")
    alice, channel = lab.person("alice"), lab.channel("general")
    script = [openai_server.code(CODE, "Let me count."), openai_server.text("Counted.")]
    async with openai_server.Server(script, api_key="none", models=("none",)) as model:
        async with start(model.base_url) as process:
            discord_server.say(alice, channel, f"{discord_server.bot.mention} count")
            thread = await steps.wait_for_thread(channel)
            await waiting.until(
                lambda: thread.bot_messages and "line 8" in thread.bot_messages[-1].content,
                seconds=60,
            )
            [begun] = thread.bot_messages
            process.send_signal(how)
            await process.wait()
            await asyncio.sleep(discord_server.gateway.identify_seconds)
        async with start(model.base_url):
            await waiting.until(
                lambda: (
                    thread.bot_messages and thread.bot_messages[0].content.startswith("Counted.")
                ),
                seconds=60,
            )
            await waiting.until(lambda: steps.is_final(thread))
            [answer] = thread.bot_messages
            shown = await discord_server.click(alice, answer, "Show code")
            text = await steps.wait_for_final_text(shown)
    assert answer is begun
    assert [f"line {n}" in text for n in (0, LINES - 1)] == [True, True]
