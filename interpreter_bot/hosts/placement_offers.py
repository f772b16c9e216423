"""Placements of sessions, and offers of hosts for them: values and ports of `placed_hosts`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from interpreter_bot import values

_MAX_ASKED_HOSTS: Final = 16
_SAMPLE_SIZE: Final = 4

Host = TypeVar("Host")


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Offer of a host to a session: whether it has the session's files, and its free memory."""

    has_files: bool
    free_bytes: int


def sample_hosts(
    hosts: Sequence[Host], *, sample: Callable[[Sequence[Host], int], list[Host]] = random.sample
) -> Sequence[Host]:
    """Choose the hosts to ask for an offer: all, or a random sample if there are many.

    A small fleet may have grown from one host, which may have files of the session, so all are
    asked. In a large fleet, each new session would cost a request to each machine.
    """
    return hosts if len(hosts) <= _MAX_ASKED_HOSTS else sample(hosts, _SAMPLE_SIZE)


def choose_host(
    offers: Sequence[tuple[Host, Offer]],
    *,
    sample: Callable[[Sequence[tuple[Host, Offer]], int], list[tuple[Host, Offer]]] = random.sample,
) -> Host | None:
    """Choose the host that has the session's files, else the emptier of two random hosts.

    The emptiest of all hosts would get every new session until its next status.
    """
    for host, offer in offers:
        if offer.has_files:
            return host
    sampled = sample(offers, min(2, len(offers)))
    return max(sampled, key=lambda pair: pair[1].free_bytes)[0] if sampled else None


class Placements(Protocol):
    """The hosts of sessions. A row of the database decides each, by its epoch."""

    async def find(self, key: str) -> values.Placement | None:
        """Return the placement of a session; None if it has none."""

    async def put(self, key: str, data_id: str, *, former_epoch: int) -> values.Placement:
        """Place a session on the host of a data directory, and return its placement.

        Nothing changes if the present epoch is not `former_epoch`, because another bot has placed
        the session meanwhile. A session without a placement is in epoch 0.
        """

    async def mark_announced(self, key: str, epoch: int) -> bool:
        """Record that people are told of a move; return whether nobody recorded it before."""
