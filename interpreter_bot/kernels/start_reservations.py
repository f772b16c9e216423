"""Room for kernels that start: a spare's, what is free, or that of an idle one that is let go."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels import launchers, leases, person_shares, spares

_FOR_OWN: Final = "It was let go for another conversation of the person who had used it last."
_FOR_OTHERS: Final = "It was let go to make room for others."


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
                    key = person_shares.find_to_evict(person, self._live, self._holders)
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

    def _own_to_evict(self, person: str) -> str | None:
        most, starting = self._kernels.per_person, self._reserved[person]
        return person_shares.find_own_to_evict(
            person, self._live, starting=starting, most=most, held=self._holders
        )
