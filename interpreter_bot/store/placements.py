"""Placements: the host with the kernel and files of a session. The row of the session decides."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_PLACEMENTS = records.Placement


class Placements(transactions.Aggregate):
    """Table of placements; no row is ever deleted, as hosts remember epochs."""

    async def find(self, key: str) -> values.Placement | None:
        """Return the placement of a session."""
        row = await self._transactions.first(
            sa.select(_PLACEMENTS).where(_PLACEMENTS.session_digest == _digest(key))
        )
        return None if row is None else _placement(row)

    async def find_all(self, keys: Collection[str]) -> dict[str, values.Placement]:
        """Return the placements of those sessions that have one, by one query for all."""
        rows = await self._transactions.all(sa.select(_PLACEMENTS))
        placements = {row.session_digest: _placement(row) for row in rows}
        return {key: placements[digest] for key in keys if (digest := _digest(key)) in placements}

    async def put(self, key: str, data_id: str, *, former_epoch: int) -> values.Placement:
        """Place a session unless another bot did so first; return its placement.

        Args:
            data_id: of the data directory of the host to place it on.
            former_epoch: epoch of the placement to replace; 0 if there is none.
        """
        fields = {
            "host": data_id,
            "epoch": former_epoch + 1,
            "placed": columns.now(),
            "is_announced": former_epoch == 0,
        }
        if former_epoch:
            is_former = (
                _PLACEMENTS.session_digest == _digest(key),
                _PLACEMENTS.epoch == former_epoch,
            )
            await self._transactions.change(
                sa.update(_PLACEMENTS).where(*is_former).values(**fields)
            )
        else:
            insert = self._transactions.insert(_PLACEMENTS).values(
                session_digest=_digest(key), **fields
            )
            await self._transactions.change(insert.on_conflict_do_nothing())
        placement = await self.find(key)
        assert placement is not None, "it was put there"  # noqa: S101
        return placement

    async def mark_announced(self, key: str, epoch: int) -> bool:
        """Record that people are told of a move; return False if that is recorded already."""
        is_unannounced = (
            _PLACEMENTS.session_digest == _digest(key),
            _PLACEMENTS.epoch == epoch,
            ~_PLACEMENTS.is_announced,
        )
        return (
            await self._transactions.change(
                sa.update(_PLACEMENTS).where(*is_unannounced).values(is_announced=True)
            )
            == 1
        )


def _placement(row: records.Placement) -> values.Placement:
    return values.Placement(row.host, row.epoch, row.is_announced)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
