"""What is told of a host on a node of a cluster, and where that is written for bots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """A host of one node, at one moment.

    Attributes:
        address: where bots reach it, as an entry of `host.fleet`.
        data_id: of its data directory.
        boot_id: of its machine's last start.
        free_bytes: memory that is left for sessions.
        memory_bytes: memory that it and its sessions may have.
        is_draining: it takes no new sessions.
    """

    address: str
    data_id: str
    boot_id: str
    free_bytes: int
    memory_bytes: int
    is_draining: bool

    @property
    def room(self) -> float:
        """Which part of its memory is left, from 0 to 1; none where it takes no sessions."""
        return 0.0 if self.is_draining else self.free_bytes / max(1, self.memory_bytes)


class HostTable(Protocol):
    """Table of hosts that bots read."""

    async def put(self, reports: Sequence[HostReport]) -> None:
        """Write what is known of hosts now; others stay as they are, for a day."""


def wanted_hosts(reports: Sequence[HostReport], *, least_room: float) -> int:
    """Return how many hosts there should be: one more where too little is left of all. Pure.

    Args:
        reports: of the hosts that there are.
        least_room: part of all their memory, from 0 to 1.
    """
    if not reports:
        return 0
    memory_bytes = sum(report.memory_bytes for report in reports)
    left_bytes = sum(report.room * report.memory_bytes for report in reports)
    return len(reports) + (left_bytes < least_room * memory_bytes)
