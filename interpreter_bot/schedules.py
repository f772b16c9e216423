"""Periodic jobs, and the times of people's schedules; the only home of apscheduler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import zoneinfo
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

_ONE_SECOND: Final = datetime.timedelta(seconds=1)
# The largest change of a clock in spring or autumn.
_MAX_CLOCK_CHANGE: Final = datetime.timedelta(hours=2)
# The next February 29 can be eight years away.
_SEARCHED_TIME: Final = datetime.timedelta(days=3653)
# In the order in which crontabs count them.
_WEEKDAY_NAMES: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class UnknownZoneError(ValueError):
    """There is no time zone of that name."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that runs again and again.

    Attributes:
        name: for the log.
        seconds: between two runs.
        run: runs the job once. An exception is logged, and does not end later runs.
    """

    name: str
    seconds: float
    run: Callable[[], Awaitable[object]]


@contextlib.asynccontextmanager
async def run_periodically(*jobs: PeriodicJob) -> AsyncIterator[None]:
    """Run jobs periodically in the context; its end cancels running jobs and waits for them."""
    # Imported here: most modules only describe jobs, and `exec` runs none.
    from apscheduler.schedulers import asyncio as schedulers

    # A late job runs once for all missed times, however late it is. By default, a run that would
    # begin more than a second late is dropped.
    scheduler = schedulers.AsyncIOScheduler(
        timezone="UTC", job_defaults={"coalesce": True, "misfire_grace_time": None}
    )
    running_tasks: set[asyncio.Task[Any]] = set()

    async def run(job: PeriodicJob) -> None:
        if (task := asyncio.current_task()) is not None:
            running_tasks.add(task)
            task.add_done_callback(running_tasks.discard)
        # Only the end of the context cancels a job, which the scheduler would log as an error.
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
        if running_tasks:
            await asyncio.wait(running_tasks)


@dataclasses.dataclass(frozen=True, slots=True)
class Recurrence:
    """The times of a schedule.

    If the clock skips a time in spring, the time comes later by the skipped span. If the clock
    repeats a time in autumn, the time comes once, unless the schedule is hourly.

    Attributes:
        cron: a line of a crontab: minute, hour, day of the month, month, weekday.
        zone: IANA name of the time zone.
    """

    cron: str
    zone: str

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the next time after a moment, in UTC; None if there is none within ten years.

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
        # The trigger gets the zone's clock times as if they were UTC. If it knew the zone, it would
        # skip days that begin with a clock change, and repeat the hours that the clock repeats.
        searched_from = moment.astimezone(zone).replace(tzinfo=datetime.UTC) - _MAX_CLOCK_CHANGE
        trigger = cron.CronTrigger(
            minute=minute,
            hour=hour,
            day=day,
            month=month,
            day_of_week=_name_weekdays(weekday),
            timezone=datetime.UTC,
            end_date=searched_from + _SEARCHED_TIME,
        )
        next_time: datetime.datetime | None = None
        while True:
            # The trigger counts whole seconds, and would return the same time again.
            clock_time = trigger.get_next_fire_time(None, searched_from + _ONE_SECOND)
            if clock_time is None or clock_time == trigger.end_date:
                return next_time
            first_moment, last_moment = _find_moments(clock_time, zone)
            if next_time is not None and first_moment > next_time:
                return next_time
            moments = (first_moment, last_moment) if hour.startswith("*") else (first_moment,)
            next_time = min(
                filter(
                    None, (next_time, *(candidate for candidate in moments if candidate > moment))
                ),
                default=None,
            )
            searched_from = clock_time


def _find_moments(
    clock_time: datetime.datetime, zone: zoneinfo.ZoneInfo
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return when a clock shows a time first and last; they differ only for a repeated time."""
    first_moment, last_moment = (
        clock_time.replace(tzinfo=zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1)
    )
    # For a skipped time, `fold=0` gives the later moment, as if the clock had not been changed.
    return first_moment, max(first_moment, last_moment)


def _name_weekdays(field: str) -> str:
    """Write the weekdays of a crontab as names.

    The trigger would misread numbers: its weeks begin with Monday, a crontab's with Sunday.
    """
    if field == "*":
        return field
    names: list[str] = []
    for token in field.split(","):
        first_day, _, last_day = token.partition("-")
        first_index, last_index = (
            _weekday_index(word) for word in (first_day, last_day or first_day)
        )
        count = (last_index - first_index) % 7 + 1
        names += [_WEEKDAY_NAMES[(first_index + offset) % 7] for offset in range(count)]
    return ",".join(names)


def _weekday_index(name_or_number: str) -> int:
    if name_or_number.isdecimal() and int(name_or_number) <= len(_WEEKDAY_NAMES):
        return int(name_or_number) % len(_WEEKDAY_NAMES)
    return _WEEKDAY_NAMES.index(name_or_number[:3].lower())
