"""Admission of kernel starts: a bounded number at a time, in turns between people.

A start is nearly all computing: a hundred parallel starts take longer than a hundred in sequence,
and all end late. The starts of one person are served in order of arrival; people take turns, so a
start waits for at most one start of each other person in each round.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator


class FairQueue:
    """Queue in rounds: each round serves one start of every person, in order of arrival."""

    def __init__(self) -> None:
        # Number of the current round; a new start joins a later one.
        self._round = 0
        self._entries: dict[str, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: str, person: str) -> None:
        """Add a person's start, after all other starts of that person."""
        rounds_of_person = [
            round_ for round_, waiting_person in self._entries.values() if waiting_person == person
        ]
        self._entries[key] = max([self._round, *rounds_of_person]) + 1, person

    def remove(self, key: str) -> None:
        del self._entries[key]

    def mark_served(self, key: str) -> None:
        """Make a start's round the current one; the start stays until it is removed."""
        self._round = self._entries[key][0]

    def ordered_keys(self) -> list[str]:
        """Return the keys of the waiting starts, the next one first."""
        # Sorting keeps the order of arrival within a round.
        return sorted(self._entries, key=lambda key: self._entries[key][0])


class Admissions:
    """Places for running starts, and the queue of waiting ones."""

    def __init__(self, max_starts: int) -> None:
        """Allow `max_starts` at a time; 0 means one more than this process has cores."""
        # One more than cores: a start sometimes waits for the fork server or for the bot.
        self._place_count = max_starts or len(os.sched_getaffinity(0)) + 1
        self._used_place_count = 0
        self._queue = FairQueue()
        self._waiters: dict[str, asyncio.Future[None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether a start would begin at once without delaying another."""
        # A waiting start gets a place before it becomes free, so a free place means an empty queue.
        return self._used_place_count < self._place_count

    def starts_ahead(self, key: str) -> int:
        """Return how many starts come before a waiting one; 0 if it does not wait."""
        if key not in self._waiters:
            return 0
        return self._place_count + self._queue.ordered_keys().index(key)

    @contextlib.asynccontextmanager
    async def place(self, key: str, person: str = "") -> AsyncIterator[None]:
        """Wait for a place, and hold it until the context is left.

        `key` is unique among waiting starts. All starts without a person share one turn a round.
        """
        if self.is_free:
            self._used_place_count += 1
        else:
            await self._wait(key, person)
        try:
            yield
        finally:
            self._pass_place_on()

    async def _wait(self, key: str, person: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[key] = waiter
        self._queue.add(key, person)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                # The place was granted just before the cancellation.
                self._pass_place_on()
            raise
        finally:
            del self._waiters[key]
            self._queue.remove(key)

    def _pass_place_on(self) -> None:
        """Give the place to the next waiting start, or free it."""
        for key in self._queue.ordered_keys():
            if not (waiter := self._waiters[key]).done():
                self._queue.mark_served(key)
                waiter.set_result(None)
                return
        self._used_place_count -= 1
