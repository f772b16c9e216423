"""What is done by the clock, on machines that are late with it."""

import asyncio
import datetime
import logging

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


async def test_the_end_waits_for_a_job_that_it_cancels_and_logs_no_error(caplog):
    has_begun, steps = asyncio.Event(), []

    async def run():
        has_begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("closed")

    async with (
        asyncio.timeout(30),
        schedules.run_periodically(schedules.PeriodicJob("find orphans", 0.01, run)),
    ):
        await has_begun.wait()
    assert steps == ["closed"]
    await asyncio.sleep(0.05)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
