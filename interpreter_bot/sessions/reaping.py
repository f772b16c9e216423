"""Letting go what is no longer used, by the clock. The only home of apscheduler."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from apscheduler.schedulers import asyncio as schedulers

from interpreter_bot.kernels import pools

_INTERVAL_SECONDS = 30


@contextlib.asynccontextmanager
async def reaping(pool: pools.Pool) -> AsyncIterator[None]:
    """Reap idle kernels as long as the context is open."""
    scheduler = schedulers.AsyncIOScheduler(timezone="UTC")
    # A reaping that is late is done once, not once for each that was missed.
    scheduler.add_job(
        pool.reap, "interval", seconds=_INTERVAL_SECONDS, id="reap kernels", coalesce=True
    )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
