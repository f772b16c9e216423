"""Opens the whole bot: slow parts begin first, and the rest is imported meanwhile.

It imports little itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from interpreter_bot import settings, side_by_side
from interpreter_bot.app import execution_startup

if TYPE_CHECKING:
    from interpreter_bot.egress.broker import Broker
    from interpreter_bot.sessions import session_service
    from interpreter_bot.store import active_bot


def import_ahead(config: settings.Settings) -> None:
    """Import the modules that an active bot needs; it blocks for seconds."""
    modules = {
        "app.service_startup": True,
        "agent.llms.openai_clients": True,
        "hosts.host_processes": config.host.mode != "inside" and not config.host.fleet,
        "hosts.local_startup": config.host.mode == "inside",
        "hosts.placed_hosts": bool(config.host.fleet),
        "egress.broker": config.has_doors,
        "mcp_servers.tool_broker": bool(config.mcp_servers),
        "platforms.web.server": config.web.is_listening,
        "platforms.web.routes": config.web.is_listening,
        "platforms.slack.startup": config.slack.is_on,
        "platforms.discord.startup": bool(config.discord.token.get_secret_value()),
    }
    for name, is_needed in modules.items():
        if is_needed:
            # If an extra is missing, an error says so later, when the part that needs it opens.
            with contextlib.suppress(ImportError):
                importlib.import_module(f"interpreter_bot.{name}")


@contextlib.asynccontextmanager
async def open_service(
    config: settings.Settings,
    environment: Mapping[str, str],
    *,
    secrets: Mapping[str, str] | None = None,
    is_ephemeral: bool = False,
    kernels_outlive_bot: bool = False,
    broker: Broker | None = None,
    bot: active_bot.ActiveBot | None = None,
) -> AsyncIterator[session_service.SessionService]:
    """Open everything that platforms need.

    Args:
        environment: holds the keys of models.
        secrets: values of the variables that `egress` rules name; taken from `environment` by
            default.
        is_ephemeral: no file and no database outlive the service.
        kernels_outlive_bot: see `execution_startup.open_hosts`.
        broker: lets code reach the outside; None if it is still to be opened.
        bot: the active bot that the service belongs to; None in another process, such as a command.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    secrets = environment if secrets is None else secrets
    async with contextlib.AsyncExitStack() as stack:
        if broker is None:
            broker_context = execution_startup.open_broker(
                config, secrets, kernels_outlive_bot=kernels_outlive_bot
            )
            broker = await stack.enter_async_context(broker_context)
        hosts_context = execution_startup.open_hosts(
            config,
            doorkeeper=broker,
            is_ephemeral=is_ephemeral,
            kernels_outlive_bot=kernels_outlive_bot,
        )
        hosts = await stack.enter_async_context(side_by_side.open_in_task(hosts_context, "hosts"))
        await asyncio.to_thread(importlib.import_module, "interpreter_bot.app.service_startup")
        from interpreter_bot.app import service_startup

        service_context = service_startup.open_conversations(
            config,
            environment,
            secrets=secrets,
            is_ephemeral=is_ephemeral,
            hosts=hosts,
            broker=broker,
            bot=bot,
        )
        service = await stack.enter_async_context(service_context)
        yield service
