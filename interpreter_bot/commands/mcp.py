"""`interpreter-bot mcp`: be an MCP server for one agent, or say who may use the one over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import sys

from interpreter_bot import errors, settings
from interpreter_bot.app import service_startup

_NO_SDK = errors.missing_extra("MCP", "mcp")
_TOKEN = "The token of {name}, which is shown this once:\n{token}\n"  # noqa: S105
_ENDED = 130


def check_sdk() -> None:
    """Check that the SDK is installed.

    Raises:
        SettingsError: it is not.
    """
    if importlib.util.find_spec("mcp") is None:
        raise errors.SettingsError(_NO_SDK)


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Serve standard input and output until it ends, or change who may use HTTP.

    Raises:
        BotError: it could not be done.
    """
    if options.verb == "serve":
        check_sdk()
        return asyncio.run(_serve(config))
    from interpreter_bot.platforms.mcp import client_tokens

    file = config.paths.data / client_tokens.FILE
    if options.verb == "clients":
        sys.stdout.write("".join(f"{name}\n" for name in client_tokens.names(file)))
        return 0
    if not options.name:
        raise errors.SettingsError(f"Name the client: interpreter-bot mcp {options.verb} NAME.")
    if options.verb == "add":
        token = client_tokens.add(file, options.name)
        sys.stdout.write(_TOKEN.format(name=options.name, token=token))
    else:
        client_tokens.remove(file, options.name)
    return 0


async def _serve(config: settings.Settings) -> int:
    from interpreter_bot.platforms.mcp import startup

    task = asyncio.current_task()
    if task is not None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
    # Of one client and its time, as `ask` is; and without the keys of models, which are not asked.
    opening = service_startup.open_conversations(
        config.for_one_session(), {}, secrets=os.environ, is_ephemeral=True
    )
    try:
        async with opening as service:
            await startup.serve_stdio(service)
    except asyncio.CancelledError:
        return _ENDED
    return 0
