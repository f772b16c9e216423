"""Admission of kernel starts: a bounded number at a time, in turns between people.

A start is nearly all computing. A hundred in parallel take longer than one after the other, and the
first of them as long as the last. Of one person's starts the first to come is the first served; of
those of several, nobody waits for more than one of each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator


class FairQueue:
    """Who is next: of one person's the first to come, of everybody's one in each round."""

    def __init__(self) -> None:
        # Each round serves one start of everybody who waits. Who comes now, waits for the next.
        self._round = 0
        self._waiting: dict[str, tuple[int, str]] = {}

    def __len__(self) -> int:
        """Count those that wait."""
        return len(self._waiting)

    def enter(self, key: str, person: str) -> None:
        """Let a person's start wait, behind all others of theirs."""
        own = [round_ for round_, of in self._waiting.values() if of == person]
        self._waiting[key] = max([self._round, *own]) + 1, person

    def leave(self, key: str) -> None:
        """Let one wait no more."""
        del self._waiting[key]

    def serve(self, key: str) -> None:
        """Note whose turn it was; it waits until it leaves."""
        self._round = self._waiting[key][0]

    def order(self) -> list[str]:
        """Return those that wait, the next one first."""
        # Sorting keeps the order of arrival within a round.
        return sorted(self._waiting, key=lambda key: self._waiting[key][0])


class Admissions:
    """Places for the starts that run now, and the queue of those that wait."""

    def __init__(self, places: int) -> None:
        """Create the places, all free.

        Args:
            places: how many starts run at a time; 0 means one more than this process has cores.
        """
        # While one start waits for the fork server or for the bot, another one has work.
        self._places = places or len(os.sched_getaffinity(0)) + 1
        self._taken = 0
        self._queue = FairQueue()
        self._granted: dict[str, asyncio.Future[None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether a start would begin at once, and delay no other."""
        # A place is free only as long as the queue is empty.
        return self._taken < self._places

    def ahead(self, key: str) -> int:
        """Count the starts before a waiting one; 0 if it does not wait."""
        if key not in self._granted:
            return 0
        return self._places + self._queue.order().index(key)

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
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._granted[key] = granted
        self._queue.enter(key, person)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                # The place was granted at the moment of the cancellation.
                self._hand_on()
            raise
        finally:
            del self._granted[key]
            self._queue.leave(key)

    def _hand_on(self) -> None:
        """Give the place to whose turn it is."""
        for key in self._queue.order():
            if not (granted := self._granted[key]).done():
                self._queue.serve(key)
                granted.set_result(None)
                return
        self._taken -= 1
