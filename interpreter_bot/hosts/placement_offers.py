"""Where sessions are placed, and what hosts offer: values and ports of `placed_hosts`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

_MOST_ASKED: Final = 16
_FEW: Final = 4

Host = TypeVar("Host")


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a host could be for a session: it may have its files, and so much free memory."""

    has_files: bool
    free_bytes: int


def to_ask(
    hosts: Sequence[Host], *, sample: Callable[[Sequence[Host], int], list[Host]] = random.sample
) -> Sequence[Host]:
    """Choose which hosts are asked for an offer.

    All of a few, as one may have files from before there were several; of many some by chance, as
    else each new session would cost a question to each machine.

    Args:
        hosts: those that take sessions.
        sample: draws so many by chance.
    """
    return hosts if len(hosts) <= _MOST_ASKED else sample(hosts, _FEW)


def best(
    offers: Sequence[tuple[Host, Offer]],
    *,
    sample: Callable[[Sequence[tuple[Host, Offer]], int], list[tuple[Host, Offer]]] = random.sample,
) -> Host | None:
    """Choose among offers: who has the files, else the roomier of two by chance.

    Not the roomiest of all: everybody would go there until it is heard how full it is by now.

    Args:
        offers: of the hosts that answered.
        sample: draws so many by chance.
    """
    for host, offer in offers:
        if offer.has_files:
            return host
    two = sample(offers, min(2, len(offers)))
    return max(two, key=lambda pair: pair[1].free_bytes)[0] if two else None


class Placements(Protocol):
    """Which host has which session. One row of a database decides, by its epoch.

    A placement is the id of a host's data directory, an epoch, and whether people know that the
    session was moved there.
    """

    async def find(self, key: str) -> tuple[str, int, bool] | None:
        """Return where a session is."""

    async def put(self, key: str, host: str, *, after: int) -> tuple[str, int, bool]:
        """Place a session, unless somebody else did meanwhile; return where it is now.

        Args:
            key: of the session.
            host: that is to have it.
            after: epoch of the placement that was found; 0 if there was none.
        """

    async def mark_told(self, key: str, epoch: int) -> bool:
        """Note that people hear that a session was moved; say whether nobody did before."""
