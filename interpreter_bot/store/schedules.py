"""Schedules of people, and their runs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, preferences, records, transactions

_S = records.Schedule
_R = records.ScheduleRun
_MAX_RUNS: Final = 50
# Of a schedule: one runs, one waits.
_MAX_UNFINISHED: Final = 2
# Those that are claimed in one transaction.
_MAX_DUE: Final = 100


def is_unfinished(run_id: sa.SQLColumnExpression[int | None]) -> sa.ColumnElement[bool]:
    """Build the condition that a run is not over."""
    return run_id.in_(sa.select(_R.id).where(_R.ended.is_(None)))


class Schedules(transactions.Aggregate):
    """Tables of schedules and of their runs."""

    async def add(self, schedule: records.NewSchedule) -> int:
        """Add a schedule unless there is the same, and return its id.

        A bot that is killed after this, before it could say so, lets the next one add it again.
        """
        fields = {
            field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule)
        }
        fields |= dataclasses.asdict(fields.pop("key"))
        is_same = [getattr(_S, name) == value for name, value in fields.items() if name != "due"]
        same = sa.select(_S.id).where(*is_same, _S.due.is_not(None)).limit(1)
        insert = sa.insert(_S).values(**fields, reason="", failures=0, created=columns.now())
        async with self._transactions.together(is_writing=True):
            await self.lock_additions()
            if (number := await self._transactions.first(same)) is not None:
                return number
            return await self._transactions.one(insert.returning(_S.id))

    async def lock_additions(self) -> None:
        """Let no other transaction add a schedule until this one ends."""
        await self._transactions.lock("schedules")

    async def get(self, schedule_id: int) -> records.Schedule | None:
        """Return the schedule of that id."""
        return await self._transactions.first(sa.select(_S).where(_S.id == schedule_id))

    async def count(self, key: values.SessionKey, person: str = "") -> int:
        """Count the schedules of a person in the workspace of a session, or of its channel."""
        is_there = _is_in_workspace(key), _S.person == person if person else _is_in_channel(key)
        query = sa.select(sa.func.count()).select_from(_S).where(*is_there)
        return await self._transactions.one(query)

    async def list_visible(
        self, key: values.SessionKey, person: str
    ) -> tuple[records.Schedule, ...]:
        """Return the schedules of a session's channel, and others of a person in the workspace.

        Those of a private thread are only visible in it.
        """
        is_seen = ~_S.thread.startswith(values.private_thread("")) | (_S.thread == key.place.thread)
        is_there = (_is_in_channel(key) & is_seen) | (_S.person == person)
        query = sa.select(_S).where(_is_in_workspace(key), is_there).order_by(_S.id)
        return await self._transactions.all(query)

    async def list_all(self, *, limit: int) -> tuple[records.Schedule, ...]:
        """Return all schedules, the first ones first."""
        return await self._transactions.all(sa.select(_S).order_by(_S.id).limit(limit))

    async def set_due(
        self, schedule_id: int, due: datetime.datetime | None, reason: str = ""
    ) -> None:
        """Set the next time, or pause a schedule for a reason; failures are forgotten."""
        update = sa.update(_S).where(_S.id == schedule_id)
        await self._transactions.change(update.values(due=due, reason=reason, failures=0))

    async def delete(self, schedule_id: int) -> None:
        """Delete a schedule with its runs."""
        await self._transactions.change(sa.delete(_S).where(_S.id == schedule_id))

    async def delete_in(self, key: values.SessionKey) -> tuple[records.Schedule, ...]:
        """Delete the schedules of a session, and return them."""
        is_there = (getattr(_S, part) == value for part, value in dataclasses.asdict(key).items())
        return await self._transactions.all(sa.delete(_S).where(*is_there).returning(_S))

    async def erase(self, scope: values.Scope) -> None:
        """Delete the schedules of a workspace, a channel or a thread."""
        is_there = preferences.is_within(_S, scope)
        await self._transactions.change(sa.delete(_S).where(*is_there))

    async def list_due(
        self, now: datetime.datetime, platforms: Collection[str]
    ) -> tuple[records.Schedule, ...]:
        """Return schedules of some platforms that are due, the longest due first."""
        query = sa.select(_S).where(_S.due <= now, _S.platform.in_(platforms))
        return await self._transactions.all(query.order_by(_S.due, _S.id).limit(_MAX_DUE))

    async def claim(self, schedule: records.Schedule, following: datetime.datetime | None) -> bool:
        """Begin the run of a schedule that is due, and set its next time, in one transaction.

        Returns:
            Whether this call did: exactly one call does.
        """
        update = sa.update(_S).where(_S.id == schedule.id, _S.due == schedule.due)
        async with self._transactions.together(is_writing=True):
            is_first = await self._transactions.change(update.values(due=following)) == 1
            if is_first and schedule.due is not None:
                await self.begin_run(schedule.id, schedule.due)
            return is_first

    async def begin_run(self, schedule_id: int, due: datetime.datetime) -> bool:
        """Begin a run, unless there was one for that time, or one waits for another one's end.

        Returns:
            Whether this call did.
        """
        insert = self._transactions.insert(_R).values(schedule_id=schedule_id, due=due, sentence="")
        is_open = _R.schedule_id == schedule_id, _R.ended.is_(None)
        count = sa.select(sa.func.count()).select_from(_R).where(*is_open)
        lock = sa.select(_S.id).where(_S.id == schedule_id).with_for_update()
        async with self._transactions.together(is_writing=True):
            await self._transactions.first(lock)
            if await self._transactions.one(count) >= _MAX_UNFINISHED:
                return False
            return await self._transactions.change(insert.on_conflict_do_nothing()) == 1

    async def list_unfinished_runs(
        self, platforms: Collection[str]
    ) -> Sequence[tuple[records.ScheduleRun, records.Schedule]]:
        """Return the runs on some platforms that are not over, with their schedules."""
        is_open = _R.ended.is_(None), _S.platform.in_(platforms)
        return await self._runs(*is_open)

    async def find_run(
        self, run_id: int | None
    ) -> tuple[records.ScheduleRun, records.Schedule] | None:
        """Return a run with its schedule; None if that was deleted."""
        return next(iter(await self._runs(_R.id == run_id)), None)

    async def _runs(
        self, *conditions: sa.ColumnElement[bool]
    ) -> Sequence[tuple[records.ScheduleRun, records.Schedule]]:
        query = sa.select(_R, _S).join_from(_R, _S).where(*conditions).order_by(_R.id)
        return [(row[0], row[1]) for row in await self._transactions.rows(query)]

    async def list_runs(self, schedule_id: int, *, limit: int) -> tuple[records.ScheduleRun, ...]:
        """Return the latest runs of a schedule, the latest first."""
        query = sa.select(_R).where(_R.schedule_id == schedule_id).order_by(_R.due.desc())
        return await self._transactions.all(query.limit(limit))

    async def note_condition(self, run: records.ScheduleRun, *, holds: bool) -> bool:
        """Note whether an alert's condition is true; return whether it was at the run before."""
        earlier = sa.select(_R.holds).where(
            _R.schedule_id == run.schedule_id, _R.due < run.due, _R.holds.is_not(None)
        )
        update = sa.update(_R).where(_R.id == run.id).values(holds=holds)
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(update)
            former = await self._transactions.first(earlier.order_by(_R.due.desc()).limit(1))
        return bool(former)

    async def note_outcome(
        self, run_id: int | None, outcome: records.RunOutcome, sentence: str
    ) -> None:
        """Note how a run ended of which nothing else tells."""
        update = sa.update(_R).where(_R.id == run_id, _R.ended.is_(None))
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
        """End a run; if that many failed in a row, pause its schedule for a reason.

        Returns:
            Whether the schedule is paused by this.
        """
        ended = {"outcome": outcome, "sentence": sentence, "ended": columns.now()}
        end = sa.update(_R).where(_R.id == run.id, _R.ended.is_(None)).values(**ended)
        failures = {
            records.RunOutcome.FAILED: _S.failures + 1,
            records.RunOutcome.INTERRUPTED: _S.failures,
        }.get(outcome, sa.literal(0))
        count = sa.update(_S).where(_S.id == run.schedule_id).values(failures=failures)
        pause = sa.update(_S).where(
            _S.id == run.schedule_id, _S.due.is_not(None), _S.failures >= max_failures
        )
        latest = sa.select(_R.id).where(_R.schedule_id == run.schedule_id)
        latest = latest.order_by(_R.id.desc()).limit(_MAX_RUNS)
        is_old = _R.schedule_id == run.schedule_id, _R.id.not_in(latest), _R.ended.is_not(None)
        async with self._transactions.together(is_writing=True):
            if await self._transactions.change(end) != 1:
                return False
            await self._transactions.change(count)
            await self._transactions.change(sa.delete(_R).where(*is_old))
            return await self._transactions.change(pause.values(due=None, reason=reason)) == 1


def _is_in_workspace(key: values.SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(_S.platform == key.platform, _S.workspace == key.workspace)


def _is_in_channel(key: values.SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(_is_in_workspace(key), _S.channel == key.channel)
