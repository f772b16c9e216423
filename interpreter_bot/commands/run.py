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
from interpreter_bot.app import bot_startup, execution_startup
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

_OpenPlatform = Callable[[], AbstractAsyncContextManager[str]]
"""Opens a platform, also again; yields a sentence for the operator, such as its address."""


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run the bot until a signal.

    Raises:
        BotError: it could not be started.
    """
    # Sessions with other user ids must be able to pass through the directory. If it cannot be made,
    # the first write there reports that.
    with contextlib.suppress(OSError):
        config.paths.data.mkdir(mode=0o711, parents=True, exist_ok=True)
    stored_variables = stored_credentials.StoredCredentials(config).load()
    config = stored_credentials.with_stored_tokens(config, stored_variables)
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
    lock_context = execution_startup.hold_active_bot(config, functools.partial(_stand_by, config))
    async with side_by_side.open_in_task(lock_context, "active bot") as bot_future:
        if not await _wait_until_opened(bot_future, end):
            return 0
        bot = bot_future.result()
        restart_task = asyncio.create_task(_restart_when_lost(bot, end), name="restart")
        try:
            service_context = bot_startup.open_service(
                config, environment, kernels_outlive_bot=kernels_outlive_bot, bot=bot
            )
            return await _run_platforms(config, service_context, platforms, end)
        finally:
            restart_task.cancel()


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


async def _wait_until_opened(future: asyncio.Future[Any], end: asyncio.Event) -> bool:
    """Wait until a future is done or `end` is set; return whether the future is done."""
    end_task = asyncio.create_task(end.wait(), name="end")
    futures: set[asyncio.Future[Any]] = {future, end_task}
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        end_task.cancel()
    return future.done()


async def _run_platforms(
    config: settings.Settings,
    service_context: AbstractAsyncContextManager[session_service.SessionService],
    platforms: _Platforms,
    end: asyncio.Event,
) -> int:
    """Open the page, then the conversations, then the other platforms."""
    service_future: asyncio.Future[session_service.SessionService]
    service_future = asyncio.get_running_loop().create_future()
    try:
        if config.web.is_listening:
            from interpreter_bot.platforms.web import server

            data_directory = config.paths.data
            open_api = functools.partial(_open_api, data_directory)
            serve_page = functools.partial(
                server.serve, service_future, config.web, data_directory, open_api=open_api
            )
            await platforms.open_first(operator_words.PAGE_NAME, serve_page)
            if end.is_set():
                # Nothing else will be served, so no database is needed.
                return platforms.status
        async with side_by_side.open_in_task(service_context, "conversations") as open_future:
            if not await _wait_until_opened(open_future, end):
                return platforms.status
            service = open_future.result()
            open_functions = _find_open_functions(config, service)
            service_future.set_result(service)
            await platforms.keep_open(open_functions, service)
    finally:
        await platforms.abort()
    return platforms.status


def _open_api(data: pathlib.Path, service: session_service.SessionService) -> access.Handler:
    # Imported here, so that the page's address is printed before.
    from interpreter_bot.platforms.api import routes

    return routes.Api(service, data).answer


def _platform_names(config: settings.Settings) -> set[str]:
    """Return the platforms on which people talk to the bot.

    Raises:
        SettingsError: there is none.
    """
    is_on_by_name = {
        operator_words.PAGE_NAME: config.web.is_listening,
        _SLACK: config.slack.is_on,
        _DISCORD: bool(config.discord.token.get_secret_value()),
        _MCP: config.mcp.is_listening,
    }
    if not any(is_on_by_name.values()):
        raise errors.SettingsError(operator_words.NOTHING_TO_RUN)
    return {name for name, is_on in is_on_by_name.items() if is_on}


def _find_open_functions(
    config: settings.Settings, service: session_service.SessionService
) -> dict[str, _OpenPlatform]:
    """Return the other platforms that are set up; only these are imported."""
    open_functions: dict[str, _OpenPlatform] = {}
    if config.slack.is_on:
        from interpreter_bot.platforms.slack import startup as slack

        open_functions[_SLACK] = functools.partial(
            slack.serve, service, config.slack, tables=service.queries.library_tables
        )
    if token := config.discord.token.get_secret_value():
        from interpreter_bot.platforms.discord import startup as discord

        open_functions[_DISCORD] = functools.partial(
            discord.serve, service, config.discord, token=token
        )
    if service.logins.has_login_servers:
        from interpreter_bot.platforms import login_pages

        open_functions[operator_words.LOGIN_PAGES_NAME] = functools.partial(
            login_pages.serve, service, config.tool_logins
        )
    if config.mcp.is_listening:
        # Imported here: it takes a second and 59 MiB.
        from interpreter_bot.commands import mcp

        mcp.require_sdk()
        from interpreter_bot.platforms.mcp import startup

        open_functions[_MCP] = functools.partial(
            startup.serve, service, config.mcp, config.paths.data
        )
    return open_functions


class _Platforms:
    """All platforms, which are independent: a failure of one does not affect the others.

    A lost platform is opened again, after growing waits. A platform that cannot be opened the first
    time, as with a wrong token, is given up.
    """

    def __init__(self, names: Collection[str], end: asyncio.Event) -> None:
        """Begin without any; `end` is set once all platforms of `names` have failed."""
        self._platform_names = names
        self._end = end
        self._is_closing = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._was_attempted = asyncio.Event()
        self._open_names: set[str] = set()
        self._opened_names: set[str] = set()
        self._lost_names: set[str] = set()
        self._failed_names: set[str] = set()

    @property
    def status(self) -> int:
        """The exit status."""
        failed_names = self._failed_names | self._lost_names
        if failed_names and not self._opened_names:
            return exit_statuses.REFUSED
        return exit_statuses.FAILED if failed_names else 0

    async def open_first(self, name: str, open_platform: _OpenPlatform) -> None:
        """Open a platform before the others; wait until it is open or has failed."""
        self._begin(name, open_platform)
        await self._was_attempted.wait()

    async def keep_open(
        self, open_functions: Mapping[str, _OpenPlatform], service: session_service.SessionService
    ) -> None:
        """Open the others, and keep all of them open until the end."""
        try:
            for name, open_platform in open_functions.items():
                self._begin(name, open_platform)
            await self._end.wait()
            for name in self._tasks.keys() - self._open_names:
                self._tasks[name].cancel()
            # Platforms stay open until running answers have been shown.
            await service.drain()
            self._is_closing.set()
            await asyncio.wait(self._tasks.values())
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Close all open platforms."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, name: str, open_platform: _OpenPlatform) -> None:
        work = self._keep_trying(name, open_platform)
        self._tasks[name] = asyncio.create_task(work, name=f"platform: {name}")

    async def _keep_trying(self, name: str, open_platform: _OpenPlatform) -> None:
        wait_seconds = _FIRST_RETRY_SECONDS
        while not self._end.is_set():
            started_at = time.monotonic()
            try:
                await self._keep_open(name, open_platform)
            except errors.PlatformLostError as error:
                failure: Exception = error
            except errors.BotError as error:
                if name not in self._opened_names:
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
            if time.monotonic() - started_at > _MAX_RETRY_SECONDS:
                wait_seconds = _FIRST_RETRY_SECONDS
            self._report_loss(name, failure, wait_seconds)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _MAX_RETRY_SECONDS)

    async def _keep_open(self, name: str, open_platform: _OpenPlatform) -> None:
        """Keep a platform open until all should be closed."""
        try:
            async with open_platform() as sentence:
                self._open_names.add(name)
                self._opened_names.add(name)
                self._lost_names.discard(name)
                # Not logged, because the address of the page contains its token.
                sys.stdout.write(f"{name}: {sentence}\n")
                sys.stdout.flush()
                self._was_attempted.set()
                await self._is_closing.wait()
        finally:
            self._was_attempted.set()
            self._open_names.discard(name)

    def _report_loss(self, name: str, error: Exception, wait_seconds: float) -> None:
        """Report that a platform will be opened again; details are logged the first time."""
        sentence = operator_words.platform_failed_for_now(name, error, wait_seconds)
        if name in self._lost_names:
            _log.warning(sentence)
            return
        self._lost_names.add(name)
        _log.warning(sentence, exc_info=error)
        _print_error(sentence)

    def _give_up(self, name: str, sentence: str) -> None:
        """Give up a platform; end the bot if none is left."""
        _print_error(operator_words.platform_failed(name, sentence))
        self._lost_names.discard(name)
        self._failed_names.add(name)
        if self._failed_names.issuperset(self._platform_names):
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
