"""Kernels, and what looks after them: all that running code needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from interpreter_bot import settings
from interpreter_bot.kernels import pools
from interpreter_bot.sessions import reaping


@contextlib.asynccontextmanager
async def opened(
    bot: settings.Settings, *, is_ephemeral: bool = False
) -> AsyncIterator[pools.Pool]:
    """Open the pool of kernels and whatever looks after it.

    Args:
        bot: the settings in effect.
        is_ephemeral: no file of a session outlives it.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pools.Pool.open(bot, is_ephemeral=is_ephemeral))
        await stack.enter_async_context(reaping.scheduled(reaping.reaping(pool)))
        yield pool
