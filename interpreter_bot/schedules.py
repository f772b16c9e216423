"""Periodic jobs; the only home of apscheduler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any


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
    """Run jobs periodically as long as the context is open; the end waits for those it cancels."""
    # Imported here: most modules of ours only describe jobs, and `exec` runs none.
    from apscheduler.schedulers import asyncio as schedulers

    # A late job runs once, not once for each missed time; and it runs, however late: by default a
    # run that begins a second late is dropped.
    scheduler = schedulers.AsyncIOScheduler(
        timezone="UTC", job_defaults={"coalesce": True, "misfire_grace_time": None}
    )
    running: set[asyncio.Task[Any]] = set()

    async def run(job: PeriodicJob) -> None:
        if (task := asyncio.current_task()) is not None:
            running.add(task)
            task.add_done_callback(running.discard)
        # Only the scheduler's end cancels a job; it would log that as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await job.run()

    for job in jobs:
        scheduler.add_job(
            run, "interval", args=[job], seconds=job.seconds, id=job.name, name=job.name
        )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
        if running:
            await asyncio.wait(running)
