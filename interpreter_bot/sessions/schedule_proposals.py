"""Proposals of schedules: a person confirms, edits or declines each."""

from __future__ import annotations

import asyncio
import datetime
import zoneinfo
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import (
    approvals,
    requests,
    schedule_texts,
    session_dependencies,
    turn_inputs,
    variable_uses,
)
from interpreter_bot.store import columns, records
from interpreter_bot.wording import schedule_words

PLATFORMS: Final = frozenset({"slack", "discord", "web"})
"""Platforms that can show people a turn that does not answer a message."""
_TIMES_ON_CARD: Final = 3
_MAX_CELLS: Final = 300
_MAX_SCHEDULES_PER_CHANNEL: Final = 20


def can_propose(services: session_dependencies.SessionDependencies, platform: str) -> bool:
    """Return whether people can set up schedules on a platform."""
    return platform in PLATFORMS and services.config.schedules.per_person > 0


def format_time(moment: datetime.datetime, zone: str) -> str:
    """Format a time as a clock in a zone shows it."""
    try:
        moment = moment.astimezone(zoneinfo.ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        # The system's list of zones may have changed.
        moment, zone = moment.astimezone(datetime.UTC), "UTC"
    return f"{moment:%a %-d %b %Y %H:%M} ({zone})"


class Proposals:
    """Asks the person of a turn whether a schedule is to be set up in its session."""

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        all_approvals: approvals.Approvals,
        request: requests.Request,
        session: records.Session,
    ) -> None:
        self._services = services
        self._approvals = all_approvals
        self._request = request
        self._session = session

    async def propose(self, text: str) -> str:
        """Ask until a schedule is confirmed without edits, or declined; return the outcome.

        Raises:
            BotError: the schedule is not understood, or not possible; the sentence says why.
        """
        zone = self._request.person.zone
        while True:
            now = columns.now()
            plan = schedule_texts.parse(text, zone=zone, now=now)
            await self._check_counts()
            code = (
                "" if plan.kind is records.ScheduleKind.PROMPT else await self._load_refresh_code()
            )
            model = "" if code else await self._find_model()
            facts = await self._describe(plan, model, now)
            answer = await self._approvals.obtain(
                "schedule", plan.text, facts=facts, is_personal=True
            )
            if answer is None:
                return schedule_words.PROPOSAL_DECLINED
            if answer.edited in (None, plan.text):
                return await self._add(plan, code, model)
            text = answer.edited or ""

    async def _add(self, plan: schedule_texts.Plan, code: str, model: str) -> str:
        due = plan.recurrence.next_after(columns.now())
        if due is None:
            raise errors.BotError(schedule_words.never_occurs(plan.times))
        schedule = records.NewSchedule(
            key=self._request.key,
            person=self._request.person.id,
            kind=plan.kind,
            times=plan.times,
            cron=plan.recurrence.cron,
            zone=plan.recurrence.zone,
            task=plan.task,
            code=code,
            condition=plan.condition,
            model=model,
            due=due,
        )
        async with self._services.database.transaction(is_writing=True):
            # Checked again, because others may have been confirmed meanwhile.
            await self._services.database.schedules.lock_additions()
            await self._check_counts()
            number = await self._services.database.schedules.add(schedule)
        return schedule_words.schedule_set_up(number, format_time(due, schedule.zone))

    async def _check_counts(self) -> None:
        """Raise an error if the person or the channel can have no more schedules."""
        limits, schedules = self._services.config.schedules, self._services.database.schedules
        if await schedules.count(self._request.key, self._request.person.id) >= limits.per_person:
            raise errors.BotError(schedule_words.too_many_of_person(limits.per_person))
        if await schedules.count(self._request.key) >= _MAX_SCHEDULES_PER_CHANNEL:
            raise errors.BotError(schedule_words.too_many_in_place(_MAX_SCHEDULES_PER_CHANNEL))

    async def _load_refresh_code(self) -> str:
        """Return the code that made the latest answer for which code ran."""
        executions = await self._services.database.executions.list_for_session(
            self._session.id, limit=_MAX_CELLS
        )
        executions = tuple(
            execution for execution in executions if execution.ending is values.Ending.OK
        )
        if not executions:
            raise errors.BotError(schedule_words.NOTHING_TO_REFRESH)
        count = sum(execution.turn_id == executions[0].turn_id for execution in executions)
        codes = [execution.code for execution in executions]
        # In a thread, because parsing hundreds of cells takes long.
        needed_cells = await asyncio.to_thread(variable_uses.find_needed_cells, codes, count)
        code = "\n\n".join(needed_cells)
        if len(code) > requests.MAX_CHARACTERS:
            raise errors.BotError(schedule_words.CODE_TOO_LONG)
        return code

    async def _find_model(self) -> str:
        """Return the title of the model that the session uses."""
        choices = await self._services.places.choices(self._request.scope)
        titles = self._services.catalogue.titles
        title = self._request.model or turn_inputs.choose_session_model(
            self._session, choices, titles
        )
        if not title:
            raise errors.BotError(schedule_words.NO_MODEL)
        return title

    async def _describe(self, plan: schedule_texts.Plan, model: str, now: datetime.datetime) -> str:
        """Return the facts below the schedule on its card."""
        zone = self._request.person.zone or plan.recurrence.zone
        times = schedule_texts.next_times(plan.recurrence, now, _TIMES_ON_CARD)
        lines = [
            schedule_words.next_times(", ".join(format_time(time, zone) for time in times)),
            schedule_words.KIND_DESCRIPTIONS.get(plan.kind) or schedule_words.asks_model(model),
        ]
        if model:
            turns = await self._services.database.turns.list_for_session(self._session.id, limit=10)
            usages = await self._services.database.usage.sum_for_turns([turn.id for turn in turns])
            latest = next((usages[turn.id] for turn in turns[::-1] if turn.id in usages), None)
            if latest is not None and latest.tokens:
                lines.append(schedule_words.last_cost(latest))
        return "\n".join(lines)
