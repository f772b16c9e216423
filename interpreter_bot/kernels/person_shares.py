"""Shares of people: whose kernel goes first, who may have one more, what each session weighs.

A person is an opaque key of those who ask. A kernel that nobody in particular asked for, such as
the doctor's, is a person's of its own.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Container, Mapping

from interpreter_bot import errors
from interpreter_bot.kernels import launchers, spares

_TOO_MANY = (
    "All {count} Python kernels that one person may have at a time are in use. "
    "Please wait until one of your other conversations is done, or stop it."
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


def weigh(awake: Collection[launchers.LaunchedKernel]) -> None:
    """Divide the processor and the disk among people, and each one's share among their sessions.

    All busy sessions of a person weigh as much together as the one of another. An idle one, in
    which code may run on in the background, weighs less than each of them.

    Args:
        awake: all that are not frozen.
    """
    kernels = collections.Counter(one.person for one in awake)
    busy = collections.Counter(one.person for one in awake if one.kernel.is_busy)
    for one in awake:
        among = busy[one.person] if one.kernel.is_busy else kernels[one.person]
        if one.weight != (weight := 1 / among):
            one.weight = weight
            one.provisioner.set_weight(weight)
