"""Retry queue of database writes that failed at the end of a turn."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

_log = logging.getLogger(__name__)

_MAX_PENDING: Final = 20
_MAX_AGE_SECONDS: Final = 3600.0

Write: TypeAlias = Callable[[], Awaitable[bool]]
"""A database write to be repeated; returns whether it succeeded."""


class WriteRetries:
    """Retry queue of failed writes, the oldest first. It is lost with the process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending: collections.deque[tuple[float, Write]] = collections.deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, write: Write) -> None:
        """Add a write; if there are too many, the oldest is dropped."""
        self._pending.append((self._clock(), write))
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft()
            _log.error("the record of a turn is lost, as too many writes wait")

    async def write(self) -> None:
        """Retry the writes; stop at the first that fails."""
        while self._pending:
            added_at, write = entry = self._pending[0]
            if await write():
                self._remove(entry)
                _log.warning("the end of a turn was recorded late")
            elif self._clock() - added_at > _MAX_AGE_SECONDS:
                self._remove(entry)
                _log.error("the record of a turn is lost, as it could not be written in time")
            else:
                return

    def _remove(self, entry: tuple[float, Write]) -> None:
        # Another task may have written it at the same time.
        if entry in self._pending:
            self._pending.remove(entry)
