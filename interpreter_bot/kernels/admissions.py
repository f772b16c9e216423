"""Admission of starts: so many kernels start at a time, first come first served.

A start is nearly all computing. A hundred side by side take longer than one after the other, and
the first of them as long as the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

# Nobody needs to hear of a shorter wait, nor more often.
_TOLD_SECONDS = 1.0


class Admissions:
    """The places of those that start now, and the queue before them."""

    def __init__(self, places: int) -> None:
        """Make them, all free.

        Args:
            places: how many start at a time; 0 means as many as there are cores for us.
        """
        self._places = places or len(os.sched_getaffinity(0))
        self._taken = 0
        self._queue: dict[str, asyncio.Future[None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether a start would begin at once, and keep nobody waiting."""
        # A place is free only as long as nobody waits for one.
        return self._taken < self._places

    def ahead(self, key: str) -> int:
        """Count the starts that are before a waiting one; 0 where it does not wait."""
        if key not in self._queue:
            return 0
        return self._places + list(self._queue).index(key)

    async def tell(
        self, key: str, start: asyncio.Future[Any], waiting: Callable[[int], None]
    ) -> None:
        """Say how many starts are before one, whenever that changed, until it is over.

        Args:
            key: whose start it is.
            start: the whole of it.
            waiting: called with the number; with 0 last, where it was called at all.
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
    async def place(self, key: str) -> AsyncIterator[None]:
        """Wait for a place, and have it until the context is left.

        Args:
            key: whose start it is, for `ahead`; of those that wait, each has its own.
        """
        if self.is_free:
            self._taken += 1
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, key: str) -> None:
        granted = self._queue[key] = asyncio.get_running_loop().create_future()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                # The place came in the moment in which nobody wanted it any more.
                self._hand_on()
            raise
        finally:
            del self._queue[key]

    def _hand_on(self) -> None:
        """Give a place to whoever waits longest."""
        for granted in self._queue.values():
            if not granted.done():
                granted.set_result(None)
                return
        self._taken -= 1
