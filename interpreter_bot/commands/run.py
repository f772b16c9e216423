"""`interpreter-bot run`: be the bot, on every platform that is set up."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.app import conversing
from interpreter_bot.commands import parsers
from interpreter_bot.platforms.discord import running as discord
from interpreter_bot.platforms.slack import running as slack
from interpreter_bot.platforms.web import serving
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_NOTHING: Final = (
    "No platform is set up: give SLACK_BOT_TOKEN and SLACK_APP_TOKEN, or DISCORD_TOKEN, or leave "
    "the web page on."
)
_FAILED, _REFUSED = 1, 2

_Opening = AbstractAsyncContextManager[str]
"""A platform, not yet open; gives a sentence about where it is."""


def add_to(commands: parsers.Commands) -> argparse.ArgumentParser:
    """Add the command's parser."""
    parser = commands.add_parser("run", help="be the bot: web page, Slack, Discord")
    parser.epilog = (
        "Ends on SIGTERM or SIGINT once running turns are over; a second signal ends it at once. "
        "Exit status: 0 ended as asked, 1 a platform failed, 2 nothing could be started."
    )
    parser.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run everybody's code with your own rights"
    )
    return parser


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Be the bot until somebody says that it is enough.

    Raises:
        BotError: it could not be started.
    """
    return asyncio.run(_run(bot, dict(os.environ)))


async def _run(bot: settings.Settings, environment: Mapping[str, str]) -> int:
    with _ending() as end:
        try:
            return await be(bot, environment, end)
        except asyncio.CancelledError:
            return _FAILED


async def be(bot: settings.Settings, environment: Mapping[str, str], end: asyncio.Event) -> int:
    """Be the bot until `end` is set; returns the exit status.

    Raises:
        BotError: nothing could be opened; the sentence says why.
    """
    async with conversing.opened(bot, environment) as held:
        return await _Platforms(_openings(bot, held)).be_open(held, end)


def _openings(bot: settings.Settings, held: conversations.Conversations) -> dict[str, _Opening]:
    """Return the platforms that are set up, by what people call them."""
    openings: dict[str, _Opening] = {}
    if bot.web.enabled:
        openings["The web page"] = serving.serve(held, bot.web, bot.paths.data)
    if bot.slack.is_on:
        openings["Slack"] = slack.serve(held, bot.slack, engine=held.engine)
    if token := bot.discord.token.get_secret_value():
        openings["Discord"] = discord.serve(held, bot.discord, token=token)
    return openings


class _Platforms:
    """All of them, each on its own: one that cannot be opened takes no other down."""

    def __init__(self, openings: dict[str, _Opening]) -> None:
        if not openings:
            raise errors.SettingsError(_NOTHING)
        self._openings = openings
        self._failed: set[str] = set()
        self._opened: set[str] = set()

    async def be_open(self, held: conversations.Conversations, end: asyncio.Event) -> int:
        """Keep them open until the end; returns the exit status."""
        closing = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for name, opening in self._openings.items():
                tasks.create_task(self._keep(name, opening, end, closing), name=f"platform: {name}")
            await end.wait()
            # Platforms stay open for the answers that are still on their way.
            await held.drain()
            closing.set()
        if not self._opened:
            return _REFUSED
        return _FAILED if self._failed else 0

    async def _keep(
        self, name: str, opening: _Opening, end: asyncio.Event, closing: asyncio.Event
    ) -> None:
        try:
            async with opening as told:
                self._opened.add(name)
                # Not for a log: the page's address holds its token.
                sys.stdout.write(f"{name}: {told}\n")
                sys.stdout.flush()
                await closing.wait()
        except errors.BotError as error:
            _log.exception("a platform failed")
            _say(f"{name} failed: {error}")
            self._failed.add(name)
            if self._failed == set(self._openings):
                end.set()


def _say(sentence: str) -> None:
    sys.stderr.write(f"interpreter-bot: {sentence}\n")


@contextlib.contextmanager
def _ending() -> Iterator[asyncio.Event]:
    """Give what a first signal sets; a second one cancels whatever is done."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    task = asyncio.current_task()

    def ask() -> None:
        if end.is_set() and task is not None:
            task.cancel()
        end.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, ask)
    try:
        yield end
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)
