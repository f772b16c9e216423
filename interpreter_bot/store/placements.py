"""Placements: which machine has a session's kernel and files; one row decides, by its epoch."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import sqlalchemy as sa

from interpreter_bot.store import columns, schema, transactions

_T = schema.PLACEMENTS

Placement: TypeAlias = tuple[str, int, bool]
"""Id of a host, epoch, and whether people know that the session was moved there."""


class Placements:
    """Table of placements; no row is ever deleted, as hosts remember epochs."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def find(self, key: str) -> Placement | None:
        """Return where a session is."""
        async with self._begin.reading() as transaction:
            return await _found(transaction, key)

    async def put(self, key: str, host: str, *, after: int) -> Placement:
        """Place a session, unless somebody else did meanwhile; return where it is now.

        Args:
            key: of the session.
            host: that is to have it.
            after: epoch of the placement that was found; 0 if there was none.
        """
        fields = {"host": host, "epoch": after + 1, "placed": columns.now(), "is_told": after == 0}
        made = self._begin.insert(_T).values(session_digest=_digest(key), **fields)
        statement: sa.Executable = made.on_conflict_do_nothing(index_elements=[_T.c.session_digest])
        if after:
            mine = (_T.c.session_digest == _digest(key), _T.c.epoch == after)
            statement = sa.update(_T).where(*mine).values(**fields)
        async with self._begin.writing() as transaction:
            await transaction.execute(statement)
            found = await _found(transaction, key)
        assert found is not None, "it was put there"  # noqa: S101
        return found

    async def tell(self, key: str, epoch: int) -> bool:
        """Note that people hear that a session was moved; say whether nobody did before."""
        mine = (_T.c.session_digest == _digest(key), _T.c.epoch == epoch, ~_T.c.is_told)
        async with self._begin.writing() as transaction:
            done = await transaction.execute(sa.update(_T).where(*mine).values(is_told=True))
            return bool(done.rowcount)


async def _found(transaction: transactions.Transaction, key: str) -> Placement | None:
    query = sa.select(_T.c.host, _T.c.epoch, _T.c.is_told)
    row = (await transaction.execute(query.where(_T.c.session_digest == _digest(key)))).first()
    return None if row is None else (row.host, row.epoch, row.is_told)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
