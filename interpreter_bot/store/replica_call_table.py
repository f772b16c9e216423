"""Calls between instances of the bot: one asks all others, and who has what it is about does it.

A row is a call. It is taken by one statement, so that it is done once at most, and deleted by who
asked. Instances hear of changes from their server (LISTEN and NOTIFY), and look now and then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot.store import liveness, records, schema, transactions

_C = schema.INSTANCE_CALLS
# Nobody waits for an answer as long.
_OLDEST: Final = datetime.timedelta(seconds=30)
# Who asks withdraws before (`sessions.replica_calls`), unless it died or lost the database: what a
# person was told has failed is not done later, as a Stop that would hit their next request.
_OLDEST_TAKEN: Final = datetime.timedelta(seconds=5)


class ReplicaCallTable:
    """Table of calls, as this instance sees it."""

    def __init__(self, begin: transactions.Transactions, instance: liveness.Instance) -> None:
        self._begin = begin
        self._instance = instance

    async def wait(self) -> None:
        """Wait until there may be a call, or an answer."""
        await self._instance.wait()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Be one of those that are asked, as long as the context is open."""
        await self._instance.serve(is_serving=True)
        try:
            yield
        finally:
            await self._instance.serve(is_serving=False)

    async def count_others(self) -> int:
        """Count the other instances that do what they are asked for."""
        async with self._begin.reading() as transaction:
            return await self._instance.count_others(transaction)

    async def begin(self, name: str, content: Mapping[str, Any]) -> int:
        """Ask all others; return the id of the call.

        Args:
            name: of what is to be done.
            content: JSON that says it.
        """
        fields = {"sender": self._instance.id, "name": name, "taker": "", "refusals": 0}
        began = self._begin.clock(ago=datetime.timedelta())
        insert = sa.insert(_C).values(began=began, content=content, **fields)
        async with self._begin.writing() as transaction:
            made = await transaction.execute(insert.returning(_C.c.id))
            await self._instance.notify(transaction)
            return int(made.scalar_one())

    async def waiting(self) -> tuple[records.InstanceCall, ...]:
        """Return the calls of others that nobody has taken, the oldest first."""
        is_young = _C.c.began > self._begin.clock(ago=_OLDEST_TAKEN)
        return await self._found(_C.c.sender != self._instance.id, _C.c.taker == "", is_young)

    async def own(self) -> tuple[records.InstanceCall, ...]:
        """Return the calls of this instance, as they stand."""
        return await self._found(_C.c.sender == self._instance.id)

    async def take(self, call_id: int) -> bool:
        """Take a call; True for exactly one instance, unless who asked waits no more.

        What it says is deleted: it may be a password.
        """
        is_young = _C.c.began > self._begin.clock(ago=_OLDEST_TAKEN)
        take = sa.update(_C).where(_C.c.id == call_id, _C.c.taker == "", is_young)
        async with self._begin.writing() as transaction:
            done = await transaction.execute(take.values(taker=self._instance.id, content={}))
            return bool(done.rowcount)

    async def answer(self, call_id: int, answer: Mapping[str, Any]) -> None:
        """Answer a call that this instance has taken."""
        await self._change(call_id, answer=answer)

    async def refuse(self, call_id: int) -> None:
        """Say that this instance does not have what a call is about."""
        await self._change(call_id, refusals=_C.c.refusals + 1)

    async def withdraw(self, call_id: int) -> bool:
        """Delete a call that nobody has taken; return whether nobody had."""
        return await self._delete(_C.c.id == call_id, _C.c.taker == "")

    async def end(self, call_id: int) -> None:
        """Delete a call."""
        await self._delete(_C.c.id == call_id)

    async def prune(self) -> None:
        """Delete calls whose instance died before it had the answer."""
        await self._delete(_C.c.began < self._begin.clock(ago=_OLDEST))

    async def _found(self, *which: sa.ColumnElement[bool]) -> tuple[records.InstanceCall, ...]:
        names = [one.name for one in dataclasses.fields(records.InstanceCall)]
        query = sa.select(*(_C.c[name] for name in names)).where(*which).order_by(_C.c.id)
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(records.InstanceCall(**row._asdict()) for row in rows)

    async def _change(self, call_id: int, **fields: object) -> None:
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.update(_C).where(_C.c.id == call_id).values(**fields))
            await self._instance.notify(transaction)

    async def _delete(self, *which: sa.ColumnElement[bool]) -> bool:
        async with self._begin.writing() as transaction:
            return bool((await transaction.execute(sa.delete(_C).where(*which))).rowcount)
