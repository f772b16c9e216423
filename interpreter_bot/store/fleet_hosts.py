"""Hosts of a cluster, as whoever drives it last said: bots read where they are."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final, Protocol

import sqlalchemy as sa

from interpreter_bot.store import columns, schema, transactions

_T = schema.HOSTS
_KEPT: Final = datetime.timedelta(days=1)
_FIELDS: Final = ("data_id", "boot_id", "free_bytes", "memory_bytes", "is_draining")


class Report(Protocol):
    """What is written of one host; see `ray_fleet.host_reports.HostReport`."""

    @property
    def address(self) -> str:
        """Where bots reach it."""


class FleetHosts:
    """Table of hosts, by their addresses."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def put(self, reports: Sequence[Report]) -> None:
        """Write what is known of hosts now; who was not heard of for a day is forgotten.

        Args:
            reports: with the columns of the table as attributes.
        """
        seen = columns.now()
        async with self._begin.writing() as transaction:
            for one in reports:
                fields = {name: getattr(one, name) for name in _FIELDS} | {"seen": seen}
                made = self._begin.insert(_T).values(address=one.address, **fields)
                await transaction.execute(
                    made.on_conflict_do_update(index_elements=[_T.c.address], set_=fields)
                )
            await transaction.execute(sa.delete(_T).where(_T.c.seen < seen - _KEPT))

    async def addresses(self) -> list[str]:
        """Return where hosts are, also those that were not heard of just now."""
        async with self._begin.alone() as transaction:
            found = await transaction.execute(sa.select(_T.c.address).order_by(_T.c.address))
            return list(found.scalars())
