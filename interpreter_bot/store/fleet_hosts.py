"""Hosts of a cluster: the cluster's driver reports them, and bots read their addresses."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final, Protocol

import sqlalchemy as sa

from interpreter_bot.store import columns, records, transactions

_HOSTS = records.FleetHost
_MAX_AGE: Final = datetime.timedelta(days=1)
_REPORTED_COLUMNS: Final = ("data_id", "free_bytes", "memory_bytes", "is_draining")


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
            reports: each has the table's columns as attributes.
        """
        now = columns.now()
        async with self._transactions.transaction(is_writing=True):
            for report in reports:
                fields = {name: getattr(report, name) for name in _REPORTED_COLUMNS} | {"seen": now}
                insert = self._transactions.insert(_HOSTS).values(address=report.address, **fields)
                await self._transactions.change(
                    insert.on_conflict_do_update(index_elements=["address"], set_=fields)
                )
            await self._transactions.change(sa.delete(_HOSTS).where(_HOSTS.seen < now - _MAX_AGE))

    async def list_addresses(self) -> list[str]:
        """Return the addresses of all hosts, including those without a recent report."""
        return list(
            await self._transactions.all(sa.select(_HOSTS.address).order_by(_HOSTS.address))
        )
