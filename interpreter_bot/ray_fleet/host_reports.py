"""Reports on the hosts of a cluster, their table for bots, and how many hosts there should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """The host of one node, at one moment.

    Attributes:
        address: at which bots reach it, as an entry of `host.fleet`.
        data_id: of its data directory.
        free_bytes: free memory for sessions.
        memory_bytes: memory of the host and its sessions together.
        is_draining: whether it takes no new sessions.
    """

    address: str
    data_id: str
    free_bytes: int
    memory_bytes: int
    is_draining: bool

    @property
    def free_ratio(self) -> float:
        """Free part of its memory, from 0 to 1; 0 while it is draining."""
        return 0.0 if self.is_draining else self.free_bytes / max(1, self.memory_bytes)


class HostTable(Protocol):
    """Table in which bots read the addresses of hosts."""

    async def put(self, reports: Sequence[HostReport]) -> None:
        """Store reports; a host without a new report stays in the table for a day."""


def target_host_count(reports: Sequence[HostReport], *, min_free_ratio: float) -> int:
    """Return the number of hosts to have: one more than now if all together lack free memory.

    `min_free_ratio` is the part of their memory that should be free, from 0 to 1.
    """
    if not reports:
        return 0
    memory_bytes = sum(report.memory_bytes for report in reports)
    free_bytes = sum(report.free_ratio * report.memory_bytes for report in reports)
    is_host_missing = free_bytes < min_free_ratio * memory_bytes
    return len(reports) + is_host_missing
