"""Periodic maintenance of sessions: idle warnings, interrupted turns, deletion of old content."""

from __future__ import annotations

import datetime
import time
from typing import Final

from interpreter_bot import schedules, values
from interpreter_bot.sessions import conversations, stop_signals, turns
from interpreter_bot.store import records
from interpreter_bot.text import quantities

_WARN_SECONDS: Final = 15.0
_LATE_SECONDS: Final = 5.0
_ORPHANS_SECONDS: Final = 60.0
_ARREARS_SECONDS: Final = 20.0
_DAY_SECONDS: Final = 24 * 3600.0
_EVENTS_AGE: Final = datetime.timedelta(days=1)

_WARNING: Final = (
    "Nobody has used the Python of this conversation for {since}. In {left} its variables are let "
    "go; files stay. Any message keeps it."
)


class Maintenance:
    """Jobs that run by the clock, outside of any turn."""

    def __init__(self, services: turns.TurnServices, service: conversations.Conversations) -> None:
        self._services = services
        self._service = service
        self._warned: dict[str, float] = {}

    def jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return all periodic jobs."""
        return (
            schedules.PeriodicJob("warn of reaping", _WARN_SECONDS, self.warn),
            schedules.PeriodicJob(
                "tell what could not be told", _LATE_SECONDS, self._service.notify_late
            ),
            schedules.PeriodicJob("find orphans", _ORPHANS_SECONDS, self.find_orphans),
            schedules.PeriodicJob(
                "record what is due", _ARREARS_SECONDS, self._services.write_retries.write
            ),
            schedules.PeriodicJob("tidy the store", _DAY_SECONDS, self.tidy),
        )

    async def warn(self) -> int:
        """Warn people whose idle kernel is about to be closed, once each time; return how many."""
        kernels, warning = (
            self._services.config.kernels,
            self._services.config.sessions.warning_seconds,
        )
        if not warning:
            return 0
        live = dict(self._services.pool.live)
        self._warned = {key: at for key, at in self._warned.items() if key in live}
        told = 0
        for pool_key, launched in live.items():
            used = launched.kernel.last_used
            idle = time.monotonic() - used
            key = values.key(pool_key)
            is_due = kernels.idle_seconds - warning <= idle < kernels.idle_seconds
            if not is_due or self._warned.get(pool_key) == used:
                continue
            if launched.kernel.is_alive and not self._service.is_busy(key):
                self._warned[pool_key] = used
                left = _said(kernels.idle_seconds - idle)
                await self._service.notify(key, _WARNING.format(since=_said(idle), left=left))
                told += 1
        return told

    async def find_orphans(self) -> None:
        """Find turns that a bot left running when it died, and notify their people."""
        await self.tell(await self._services.database.turns.interrupt_orphans())

    async def tell(self, orphans: tuple[records.Turn, ...]) -> None:
        """Notify the people of interrupted turns."""
        for session_id in dict.fromkeys(turn.session_id for turn in orphans):
            session = await self._services.database.sessions.get(session_id)
            if session is not None:
                await self._service.notify(session.key, stop_signals.INTERRUPTED)

    async def tidy(self) -> None:
        """Delete stored content that nothing refers to any more."""
        await self._services.database.events.prune(_EVENTS_AGE)
        await self._services.database.parts.discard_unused_files()


def _said(seconds: float) -> str:
    return quantities.duration(round(seconds) if seconds < 90 else 60 * round(seconds / 60))
