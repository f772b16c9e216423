"""Calls of tools by code of sessions: written before they are made. They outlive their sessions."""

from __future__ import annotations

import dataclasses
import datetime

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_T = schema.TOOL_CALLS


_WRITTEN = [field.name for field in dataclasses.fields(records.ToolCall) if field.name != "key"]


class ToolAudit:
    """Table of calls."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def begin(self, call: records.ToolCall) -> bool:
        """Record a call that is about to be made; says whether it is the first of its id."""
        row = {name: getattr(call, name) for name in _WRITTEN} | _columns(call.key)
        adding = self._begin.insert(_T).values(row | {"began": columns.now()})
        async with self._begin.writing() as transaction:
            added = await transaction.execute(adding.on_conflict_do_nothing().returning(_T.c.id))
            return added.first() is not None

    async def end(self, call: records.ToolCall) -> None:
        """Record how a call ended."""
        ended = {
            name: getattr(call, name) for name in ("outcome", "reason", "received_bytes", "seconds")
        }
        async with self._begin.writing() as transaction:
            await transaction.execute(
                sa.update(_T).where(_T.c.call_id == call.call_id).values(**ended)
            )

    async def of_session(
        self, key: values.SessionKey, *, most: int = 100
    ) -> tuple[records.ToolCall, ...]:
        """Return the latest calls of a session, the latest first."""
        query = (
            sa.select(*(_T.c[name] for name in _WRITTEN))
            .where(*(_T.c[name] == value for name, value in _columns(key).items()))
            .order_by(_T.c.began.desc(), _T.c.id.desc())
            .limit(most)
        )
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(records.ToolCall(key=key, **row._asdict()) for row in rows)

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete those that began longer ago; returns how many."""
        old = sa.delete(_T).where(_T.c.began < columns.now() - age)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(old)).rowcount


def _columns(key: values.SessionKey) -> dict[str, str]:
    return {
        "platform": key.platform,
        "workspace": key.workspace,
        "channel": key.channel,
        "thread": key.thread,
    }
