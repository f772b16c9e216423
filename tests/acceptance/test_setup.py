"""`interpreter-bot setup`, at a terminal: what is entered is tried, then stored."""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pytest
import yaml

from interpreter_bot import settings, stored_credentials
from interpreter_bot.commands import exit_statuses
from interpreter_bot.platforms.slack import installations
from tests import terminals
from tests.fakes import openai_server
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers

KEY = "test-key-0123456789"


MANIFEST = pathlib.Path(__file__).parents[2] / "manifest.yml"
# Discord's client is told of no other server by any setting.
AT_LOOPBACK = """
import sys
import discord
discord.http.Route.BASE = sys.argv.pop()
from interpreter_bot import cli
sys.exit(cli.main())
"""
# A command that is no copy, as a copy would have another terminal.
SETUP = (sys.executable, "-P", "-m", "interpreter_bot", "setup")


@pytest.fixture
def terminal(tmp_path):
    with contextlib.closing(terminals.Terminal(tmp_path, *SETUP)) as opened:
        yield opened


@pytest.fixture
def terminal_of(tmp_path):
    """Open `setup` at a terminal, with variables."""
    with contextlib.ExitStack() as stack:

        def opened(*command, **variables):
            terminal = terminals.Terminal(tmp_path, *(command or SETUP), **variables)
            return stack.enter_context(contextlib.closing(terminal))

        yield opened


async def skip_model(terminal):
    await terminal.enter("Key (not shown): ", "")
    await terminal.enter("Address", "")


def stored(tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path / "data"))
    return stored_credentials.StoredCredentials(config).load()


@pytest.mark.gate
async def test_a_model_that_works_is_stored_and_nothing_else(terminal, tmp_path):
    async with openai_server.Server(lambda _: openai_server.text("OK"), api_key=KEY) as server:
        await terminal.enter("Key (not shown): ", "OPENAI_API_KEY=sk-1")
        await terminal.enter("Address", "")
        await terminal.until("give the key alone")
        await terminal.enter("Key (not shown): ", "wrong-key-0123456789")
        await terminal.enter("Address", server.base_url)
        await terminal.until("Try again.")
        await terminal.enter("Key (not shown): ", KEY)
        await terminal.enter("Address", server.base_url)
        await terminal.until("It works (scripted). Stored, encrypted.")
        assert len(server.requests) == 1
        await terminal.enter("xoxb-", "two words")
        await terminal.until("has a space in it")
        await terminal.enter("xoxb-", "xapp-1-of-the-app")
        await terminal.until("has to begin with xoxb-")
        await terminal.enter("xoxb-", "")
        await terminal.enter("Bot token", "")
        await terminal.until("Done.")
        assert await asyncio.to_thread(terminal.process.wait, 60) == 0
    assert stored(tmp_path) == {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
    assert KEY not in (tmp_path / "data/credentials").read_text()


async def test_an_interrupt_leaves_what_was_there(terminal, tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path / "data"))
    stored_credentials.StoredCredentials(config).save({"OPENAI_API_KEY": "sk-before"})
    await terminal.enter("Key (not shown): ", "sk-after-0123456789")
    await terminal.until("Address")
    assert await terminal.interrupt() != 0
    assert stored(tmp_path) == {"OPENAI_API_KEY": "sk-before"}


async def test_nothing_entered_is_said_and_the_manifest_is_in_a_link(terminal, tmp_path):
    await skip_model(terminal)
    await terminal.until("It carries the text of\r\n")
    assert await terminal.until(".)\r\n") == str(MANIFEST)
    await terminal.until("https://")
    link = urllib.parse.urlsplit(await terminal.until("\r\n"))
    assert f"{link.netloc}{link.path}" == "api.slack.com/apps"
    fields = urllib.parse.parse_qs(link.query, strict_parsing=True)
    assert fields.keys() == {"new_app", "manifest_yaml"}
    assert yaml.safe_load(fields["manifest_yaml"][0]) == yaml.safe_load(MANIFEST.read_text())
    await terminal.enter("xoxb-", "")
    await terminal.enter("Bot token", "")
    await terminal.until("Nothing was entered, so nothing has changed.")
    assert stored(tmp_path) == {}


@pytest.mark.gate
async def test_slack_is_tried_and_the_bot_writes_to_its_installer(terminal_of, tmp_path):
    async with slack_servers.Server() as slack:
        team = slack.world.teams["T1"]
        team.scopes = ",".join(scope for scope in installations.SCOPES if scope != "files:read")
        terminal = terminal_of(SLACK_API_BASE_URL=slack.base_url)
        await skip_model(terminal)
        await terminal.enter("xoxb-", team.token)
        await terminal.enter("xapp-", "xapp-of-another-app")
        await terminal.until("Slack refused the app token")
        await terminal.enter("xoxb-", team.token)
        await terminal.enter("xapp-", slack.app_token)
        await terminal.until("It works (@interpreter in Loopback). Stored, encrypted.")
        missing = await terminal.until("Your member ID")
        assert "These scopes are missing: files:read." in missing
        assert str(MANIFEST) in missing
        assert slack.world.messages == {}
        await terminal.enter("Or press Enter: ", "UNOBODY")
        await terminal.until("nobody has that member ID in this workspace")
        await terminal.enter("Or press Enter: ", "U2")
        await terminal.until("It wrote to you.")
        ((channel, _), message) = next(iter(slack.world.messages.items()))
        assert (channel, message["text"][:6]) == ("DU2", "Hello!")
        await terminal.enter("Bot token", "")
        await terminal.until("Done.")
    assert stored(tmp_path) == {"SLACK_BOT_TOKEN": team.token, "SLACK_APP_TOKEN": slack.app_token}


@pytest.mark.gate
async def test_discord_is_tried_and_the_bot_writes_to_its_owner(terminal_of, tmp_path):
    async with discord_servers.Server() as discord:
        discord.expect(50007)
        base = f"{discord.origin}/api/v10"
        terminal = terminal_of(sys.executable, "-c", AT_LOOPBACK, "setup", base)
        await skip_model(terminal)
        await terminal.enter("xoxb-", "")
        await terminal.enter("Bot token", discord.token)
        await terminal.until("It works (interpreter")
        notes = await terminal.until("Once the bot is on a server")
        assert "Message Content Intent is off" in notes
        assert "oauth2/authorize?client_id=" in notes
        inbox = discord.direct(discord.owner)
        inbox.is_closed = True
        await terminal.enter("(operator", "y")
        await terminal.until("Discord does not let the bot write to operator")
        assert inbox.messages == {}
        inbox.is_closed = False
        await terminal.enter("(operator", "y")
        await terminal.until("It wrote to you.")
        assert [m.content[:6] for m in inbox.messages.values()] == ["Hello!"]
        await terminal.until("Done.")
    assert stored(tmp_path) == {"DISCORD_TOKEN": discord.token}


async def test_what_the_environment_sets_is_not_asked_for(terminal_of):
    terminal = terminal_of(
        OPENAI_API_KEY="sk-1", SLACK_BOT_TOKEN="xoxb-1", SLACK_APP_TOKEN="xapp-1", DISCORD_TOKEN="1"
    )
    text = await terminal.until("Nothing was entered")
    sentence = "is set by the environment or the configuration file."
    assert [f"{name} {sentence}" in text for name in ("model", "Slack", "Discord")] == [True] * 3


def test_without_a_terminal_it_says_what_else_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "setup"],
        env=os.environ | {"INTERPRETER_BOT_PATHS__DATA": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert "Traceback" not in done.stderr


async def test_the_end_of_input_ends_it_as_an_interrupt_does(terminal):
    await terminal.enter("Key (not shown): ", "\x04")
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(terminal.process.wait) == exit_statuses.INTERRUPTED
