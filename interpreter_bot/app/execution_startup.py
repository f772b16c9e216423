"""Opens everything that code needs to run: first of all the host of kernels, here or elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from interpreter_bot import encryption, errors, private_files, settings
from interpreter_bot.hosts import host_addresses, host_sockets, kernel_doors, ports
from interpreter_bot.wording import host_words, operator_words

if TYPE_CHECKING:
    from interpreter_bot.data_connections import connection_service
    from interpreter_bot.egress import broker
    from interpreter_bot.mcp_servers import tool_broker
    from interpreter_bot.store import accounts, active_bot, databases

_log = logging.getLogger(__name__)

_DOOR_SEED_FILE: Final = "doors.key"
_SEED_BYTES: Final = 32


@contextlib.asynccontextmanager
async def open_broker(
    config: settings.Settings, environment: Mapping[str, str], *, kernels_outlive_bot: bool = False
) -> AsyncIterator[broker.Broker | None]:
    """Open the broker that lets code reach the outside; None if the settings list nothing.

    Args:
        environment: holds the secrets that rules of `egress` name.
        kernels_outlive_bot: kernels may outlive this process, so the next bot has the same doors.

    Raises:
        SettingsError: a rule cannot be used.
    """
    if not config.has_doors:
        yield None
        return
    # Imported here, because only rules need a proxy and certificates.
    from interpreter_bot.egress import broker

    seed = b""
    if kernels_outlive_bot:
        file = config.paths.data / _DOOR_SEED_FILE
        new_seed = functools.partial(secrets.token_hex, _SEED_BYTES)
        seed = (await asyncio.to_thread(private_files.read_or_create, file, new_seed)).encode()
    async with contextlib.AsyncExitStack() as stack:
        services = []
        if config.connections:
            from interpreter_bot.data_connections import connection_service

            connections_context = connection_service.open_service(config, environment)
            services.append(await stack.enter_async_context(connections_context))
        yield await stack.enter_async_context(
            broker.open_broker(config, environment, services=services, seed=seed)
        )


async def prepare_connections(
    broker: broker.Broker | None, hosts: ports.Hosts
) -> connection_service.ConnectionService | None:
    """Return the data connections of a broker, after they have listed their tables.

    The hosts receive files that code requests.
    """
    if broker is None:
        return None
    from interpreter_bot.data_connections import connection_service

    for service in broker.services:
        if isinstance(service, connection_service.ConnectionService):
            service.open_workspace = hosts.workspace
            await service.pool.prepare()
            return service
    return None


@contextlib.asynccontextmanager
async def open_tools(
    config: settings.Settings,
    environment: Mapping[str, str],
    store: accounts.Accounts | None = None,
    keys: encryption.KeyRing | None = None,
) -> AsyncIterator[tool_broker.ToolBroker | None]:
    """Open the tools of MCP servers; None if the settings list none.

    `environment` holds the secrets that `mcp_servers` names; for the rest see
    `tool_broker.open_broker`.

    Raises:
        SettingsError: a server cannot be used.
    """
    if not config.mcp_servers:
        yield None
        return
    if importlib.util.find_spec("mcp") is None:
        raise errors.SettingsError(operator_words.NO_MCP_SDK_FOR_SERVERS)
    # Imported here: without servers, nothing needs the SDK, which is large.
    from interpreter_bot.mcp_servers import tool_broker

    async with tool_broker.open_broker(config, environment, store, keys) as broker:
        yield broker


@contextlib.asynccontextmanager
async def open_hosts(
    config: settings.Settings,
    *,
    doorkeeper: kernel_doors.Doorkeeper | None = None,
    is_ephemeral: bool = False,
    kernels_outlive_bot: bool = False,
) -> AsyncIterator[ports.Hosts]:
    """Open the host of kernels.

    Args:
        doorkeeper: decides what kernels reach; None lets them reach nothing.
        is_ephemeral: no file of a session outlives it.
        kernels_outlive_bot: kernels may outlive this process, if the settings allow it.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    if kernels_outlive_bot and config.host.store and not config.host.fleet:
        _log.warning("%s", host_words.STORE_NEEDS_FLEET)
    # In a thread, because it imports much.
    hosts_context = await asyncio.to_thread(
        _open_hosts,
        config,
        doorkeeper,
        is_ephemeral=is_ephemeral,
        kernels_outlive_bot=kernels_outlive_bot,
    )
    async with hosts_context as hosts:
        if doorkeeper is not None and not hosts.has_doors:
            doorkeeper.refuse(host_words.DOORS_BROKEN)
        yield hosts


def _open_hosts(
    config: settings.Settings,
    doorkeeper: kernel_doors.Doorkeeper | None,
    *,
    is_ephemeral: bool,
    kernels_outlive_bot: bool,
) -> AbstractAsyncContextManager[ports.Hosts]:
    if is_ephemeral and doorkeeper is None:
        return _open_ephemeral(config)
    if kernels_outlive_bot and config.host.fleet:
        return _open_fleet(config, doorkeeper)
    # Imported here: a bot with a host process needs no kernels, and one without it no HTTP client.
    if not kernels_outlive_bot or config.host.mode == "inside":
        from interpreter_bot.hosts import local_startup

        return local_startup.open_host(config, is_ephemeral=is_ephemeral, doorkeeper=doorkeeper)
    from interpreter_bot.hosts import host_processes

    may_start = config.host.mode == "own"
    return host_processes.open_host(config, may_start=may_start, doorkeeper=doorkeeper)


@contextlib.asynccontextmanager
async def _open_fleet(
    config: settings.Settings, doorkeeper: kernel_doors.Doorkeeper | None
) -> AsyncIterator[ports.Hosts]:
    """Use hosts of other machines; the database records which host has which session.

    Raises:
        SettingsError: they cannot be used with these settings.
    """
    # Imported here, because a bot with one machine does not need it.
    from interpreter_bot.hosts import host_lists, placed_hosts

    async with (
        open_database(config, takes_orphans=False) as database,
        placed_hosts.PlacedHosts.open(
            await asyncio.to_thread(
                host_lists.Fleet, config.host.fleet, config.host.tls, database.fleet_hosts
            ),
            database.placements,
            lost_seconds=config.host.lost_seconds,
            doorkeeper=doorkeeper,
        ) as hosts,
    ):
        yield hosts


async def find_fleet_addresses(config: settings.Settings) -> list[host_addresses.Address]:
    """Find the addresses at which the hosts of a fleet listen.

    Raises:
        BotError: the settings or the database cannot be used.
    """
    # Imported here, because a bot with one machine does not need it.
    from interpreter_bot.hosts import host_lists

    async with contextlib.AsyncExitStack() as stack:
        listed_hosts = None
        if host_lists.RAY_ENTRY in config.host.fleet:
            database_context = open_database(config, takes_orphans=False)
            listed_hosts = (await stack.enter_async_context(database_context)).fleet_hosts
        fleet = host_lists.Fleet(config.host.fleet, config.host.tls, listed_hosts)
        return sorted(await fleet.addresses(), key=str)


def open_database(
    config: settings.Settings,
    *,
    takes_orphans: bool = True,
    bot: active_bot.ActiveBot | None = None,
) -> AbstractAsyncContextManager[databases.Database]:
    """Open the database of the settings; see `databases.Database.open`."""
    from interpreter_bot.store import databases

    directory = config.paths.data / "kept"
    return databases.Database.open(
        _database_url(config), blobs_directory=directory, takes_orphans=takes_orphans, bot=bot
    )


def hold_active_bot(
    config: settings.Settings, on_wait: Callable[[], None]
) -> AbstractAsyncContextManager[active_bot.ActiveBot]:
    """Be the active bot of the database of the settings; see `active_bot.hold`."""
    from interpreter_bot.store import active_bot

    return active_bot.hold(_database_url(config), on_wait)


def _database_url(config: settings.Settings) -> str:
    from interpreter_bot.store import engines

    return config.store.url or engines.default_url(config.paths.data)


@contextlib.asynccontextmanager
async def _open_ephemeral(config: settings.Settings) -> AsyncIterator[ports.Hosts]:
    """Use a running host, whose kernels are ready, or else a host in this process."""
    if host_sockets.resolve(host_sockets.newest_link(config.paths)) is not None:
        from interpreter_bot.hosts import host_processes

        async with host_processes.open_compatible(config) as host:
            if host is not None:
                yield host
                return
    from interpreter_bot.hosts import local_startup

    async with local_startup.open_host(config, is_ephemeral=True) as host:
        yield host
