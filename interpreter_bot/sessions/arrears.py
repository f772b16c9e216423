"""What could not be recorded when it was due: kept for a while, and tried again."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

_log = logging.getLogger(__name__)

_MOST: Final = 20
_LONGEST_SECONDS: Final = 3600.0

Write: TypeAlias = Callable[[], Awaitable[bool]]
"""Writes something down; says whether it could."""


class Arrears:
    """Everything that is still to be written, the oldest first. It dies with us."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: collections.deque[tuple[float, Write]] = collections.deque()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, write: Write) -> None:
        """Remember what is to be written; where that becomes too much, the oldest is given up."""
        self._due.append((self._clock(), write))
        if len(self._due) > _MOST:
            self._due.popleft()
            _log.error("what happened in a turn is lost: too much waits to be recorded")

    async def write(self) -> None:
        """Write what can be written; it ends with the first that cannot."""
        while self._due:
            since, write = due = self._due[0]
            if await write():
                self._forget(due)
                _log.warning("the end of a turn was recorded late")
            elif self._clock() - since > _LONGEST_SECONDS:
                self._forget(due)
                _log.error("what happened in a turn is lost: it could not be recorded")
            else:
                return

    def _forget(self, due: tuple[float, Write]) -> None:
        # Somebody else may have written it at the same time.
        if due in self._due:
            self._due.remove(due)
