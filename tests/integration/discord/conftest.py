"""A bot on the loopback Discord, and people who use it."""

import contextlib

import pytest

from interpreter_bot import settings
from interpreter_bot.platforms.discord import startup
from tests.fakes import discord_conversations
from tests.fakes.discord_server import rules, servers


async def echo(turn):
    """Say what was asked."""
    turn.reply.step(1)
    turn.reply.text(f"You said: {turn.request.text}")
    return turn.done(f"You said: {turn.request.text}")


@pytest.fixture
def until():
    return rules.wait_until


@pytest.fixture
async def discord_server(monkeypatch):
    # The loopback's five seconds are half a second.
    monkeypatch.setattr(startup, "IDENTIFY_SECONDS", 0.6)
    async with servers.Server(window_seconds=0.5) as server:
        yield server


@pytest.fixture
def lab(discord_server):
    """A guild, made before the bot connects."""
    return discord_server.guild("Lab")


@pytest.fixture
def connect(discord_server, lab):
    """Start the bot: `async with connect(script) as talks`."""

    @contextlib.asynccontextmanager
    async def start(script=echo, *, service=None, **chosen):
        service = service or discord_conversations.Conversations(script)
        fields = {"edit_seconds": 0.1, "closing_seconds": 10.0} | chosen
        bot = settings.Discord(**fields)
        async with startup.running(service, bot, token=discord_server.token) as connected:
            service.bot = connected
            yield service

    return start


@pytest.fixture
def last_answer():
    """What the bot wrote in a place, joined, once its answer is final there."""

    def words(channel):
        return "\n".join(message.content for message in channel.of_bots)

    return words


async def echo_later(turn):
    """Say what was asked, in a turn that has begun to speak already."""
    turn.reply.text(f"You said: {turn.request.text}")
    return turn.done(f"You said: {turn.request.text}")
