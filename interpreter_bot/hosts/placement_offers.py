"""Where sessions are placed, and what hosts offer for that: values and ports of `placed_hosts`."""

from __future__ import annotations

import dataclasses
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a host could be for a session: it may have its files, and so much free memory."""

    has_files: bool
    free_bytes: int


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

    async def tell(self, key: str, epoch: int) -> bool:
        """Note that people hear that a session was moved; say whether nobody did before."""
