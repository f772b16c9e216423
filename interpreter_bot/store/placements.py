"""Placements: which machine has a session's kernel and files; one row decides, by its epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, schema, transactions

_T = schema.PLACEMENTS
_PLACEMENT = (_T.c.host, _T.c.epoch, _T.c.is_told)
# Made once: each turn asks several times.
_FIND = sa.select(*_PLACEMENT).where(_T.c.session_digest == sa.bindparam("digest"))


class Placements:
    """Table of placements; no row is ever deleted, as hosts remember epochs."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def find(self, key: str) -> values.Placement | None:
        """Return where a session is."""
        async with self._begin.alone() as transaction:
            return _read((await transaction.execute(_FIND, {"digest": _digest(key)})).first())

    async def of(self, keys: Collection[str]) -> dict[str, values.Placement]:
        """Return where sessions are that are anywhere, in one query for all that ever were."""
        async with self._begin.alone() as transaction:
            rows = await transaction.execute(sa.select(_T.c.session_digest, *_PLACEMENT))
            found = {
                row.session_digest: values.Placement(row.host, row.epoch, row.is_told)
                for row in rows
            }
        return {key: found[digest] for key in keys if (digest := _digest(key)) in found}

    async def put(self, key: str, host: str, *, after: int) -> values.Placement:
        """Place a session, unless somebody else did meanwhile; return where it is now.

        Args:
            key: of the session.
            host: that is to have it.
            after: epoch of the placement that was found; 0 if there was none.
        """
        fields = {"host": host, "epoch": after + 1, "placed": columns.now(), "is_told": after == 0}
        statement: sa.Executable
        if after:
            mine = (_T.c.session_digest == _digest(key), _T.c.epoch == after)
            statement = sa.update(_T).where(*mine).values(**fields).returning(*_PLACEMENT)
        else:
            made = self._begin.insert(_T).values(session_digest=_digest(key), **fields)
            # An update that changes nothing: else the row of who was first would not be returned.
            statement = made.on_conflict_do_update(
                index_elements=[_T.c.session_digest], set_={"epoch": _T.c.epoch}
            ).returning(*_PLACEMENT)
        async with self._begin.writing() as transaction:
            placed = _read((await transaction.execute(statement)).first())
        found = placed or await self.find(key)
        assert found is not None, "it was put there"  # noqa: S101
        return found

    async def mark_announced(self, key: str, epoch: int) -> bool:
        """Note that people hear that a session was moved; say whether nobody did before."""
        mine = (_T.c.session_digest == _digest(key), _T.c.epoch == epoch, ~_T.c.is_told)
        async with self._begin.writing() as transaction:
            done = await transaction.execute(sa.update(_T).where(*mine).values(is_told=True))
            return bool(done.rowcount)


def _read(row: sa.Row[Any, Any, Any] | None) -> values.Placement | None:
    return None if row is None else values.Placement(row.host, row.epoch, row.is_told)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
