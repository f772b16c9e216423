"""Holding on to a session's kernel while somebody works for the session."""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from interpreter_bot.kernels import executions

OnWait: TypeAlias = Callable[[int], None]


class Lease:
    """A hold on one session's kernel, from `Pool.lease`."""

    def __init__(self, take: Callable[[OnWait | None], Awaitable[executions.Kernel]]) -> None:
        self._take = take

    async def kernel(self, *, waiting: OnWait | None = None) -> executions.Kernel:
        """Return the session's kernel, as often as one is needed.

        Always a live one: where the former was lost meanwhile, another one is started, whose
        `announcement` says so.

        Args:
            waiting: called once the wait is a long one, with how many starts are before this one,
                whenever that changed; and with 0 when it need not wait any more.

        Raises:
            KernelStartError: none could be started; asking again tries again.
            PoolFullError: every kernel is in use and no more fit.
        """
        return await self._take(waiting)


class HolderCounts:
    """Who holds what, by session; a session may be held several times."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def __contains__(self, key: str) -> bool:
        return key in self._counts

    def add(self, key: str) -> None:
        """Count one holder more."""
        self._counts[key] += 1

    def remove(self, key: str) -> None:
        """Count one holder less."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
