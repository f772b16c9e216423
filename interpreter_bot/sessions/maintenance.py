"""Periodic maintenance of sessions: idle warnings, interrupted turns, unreferenced content."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Sequence
from typing import Final

from interpreter_bot import schedules, values
from interpreter_bot.sessions import (
    jobs,
    session_dependencies,
    session_service,
    suspended_turns,
)
from interpreter_bot.store import records
from interpreter_bot.text import quantities
from interpreter_bot.wording import session_words

_WARN_INTERVAL_SECONDS: Final = 15.0
# The time of a kernel's last use is computed anew each time, and varies by less than this.
_TOLERANCE_SECONDS: Final = 1.0
_SEND_INTERVAL_SECONDS: Final = 5.0
_WRITE_RETRY_INTERVAL_SECONDS: Final = 20.0
_WARNING_LEAD_SECONDS: Final = 5 * 60.0
_PRUNE_INTERVAL_SECONDS: Final = 3600.0
_MAX_AGE: Final = datetime.timedelta(days=1)


class Maintenance:
    """Periodic jobs, outside of any turn."""

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        service: session_service.SessionService,
    ) -> None:
        self._services = services
        self._service = service
        self._warned_last_uses: dict[str, float] = {}

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return all periodic jobs."""
        return (
            schedules.PeriodicJob("warn of idle kernels", _WARN_INTERVAL_SECONDS, self.warn_idle),
            schedules.PeriodicJob(
                "send waiting notifications", _SEND_INTERVAL_SECONDS, self._service.send_unsent
            ),
            schedules.PeriodicJob(
                "retry failed writes",
                _WRITE_RETRY_INTERVAL_SECONDS,
                self._services.write_retries.write,
            ),
            schedules.PeriodicJob("prune the store", _PRUNE_INTERVAL_SECONDS, self.prune),
        )

    async def warn_idle(self) -> int:
        """Warn people once before their idle kernel is ended; return the number of warnings."""
        kernels = self._services.config.kernels
        keeps_variables = self._services.hosts.keeps_variables
        statuses = await self._services.hosts.statuses()
        now = time.monotonic()
        self._warned_last_uses = {
            key_text: last_use
            for key_text, last_use in self._warned_last_uses.items()
            if key_text in statuses
        }
        warning_count = 0
        for key_text, status in statuses.items():
            idle_seconds = status.idle_seconds
            last_use = now - idle_seconds
            key = values.parse_key(key_text)
            is_due = (
                kernels.idle_seconds - _WARNING_LEAD_SECONDS <= idle_seconds < kernels.idle_seconds
            )
            if (
                not is_due
                or abs(self._warned_last_uses.get(key_text, -math.inf) - last_use)
                < _TOLERANCE_SECONDS
            ):
                continue
            if not (status.loss_reason or self._service.is_busy(key)):
                self._warned_last_uses[key_text] = last_use
                remaining = _rounded_duration(kernels.idle_seconds - idle_seconds)
                idle_duration = _rounded_duration(idle_seconds)
                sentence = session_words.idle_warning(
                    idle_duration, remaining, keeps_variables=keeps_variables
                )
                await self._service.notify(key, sentence)
                warning_count += 1
        return warning_count

    async def take_over(
        self, orphans: Sequence[records.Turn], unshown: Sequence[records.Turn] = ()
    ) -> None:
        """Resume turns of dead bots; of the others, notify their people once a session.

        Args:
            orphans: of `Turns.take_orphans`.
            unshown: of `Turns.list_unshown`; their messages are completed.
        """
        database, questions = self._services.database, self._services.questions
        await questions.load()
        notified_ids = set()
        for turn in orphans:
            session = await database.sessions.get(turn.session_id)
            progress = suspended_turns.Progress.of(turn)
            if session is None:
                continue
            if progress is not None:
                self._service.resumptions.add(progress.request(turn, session.key))
                continue
            keeps_question = questions.forget(turn.id)
            await database.turns.finish(
                turn.id, values.TurnStatus.INTERRUPTED, keeps_question=keeps_question
            )
            if await database.deliveries.list_for_request(session.platform, turn.request_id):
                # The messages of the turn still show it as running.
                await self._show_end(turn, session.key)
            if session.id not in notified_ids:
                notified_ids.add(session.id)
                await self._service.notify(session.key, session_words.ANSWER_INTERRUPTED)
        # In a session whose turn goes on, no older answer is completed beside it.
        busy_sessions = {turn.session_id for turn in orphans}
        for turn in unshown:
            session = await database.sessions.get(turn.session_id)
            if session is not None and session.id not in busy_sessions:
                await self._show_end(turn, session.key)

    async def _show_end(self, turn: records.Turn, key: values.SessionKey) -> None:
        """Complete the messages of a turn that has ended."""
        database = self._services.database
        executions = await database.executions.list_for_turn(turn.id)
        # The turn of a job is recorded right after that of the turn that began the job.
        earlier = await database.turns.list_for_session(turn.session_id, limit=1, before=turn.id)
        progress = suspended_turns.Progress(
            is_code=turn.request in [execution.code for execution in executions[:1]],
            is_job=any(jobs.is_job_of(origin.id, turn.request_id) for origin in earlier),
        )
        self._service.resumptions.add(progress.request(turn, key))

    async def prune(self) -> None:
        """Delete old claims of events and deliveries, and files that no part refers to."""
        await self._services.database.events.prune(_MAX_AGE)
        oldest_time = time.time() - _MAX_AGE.total_seconds()
        await self._services.database.deliveries.prune(oldest_time)
        await self._services.database.parts.discard_unused_blobs()


def _rounded_duration(seconds: float) -> str:
    return quantities.duration(round(seconds) if seconds < 90 else 60 * round(seconds / 60))
