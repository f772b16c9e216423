"""Periodic jobs; the only home of apscheduler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

from apscheduler.schedulers import asyncio as schedulers


@dataclasses.dataclass(frozen=True, slots=True)
class PeriodicJob:
    """Periodic job.

    Attributes:
        name: for the log.
        seconds: between two runs.
        run: runs it once. What it raises is logged, and it runs again next time.
    """

    name: str
    seconds: float
    run: Callable[[], Awaitable[object]]


@contextlib.asynccontextmanager
async def run_periodically(*jobs: PeriodicJob) -> AsyncIterator[None]:
    """Run jobs periodically as long as the context is open."""
    # A late job runs once, not once for each missed time; and it runs, however late: by default a
    # run that begins a second late is dropped.
    scheduler = schedulers.AsyncIOScheduler(
        timezone="UTC", job_defaults={"coalesce": True, "misfire_grace_time": None}
    )
    for job in jobs:
        scheduler.add_job(job.run, "interval", seconds=job.seconds, id=job.name)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
