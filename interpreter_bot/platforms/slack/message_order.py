"""The order of messages, kept place by place.

Preparing a request asks Slack and the database, which takes longer for one than for another. So the
place is locked before anything is waited for, and released when the request has its place in the
session's lane.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TypeAlias

Place: TypeAlias = tuple[str, str, str]
"""Team, channel and thread; the channel's own session has no thread."""


class MessageOrder:
    """A lock for each place, first come, first served; an unused one takes no memory."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[Place, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    def at(self, place: Place) -> asyncio.Lock:
        """Return the lock of a place; keep a reference for as long as it is wanted."""
        lock = self._locks.get(place) or asyncio.Lock()
        self._locks[place] = lock
        return lock
