"""`interpreter-bot host`: keep kernels for bots that come and go, in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import pwd
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.hosting import host_server, journaled_executions
from interpreter_bot.hosts import host_processes, local_host, wire_messages

_FAILED: Final = 1
_POLL_SECONDS: Final = 0.2
_DRAINING: Final = "It starts no more kernels, and ends when the last one is gone.\n"


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Serve until a signal, or ask or tell the host that serves.

    Raises:
        BotError: it could not be started, or there is none.
    """
    if options.verb == "status":
        found = asyncio.run(host_processes.status(config.paths))
        fields = dataclasses.asdict(found) | {"packages": len(found.packages)}
        sys.stdout.write(json.dumps(fields, indent=2) + "\n")
        return 0
    if options.verb == "drain":
        asyncio.run(host_processes.drain(config.paths, is_urgent=False))
        sys.stdout.write(_DRAINING)
        return 0
    try:
        return asyncio.run(_serve(config, options.linger))
    except errors.BotError as error:
        if options.linger is not None:
            # Whoever started it tells people; it reads one line.
            _tell(error=wire_messages.error_fields(error))
        raise


async def _serve(config: settings.Settings, linger_seconds: float | None) -> int:
    async with _opened(config, linger_seconds) as serving:
        _tell(ready=os.getpid())
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, serving.drain)
        await _until_over(serving, config, linger_seconds)
    return 0


@contextlib.asynccontextmanager
async def _opened(
    config: settings.Settings, linger_seconds: float | None
) -> AsyncIterator[host_server.HostServer]:
    """Open everything, bottom-up."""
    async with contextlib.AsyncExitStack() as stack:
        path = await asyncio.to_thread(
            host_processes.make_socket_path, config.paths, is_shared=bool(config.host.bot_user)
        )
        host = await stack.enter_async_context(local_host.LocalHost.open(config))
        begun = await stack.enter_async_context(
            journaled_executions.JournaledExecutions.open(host, config.paths.data / "journals")
        )
        serving = host_server.HostServer.open(
            host,
            begun,
            path,
            is_lingering=linger_seconds is not None,
            bot_uid=_uid(config.host.bot_user),
        )
        opened = await stack.enter_async_context(serving)
        await stack.enter_async_context(host_processes.announced(path))
        yield opened


async def _until_over(
    serving: host_server.HostServer, config: settings.Settings, linger_seconds: float | None
) -> None:
    """Return when it was told to end and nothing runs, or when no bot came back."""
    told_at: float | None = None
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving.changed.wait(), _POLL_SECONDS)
        serving.changed.clear()
        now = time.monotonic()
        if serving.is_ending:
            told_at = told_at or now
            if not serving.executions or now - told_at > config.limits.execution_seconds:
                return
        if serving.is_draining and not await serving.has_kernels():
            return
        is_alone = linger_seconds is not None and not serving.connections
        if is_alone and now - serving.last_seen > (linger_seconds or 0.0):
            return


def _uid(name: str) -> int | None:
    """Return a user's id.

    Raises:
        SettingsError: there is no such user.
    """
    if not name:
        return None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise errors.SettingsError(f"There is no user {name}.") from error


def _tell(**said: object) -> None:
    """Tell whoever started it; it may be gone."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
