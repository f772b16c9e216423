"""Schedules of people, and their runs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, preferences, records, transactions

_SCHEDULES = records.Schedule
_RUNS = records.ScheduleRun
_MAX_RUNS: Final = 50
# Of a schedule: one runs, one waits.
_MAX_UNFINISHED_RUNS: Final = 2
# Those that are claimed in one transaction.
_MAX_DUE: Final = 100


def is_unfinished(run_id: sa.SQLColumnExpression[int | None]) -> sa.ColumnElement[bool]:
    """Build the condition that a run has not ended."""
    return run_id.in_(sa.select(_RUNS.id).where(_RUNS.ended.is_(None)))


class Schedules(transactions.Aggregate):
    """Tables of schedules and of their runs."""

    async def add(self, schedule: records.NewSchedule) -> int:
        """Add a schedule unless the same one exists, and return its id.

        If a bot is killed before it reports the addition, the next bot adds the schedule again.
        """
        fields = {
            field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule)
        }
        fields |= dataclasses.asdict(fields.pop("key"))
        is_same = [
            getattr(_SCHEDULES, name) == value for name, value in fields.items() if name != "due"
        ]
        existing = sa.select(_SCHEDULES.id).where(*is_same, _SCHEDULES.due.is_not(None)).limit(1)
        insert = sa.insert(_SCHEDULES).values(
            **fields, reason="", failures=0, created=columns.now()
        )
        async with self._transactions.transaction(is_writing=True):
            await self.lock_additions()
            if (schedule_id := await self._transactions.first(existing)) is not None:
                return schedule_id
            return await self._transactions.one(insert.returning(_SCHEDULES.id))

    async def lock_additions(self) -> None:
        """Let no other transaction add a schedule until this one ends."""
        await self._transactions.lock("schedules")

    async def get(self, schedule_id: int) -> records.Schedule | None:
        """Return the schedule of that id."""
        return await self._transactions.first(
            sa.select(_SCHEDULES).where(_SCHEDULES.id == schedule_id)
        )

    async def count(self, key: values.SessionKey, person: str = "") -> int:
        """Count a person's schedules in the workspace of a session; without one, its channel's."""
        is_there = (
            _is_in_workspace(key),
            _SCHEDULES.person == person if person else _is_in_channel(key),
        )
        query = sa.select(sa.func.count()).select_from(_SCHEDULES).where(*is_there)
        return await self._transactions.one(query)

    async def list_visible(
        self, key: values.SessionKey, person: str
    ) -> tuple[records.Schedule, ...]:
        """Return the schedules of a session's channel, and all of a person in the workspace.

        Schedules of a private thread are visible to others only in that thread.
        """
        is_seen = ~_SCHEDULES.thread.startswith(values.private_thread("")) | (
            _SCHEDULES.thread == key.place.thread
        )
        is_there = (_is_in_channel(key) & is_seen) | (_SCHEDULES.person == person)
        query = sa.select(_SCHEDULES).where(_is_in_workspace(key), is_there).order_by(_SCHEDULES.id)
        return await self._transactions.all(query)

    async def list_all(self, *, limit: int) -> tuple[records.Schedule, ...]:
        """Return all schedules, the oldest first."""
        return await self._transactions.all(
            sa.select(_SCHEDULES).order_by(_SCHEDULES.id).limit(limit)
        )

    async def set_due(
        self, schedule_id: int, due: datetime.datetime | None, reason: str = ""
    ) -> None:
        """Set the next time, or pause a schedule for a reason; reset its count of failures."""
        update = sa.update(_SCHEDULES).where(_SCHEDULES.id == schedule_id)
        await self._transactions.change(update.values(due=due, reason=reason, failures=0))

    async def delete(self, schedule_id: int) -> None:
        """Delete a schedule with its runs."""
        await self._transactions.change(sa.delete(_SCHEDULES).where(_SCHEDULES.id == schedule_id))

    async def delete_for_session(self, key: values.SessionKey) -> tuple[records.Schedule, ...]:
        """Delete the schedules of a session, and return them."""
        is_there = (
            getattr(_SCHEDULES, part) == value for part, value in dataclasses.asdict(key).items()
        )
        return await self._transactions.all(
            sa.delete(_SCHEDULES).where(*is_there).returning(_SCHEDULES)
        )

    async def erase(self, scope: values.Scope) -> None:
        """Delete the schedules of a workspace, a channel or a thread."""
        is_there = preferences.is_within_scope(_SCHEDULES, scope)
        await self._transactions.change(sa.delete(_SCHEDULES).where(*is_there))

    async def list_due(
        self, now: datetime.datetime, platforms: Collection[str]
    ) -> tuple[records.Schedule, ...]:
        """Return schedules of some platforms that are due, the earliest time first."""
        query = sa.select(_SCHEDULES).where(
            _SCHEDULES.due <= now, _SCHEDULES.platform.in_(platforms)
        )
        return await self._transactions.all(
            query.order_by(_SCHEDULES.due, _SCHEDULES.id).limit(_MAX_DUE)
        )

    async def claim(self, schedule: records.Schedule, next_due: datetime.datetime | None) -> bool:
        """Begin the run of a schedule that is due, and set its next time, in one transaction.

        Returns:
            True for exactly one caller.
        """
        update = sa.update(_SCHEDULES).where(
            _SCHEDULES.id == schedule.id, _SCHEDULES.due == schedule.due
        )
        async with self._transactions.transaction(is_writing=True):
            is_claimed = await self._transactions.change(update.values(due=next_due)) == 1
            if is_claimed and schedule.due is not None:
                await self.begin_run(schedule.id, schedule.due)
            return is_claimed

    async def begin_run(self, schedule_id: int, due: datetime.datetime) -> bool:
        """Begin a run, unless that time had one already, or another run waits.

        Returns:
            Whether the run has begun.
        """
        insert = self._transactions.insert(_RUNS).values(
            schedule_id=schedule_id, due=due, sentence=""
        )
        is_open = _RUNS.schedule_id == schedule_id, _RUNS.ended.is_(None)
        count = sa.select(sa.func.count()).select_from(_RUNS).where(*is_open)
        lock = sa.select(_SCHEDULES.id).where(_SCHEDULES.id == schedule_id).with_for_update()
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.first(lock)
            if await self._transactions.one(count) >= _MAX_UNFINISHED_RUNS:
                return False
            return await self._transactions.change(insert.on_conflict_do_nothing()) == 1

    async def list_unfinished_runs(
        self, platforms: Collection[str]
    ) -> Sequence[tuple[records.ScheduleRun, records.Schedule]]:
        """Return the unfinished runs on some platforms, with their schedules."""
        is_open = _RUNS.ended.is_(None), _SCHEDULES.platform.in_(platforms)
        return await self._runs(*is_open)

    async def find_run(
        self, run_id: int | None
    ) -> tuple[records.ScheduleRun, records.Schedule] | None:
        """Return a run with its schedule; None if the schedule was deleted."""
        return next(iter(await self._runs(_RUNS.id == run_id)), None)

    async def _runs(
        self, *conditions: sa.ColumnElement[bool]
    ) -> Sequence[tuple[records.ScheduleRun, records.Schedule]]:
        query = (
            sa.select(_RUNS, _SCHEDULES)
            .join_from(_RUNS, _SCHEDULES)
            .where(*conditions)
            .order_by(_RUNS.id)
        )
        return [(row[0], row[1]) for row in await self._transactions.rows(query)]

    async def list_runs(self, schedule_id: int, *, limit: int) -> tuple[records.ScheduleRun, ...]:
        """Return the latest runs of a schedule, the latest first."""
        query = sa.select(_RUNS).where(_RUNS.schedule_id == schedule_id).order_by(_RUNS.due.desc())
        return await self._transactions.all(query.limit(limit))

    async def note_condition(self, run: records.ScheduleRun, *, holds: bool) -> bool:
        """Record whether an alert's condition holds; return whether it held in the run before."""
        earlier = sa.select(_RUNS.holds).where(
            _RUNS.schedule_id == run.schedule_id, _RUNS.due < run.due, _RUNS.holds.is_not(None)
        )
        update = sa.update(_RUNS).where(_RUNS.id == run.id).values(holds=holds)
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.change(update)
            held_before = await self._transactions.first(
                earlier.order_by(_RUNS.due.desc()).limit(1)
            )
        return bool(held_before)

    async def note_outcome(
        self, run_id: int | None, outcome: records.RunOutcome, sentence: str
    ) -> None:
        """Record the outcome of a run before it is finished."""
        update = sa.update(_RUNS).where(_RUNS.id == run_id, _RUNS.ended.is_(None))
        await self._transactions.change(update.values(outcome=outcome, sentence=sentence))

    async def finish_run(
        self,
        run: records.ScheduleRun,
        outcome: records.RunOutcome,
        sentence: str,
        *,
        reason: str,
        max_failures: int,
    ) -> bool:
        """End a run, and pause its schedule for a reason after `max_failures` in a row.

        Returns:
            Whether this call paused the schedule.
        """
        end_fields = {"outcome": outcome, "sentence": sentence, "ended": columns.now()}
        end = sa.update(_RUNS).where(_RUNS.id == run.id, _RUNS.ended.is_(None)).values(**end_fields)
        failures = {
            records.RunOutcome.FAILED: _SCHEDULES.failures + 1,
            records.RunOutcome.INTERRUPTED: _SCHEDULES.failures,
        }.get(outcome, sa.literal(0))
        set_failures = (
            sa.update(_SCHEDULES).where(_SCHEDULES.id == run.schedule_id).values(failures=failures)
        )
        pause = sa.update(_SCHEDULES).where(
            _SCHEDULES.id == run.schedule_id,
            _SCHEDULES.due.is_not(None),
            _SCHEDULES.failures >= max_failures,
        )
        latest = sa.select(_RUNS.id).where(_RUNS.schedule_id == run.schedule_id)
        latest = latest.order_by(_RUNS.id.desc()).limit(_MAX_RUNS)
        is_old = (
            _RUNS.schedule_id == run.schedule_id,
            _RUNS.id.not_in(latest),
            _RUNS.ended.is_not(None),
        )
        async with self._transactions.transaction(is_writing=True):
            if await self._transactions.change(end) != 1:
                return False
            await self._transactions.change(set_failures)
            await self._transactions.change(sa.delete(_RUNS).where(*is_old))
            return await self._transactions.change(pause.values(due=None, reason=reason)) == 1


def _is_in_workspace(key: values.SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(_SCHEDULES.platform == key.platform, _SCHEDULES.workspace == key.workspace)


def _is_in_channel(key: values.SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(_is_in_workspace(key), _SCHEDULES.channel == key.channel)
