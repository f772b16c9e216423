"""What is done by the clock, on machines that are late with it."""

import asyncio
import datetime

from apscheduler.executors import base

from interpreter_bot import schedules


async def test_a_job_that_is_hours_late_runs_late_rather_than_never(monkeypatch):
    class Late(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + datetime.timedelta(hours=5)

    monkeypatch.setattr(base, "datetime", Late)
    has_run = asyncio.Event()

    async def run():
        has_run.set()

    async with (
        schedules.run_periodically(schedules.PeriodicJob("late", 0.05, run)),
        asyncio.timeout(30),
    ):
        await has_run.wait()
