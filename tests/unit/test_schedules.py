"""What is done by the clock, on machines that are late with it."""

import asyncio
import datetime
import logging
import zoneinfo

import pytest
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


def times(cron, zone, after, count):
    """The next times, as a clock in the zone shows them."""
    moment = datetime.datetime.fromisoformat(after).astimezone(datetime.UTC)
    shown = []
    for _ in range(count):
        moment = schedules.Recurrence(cron, zone).next_after(moment)
        shown.append(moment and f"{moment.astimezone(zoneinfo.ZoneInfo(zone)):%d %b %H:%M%z}")
    return shown


def test_a_time_that_a_clock_skips_comes_as_late_as_it_jumps():
    assert times("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", 2) == [
        "28 Mar 03:30+0200",
        "29 Mar 02:30+0200",
    ]
    # There, midnight is skipped.
    assert times("0 0 * * *", "Africa/Cairo", "2027-04-29T12:00Z", 2) == [
        "30 Apr 01:00+0300",
        "01 May 00:00+0300",
    ]


def test_a_time_that_a_clock_repeats_comes_once():
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == [
        "25 Oct 02:30+0200",
        "26 Oct 02:30+0100",
    ]


def test_what_comes_every_hour_comes_in_each_hour_that_there_is():
    assert times("0 * * * *", "Europe/Berlin", "2026-10-24T23:30Z", 3) == [
        "25 Oct 02:00+0200",
        "25 Oct 02:00+0100",
        "25 Oct 03:00+0100",
    ]
    assert times("0 * * * *", "Europe/Berlin", "2027-03-27T23:30Z", 3) == [
        "28 Mar 01:00+0100",
        "28 Mar 03:00+0200",
        "28 Mar 04:00+0200",
    ]


def test_every_weekday_at_nine_stays_at_nine_over_a_change_of_clocks():
    assert times("0 9 * * 1-5", "Europe/Berlin", "2026-10-22T12:00Z", 2) == [
        "23 Oct 09:00+0200",
        "26 Oct 09:00+0100",
    ]


@pytest.mark.parametrize(
    ("weekday", "days"),
    [("0", "SunSun"), ("7", "SunSun"), ("1", "MonMon"), ("fri-mon", "FriSat"), ("6,0", "SatSun")],
)
def test_weekdays_are_counted_as_crontabs_do(weekday, days):
    moment, shown = datetime.datetime(2026, 10, 22, 12, tzinfo=datetime.UTC), ""
    for _ in range(2):
        moment = schedules.Recurrence(f"0 9 * * {weekday}", "UTC").next_after(moment)
        shown += f"{moment:%a}"
    assert shown == days


def test_february_29_comes_in_leap_years_and_february_30_never():
    moment = schedules.Recurrence("0 9 29 2 *", "UTC").next_after(
        datetime.datetime(2028, 2, 29, 9, tzinfo=datetime.UTC)
    )
    assert moment == datetime.datetime(2032, 2, 29, 9, tzinfo=datetime.UTC)
    assert times("0 9 30 2 *", "UTC", "2026-01-01T00:00Z", 1) == [None]


@pytest.mark.parametrize("cron", ["0 25 * * *", "0 9 * *", "x 9 * * *", "0 9 * * 9", "*/0 9 * * *"])
def test_a_line_that_is_none_is_refused(cron):
    with pytest.raises(ValueError, match=r"."):
        times(cron, "UTC", "2026-01-01T00:00Z", 1)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "../etc/passwd", "/etc/passwd", "\0"])
def test_a_zone_that_is_none_is_refused(zone):
    with pytest.raises(schedules.UnknownZoneError):
        schedules.Recurrence("0 9 * * *", zone).next_after(datetime.datetime.now(datetime.UTC))
