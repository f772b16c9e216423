"""What code of sessions did: contacts with the outside, queries of data, installations of packages,
and calls of tools.

They outlive their sessions.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import sqlalchemy as sa

from interpreter_bot import code_activity, values
from interpreter_bot.store import columns, records, schema, transactions

Done = TypeVar("Done", code_activity.Contact, code_activity.Query, records.Installation)

_CALLS = schema.TOOL_CALLS
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

    async def latest(self, *, limit: int) -> tuple[Done, ...]:
        """Return the latest of all sessions, the latest first."""
        table = self._table
        query = sa.select(table).order_by(table.c.began.desc(), table.c.id.desc()).limit(limit)
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
        return await _prune(self._begin, self._table, age)

    def _row(self, one: Done) -> dict[str, object]:
        fields: dict[str, object] = {name: getattr(one, name) for name in self._fields}
        began = datetime.datetime.fromtimestamp(one.at, datetime.UTC)
        return fields | dataclasses.asdict(values.key(one.key)) | {"began": began}


class ToolAudit:
    """Table of calls of tools, each of which is written before it is made."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def begin(self, call: records.ToolCall) -> bool:
        """Record a call that is about to be made; says whether it is the first of its id."""
        row = dataclasses.asdict(call)
        key = row.pop("key")
        adding = self._begin.insert(_CALLS).values(row | key | {"began": columns.now()})
        is_first = adding.on_conflict_do_nothing().returning(_CALLS.c.id)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(is_first)).first() is not None

    async def end(self, call: records.ToolCall) -> None:
        """Record how a call ended."""
        ended = {
            name: getattr(call, name) for name in ("outcome", "reason", "received_bytes", "seconds")
        }
        async with self._begin.writing() as transaction:
            await transaction.execute(
                sa.update(_CALLS).where(_CALLS.c.call_id == call.call_id).values(**ended)
            )

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete those that began longer ago; returns how many."""
        return await _prune(self._begin, _CALLS, age)


def contacts(begin: transactions.Transactions) -> AuditTable[code_activity.Contact]:
    """Return the table of contacts with the outside."""
    return AuditTable(begin, schema.CONTACTS, code_activity.Contact)


def queries(begin: transactions.Transactions) -> AuditTable[code_activity.Query]:
    """Return the table of queries of data connections."""
    return AuditTable(begin, schema.QUERIES, code_activity.Query)


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


async def _prune(begin: transactions.Transactions, table: sa.Table, age: datetime.timedelta) -> int:
    old = sa.delete(table).where(table.c.began < columns.now() - age)
    async with begin.writing() as transaction:
        return (await transaction.execute(old)).rowcount
