"""Hosts of a cluster: its driver reports them, and bots read their addresses."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final, Protocol

import sqlalchemy as sa

from interpreter_bot.store import columns, records, transactions

_T = records.FleetHost
_MAX_AGE: Final = datetime.timedelta(days=1)
_FIELDS: Final = ("data_id", "boot_id", "free_bytes", "memory_bytes", "is_draining")


class Report(Protocol):
    """The report of a host; see `ray_fleet.host_reports.HostReport`."""

    @property
    def address(self) -> str:
        """The address at which bots reach it."""


class FleetHosts(transactions.Aggregate):
    """Table of hosts, by their addresses."""

    async def put(self, reports: Sequence[Report]) -> None:
        """Store reports of hosts; hosts without a report for a day are deleted.

        Args:
            reports: with the columns of the table as attributes.
        """
        seen = columns.now()
        async with self._transactions.together(is_writing=True):
            for report in reports:
                fields = {name: getattr(report, name) for name in _FIELDS} | {"seen": seen}
                insert = self._transactions.insert(_T).values(address=report.address, **fields)
                await self._transactions.change(
                    insert.on_conflict_do_update(index_elements=["address"], set_=fields)
                )
            await self._transactions.change(sa.delete(_T).where(_T.seen < seen - _MAX_AGE))

    async def list_addresses(self) -> list[str]:
        """Return the addresses of all hosts, including those without a recent report."""
        return list(await self._transactions.all(sa.select(_T.address).order_by(_T.address)))
