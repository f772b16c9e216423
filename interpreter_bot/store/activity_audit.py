"""What code of sessions did through its doors: contacts with the outside, queries of data,
installations of packages.

They outlive their sessions.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import sqlalchemy as sa

from interpreter_bot import outside_access, values
from interpreter_bot.store import columns, records, schema, transactions

Done = TypeVar("Done", outside_access.Contact, outside_access.Query, records.Installation)

_OF_SESSION: Final = ("id", "platform", "workspace", "channel", "thread", "began")


class AuditTable(Generic[Done]):
    """Table of one kind of them.

    Attributes:
        name: of the table.
    """

    def __init__(
        self,
        begin: transactions.Transactions,
        table: sa.Table,
        kind: type[Done],
        *,
        unique: Sequence[str] = (),
    ) -> None:
        self._begin = begin
        self.name = table.name
        self._table = table
        self._kind: type[Done] = kind
        self._fields = [one.name for one in table.columns if one.name not in _OF_SESSION]
        self._insert = _insert(table, unique)

    async def add(self, found: Sequence[Done]) -> None:
        """Add what is over; what is told again is there once."""
        rows = [self._row(one) for one in found]
        async with self._begin.writing() as transaction:
            await transaction.execute(self._insert, rows)

    async def of_session(self, key: values.SessionKey, *, most: int = 100) -> tuple[Done, ...]:
        """Return the latest of a session, the latest first."""
        chosen = [self._table.c[name] == value for name, value in _columns(key).items()]
        return await self._latest(sa.select(self._table).where(*chosen), most)

    async def latest(self, *, most: int) -> tuple[Done, ...]:
        """Return the latest of all sessions, the latest first."""
        return await self._latest(sa.select(self._table), most)

    async def _latest(self, query: sa.Select[Any], most: int) -> tuple[Done, ...]:
        table = self._table
        query = query.order_by(table.c.began.desc(), table.c.id.desc()).limit(most)
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(
            self._kind(
                values.text(
                    values.SessionKey(row.platform, row.workspace, row.channel, row.thread)
                ),
                at=row.began.timestamp(),
                **{name: getattr(row, name) for name in self._fields},
            )
            for row in rows
        )

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete those that began longer ago; returns how many."""
        old = sa.delete(self._table).where(self._table.c.began < columns.now() - age)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(old)).rowcount

    def _row(self, one: Done) -> dict[str, object]:
        fields: dict[str, object] = {name: getattr(one, name) for name in self._fields}
        began = datetime.datetime.fromtimestamp(one.at, datetime.UTC)
        return fields | _columns(values.key(one.key)) | {"began": began}


def contacts(begin: transactions.Transactions) -> AuditTable[outside_access.Contact]:
    """Return the table of contacts with the outside."""
    return AuditTable(begin, schema.CONTACTS, outside_access.Contact)


def queries(begin: transactions.Transactions) -> AuditTable[outside_access.Query]:
    """Return the table of queries of data connections."""
    return AuditTable(begin, schema.QUERIES, outside_access.Query)


def installations(begin: transactions.Transactions) -> AuditTable[records.Installation]:
    """Return the table of packages that were installed."""
    unique = ("kernel_id", "layer")
    return AuditTable(begin, schema.INSTALLATIONS, records.Installation, unique=unique)


def _insert(table: sa.Table, unique: Sequence[str]) -> sa.Insert:
    """Return what inserts a row, unless there is one with the same in these columns."""
    if not unique:
        return sa.insert(table)
    columns = [one for one in table.columns if one.name != "id"]
    given = {one.name: sa.bindparam(one.name, type_=one.type) for one in columns}
    same = [table.c[name] == sa.bindparam(name, type_=table.c[name].type) for name in unique]
    is_new = ~sa.exists().where(*same)
    return sa.insert(table).from_select(list(given), sa.select(*given.values()).where(is_new))


def _columns(key: values.SessionKey) -> dict[str, str]:
    return {
        "platform": key.platform,
        "workspace": key.workspace,
        "channel": key.channel,
        "thread": key.thread,
    }
