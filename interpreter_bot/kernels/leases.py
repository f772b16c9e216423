"""Leases: a leased session's kernel is neither evicted nor reaped."""

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
        """Return the session's live kernel; may be called repeatedly.

        If the former kernel was lost, another is started, whose `announcement` says so. In a long
        wait `waiting` is called with each new reason, a sentence, and at its end with an empty one.

        Raises:
            KernelStartError: no kernel could be started; another call tries again.
        """
        return await self._take(waiting)


class Holders(Container[str]):
    """Who holds leases, by session."""

    def __init__(self) -> None:
        self._people: dict[str, list[str]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._people

    def person(self, key: str) -> str:
        """Return the person who leased a session last; the session's key if there is none."""
        return next(filter(None, reversed(self._people.get(key, []))), key)

    def add(self, key: str, person: str) -> None:
        self._people.setdefault(key, []).append(person)

    def remove(self, key: str, person: str) -> None:
        self._people[key].remove(person)
        if not self._people[key]:
            del self._people[key]
