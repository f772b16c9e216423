"""Schedules: each of their times has one run, which is shown in the session of the schedule.

A due schedule is claimed: one transaction stores its run and its next time. The run becomes a
request, which the platform shows. When its turn has ended, the run's outcome is recorded.

The active bot does all of this. If it dies, the next bot begins the runs that have no turn; a turn
that had begun is resumed like any other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, schedules, settings, values
from interpreter_bot.sessions import (
    lanes,
    questions,
    requests,
    schedule_proposals,
    session_dependencies,
    suspended_turns,
)
from interpreter_bot.store import columns, records
from interpreter_bot.wording import run_words, schedule_words

_log = logging.getLogger(__name__)

MAX_FAILURES: Final = 3
"""After this many failed runs in a row a schedule is paused."""
_CHECK_INTERVAL_SECONDS: Final = 2.0
_MAX_CLOSING_SECONDS: Final = 5.0
_LATE_AFTER: Final = datetime.timedelta(minutes=1)
# Workspaces that are copied at a time.
_MAX_COPIES: Final = 4
_MAX_LISTED: Final = 100
_MAX_RUNS: Final = 10
_OUTCOMES: Final = {
    values.TurnStatus.DONE: records.RunOutcome.DONE,
    values.TurnStatus.INTERRUPTED: records.RunOutcome.INTERRUPTED,
}

FindOwnerRefusal: TypeAlias = Callable[[values.SessionKey, str], Awaitable[str]]
"""Returns why a person may no longer use the bot in a session's place; empty if they may.

A `BotError` says why this is unknown.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """A platform's part in schedules.

    Attributes:
        show: runs a request, and shows its turn in its session's place.
        find_owner_refusal: returns why the owner may no longer use the bot there, or nothing.
    """

    show: suspended_turns.GoOn
    find_owner_refusal: FindOwnerRefusal


class Schedules:
    """The schedules of all platforms.

    Attributes:
        now: returns the present time.
        run_tasks: of the runs that this bot carries out, by id.
    """

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        all_lanes: lanes.Lanes,
        notify: Callable[[values.SessionKey, str], Awaitable[object]],
    ) -> None:
        self.now: Callable[[], datetime.datetime] = columns.now
        self._services = services
        self._table = services.database.schedules
        self._lanes = all_lanes
        self._notify = notify
        self._platforms: dict[str, Platform] = {}
        self.run_tasks: dict[int, asyncio.Task[None]] = {}
        self._copy_semaphore = asyncio.Semaphore(_MAX_COPIES)

    @property
    def limits(self) -> settings.Schedules:
        """The limits of schedules."""
        return self._services.config.schedules

    def describe(self, schedule: records.Schedule) -> str:
        """Describe a schedule in a line of a list."""
        state = schedule_words.paused_state(schedule.reason)
        if schedule.due is not None:
            state = schedule_words.next_run(
                schedule_proposals.format_time(schedule.due, schedule.zone)
            )
        return schedule_words.list_entry(schedule.times, schedule.task, state)

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return the periodic job of the active bot."""
        return (schedules.PeriodicJob("fire schedules", _CHECK_INTERVAL_SECONDS, self.fire),)

    def open_platform(self, name: str, platform: Platform) -> None:
        """Run the schedules of a platform from now on."""
        self._platforms[name] = platform

    async def close(self) -> None:
        """Wait a moment for runs to finish; unfinished ones are left to the next bot."""
        tasks = self.run_tasks.values()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=_MAX_CLOSING_SECONDS)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    # Firing -------------------------------------------------------------------------------

    async def fire(self) -> None:
        """Claim due schedules, and carry out the unfinished runs.

        Raises:
            StoreError: the database cannot be used.
        """
        if self._lanes.is_closed:
            return
        now = self.now()
        async with self._services.database.transaction(is_writing=True):
            for schedule in await self._table.list_due(now, self._platforms):
                # One run stands for all times that were missed.
                await self._table.claim(schedule, _next_time(schedule, now))
        busy_schedule_ids: set[int] = set()
        for run, schedule in await self._table.list_unfinished_runs(self._platforms):
            # One run of a schedule at a time, as all its runs share a session.
            if schedule.id not in busy_schedule_ids and run.id not in self.run_tasks:
                self._begin_task(run, schedule)
            busy_schedule_ids.add(schedule.id)

    def _begin_task(self, run: records.ScheduleRun, schedule: records.Schedule) -> None:
        task = asyncio.create_task(
            self._log_failures(run, schedule), name=f"run {run.id} of schedule {schedule.id}"
        )
        self.run_tasks[run.id] = task
        task.add_done_callback(lambda _: self.run_tasks.pop(run.id))

    async def _log_failures(self, run: records.ScheduleRun, schedule: records.Schedule) -> None:
        try:
            await self._carry_out(run, schedule)
        except errors.StoreError:
            _log.exception("run %d of a schedule will be tried again", run.id)
        except Exception:
            # Any other error fails this run, so that it is not tried for ever; the others go on.
            _log.exception("run %d of a schedule ended in an error", run.id)
            outcome = records.RunOutcome.FAILED
            await self._finish(run, schedule, outcome, run_words.BOT_FAULT)

    async def _carry_out(self, run: records.ScheduleRun, schedule: records.Schedule) -> None:
        """Begin a run unless its turn has begun, and record its outcome once the turn has ended."""
        turns, sentence = self._services.database.turns, ""
        turn = await turns.find_by_schedule_run(run.id)
        if turn is None and run.outcome is None:
            sentence = await self._begin(run, schedule)
            turn = await turns.find_by_schedule_run(run.id)
            stored = await self._table.find_run(run.id)
            if stored is None:
                # The schedule was deleted.
                return
            run, _ = stored
        if turn is not None and turn.status is values.TurnStatus.RUNNING:
            return
        if run.outcome is not None:
            await self._finish(run, schedule, run.outcome, run.sentence)
        elif turn is not None:
            outcome = _OUTCOMES.get(turn.status, records.RunOutcome.FAILED)
            is_done = outcome is records.RunOutcome.DONE
            await self._finish(run, schedule, outcome, "" if is_done else turn.answer)
        elif not self._lanes.is_closed:
            await self._finish(run, schedule, records.RunOutcome.FAILED, sentence)
            await self._notify(schedule.key, schedule_words.run_failed(schedule.id, sentence))

    async def _begin(self, run: records.ScheduleRun, schedule: records.Schedule) -> str:
        """Carry out the request of a run; return a sentence if the turn could not begin."""
        platform = self._platforms[schedule.platform]
        try:
            if refusal := await platform.find_owner_refusal(schedule.key, schedule.person):
                await self._table.note_outcome(run.id, records.RunOutcome.FAILED, refusal)
                await self._pause(schedule, refusal)
                return refusal
            if schedule.code:
                await self._copy_files(schedule)
            await platform.show(self._request(run, schedule))
        except errors.StoreError:
            raise
        except errors.BotError as error:
            _log.info("a schedule did not run", exc_info=error)
            return str(error)
        return ""

    async def _copy_files(self, schedule: records.Schedule) -> None:
        """Copy the files of a schedule's session to that of its runs, which gets a new kernel."""
        hosts, database = self._services.hosts, self._services.database
        key, runs_key = schedule.key, schedule.runs_key
        runs_key_text = values.format_key(runs_key)
        turn = self._lanes.turn(key, person=schedule.person, on_position=lambda _: None)
        # In this order, as a turn in the lane may wait for a person for long.
        async with turn, self._copy_semaphore:
            await hosts.forget(runs_key_text)
            await hosts.fork(values.format_key(key), runs_key_text)
        await hosts.release(runs_key_text)
        session = await database.sessions.open(runs_key)
        await database.sessions.note_kernel(session.id, {})
        await database.sessions.set_title(session.id, schedule.task)

    def _request(
        self,
        run: records.ScheduleRun,
        schedule: records.Schedule,
    ) -> requests.Request:
        is_late = self.now() - run.due > _LATE_AFTER
        planned_time = schedule_proposals.format_time(run.due, schedule.zone) if is_late else ""
        return requests.Request(
            key=schedule.runs_key,
            person=requests.Person(schedule.person),
            text=schedule.code or schedule.task,
            is_code=bool(schedule.code),
            id=questions.question_id(0, run.id, "schedule run", ""),
            schedule_run_id=run.id,
            model=schedule.model,
            # Code was approved with the schedule, and its `input()` would wait for ever.
            is_attended=not schedule.code,
            notice=schedule_words.run_heading(schedule.id, schedule.task, planned_time),
        )

    async def _finish(
        self,
        run: records.ScheduleRun,
        schedule: records.Schedule,
        outcome: records.RunOutcome,
        sentence: str,
    ) -> None:
        if schedule.code:
            try:
                await self._services.hosts.release(values.format_key(schedule.runs_key))
            except errors.BotError:
                # Its host may be away for long, and the next run deletes the kernel anyway.
                _log.warning("the kernel of a schedule's run was not ended", exc_info=True)
        reason = schedule_words.paused_after_failures(MAX_FAILURES, sentence)
        if await self._table.finish_run(
            run, outcome, sentence, reason=reason, max_failures=MAX_FAILURES
        ):
            await self._notify(schedule.key, schedule_words.schedule_paused(schedule.id, reason))

    async def _pause(self, schedule: records.Schedule, reason: str) -> None:
        """Pause a schedule, and notify people of the reason."""
        await self._table.set_due(schedule.id, None, reason)
        await self._notify(schedule.key, schedule_words.schedule_paused(schedule.id, reason))

    async def pause_owner_schedules(self, key: values.SessionKey, person: str, reason: str) -> None:
        """Pause a person's schedules in a channel that they may no longer use."""
        for schedule in await self._table.list_visible(key, person):
            is_affected = (schedule.person, schedule.channel) == (person, key.channel)
            if is_affected and schedule.due is not None:
                await self._pause(schedule, reason)

    # Commands -----------------------------------------------------------------------------

    async def visible(self, key: values.SessionKey, person: str) -> Sequence[records.Schedule]:
        """Return the schedules of a session's channel, and the person's in other channels.

        On platforms without schedules, such as the terminal, these are all schedules.
        """
        if key.platform in schedule_proposals.PLATFORMS:
            return await self._table.list_visible(key, person)
        return await self._table.list_all(limit=_MAX_LISTED)

    async def find(
        self, key: values.SessionKey, person: str, number: str, *, is_admin: bool
    ) -> records.Schedule:
        """Return a schedule that a person may change.

        Raises:
            BotError: there is no schedule of that number, or it is somebody else's.
        """
        for schedule in await self._table.list_visible(key, person):
            if str(schedule.id) == number:
                if schedule.person != person and not is_admin:
                    raise errors.BotError(schedule_words.NOT_YOURS)
                return schedule
        raise errors.BotError(schedule_words.unknown_schedule(number))

    async def pause(self, schedule: records.Schedule) -> None:
        """Pause a schedule."""
        await self._table.set_due(schedule.id, None, schedule_words.PAUSED_BY_PERSON)

    async def resume(self, schedule: records.Schedule) -> str:
        """Resume a paused schedule; return its next time.

        Raises:
            BotError: there is no further time.
        """
        next_time = _next_time(schedule, self.now())
        if next_time is None:
            raise errors.BotError(schedule_words.NEVER_AGAIN)
        await self._table.set_due(schedule.id, next_time)
        return schedule_proposals.format_time(next_time, schedule.zone)

    async def run_now(self, schedule: records.Schedule) -> None:
        """Run a schedule now, in addition to its times.

        Raises:
            BotError: a run waits already.
        """
        if not await self._table.begin_run(schedule.id, self.now()):
            raise errors.BotError(schedule_words.RUN_WAITS)
        await self.fire()

    async def delete(self, schedule: records.Schedule) -> None:
        """Delete a schedule; the turns of its runs stay."""
        await self._table.delete(schedule.id)

    async def history(self, schedule: records.Schedule) -> Sequence[tuple[str, str]]:
        """Return times and outcomes of the latest runs, the latest first."""
        return [
            (
                schedule_proposals.format_time(run.due, schedule.zone),
                schedule_words.run_ended(run.outcome if run.ended else None, run.sentence),
            )
            for run in await self._table.list_runs(schedule.id, limit=_MAX_RUNS)
        ]


def _next_time(schedule: records.Schedule, now: datetime.datetime) -> datetime.datetime | None:
    try:
        return schedules.Recurrence(schedule.cron, schedule.zone).next_after(now)
    except ValueError as error:
        # The system knew the zone when the schedule was set up.
        _log.warning("schedule %d has no next time", schedule.id, exc_info=error)
        return None
