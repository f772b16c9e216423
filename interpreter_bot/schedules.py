"""Periodic jobs, and the times of people's schedules; the only home of apscheduler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import zoneinfo
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

_SECOND: Final = datetime.timedelta(seconds=1)
# Of a clock, in spring or autumn.
_MAX_CHANGE: Final = datetime.timedelta(hours=2)
# February 29 may take eight of them.
_MAX_WAIT: Final = datetime.timedelta(days=3653)
# As crontabs count them.
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class UnknownZoneError(ValueError):
    """There is no time zone of that name."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class Recurrence:
    """The times of a schedule.

    A time that a clock skips in spring comes as late as the clock jumps. One that it repeats in
    autumn comes once, unless the schedule is for every hour.

    Attributes:
        cron: a line of a crontab: minute, hour, day of the month, month, weekday.
        zone: IANA name of the time zone.
    """

    cron: str
    zone: str

    def after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the next time after a moment, in UTC; None if none comes in ten years.

        Raises:
            UnknownZoneError: there is no such zone.
            ValueError: the line is not understood.
        """
        from apscheduler.triggers import cron

        try:
            zone = zoneinfo.ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise UnknownZoneError(self.zone) from error
        minute, hour, day, month, weekday = self.cron.split()
        # Of the zone's clock as if it were never changed: the trigger leaves out days that begin
        # with such a change, and repeats what is repeated.
        clock = moment.astimezone(zone).replace(tzinfo=datetime.UTC) - _MAX_CHANGE
        trigger = cron.CronTrigger(
            minute=minute,
            hour=hour,
            day=day,
            month=month,
            day_of_week=_weekdays(weekday),
            timezone=datetime.UTC,
            end_date=clock + _MAX_WAIT,
        )
        due: datetime.datetime | None = None
        while True:
            # The trigger takes whole seconds, and the start itself.
            reading = trigger.get_next_fire_time(None, clock + _SECOND)
            if reading is None or reading == trigger.end_date:
                return due
            first, second = _instants(reading, zone)
            if due is not None and first > due:
                return due
            instants = (first, second) if hour.startswith("*") else (first,)
            due = min(
                filter(None, (due, *(time for time in instants if time > moment))), default=None
            )
            clock = reading


def _instants(
    reading: datetime.datetime, zone: zoneinfo.ZoneInfo
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return when a clock shows this for the first and the last time; mostly, this is once."""
    first, last = (
        reading.replace(tzinfo=zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1)
    )
    # What is skipped is shown by the clock as it was before.
    return first, max(first, last)


def _weekdays(field: str) -> str:
    """Name the weekdays of a crontab, whose weeks begin with Sunday, 0; those of the trigger with
    Monday.
    """
    if field == "*":
        return field
    names: list[str] = []
    for token in field.split(","):
        first, _, last = token.partition("-")
        begin, end = (_weekday(word) for word in (first, last or first))
        count = (end - begin) % 7 + 1
        names += [_WEEKDAYS[(begin + number) % 7] for number in range(count)]
    return ",".join(names)


def _weekday(word: str) -> int:
    if word.isdecimal() and int(word) <= len(_WEEKDAYS):
        return int(word) % len(_WEEKDAYS)
    return _WEEKDAYS.index(word[:3].lower())
