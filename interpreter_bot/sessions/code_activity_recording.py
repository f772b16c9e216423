"""Records of code's activity outside its sandbox, written to the store in batches."""

from __future__ import annotations

import collections
import datetime
import logging
from typing import Final

from interpreter_bot import cancellation, code_activity, errors, schedules
from interpreter_bot.store import activities

_log = logging.getLogger(__name__)

_WRITE_INTERVAL_SECONDS: Final = 2.0
_DELETE_INTERVAL_SECONDS: Final = 3600.0
_MAX_UNWRITTEN_ACTIVITIES: Final = 10_000
_MAX_BATCH: Final = 500


class ActivityRecorder:
    """Writes activities of code to the store, again if a write failed, and deletes old ones."""

    def __init__(self, table: activities.Activities, *, days: float) -> None:
        self._table = table
        self._max_age = datetime.timedelta(days=days)
        self._unwritten: collections.deque[code_activity.Activity] = collections.deque(
            maxlen=_MAX_UNWRITTEN_ACTIVITIES
        )

    def add(self, activity: code_activity.Activity) -> None:
        """Add a finished activity to the next batch."""
        self._unwritten.append(activity)

    async def write(self) -> None:
        """Write the added activities, until a write fails."""
        while self._unwritten:
            # Shielded, because a cancelled write would lose its batch.
            if not await cancellation.shielded(self._write_batch()):
                return

    async def _write_batch(self) -> bool:
        """Write the oldest activities; return False if that failed."""
        batch = [self._unwritten.popleft() for _ in range(min(_MAX_BATCH, len(self._unwritten)))]
        try:
            await self._table.add(batch)
        except errors.StoreError:
            self._unwritten.extendleft(reversed(batch))
            _log.warning("%d activities are not recorded yet", len(self._unwritten))
            return False
        return True

    async def delete_old(self) -> None:
        """Delete activities that were kept long enough."""
        await self._table.prune(self._max_age)

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return its periodic jobs."""
        return (
            schedules.PeriodicJob("record activities", _WRITE_INTERVAL_SECONDS, self.write),
            schedules.PeriodicJob(
                "delete old activities", _DELETE_INTERVAL_SECONDS, self.delete_old
            ),
        )
