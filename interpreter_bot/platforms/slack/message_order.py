"""Taking what people say and send in the order in which it came, place by place.

Getting a request ready asks Slack and the database, which take longer for one than for another.
So the place is taken before anything is waited for, and let go when the request has its place in
the conversation's lane.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TypeAlias

Place: TypeAlias = tuple[str, str, str]
"""Team, channel and thread; the channel's own session has no thread."""


class MessageOrder:
    """A lock for each place, first come, first served; one that nobody wants takes no memory."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[Place, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    def at(self, place: Place) -> asyncio.Lock:
        """Return the lock of a place; hold on to it for as long as it is wanted."""
        lock = self._locks.get(place) or asyncio.Lock()
        self._locks[place] = lock
        return lock
