"""Records of what code did outside, written to the store in batches."""

from __future__ import annotations

import collections
import datetime
import logging
from typing import Final, Generic

from interpreter_bot import errors, schedules
from interpreter_bot.store import activity_audit

_log = logging.getLogger(__name__)

_WRITE_SECONDS: Final = 2.0
_TIDY_SECONDS: Final = 3600.0
_MAX_UNWRITTEN: Final = 10_000
_MAX_BATCH: Final = 500


class ActivityRecorder(Generic[activity_audit.Done]):
    """Writes contacts, queries or installations; what cannot be written is tried again."""

    def __init__(
        self, table: activity_audit.AuditTable[activity_audit.Done], *, days: float
    ) -> None:
        """Record nothing yet.

        Args:
            table: of the store.
            days: that they are kept.
        """
        self._table: activity_audit.AuditTable[activity_audit.Done] = table
        self._max_age = datetime.timedelta(days=days)
        self._unwritten: collections.deque[activity_audit.Done] = collections.deque(
            maxlen=_MAX_UNWRITTEN
        )

    def add(self, activity: activity_audit.Done) -> None:
        """Add a finished activity to the next batch."""
        self._unwritten.append(activity)

    async def write(self) -> None:
        """Write what was added."""
        while self._unwritten:
            batch = [
                self._unwritten.popleft() for _ in range(min(_MAX_BATCH, len(self._unwritten)))
            ]
            try:
                await self._table.add(batch)
            except errors.StoreError:
                self._unwritten.extendleft(reversed(batch))
                _log.warning("%d %s are not recorded yet", len(self._unwritten), self._table.name)
                return

    async def tidy(self) -> None:
        """Delete old ones."""
        await self._table.prune(self._max_age)

    def jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return its periodic jobs."""
        return (
            schedules.PeriodicJob(f"record {self._table.name}", _WRITE_SECONDS, self.write),
            schedules.PeriodicJob(f"delete old {self._table.name}", _TIDY_SECONDS, self.tidy),
        )
