"""`interpreter-bot run`: several platforms in one process, each on its own feet."""

import asyncio
import contextlib
import gc
import os
import re
import signal
import subprocess
import sys

import pytest
from discord.http import Route

from interpreter_bot import settings
from interpreter_bot.commands import run
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers
from tests.integration.discord import steps
from tests.integration.slack import worlds

pytestmark = pytest.mark.kernel

COMMAND = [sys.executable, "-m", "interpreter_bot", "run"]


@pytest.fixture
def bot(tmp_path, short_path):
    """Settings for a quick bot without any platform."""

    def made(**groups):
        return settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            **{"web": settings.Web(listen=""), **groups},
        )

    return made


@contextlib.asynccontextmanager
async def being(bot):
    """Be the bot meanwhile; gives its task and what ends it."""
    end = asyncio.Event()
    task = asyncio.create_task(run.run_bot(bot, {}, end))
    try:
        yield task, end
    finally:
        end.set()
        await asyncio.wait({task}, timeout=30)
        assert task.done()


async def said(capsys, words, task):
    """Wait for words on standard output; returns all that came there, and on standard error."""
    told, warned = "", ""
    async with asyncio.timeout(30):
        while words not in told:
            assert not task.done(), told
            await asyncio.sleep(0.05)
            captured = capsys.readouterr()
            told, warned = told + captured.out, warned + captured.err
    return told, warned


@pytest.mark.gate
async def test_slack_and_discord_live_in_one_process(bot, capsys):
    async with (
        slack_servers.Server(speed=60) as slack,
        discord_servers.Server(window_seconds=0.5) as discord,
    ):
        lab = discord.guild("Lab")
        alice, channel = lab.person("alice"), lab.channel("general")
        made = bot(
            slack=worlds.make_settings(slack),
            discord=settings.Discord(token=discord.token),
        )
        async with being(made) as (task, end):
            told, _ = await said(capsys, "Discord: ", task)
            if "Slack: " not in told:
                await said(capsys, "Slack: ", task)
            assert gc.get_freeze_count() > 50_000, "collections look through all modules"
            slack.command("U1", "C1", "/py", "print(6 * 7)")
            done = await discord.command(alice, channel, "py", {"code": "print(7 * 8)"})
            assert "56" in await steps.wait_for_final_text(done)
            await slack.until(lambda: "\n42\n" in str(slack.world.messages).replace("\\n", "\n"))
            end.set()
            assert await task == 0


@pytest.mark.gate
async def test_one_that_cannot_log_in_takes_nobody_down_but_is_told(bot, capsys):
    async with (
        slack_servers.Server(speed=60) as slack,
        discord_servers.Server(window_seconds=0.5) as discord,
    ):
        lab = discord.guild("Lab")
        alice, channel = lab.person("alice"), lab.channel("general")
        wrong = worlds.make_settings(slack, bot_token="xoxb-loopback-wrong")
        made = bot(slack=wrong, discord=settings.Discord(token=discord.token))
        async with being(made) as (task, end):
            told, warned = await said(capsys, "Discord: ", task)
            done = await discord.command(alice, channel, "py", {"code": "print(7 * 8)"})
            assert "56" in await steps.wait_for_final_text(done)
            end.set()
            assert await task == 1
    assert "Slack" not in told
    assert "Slack failed: Slack refused the bot token" in warned + capsys.readouterr().err


async def test_slack_that_refuses_the_token_for_a_while_is_down_and_comes_back(bot, capsys):
    async with slack_servers.Server(speed=60) as slack:
        made = bot(slack=worlds.make_settings(slack), web=settings.Web(listen="127.0.0.1:0"))
        async with being(made) as (task, end):
            await said(capsys, "Slack: is connected", task)
            slack.world.teams["T1"].is_revoked = True
            slack.command("U1", "C1", "/py", "print(6 * 7)")
            _, warned = "", ""
            async with asyncio.timeout(30):
                while "Slack failed: Slack no longer accepts" not in warned:
                    await asyncio.sleep(0.05)
                    warned += capsys.readouterr().err
            slack.world.teams["T1"].is_revoked = False
            await said(capsys, "Slack: is connected", task)
            slack.command("U1", "C1", "/py", "print(7 * 8)")
            await slack.until(lambda: "\n56\n" in str(slack.world.messages).replace("\\n", "\n"))
            end.set()
            assert await task == 0


async def test_those_that_cannot_be_reached_are_tried_again(bot, capsys, monkeypatch):
    async with (
        slack_servers.Server(speed=60) as slack,
        discord_servers.Server(window_seconds=0.5) as discord,
    ):
        slack.fail("auth.test", slack_servers.Fault("drop"), slack_servers.Fault("status"))
        slack.fail("apps.connections.open", slack_servers.Fault("error", error="internal_error"))
        reachable = Route.BASE
        monkeypatch.setattr(Route, "BASE", "http://127.0.0.1:9/api/v10")
        made = bot(slack=worlds.make_settings(slack), discord=settings.Discord(token=discord.token))
        async with being(made) as (task, end):
            _, warned = await said(capsys, "Slack: ", task)
            assert re.search(r"Slack failed: .*tries again in", warned)
            monkeypatch.setattr(Route, "BASE", reachable)
            _, more = await said(capsys, "Discord: ", task)
            assert re.search(r"Discord cannot be reached\..*tries again in", warned + more)
            end.set()
            assert await task == 0


async def test_a_platform_that_breaks_is_opened_again_and_takes_nobody_down(bot, capsys):
    async with discord_servers.Server(window_seconds=0.5) as discord:
        made = bot(
            discord=settings.Discord(token=discord.token), web=settings.Web(listen="127.0.0.1:0")
        )
        async with being(made) as (task, end):
            await said(capsys, "Discord: ", task)
            await discord.gateway.send_raw("no JSON")
            told, warned = await said(capsys, "Discord: ", task)
            assert "web page" not in told
            assert "Unexpected error" in warned
            end.set()
            assert await task == 0


async def test_the_end_is_not_held_up_by_one_that_cannot_be_reached(bot, capsys, monkeypatch):
    async with discord_servers.Server(window_seconds=0.5) as discord:
        discord.rest.delay_seconds = 60
        made = bot(
            discord=settings.Discord(token=discord.token), web=settings.Web(listen="127.0.0.1:0")
        )
        async with being(made) as (task, end):
            await said(capsys, "The web page: ", task)
            end.set()
            async with asyncio.timeout(30):
                assert await task == 0


async def test_where_none_can_be_opened_it_ends_by_itself(bot, capsys):
    async with (
        discord_servers.Server(window_seconds=0.5) as discord,
        being(bot(discord=settings.Discord(token=discord.token + "x"))) as (task, _),
    ):
        assert await task == 2
    assert "Discord failed: Discord does not accept the token" in capsys.readouterr().err


@pytest.fixture
def started(tmp_path, short_path):
    """Start the command."""
    processes = []

    def start(**variables):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_KERNELS__SPARES": "0",
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        }
        process = subprocess.Popen(
            COMMAND,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.gate
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(started, signum, tmp_path):
    process = started(INTERPRETER_BOT_WEB__LISTEN="127.0.0.1:0")
    line = process.stdout.readline()
    assert re.search(r"The web page: http://127\.0\.0\.1:\d+/\?token=\S+", line)
    # Sessions with user ids of their own walk through it, and list nothing.
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o711
    process.send_signal(signum)
    assert process.wait(timeout=90) == 0
    assert "token=" not in process.stderr.read()


@pytest.mark.gate
def test_nothing_to_be_is_a_sentence(started):
    process = started(INTERPRETER_BOT_WEB__LISTEN="")
    assert process.wait(timeout=90) == 2
    assert "Nothing is set up to run" in process.stderr.read()


def test_tokens_come_from_the_names_that_everybody_knows(monkeypatch):
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("DISCORD_TOKEN", "d-1")
    read = settings.Settings()
    assert read.slack.is_on
    assert read.slack.bot_token.get_secret_value() == "xoxb-1"
    assert read.discord.token.get_secret_value() == "d-1"
    assert "xoxb-1" not in repr(read)
    assert "d-1" not in repr(read)
