"""Opening of the host of kernels, in this process or another one: all that running code needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from interpreter_bot import settings
from interpreter_bot.hosts import host_sockets, ports


def open_hosts(
    config: settings.Settings, *, is_ephemeral: bool = False, kernels_outlive: bool = False
) -> AbstractAsyncContextManager[ports.Hosts]:
    """Open the host of kernels.

    Args:
        config: the settings in effect.
        is_ephemeral: no file of a session outlives it.
        kernels_outlive: kernels are to outlive this process, as far as the settings say so.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    if is_ephemeral:
        return _open_ephemeral(config)
    # Imported here: who finds a host needs no kernels, and who has none no client of HTTP.
    if not kernels_outlive or config.host.mode == "inside":
        from interpreter_bot.hosts import local_host

        return local_host.LocalHost.open(config)
    from interpreter_bot.hosts import host_processes

    return host_processes.open_host(config, may_start=config.host.mode == "own")


@contextlib.asynccontextmanager
async def _open_ephemeral(config: settings.Settings) -> AsyncIterator[ports.Hosts]:
    """Use a host that is there, whose kernels are at hand, else one in this process."""
    if host_sockets.target(host_sockets.newest(config.paths)) is not None:
        from interpreter_bot.hosts import host_processes

        async with host_processes.open_fitting(config) as found:
            if found is not None:
                yield found
                return
    from interpreter_bot.hosts import local_host

    async with local_host.LocalHost.open(config, is_ephemeral=True) as host:
        yield host
