"""Leases: a session's kernel is neither evicted nor reaped while one is held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import TypeAlias

from interpreter_bot.kernels import live_kernels

OnWait: TypeAlias = Callable[[str], None]


class Lease:
    """Lease of one session's kernel, from `Pool.lease`."""

    def __init__(self, take: Callable[[OnWait | None], Awaitable[live_kernels.Kernel]]) -> None:
        self._take = take

    async def kernel(self, *, waiting: OnWait | None = None) -> live_kernels.Kernel:
        """Return the session's kernel; may be called repeatedly.

        It is always alive: if the former one was lost, another is started, whose `announcement`
        says so.

        Args:
            waiting: called once the wait is a long one, with a sentence that says what for,
                whenever that changed; and with an empty one when the wait is over.

        Raises:
            KernelStartError: none could be started; another call tries again.
        """
        return await self._take(waiting)


class Holders(Container[str]):
    """Who holds leases, by session."""

    def __init__(self) -> None:
        self._people: dict[str, list[str]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._people

    def person(self, key: str) -> str:
        """Return who leased a session last; its own key where that was nobody in particular."""
        return next(filter(None, reversed(self._people.get(key, []))), key)

    def add(self, key: str, person: str) -> None:
        """Note one more lease."""
        self._people.setdefault(key, []).append(person)

    def remove(self, key: str, person: str) -> None:
        """Note one lease less."""
        self._people[key].remove(person)
        if not self._people[key]:
            del self._people[key]
