"""`interpreter-bot mcp`: be an MCP server for one agent, or change who may use MCP over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import os
import signal
import sys
from typing import TextIO

from interpreter_bot import code_activity, errors, settings, side_by_side, values
from interpreter_bot.app import bot_startup, execution_startup
from interpreter_bot.commands import exit_statuses
from interpreter_bot.wording import operator_words


def require_sdk() -> None:
    """Check that the SDK is installed.

    Raises:
        SettingsError: it is not.
    """
    if importlib.util.find_spec("mcp") is None:
        raise errors.SettingsError(operator_words.NO_MCP_SDK)


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Serve standard input and output until it ends, or change who may use HTTP.

    Raises:
        BotError: it could not be done.
    """
    if options.verb == "serve":
        require_sdk()
        return asyncio.run(_serve(config))
    from interpreter_bot.commands import api
    from interpreter_bot.platforms import client_tokens

    return api.change_clients(config.paths.data / client_tokens.MCP_FILE, "mcp", options)


async def _serve(config: settings.Settings) -> int:
    """Answer the client as soon as the SDK is imported, and open everything meanwhile."""
    task = asyncio.current_task()
    if task is not None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
    # Sessions last as long as the one client, as those of `ask` do.
    config = config.for_one_session()
    try:
        async with contextlib.AsyncExitStack() as stack:
            broker_context = execution_startup.open_broker(config, os.environ)
            broker = await stack.enter_async_context(broker_context)
            reach = code_activity.NO_REACH
            if broker is not None:
                reach = broker.reach(values.format_key(values.SessionKey("mcp")))
            output = _take_over_stdout()
            service_context = bot_startup.open_service(
                config, {}, secrets=os.environ, is_ephemeral=True, broker=broker
            )
            service_future = await stack.enter_async_context(
                side_by_side.open_in_task(service_context, "conversations")
            )
            await asyncio.to_thread(
                importlib.import_module, "interpreter_bot.platforms.mcp.startup"
            )
            from interpreter_bot.platforms.mcp import startup, tool_definitions

            instructions = tool_definitions.write_instructions(config.limits, reach)
            serving = startup.serve_stdio(service_future, output, instructions)
            serve_task = asyncio.create_task(serving, name="mcp: standard input")
            stack.callback(serve_task.cancel)
            # If it cannot be opened, its sentence ends the command.
            await service_future
            await serve_task
    except asyncio.CancelledError:
        return exit_statuses.INTERRUPTED
    return 0


def _take_over_stdout() -> TextIO:
    """Return standard output, and send all that is printed otherwise to standard error."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output
