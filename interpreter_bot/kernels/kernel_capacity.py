"""Room for kernels that start: a spare's, what is free, or that of an idle one that is let go.

A person is an opaque key of those who ask. A kernel that nobody in particular asked for, such as
the doctor's, is a person's of its own.
"""

from __future__ import annotations

import asyncio
import collections
import math
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels import launchers, leases, spares

_FOR_OWN: Final = "It was let go for another conversation of the person who had used it last."
_FOR_OTHERS: Final = "It was let go to make room for others."
_TOO_MANY = (
    "All {count} Python kernels that one person may have at a time are in use. "
    "Please wait until one of your other conversations is done, or stop it."
)


class RoomReservations:
    """Room that starting kernels of one pool have."""

    def __init__(
        self,
        kernels: settings.Kernels,
        *,
        live: Mapping[str, launchers.LaunchedKernel],
        holders: leases.Holders,
        shutdowns: launchers.Shutdowns,
        evict: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Reserve nothing yet.

        Args:
            kernels: the settings.
            live: all kernels of the pool, by session.
            holders: who has leases.
            shutdowns: kernels that are being closed.
            evict: closes a session's kernel, for a reason.
        """
        self._kernels = kernels
        self._live = live
        self._holders = holders
        self._shutdowns = shutdowns
        self._evict = evict
        # Starters look for room one after the other: together they would evict too many.
        self._looking = asyncio.Lock()
        self._reserved: collections.Counter[str] = collections.Counter()

    async def reserve(
        self, person: str, among: spares.Spares
    ) -> tuple[
        launchers.LaunchedKernel | None, asyncio.Future[launchers.LaunchedKernel | None] | None
    ]:
        """Reserve room for a kernel of a person's, until `free`.

        Returns:
            A ready spare that fills it, if any; else a claim on the spare being started, if any.

        Raises:
            PoolFullError: every kernel is in use and no more fit, or the person may have no more.
        """
        async with self._looking:
            while (own := self._own_to_evict(person)) is not None:
                await self._evict(own, _FOR_OWN)
            claim = None
            while (
                (spare := await among.take()) is None
                and (claim := among.claim()) is None
                and not self.has_room(among)
            ):
                if self._shutdowns:
                    await self._shutdowns.wait_for_any()
                else:
                    key = find_to_evict(person, self._live, self._holders)
                    await self._evict(key, _FOR_OTHERS)
            self._reserved[person] += 1
            return spare, claim

    def free(self, person: str) -> None:
        """Free what was reserved for one kernel of a person's."""
        self._reserved[person] -= 1
        self._reserved += collections.Counter()  # drops persons without starts

    def has_room(self, among: spares.Spares) -> bool:
        """Return whether one more kernel fits."""
        others = self._reserved.total() + among.places + len(self._shutdowns)
        return spares.has_room(self._kernels, self._live.values(), others)

    def last_used(self) -> float:
        """Return when a live kernel was used last, in monotonic seconds; a leased one is in use."""
        now = time.monotonic()
        # A holder may think for long about what to run next.
        uses = (
            now if key in self._holders else launched.kernel.last_used
            for key, launched in self._live.items()
        )
        return max(uses, default=-math.inf)

    def _own_to_evict(self, person: str) -> str | None:
        most, starting = self._kernels.per_person, self._reserved[person]
        return find_own_to_evict(
            person, self._live, starting=starting, most=most, held=self._holders
        )


def find_own_to_evict(
    person: str,
    live: Mapping[str, launchers.LaunchedKernel],
    *,
    starting: int,
    most: int,
    held: Container[str],
) -> str | None:
    """Return which kernel a person gives up for one more; None where they may have one more.

    Args:
        person: who asks.
        live: all kernels, by session.
        starting: how many of that person's are being started.
        most: kernels of one person; 0 means that they are not counted.
        held: sessions that are leased.

    Raises:
        PoolFullError: they have as many as they may, and all are in use.
    """
    own = {k: one for k, one in live.items() if one.person == person and one.kernel.is_alive}
    if not most or len(own) + starting < most:
        return None
    idle = _idle(own, held)
    if not idle:
        raise errors.PoolFullError(_TOO_MANY.format(count=most))
    return _longest_idle(idle)


def find_to_evict(
    person: str, live: Mapping[str, launchers.LaunchedKernel], held: Container[str]
) -> str:
    """Return which kernel makes room for one more of a person's.

    It is their own, if one is idle; else one of whoever takes the most room. Nobody loses variables
    to somebody who has more kernels than they do.

    Args:
        person: who asks.
        live: all kernels, by session.
        held: sessions that are leased.

    Raises:
        PoolFullError: nobody has an idle kernel to give up.
    """
    alive = [one for one in live.values() if one.kernel.is_alive]
    counts = collections.Counter(one.person for one in alive)
    rooms: collections.Counter[str] = collections.Counter()
    for one in alive:
        rooms[one.person] += spares.room_bytes(one)
    idle = _idle(live, held)
    owners = {one.person for one in idle.values() if counts[one.person] >= counts[person]}
    if person in {one.person for one in idle.values()}:
        owners = {person}
    if not owners:
        raise errors.PoolFullError
    most = max(rooms[owner] for owner in owners)
    return _longest_idle(
        {
            key: one
            for key, one in idle.items()
            if one.person in owners and rooms[one.person] == most
        }
    )


def _idle(
    live: Mapping[str, launchers.LaunchedKernel], held: Container[str]
) -> dict[str, launchers.LaunchedKernel]:
    return {
        key: one
        for key, one in live.items()
        if one.kernel.is_alive and not one.kernel.is_busy and key not in held
    }


def _longest_idle(idle: Mapping[str, launchers.LaunchedKernel]) -> str:
    return min(idle, key=lambda key: idle[key].kernel.last_used)
