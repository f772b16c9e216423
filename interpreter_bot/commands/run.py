"""`interpreter-bot run`: run the bot on every platform that is set up."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import errors, settings, side_by_side, stored_credentials
from interpreter_bot.app import bot_startup, execution_startup, garbage_collection
from interpreter_bot.commands import exit_statuses
from interpreter_bot.wording import operator_words, terminal_words

if TYPE_CHECKING:
    from interpreter_bot.platforms.web import access
    from interpreter_bot.sessions import session_service
    from interpreter_bot.store import active_bot

_log = logging.getLogger(__name__)

_SLACK: Final = "Slack"
_DISCORD: Final = "Discord"
_MCP: Final = "MCP"
_FIRST_RETRY_SECONDS: Final = 1.0
# Discord revokes the token of a bot that begins more than a thousand sessions a day.
_MAX_RETRY_SECONDS: Final = 120.0

_Opening = Callable[[], AbstractAsyncContextManager[str]]
"""Opens a platform, each time it is called; yields a sentence, such as where it listens."""


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run the bot until a signal.

    Raises:
        BotError: it could not be started.
    """
    # Sessions with user ids of their own must be able to pass through the directory. If it cannot
    # be made, whatever writes there first reports that.
    with contextlib.suppress(OSError):
        config.paths.data.mkdir(mode=0o711, parents=True, exist_ok=True)
    stored = stored_credentials.StoredCredentials(config).load()
    config = stored_credentials.with_stored_tokens(config, stored)
    return asyncio.run(_run(config, dict(os.environ)))


async def _run(config: settings.Settings, environment: Mapping[str, str]) -> int:
    with _end_on_signal() as end:
        try:
            return await run_bot(config, environment, end, kernels_outlive_bot=True)
        except asyncio.CancelledError:
            return exit_statuses.FAILED


async def run_bot(
    config: settings.Settings,
    environment: Mapping[str, str],
    end: asyncio.Event,
    *,
    kernels_outlive_bot: bool = False,
) -> int:
    """Stand by while another bot is active, then run the bot until `end` is set.

    For `kernels_outlive_bot` see `execution_startup.open_hosts`.

    Returns:
        The exit status.

    Raises:
        BotError: nothing could be opened.
    """
    platforms = _Platforms(_platform_names(config), end)
    holding = execution_startup.hold_active_bot(config, functools.partial(_stand_by, config))
    async with side_by_side.open_in_task(holding, "active bot") as active:
        if not await _is_opened_before(active, end):
            return 0
        bot = active.result()
        restarting = asyncio.create_task(_restart_when_lost(bot, end), name="restart")
        try:
            opening = bot_startup.open_service(
                config, environment, kernels_outlive_bot=kernels_outlive_bot, bot=bot
            )
            return await _run_platforms(config, opening, platforms, end)
        finally:
            restarting.cancel()


def _stand_by(config: settings.Settings) -> None:
    _print_error(operator_words.BOT_STANDS_BY)
    asyncio.get_running_loop().run_in_executor(None, bot_startup.import_ahead, config)


async def _restart_when_lost(bot: active_bot.ActiveBot, end: asyncio.Event) -> None:
    """Replace this process by a new one when it is no longer the active bot."""
    await bot.lost.wait()
    if end.is_set():
        os._exit(exit_statuses.FAILED)
    _print_error(operator_words.LOCK_LOST)
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606


async def _is_opened_before(opened: asyncio.Future[Any], end: asyncio.Event) -> bool:
    """Wait until something is opened, or until the end; return whether it was opened."""
    ending = asyncio.create_task(end.wait(), name="end")
    waited_for: set[asyncio.Future[Any]] = {opened, ending}
    try:
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
    return opened.done()


async def _run_platforms(
    config: settings.Settings,
    opening: AbstractAsyncContextManager[session_service.SessionService],
    platforms: _Platforms,
    end: asyncio.Event,
) -> int:
    """Open the page, then the conversations, then the other platforms."""
    ready: asyncio.Future[session_service.SessionService]
    ready = asyncio.get_running_loop().create_future()
    try:
        if config.web.enabled:
            from interpreter_bot.platforms.web import server

            data = config.paths.data
            open_api = functools.partial(_open_api, data)
            page = functools.partial(server.serve, ready, config.web, data, open_api=open_api)
            await platforms.open_first(operator_words.PAGE_NAME, page)
            if end.is_set():
                # Nothing else will be served, so no database is needed.
                return platforms.status
        async with side_by_side.open_in_task(opening, "conversations") as opened:
            if not await _is_opened_before(opened, end):
                return platforms.status
            service = opened.result()
            openings = _find_openings(config, service)
            ready.set_result(service)
            with garbage_collection.frozen():
                await platforms.keep_open(openings, service)
    finally:
        await platforms.abort()
    return platforms.status


def _open_api(data: pathlib.Path, service: session_service.SessionService) -> access.Handler:
    # Imported here, so that the page's address need not wait for it.
    from interpreter_bot.platforms.api import routes

    return routes.Api(service, data).answer


def _platform_names(config: settings.Settings) -> set[str]:
    """Return the platforms on which people talk to the bot.

    Raises:
        SettingsError: there is none.
    """
    is_on_by_name = {
        operator_words.PAGE_NAME: config.web.enabled,
        _SLACK: config.slack.is_on,
        _DISCORD: bool(config.discord.token.get_secret_value()),
        _MCP: config.mcp.enabled,
    }
    if not any(is_on_by_name.values()):
        raise errors.SettingsError(operator_words.NOTHING_TO_RUN)
    return {name for name, is_on in is_on_by_name.items() if is_on}


def _find_openings(
    config: settings.Settings, service: session_service.SessionService
) -> dict[str, _Opening]:
    """Return the other platforms that are set up; only these are imported."""
    openings: dict[str, _Opening] = {}
    if config.slack.is_on:
        from interpreter_bot.platforms.slack import startup as slack

        openings[_SLACK] = functools.partial(
            slack.serve, service, config.slack, tables=service.queries.library_tables
        )
    if token := config.discord.token.get_secret_value():
        from interpreter_bot.platforms.discord import startup as discord

        openings[_DISCORD] = functools.partial(discord.serve, service, config.discord, token=token)
    if service.logins.are_possible:
        from interpreter_bot.platforms import login_pages

        openings[operator_words.LOGIN_PAGES_NAME] = functools.partial(
            login_pages.serve, service, config.tool_logins
        )
    if config.mcp.enabled:
        # Imported here: it takes a second and 59 MiB.
        from interpreter_bot.commands import mcp

        mcp.require_sdk()
        from interpreter_bot.platforms.mcp import startup

        openings[_MCP] = functools.partial(startup.serve, service, config.mcp, config.paths.data)
    return openings


class _Platforms:
    """All platforms, which are independent: a failure of one does not affect the others.

    A lost platform is opened again, after growing waits. A platform that refuses at its first
    opening, as with a wrong token, is given up.
    """

    def __init__(self, names: Collection[str], end: asyncio.Event) -> None:
        """Make it; `end` is set once all of `names` have failed."""
        self._platform_names = names
        self._end = end
        self._closing = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._was_attempted = asyncio.Event()
        self._open_names: set[str] = set()
        self._ever_opened: set[str] = set()
        self._lost: set[str] = set()
        self._failed: set[str] = set()

    @property
    def status(self) -> int:
        """The exit status."""
        failed_names = self._failed | self._lost
        if failed_names and not self._ever_opened:
            return exit_statuses.REFUSED
        return exit_statuses.FAILED if failed_names else 0

    async def open_first(self, name: str, opening: _Opening) -> None:
        """Open a platform before the others; wait until it is open or has failed."""
        self._begin(name, opening)
        await self._was_attempted.wait()

    async def keep_open(
        self, openings: Mapping[str, _Opening], service: session_service.SessionService
    ) -> None:
        """Open the others, and keep all of them open until the end."""
        try:
            for name, opening in openings.items():
                self._begin(name, opening)
            await self._end.wait()
            for name in self._tasks.keys() - self._open_names:
                self._tasks[name].cancel()
            # Platforms stay open for the answers that are still on their way.
            await service.drain()
            self._closing.set()
            await asyncio.wait(self._tasks.values())
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Close all open platforms."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, name: str, opening: _Opening) -> None:
        keeping = self._keep_trying(name, opening)
        self._tasks[name] = asyncio.create_task(keeping, name=f"platform: {name}")

    async def _keep_trying(self, name: str, opening: _Opening) -> None:
        wait_seconds = _FIRST_RETRY_SECONDS
        while not self._end.is_set():
            began = time.monotonic()
            try:
                await self._keep_open(name, opening)
            except errors.PlatformLostError as error:
                failure: Exception = error
            except errors.BotError as error:
                if name not in self._ever_opened:
                    # People get the sentence; the log has details.
                    _log.info("%s failed", name, exc_info=True)
                    self._give_up(name, str(error))
                    return
                failure = error
            except Exception:
                # Libraries parse foreign data, and their defects must not end the other platforms.
                _log.exception("a platform ended in an error")
                failure = errors.PlatformLostError(operator_words.UNEXPECTED)
            else:
                return
            if self._end.is_set():
                return
            if time.monotonic() - began > _MAX_RETRY_SECONDS:
                wait_seconds = _FIRST_RETRY_SECONDS
            self._report_loss(name, failure, wait_seconds)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _MAX_RETRY_SECONDS)

    async def _keep_open(self, name: str, opening: _Opening) -> None:
        """Keep a platform open until all should be closed."""
        try:
            async with opening() as sentence:
                self._open_names.add(name)
                self._ever_opened.add(name)
                self._lost.discard(name)
                # Not logged, as the address of the page contains its token.
                sys.stdout.write(f"{name}: {sentence}\n")
                sys.stdout.flush()
                self._was_attempted.set()
                await self._closing.wait()
        finally:
            self._was_attempted.set()
            self._open_names.discard(name)

    def _report_loss(self, name: str, error: Exception, wait_seconds: float) -> None:
        """Report that a platform will be opened again; details are logged the first time."""
        sentence = operator_words.platform_failed_for_now(name, error, wait_seconds)
        if name in self._lost:
            _log.warning(sentence)
            return
        self._lost.add(name)
        _log.warning(sentence, exc_info=error)
        _print_error(sentence)

    def _give_up(self, name: str, sentence: str) -> None:
        """Give up a platform; end the bot if none is left."""
        _print_error(operator_words.platform_failed(name, sentence))
        self._lost.discard(name)
        self._failed.add(name)
        if self._failed.issuperset(self._platform_names):
            self._end.set()


def _print_error(sentence: str) -> None:
    sys.stderr.write(f"interpreter-bot: {sentence}\n")


@contextlib.contextmanager
def _end_on_signal() -> Iterator[asyncio.Event]:
    """Yield the event that a first signal sets; a second one cancels the task."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    task = asyncio.current_task()

    def on_signal() -> None:
        if end.is_set() and task is not None:
            task.cancel()
        elif sys.stderr.isatty():
            sys.stderr.write(f"{terminal_words.STOPPING}\n")
        end.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal)
    try:
        yield end
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)
