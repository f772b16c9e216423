"""Fixtures of a bot on the loopback Discord."""

import asyncio
import contextlib
import itertools

import discord
import pytest

from interpreter_bot import settings
from interpreter_bot.platforms.discord import startup
from tests import waiting
from tests.fakes import conversations
from tests.fakes.discord_server import servers

MODELS = ("small", "large")


async def echo(turn):
    """Answer with the text of the request."""
    turn.reply.step(1)
    turn.reply.text(f"You said: {turn.request.text}")
    return turn.done(f"You said: {turn.request.text}")


@pytest.fixture
def until():
    return waiting.until


async def _before_identify(_client, _shard_id, *, initial=False):
    if not initial:
        await asyncio.sleep(startup.IDENTIFY_SECONDS)


@pytest.fixture
async def discord_server(monkeypatch):
    # The loopback's five seconds are half a second; the library's own wait is shortened too.
    monkeypatch.setattr(startup, "IDENTIFY_SECONDS", 0.6)
    monkeypatch.setattr(discord.Client, "before_identify_hook", _before_identify)
    async with servers.Server(window_seconds=0.5) as server:
        yield server


@pytest.fixture
def lab(discord_server):
    """A guild, made before the bot connects."""
    return discord_server.guild("Lab")


@pytest.fixture
async def service(tmp_path):
    """Conversations that stay open while bots connect and disconnect."""
    async with conversations.opened(tmp_path / "lasting", echo, models=MODELS) as opened:
        yield opened


@pytest.fixture
def connect(discord_server, lab, tmp_path):
    """Start a bot: `async with connect(script) as service`; by default with new conversations.

    `pace_seconds` is the time between two edits of an answer. `threads` and `follow_threads` are
    settings of the place, other keywords those of Discord.
    """
    numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def start(script=echo, *, service=None, models=MODELS, **options):
        timing = startup.Timing(
            edit_seconds=options.pop("pace_seconds", 0.1),
            server_seconds=0.3,
            closing_seconds=options.pop("closing_seconds", 10.0),
            look_back_seconds=options.pop("look_back_seconds", 600.0),
        )
        names = options.keys() & {"threads", "follow_threads"}
        place = settings.Place(places=("discord",), **{name: options.pop(name) for name in names})
        bot = settings.Discord(**options)
        async with contextlib.AsyncExitStack() as stack:
            if service is None:
                opened = conversations.opened(
                    tmp_path / f"{next(numbers)}", script, models=models, place=(place,)
                )
                service = await stack.enter_async_context(opened)
            running = startup.connected_platform(
                service, bot, token=discord_server.token, timing=timing
            )
            service.bot = await stack.enter_async_context(running)
            yield service

    return start


async def echo_later(turn):
    """Answer with the text of the request, in a turn that has already shown text."""
    turn.reply.text(f"You said: {turn.request.text}")
    return turn.done(f"You said: {turn.request.text}")
