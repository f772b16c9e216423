"""Room for starting kernels: a spare, free room, or the room of an evicted idle kernel.

An idle kernel is evicted only once its variables are saved. If all kernels are in use, a start
waits until one becomes idle.

A person is an opaque key. A kernel that no person asked for, such as the doctor's, counts for a
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
from interpreter_bot.kernels import launchers, live_kernels, spares
from interpreter_bot.wording import run_words

# Some changes are not reported, such as the death of a kernel, so waiting starts check again.
_RECHECK_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """Room for one kernel, with a spare kernel if one was ready."""

    spare: live_kernels.Kernel | None = None


class LeaseHolders(Container[str]):
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


class RoomReservations:
    """Reservations of room for the starting kernels of one pool."""

    def __init__(
        self,
        config: settings.Kernels,
        *,
        kernels: Mapping[str, live_kernels.Kernel],
        holders: LeaseHolders,
        shutdowns: launchers.Shutdowns,
        save: Callable[[str], asyncio.Task[None] | None],
        end_kernel: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Reserve nothing yet; `save` returns None if there is nothing to save."""
        self._config = config
        self._kernels = kernels
        self._holders = holders
        self._shutdowns = shutdowns
        self._save = save
        self._end_kernel = end_kernel
        # Starts look for room one after the other; together they would evict too many kernels.
        self._lock = asyncio.Lock()
        self._reserved: collections.Counter[str] = collections.Counter()
        self._change = asyncio.Event()
        self._wait_reasons: dict[str, str] = {}

    async def reserve(self, key: str, person: str, spare_kernels: spares.Spares) -> Room:
        """Reserve room for a session's kernel until `free`; wait for room if the session is leased.

        Raises:
            PoolFullError: there is no room now, and the session is not leased.
        """
        if spare_kernels.launching is not None:
            # The starting spare is ready sooner than a kernel whose start begins now.
            await asyncio.wait({spare_kernels.launching})
        try:
            while True:
                async with self._lock:
                    room = await self._try_to_reserve(key, person, spare_kernels)
                if isinstance(room, Room):
                    return room
                if room is None:
                    await self._wait_for_change()
                else:
                    self._wait_reasons[key] = run_words.SAVING_FIRST
                    await asyncio.wait({room})
        finally:
            self._wait_reasons.pop(key, None)

    async def _try_to_reserve(
        self, key: str, person: str, spare_kernels: spares.Spares
    ) -> Room | asyncio.Task[None] | None:
        """Reserve room, or return the save to wait for, or None to wait for any change."""
        try:
            while (own := self._own_kernel_to_evict(person)) is not None:
                if (saving := self._save(own)) is not None:
                    return saving
                await self._end_kernel(own, run_words.STOPPED_FOR_OWN)
            while (room := await self._free_room(spare_kernels)) is None:
                if self._shutdowns:
                    await self._shutdowns.wait_for_any()
                    continue
                if spare_kernels.launching is not None:
                    await asyncio.wait({spare_kernels.launching})
                    continue
                other = find_to_evict(person, self._kernels, self._holders)
                if (saving := self._save(other)) is not None:
                    return saving
                await self._end_kernel(other, run_words.STOPPED_FOR_OTHERS)
        except errors.PoolFullError as error:
            if key not in self._holders:
                raise
            self._wait_reasons[key] = str(error)
            return None
        self._reserved[person] += 1
        return room

    async def _free_room(self, spare_kernels: spares.Spares) -> Room | None:
        if (spare := await spare_kernels.take()) is not None:
            return Room(spare)
        return Room() if self.has_room(spare_kernels) else None

    def wait_reason(self, key: str) -> str:
        """Return a sentence that says what a session's start waits for; empty if it does not."""
        return self._wait_reasons.get(key, "")

    def note_change(self) -> None:
        """Let waiting starts check again: a kernel may have become idle."""
        self._change.set()
        self._change = asyncio.Event()

    async def _wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECHECK_SECONDS):
                await self._change.wait()

    def free(self, person: str) -> None:
        """Release a person's reservation for one kernel."""
        self._reserved[person] -= 1
        self._reserved += collections.Counter()  # drops persons without starts
        self.note_change()

    def has_room(self, spare_kernels: spares.Spares) -> bool:
        starting_or_ending = (
            self._reserved.total() + spare_kernels.kernel_count + len(self._shutdowns)
        )
        return spares.has_room(self._config, self._kernels.values(), starting_or_ending)

    def last_used(self) -> float:
        """Return when a live kernel was used last, in monotonic seconds; a leased one is in use."""
        now = time.monotonic()
        # The model may think for long about what to run next.
        uses = (
            now if key in self._holders else kernel.last_used
            for key, kernel in self._kernels.items()
        )
        return max(uses, default=-math.inf)

    def _own_kernel_to_evict(self, person: str) -> str | None:
        max_kernels, starting = self._config.per_person, self._reserved[person]
        return find_own_to_evict(
            person, self._kernels, starting=starting, max_kernels=max_kernels, leased=self._holders
        )


def find_own_to_evict(
    person: str,
    kernels: Mapping[str, live_kernels.Kernel],
    *,
    starting: int,
    max_kernels: int,
    leased: Container[str],
) -> str | None:
    """Return the session that loses its kernel to a new one of the same person.

    None means that the person is below the limit; `max_kernels` 0 means no limit. `kernels` are all
    kernels by session, `starting` counts the person's starting kernels, and `leased` sessions are
    not idle.

    Raises:
        PoolFullError: the person is at the limit, and all their kernels are in use.
    """
    own = {
        key: kernel
        for key, kernel in kernels.items()
        if kernel.person == person and kernel.is_alive
    }
    if not max_kernels or len(own) + starting < max_kernels:
        return None
    idle = _idle(own, leased)
    if not idle:
        raise errors.PoolFullError(run_words.too_many_sessions(max_kernels))
    return _longest_idle(idle)


def find_to_evict(
    person: str, kernels: Mapping[str, live_kernels.Kernel], leased: Container[str]
) -> str:
    """Return the session whose idle kernel is evicted for a new kernel of a person.

    An idle kernel of the same person comes first, else one of the person whose kernels take the
    most room. Nobody loses a kernel to a person who has more kernels.

    Raises:
        PoolFullError: no kernel can be evicted.
    """
    alive = [kernel for kernel in kernels.values() if kernel.is_alive]
    counts = collections.Counter(kernel.person for kernel in alive)
    used_bytes: collections.Counter[str] = collections.Counter()
    for kernel in alive:
        used_bytes[kernel.person] += spares.room_bytes(kernel)
    idle = _idle(kernels, leased)
    owners = {kernel.person for kernel in idle.values() if counts[kernel.person] >= counts[person]}
    if person in {kernel.person for kernel in idle.values()}:
        owners = {person}
    if not owners:
        raise errors.PoolFullError(run_words.ALL_KERNELS_USED)
    largest_room = max(used_bytes[owner] for owner in owners)
    return _longest_idle(
        {
            key: kernel
            for key, kernel in idle.items()
            if kernel.person in owners and used_bytes[kernel.person] == largest_room
        }
    )


def _idle(
    kernels: Mapping[str, live_kernels.Kernel], leased: Container[str]
) -> dict[str, live_kernels.Kernel]:
    return {
        key: kernel
        for key, kernel in kernels.items()
        if kernel.is_alive and not kernel.is_busy and key not in leased
    }


def _longest_idle(idle: Mapping[str, live_kernels.Kernel]) -> str:
    return min(idle, key=lambda key: idle[key].last_used)
