"""`interpreter-bot run`: run the bot on every platform that is set up."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from interpreter_bot import errors, settings
from interpreter_bot.app import execution_startup, garbage_collection
from interpreter_bot.text import quantities

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_log = logging.getLogger(__name__)

_NOTHING: Final = (
    "No platform is set up: give SLACK_BOT_TOKEN and SLACK_APP_TOKEN, or DISCORD_TOKEN, or leave "
    "the web page on."
)
_REST: Final = "interpreter_bot.app.service_startup"
_FAILED, _REFUSED = 1, 2
_FIRST_WAIT_SECONDS: Final = 1.0
# Discord revokes the token of a bot that begins more than a thousand sessions a day.
_LONGEST_WAIT_SECONDS: Final = 120.0
_UNFORESEEN: Final = "Unexpected error; the details are in the log."

_Opening = Callable[[], AbstractAsyncContextManager[str]]
"""Opens a platform, repeatedly if called so; yields a sentence about where it is."""


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run the bot until a signal.

    Raises:
        BotError: it could not be started.
    """
    # On a machine that is at work it takes long enough to look like nothing.
    sys.stdout.write("Starting… The address follows.\n")
    sys.stdout.flush()
    return asyncio.run(_run(config, dict(os.environ)))


async def _run(config: settings.Settings, environment: Mapping[str, str]) -> int:
    with _ending() as end:
        try:
            return await run_bot(config, environment, end, kernels_outlive=True)
        except asyncio.CancelledError:
            return _FAILED


async def run_bot(
    config: settings.Settings,
    environment: Mapping[str, str],
    end: asyncio.Event,
    *,
    kernels_outlive: bool = False,
) -> int:
    """Run the bot until `end` is set; returns the exit status.

    Args:
        config: the settings in effect.
        environment: holds the keys of models.
        end: ends it in order.
        kernels_outlive: see `execution_startup.open_hosts`.

    Raises:
        BotError: nothing could be opened; the sentence says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        with garbage_collection.paused():
            opening_broker = execution_startup.open_broker(
                config, environment, kernels_outlive=kernels_outlive
            )
            broker = await stack.enter_async_context(opening_broker)
            opening = execution_startup.open_hosts(
                config, doorkeeper=broker, kernels_outlive=kernels_outlive
            )
            # Other processes start for that; to import all the rest takes as long.
            rest = asyncio.to_thread(importlib.import_module, _REST)
            importing = asyncio.create_task(rest, name="imports")
            hosts = await stack.enter_async_context(opening)
            await importing
            from interpreter_bot.app import service_startup

            conversations = service_startup.open_conversations(
                config, environment, hosts=hosts, broker=broker
            )
            service = await stack.enter_async_context(conversations)
            platforms = _Platforms(_openings(config, service))
        with garbage_collection.frozen():
            return await platforms.run(service, end)


def _openings(
    config: settings.Settings, service: session_service.SessionService
) -> dict[str, _Opening]:
    """Return the platforms that are set up, by their names for people; no other is imported."""
    openings: dict[str, _Opening] = {}
    if config.web.enabled:
        from interpreter_bot.platforms.web import server

        openings["The web page"] = functools.partial(
            server.serve, service, config.web, config.paths.data
        )
    if config.slack.is_on:
        from interpreter_bot.platforms.slack import startup as slack

        openings["Slack"] = functools.partial(
            slack.serve, service, config.slack, tables=service.queries.library_tables
        )
    if token := config.discord.token.get_secret_value():
        from interpreter_bot.platforms.discord import startup as discord

        openings["Discord"] = functools.partial(discord.serve, service, config.discord, token=token)
    if service.logins.are_possible:
        from interpreter_bot.platforms import login_pages

        openings["Logins at tools"] = functools.partial(
            login_pages.serve, service, config.tool_logins
        )
    if config.mcp.enabled:
        # It takes a second and 59 MiB, which nobody else is to pay.
        from interpreter_bot.commands import mcp

        mcp.check_sdk()
        from interpreter_bot.platforms.mcp import startup

        openings["MCP"] = functools.partial(startup.serve, service, config.mcp, config.paths.data)
    return openings


class _Platforms:
    """All platforms, each independent: one that cannot be opened does not affect the others.

    One that is lost is opened again, after waits that grow: the outage may end. One that refuses
    at its first opening, as with a wrong token, is given up.
    """

    def __init__(self, openings: dict[str, _Opening]) -> None:
        if not openings:
            raise errors.SettingsError(_NOTHING)
        self._openings = openings
        self._open: set[str] = set()
        self._opened: set[str] = set()
        self._lost: set[str] = set()
        self._failed: set[str] = set()

    async def run(self, service: session_service.SessionService, end: asyncio.Event) -> int:
        """Keep them open until the end; returns the exit status."""
        closing = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            kept = {
                name: tasks.create_task(self._keep(name, end, closing), name=f"platform: {name}")
                for name in self._openings
            }
            await end.wait()
            for name in kept.keys() - self._open:
                kept[name].cancel()
            # Platforms stay open for the answers that are still on their way.
            await service.drain()
            closing.set()
        if not self._opened:
            return _REFUSED
        return _FAILED if self._failed | self._lost else 0

    async def _keep(self, name: str, end: asyncio.Event, closing: asyncio.Event) -> None:
        wait_seconds = _FIRST_WAIT_SECONDS
        while not end.is_set():
            began = time.monotonic()
            try:
                await self._keep_open(name, closing)
            except errors.PlatformLostError as error:
                failure: Exception = error
            except errors.BotError as error:
                if name not in self._opened:
                    _log.exception("%s failed", name)
                    self._fail(name, str(error), end)
                    return
                failure = error
            except Exception:
                # Foreign libraries read what comes from outside: one platform's failure must not
                # end others.
                _log.exception("a platform ended in an error")
                failure = errors.PlatformLostError(_UNFORESEEN)
            else:
                return
            if end.is_set():
                return
            if time.monotonic() - began > _LONGEST_WAIT_SECONDS:
                wait_seconds = _FIRST_WAIT_SECONDS
            self._lose(name, failure, wait_seconds)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)

    async def _keep_open(self, name: str, closing: asyncio.Event) -> None:
        """Keep one open until all are to be closed."""
        try:
            async with self._openings[name]() as told:
                self._open.add(name)
                self._opened.add(name)
                self._lost.discard(name)
                # Not for a log: the page's address holds its token.
                sys.stdout.write(f"{name}: {told}\n")
                sys.stdout.flush()
                await closing.wait()
        finally:
            self._open.discard(name)

    def _lose(self, name: str, error: Exception, wait_seconds: float) -> None:
        """Report that one is tried again; with all details when it is lost, not each time."""
        sentence = (
            f"{name} failed: {error} It is tried again in {quantities.duration(wait_seconds)}."
        )
        if name in self._lost:
            _log.warning(sentence)
            return
        self._lost.add(name)
        _log.warning(sentence, exc_info=error)
        _say(sentence)

    def _fail(self, name: str, sentence: str, end: asyncio.Event) -> None:
        """Give one up; ends the bot when none is left."""
        _say(f"{name} failed: {sentence}")
        self._lost.discard(name)
        self._failed.add(name)
        if self._failed == set(self._openings):
            end.set()


def _say(sentence: str) -> None:
    sys.stderr.write(f"interpreter-bot: {sentence}\n")


@contextlib.contextmanager
def _ending() -> Iterator[asyncio.Event]:
    """Yield the event that a first signal sets; a second one cancels the task."""
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
