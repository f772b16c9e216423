"""Opening of the kernel pool with its reaper: all that running code needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from interpreter_bot import schedules, settings
from interpreter_bot.kernels import pools

_REAP_SECONDS = 30.0


@contextlib.asynccontextmanager
async def open_pool(
    config: settings.Settings, *, is_ephemeral: bool = False
) -> AsyncIterator[pools.Pool]:
    """Open the pool of kernels and its periodic reaper.

    Args:
        config: the settings in effect.
        is_ephemeral: no file of a session outlives it.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pools.Pool.open(config, is_ephemeral=is_ephemeral))
        await stack.enter_async_context(schedules.run_periodically(reap_job(pool)))
        yield pool


def reap_job(pool: pools.Pool) -> schedules.PeriodicJob:
    """Return the periodic job that reaps idle kernels."""
    return schedules.PeriodicJob("reap kernels", _REAP_SECONDS, pool.reap)
