"""Opening of the host of kernels, in this process or another one: all that running code needs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from interpreter_bot import settings
from interpreter_bot.hosts import local_host, ports


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
    if not kernels_outlive or config.host.mode == "inside":
        return local_host.LocalHost.open(config, is_ephemeral=is_ephemeral)
    # Imported here: who runs a line of code needs no client of HTTP.
    from interpreter_bot.hosts import host_processes

    return host_processes.open_host(config, may_start=config.host.mode == "own")
