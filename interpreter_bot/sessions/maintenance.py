"""Periodic maintenance of sessions: idle warnings, interrupted turns, unreferenced content."""

from __future__ import annotations

import datetime
import math
import time
from typing import Final

from interpreter_bot import schedules, values
from interpreter_bot.sessions import (
    session_dependencies,
    session_service,
    suspended_turns,
)
from interpreter_bot.store import records
from interpreter_bot.text import quantities
from interpreter_bot.wording import session_words

_WARN_SECONDS: Final = 15.0
# Two measures of one moment differ by the time that measuring takes.
_TOLERANCE_SECONDS: Final = 1.0
_UNSENT_SECONDS: Final = 5.0
_WRITE_RETRY_SECONDS: Final = 20.0
_WARNING_SECONDS: Final = 5 * 60.0
_PRUNE_SECONDS: Final = 3600.0
_EVENTS_AGE: Final = datetime.timedelta(days=1)


class Maintenance:
    """Periodic jobs, outside of any turn."""

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        service: session_service.SessionService,
    ) -> None:
        self._services = services
        self._service = service
        self._warned: dict[str, float] = {}

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return all periodic jobs."""
        return (
            schedules.PeriodicJob("warn of reaping", _WARN_SECONDS, self.warn_idle),
            schedules.PeriodicJob(
                "send waiting notifications", _UNSENT_SECONDS, self._service.send_unsent
            ),
            schedules.PeriodicJob(
                "retry failed writes", _WRITE_RETRY_SECONDS, self._services.write_retries.write
            ),
            schedules.PeriodicJob("prune the store", _PRUNE_SECONDS, self.prune),
        )

    async def warn_idle(self) -> int:
        """Warn people whose idle kernel is about to be closed, once each time; return how many."""
        kernels = self._services.config.kernels
        keeps_variables = self._services.hosts.keeps_variables
        statuses = await self._services.hosts.statuses()
        now = time.monotonic()
        self._warned = {key: at for key, at in self._warned.items() if key in statuses}
        count = 0
        for address, status in statuses.items():
            idle = status.idle_seconds
            used = now - idle
            key = values.parse_key(address)
            is_due = kernels.idle_seconds - _WARNING_SECONDS <= idle < kernels.idle_seconds
            if not is_due or abs(self._warned.get(address, -math.inf) - used) < _TOLERANCE_SECONDS:
                continue
            if not (status.loss_reason or self._service.is_busy(key)):
                self._warned[address] = used
                remaining = _rounded_duration(kernels.idle_seconds - idle)
                since = _rounded_duration(idle)
                sentence = session_words.idle_warning(
                    since, remaining, keeps_variables=keeps_variables
                )
                await self._service.notify(key, sentence)
                count += 1
        return count

    async def take_over(self, orphans: tuple[records.Turn, ...]) -> None:
        """Resume the turns that can be; notify the people of the others, once a session."""
        notified_ids = set()
        for turn in orphans:
            session = await self._services.database.sessions.get(turn.session_id)
            progress = suspended_turns.Progress.of(turn)
            if session is None:
                continue
            if progress is not None:
                self._service.resumptions.add(progress.request(turn, session.key))
                continue
            await self._services.database.turns.finish(turn.id, values.TurnStatus.INTERRUPTED)
            await self._show_interruption(turn, session.key)
            if session.id not in notified_ids:
                notified_ids.add(session.id)
                await self._service.notify(session.key, session_words.ANSWER_INTERRUPTED)
        await self._services.questions.load()

    async def _show_interruption(self, turn: records.Turn, key: values.SessionKey) -> None:
        """Let messages end that still say that a turn runs."""
        database = self._services.database
        if await database.deliveries.list_for_request(key.platform, turn.request_id):
            codes = [
                execution.code for execution in await database.executions.list_for_turn(turn.id)
            ]
            progress = suspended_turns.Progress(is_code=turn.request in codes[:1])
            self._service.resumptions.add(progress.request(turn, key))

    async def prune(self) -> None:
        """Delete stored content that nothing refers to any more."""
        await self._services.database.events.prune(_EVENTS_AGE)
        oldest = time.time() - _EVENTS_AGE.total_seconds()
        await self._services.database.deliveries.prune(oldest)
        await self._services.database.parts.discard_unused_files()


def _rounded_duration(seconds: float) -> str:
    return quantities.duration(round(seconds) if seconds < 90 else 60 * round(seconds / 60))
