"""Room for new kernels: a spare kernel, free room, or the room of an evicted idle kernel.

An idle kernel is evicted only once its variables are saved. If all kernels are in use, a start
waits until one becomes idle.

A person is an opaque key. A kernel that no person asked for, such as the doctor's, counts for the
session's own key.
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
        start_saving: Callable[[str], asyncio.Task[None] | None],
        end_kernel: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Reserve nothing yet. `start_saving` returns None if a session has nothing to save."""
        self._config = config
        self._kernels = kernels
        self._holders = holders
        self._shutdowns = shutdowns
        self._start_saving = start_saving
        self._end_kernel = end_kernel
        # Starts look for room one after the other; together they would evict too many kernels.
        self._lock = asyncio.Lock()
        self._reserved_counts: collections.Counter[str] = collections.Counter()
        self._changed = asyncio.Event()
        self._wait_reasons: dict[str, str] = {}

    async def reserve(self, key: str, person: str, spare_kernels: spares.Spares) -> Room:
        """Reserve room for a session's kernel until `free`; wait for room if the session is leased.

        Raises:
            PoolFullError: there is no room now, and the session is not leased.
        """
        if spare_kernels.pending_launch is not None:
            # The starting spare is ready sooner than a kernel whose start begins now.
            await asyncio.wait({spare_kernels.pending_launch})
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
            while (
                own_session := choose_own_session_to_evict(
                    person,
                    self._kernels,
                    starting_count=self._reserved_counts[person],
                    max_kernels=self._config.per_person,
                    leased_sessions=self._holders,
                )
            ) is not None:
                if (save_task := self._start_saving(own_session)) is not None:
                    return save_task
                await self._end_kernel(own_session, run_words.STOPPED_FOR_OWN)
            while (room := await self._free_room(spare_kernels)) is None:
                if self._shutdowns:
                    await self._shutdowns.wait_for_any()
                    continue
                if spare_kernels.pending_launch is not None:
                    await asyncio.wait({spare_kernels.pending_launch})
                    continue
                other_session = choose_session_to_evict(person, self._kernels, self._holders)
                if (save_task := self._start_saving(other_session)) is not None:
                    return save_task
                await self._end_kernel(other_session, run_words.STOPPED_FOR_OTHERS)
        except errors.PoolFullError as error:
            if key not in self._holders:
                raise
            self._wait_reasons[key] = str(error)
            return None
        self._reserved_counts[person] += 1
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
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECHECK_SECONDS):
                await self._changed.wait()

    def free(self, person: str) -> None:
        """End a person's reservation for one kernel: it is live now, or it did not start."""
        self._reserved_counts[person] -= 1
        self._reserved_counts += collections.Counter()  # drops people without reservations
        self.note_change()

    def has_room(self, spare_kernels: spares.Spares) -> bool:
        starting_or_ending_count = (
            self._reserved_counts.total() + spare_kernels.kernel_count + len(self._shutdowns)
        )
        return spares.has_room(self._config, self._kernels.values(), starting_or_ending_count)

    def last_used(self) -> float:
        """Return when a live kernel was used last, in monotonic seconds; minus infinity if none."""
        now = time.monotonic()
        # A leased kernel counts as in use: the model may think for long before it runs more code.
        times_of_use = (
            now if key in self._holders else kernel.last_used
            for key, kernel in self._kernels.items()
        )
        return max(times_of_use, default=-math.inf)


def choose_own_session_to_evict(
    person: str,
    kernels: Mapping[str, live_kernels.Kernel],
    *,
    starting_count: int,
    max_kernels: int,
    leased_sessions: Container[str],
) -> str | None:
    """Return the session that loses its kernel to a new one of the same person.

    None means that the person is below the limit; `max_kernels` 0 means no limit. `kernels` are all
    kernels by session, `starting_count` is the number of the person's starting kernels, and
    `leased_sessions` are not idle.

    Raises:
        PoolFullError: the person is at the limit, and all their kernels are in use.
    """
    own_kernels = {
        key: kernel
        for key, kernel in kernels.items()
        if kernel.person == person and kernel.is_alive
    }
    if not max_kernels or len(own_kernels) + starting_count < max_kernels:
        return None
    idle_kernels = _idle_kernels(own_kernels, leased_sessions)
    if not idle_kernels:
        raise errors.PoolFullError(run_words.too_many_sessions(max_kernels))
    return _longest_idle_session(idle_kernels)


def choose_session_to_evict(
    person: str, kernels: Mapping[str, live_kernels.Kernel], leased_sessions: Container[str]
) -> str:
    """Return the session whose idle kernel is evicted for a new kernel of a person.

    An idle kernel of the same person comes first, else one of the person whose kernels take the
    most room. Nobody loses a kernel to a person who has more kernels.

    Raises:
        PoolFullError: no kernel can be evicted.
    """
    alive_kernels = [kernel for kernel in kernels.values() if kernel.is_alive]
    kernel_counts = collections.Counter(kernel.person for kernel in alive_kernels)
    bytes_by_person: collections.Counter[str] = collections.Counter()
    for kernel in alive_kernels:
        bytes_by_person[kernel.person] += spares.room_bytes(kernel)
    idle_kernels = _idle_kernels(kernels, leased_sessions)
    owners = {
        kernel.person
        for kernel in idle_kernels.values()
        if kernel_counts[kernel.person] >= kernel_counts[person]
    }
    if person in {kernel.person for kernel in idle_kernels.values()}:
        owners = {person}
    if not owners:
        raise errors.PoolFullError(run_words.ALL_KERNELS_USED)
    max_bytes = max(bytes_by_person[owner] for owner in owners)
    return _longest_idle_session(
        {
            key: kernel
            for key, kernel in idle_kernels.items()
            if kernel.person in owners and bytes_by_person[kernel.person] == max_bytes
        }
    )


def _idle_kernels(
    kernels: Mapping[str, live_kernels.Kernel], leased_sessions: Container[str]
) -> dict[str, live_kernels.Kernel]:
    return {
        key: kernel
        for key, kernel in kernels.items()
        if kernel.is_alive and not kernel.is_busy and key not in leased_sessions
    }


def _longest_idle_session(idle_kernels: Mapping[str, live_kernels.Kernel]) -> str:
    return min(idle_kernels, key=lambda key: idle_kernels[key].last_used)
