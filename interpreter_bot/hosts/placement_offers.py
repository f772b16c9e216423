"""Where sessions are placed, and what hosts offer: values and ports of `placed_hosts`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from interpreter_bot import values

_MAX_HOSTS_ASKED: Final = 16
_SAMPLE_SIZE: Final = 4

Host = TypeVar("Host")


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a host offers a session: the files that it may have, and its free memory."""

    has_files: bool
    free_bytes: int


def sample_hosts(
    hosts: Sequence[Host], *, sample: Callable[[Sequence[Host], int], list[Host]] = random.sample
) -> Sequence[Host]:
    """Choose which hosts are asked for an offer: all of a few, or a random sample of many.

    One of a few may have the session's files from before there were several hosts. Asking all of
    many would cost each new session a request to each machine.
    """
    return hosts if len(hosts) <= _MAX_HOSTS_ASKED else sample(hosts, _SAMPLE_SIZE)


def choose(
    offers: Sequence[tuple[Host, Offer]],
    *,
    sample: Callable[[Sequence[tuple[Host, Offer]], int], list[tuple[Host, Offer]]] = random.sample,
) -> Host | None:
    """Choose the host that has the files, else the one with more free memory of a random two.

    The one with the most memory of all would get every new session until its next status.
    """
    for host, offer in offers:
        if offer.has_files:
            return host
    sampled = sample(offers, min(2, len(offers)))
    return max(sampled, key=lambda pair: pair[1].free_bytes)[0] if sampled else None


class Placements(Protocol):
    """Which host has which session. One row of a database decides, by its epoch."""

    async def find(self, key: str) -> values.Placement | None:
        """Return where a session is."""

    async def put(self, key: str, host: str, *, after: int) -> values.Placement:
        """Place a session on a host, and return its placement.

        Nothing changes if the present epoch is not `after`: another bot placed it meanwhile. It is
        0 for a session without a placement.
        """

    async def mark_announced(self, key: str, epoch: int) -> bool:
        """Record that people see a notice of a move; return whether it is the first one."""
