"""Room for kernels that start: a spare's, what is free, or that of an idle one that is let go.

An idle kernel is let go only once its variables are saved. If all are in use, a start waits until
one of them is not.

A person is an opaque key. A kernel that no person asked for, such as the doctor's, counts as a
person of its own.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels import launchers, leases, spares
from interpreter_bot.wording import run_words

# Kernels also become free without a word, such as when one dies.
_LOOK_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """Room for one kernel, with the spare that fills it, if one was ready."""

    spare: launchers.LaunchedKernel | None = None


class RoomReservations:
    """Room that starting kernels of one pool have."""

    def __init__(
        self,
        kernels: settings.Kernels,
        *,
        live: Mapping[str, launchers.LaunchedKernel],
        holders: leases.Holders,
        shutdowns: launchers.Shutdowns,
        save: Callable[[str], asyncio.Task[None] | None],
        end_kernel: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Reserve nothing yet.

        Args:
            kernels: the settings.
            live: all kernels of the pool, by session.
            holders: who has leases.
            shutdowns: kernels that are being ended.
            save: begins to save a session's variables; returns None if there is nothing to save.
            end_kernel: ends a session's kernel, for a reason.
        """
        self._kernels = kernels
        self._live = live
        self._holders = holders
        self._shutdowns = shutdowns
        self._save = save
        self._end_kernel = end_kernel
        # Starters look for room one after the other: together they would evict too many.
        self._looking = asyncio.Lock()
        self._reserved: collections.Counter[str] = collections.Counter()
        self._change = asyncio.Event()
        self._waits: dict[str, str] = {}

    async def reserve(self, key: str, person: str, among: spares.Spares) -> Room:
        """Reserve room for a kernel of a person's, until `free`; wait for it while it is leased.

        Raises:
            PoolFullError: nobody waits for the kernel, and there is no room now.
        """
        if among.launching is not None:
            # Sooner there than a kernel that is started beside it.
            await asyncio.wait({among.launching})
        try:
            while True:
                async with self._looking:
                    room = await self._found(key, person, among)
                if isinstance(room, Room):
                    return room
                if room is None:
                    await self._changed()
                else:
                    self._waits[key] = run_words.SAVING_FIRST
                    await asyncio.wait({room})
        finally:
            self._waits.pop(key, None)

    async def _found(
        self, key: str, person: str, among: spares.Spares
    ) -> Room | asyncio.Task[None] | None:
        """Reserve room; else return the saving that has to come first, or None to wait."""
        try:
            while (own := self._own_to_evict(person)) is not None:
                if (saving := self._save(own)) is not None:
                    return saving
                await self._end_kernel(own, run_words.STOPPED_FOR_OWN)
            while (room := await self._free_room(among)) is None:
                if self._shutdowns:
                    await self._shutdowns.wait_for_any()
                    continue
                if among.launching is not None:
                    await asyncio.wait({among.launching})
                    continue
                other = find_to_evict(person, self._live, self._holders)
                if (saving := self._save(other)) is not None:
                    return saving
                await self._end_kernel(other, run_words.STOPPED_FOR_OTHERS)
        except errors.PoolFullError as error:
            if key not in self._holders:
                raise
            self._waits[key] = str(error)
            return None
        self._reserved[person] += 1
        return room

    async def _free_room(self, among: spares.Spares) -> Room | None:
        if (spare := await among.take()) is not None:
            return Room(spare)
        return Room() if self.has_room(among) else None

    def wait(self, key: str) -> str:
        """Return what a session's start waits for, as a sentence; empty if for nothing here."""
        return self._waits.get(key, "")

    def note_change(self) -> None:
        """Let waiting starts look again: a kernel may have become free."""
        self._change.set()
        self._change = asyncio.Event()

    async def _changed(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._change.wait()

    def free(self, person: str) -> None:
        """Free what was reserved for one kernel of a person's."""
        self._reserved[person] -= 1
        self._reserved += collections.Counter()  # drops persons without starts
        self.note_change()

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
        raise errors.PoolFullError(run_words.too_many_sessions(most))
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
        raise errors.PoolFullError(run_words.ALL_KERNELS_USED)
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
