"""Leases: a session's kernel is neither evicted nor reaped while one is held."""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from interpreter_bot.kernels import executions

OnWait: TypeAlias = Callable[[int], None]


class Lease:
    """Lease of one session's kernel, from `Pool.lease`."""

    def __init__(self, take: Callable[[OnWait | None], Awaitable[executions.Kernel]]) -> None:
        self._take = take

    async def kernel(self, *, waiting: OnWait | None = None) -> executions.Kernel:
        """Return the session's kernel; may be called repeatedly.

        It is always alive: if the former one was lost, another is started, whose `announcement`
        says so.

        Args:
            waiting: called once the wait is a long one, with how many starts are before this one,
                whenever that changed; and with 0 when the wait is over.

        Raises:
            KernelStartError: none could be started; another call tries again.
            PoolFullError: every kernel is in use and no more fit.
        """
        return await self._take(waiting)


class HolderCounts:
    """Number of leases held, by session."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def __contains__(self, key: str) -> bool:
        return key in self._counts

    def add(self, key: str) -> None:
        """Count one more lease."""
        self._counts[key] += 1

    def remove(self, key: str) -> None:
        """Count one lease less."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
