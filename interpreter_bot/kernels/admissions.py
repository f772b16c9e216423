"""Admission of kernel starts: a bounded number at a time, in turns between people.

A start is nearly all computing. A hundred in parallel take longer than one after the other, and the
first of them as long as the last. Of one person's starts the first to come is the first served; of
those of several, nobody waits for more than one of each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

# A shorter wait need not be reported, nor a change more often than this.
_TOLD_SECONDS = 1.0


@dataclasses.dataclass(eq=False, slots=True)
class _Waiting:
    person: str
    round: int
    granted: asyncio.Future[None]


class Admissions:
    """Places for the starts that run now, and the queue of those that wait."""

    def __init__(self, places: int) -> None:
        """Create the places, all free.

        Args:
            places: how many starts run at a time; 0 means one per core of this process.
        """
        self._places = places or len(os.sched_getaffinity(0))
        self._taken = 0
        self._queue: dict[str, _Waiting] = {}
        # Each round serves one start of everybody who waits. Who comes now, waits for the next.
        self._round = 0

    @property
    def is_free(self) -> bool:
        """Whether a start would begin at once, and delay no other."""
        # A place is free only as long as the queue is empty.
        return self._taken < self._places

    def ahead(self, key: str) -> int:
        """Count the starts before a waiting one; 0 if it does not wait."""
        if key not in self._queue:
            return 0
        return self._places + self._order().index(self._queue[key])

    def _order(self) -> list[_Waiting]:
        # Sorting keeps the order of arrival within a round.
        return sorted(self._queue.values(), key=lambda waiting: waiting.round)

    async def report_wait(
        self, key: str, start: asyncio.Future[Any], waiting: Callable[[int], None]
    ) -> None:
        """Report how many starts are before one whenever the number changed, until the start is
        done.

        Args:
            key: of the start, as in `place`.
            start: the whole of it.
            waiting: called with the number; with 0 last, if it was called at all.
        """
        told = 0
        try:
            while not (await asyncio.wait({start}, timeout=_TOLD_SECONDS))[0]:
                if (ahead := self.ahead(key)) != told:
                    told = ahead
                    waiting(ahead)
        finally:
            if told:
                waiting(0)

    @contextlib.asynccontextmanager
    async def place(self, key: str, person: str = "") -> AsyncIterator[None]:
        """Wait for a place, and hold it until the context is left.

        Args:
            key: of the start, for `ahead`; unique among those that wait.
            person: who waits for it; those of nobody in particular wait for each other.
        """
        if self.is_free:
            self._taken += 1
        else:
            await self._wait(key, person)
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, key: str, person: str) -> None:
        own = [one.round for one in self._queue.values() if one.person == person]
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[key] = _Waiting(person, max([self._round, *own]) + 1, granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                # The place was granted at the moment of the cancellation.
                self._hand_on()
            raise
        finally:
            del self._queue[key]

    def _hand_on(self) -> None:
        """Give the place to whose turn it is."""
        for waiting in self._order():
            if not waiting.granted.done():
                self._round = waiting.round
                waiting.granted.set_result(None)
                return
        self._taken -= 1
