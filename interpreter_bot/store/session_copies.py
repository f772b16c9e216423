"""Copies of conversations: a new session that begins with what was said in another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, liveness, records, schema, transactions

_TURNS, _PARTS, _EXECUTIONS = schema.TURNS, schema.PARTS, schema.EXECUTIONS
_MOST_TURNS: Final = 500


class SessionCopies:
    """Makes copies of sessions; their turns belong to this instance of the bot."""

    def __init__(self, begin: transactions.Transactions, instance: liveness.Instance) -> None:
        self._begin = begin
        self._instance = instance

    async def add(
        self,
        source: records.Session,
        key: values.SessionKey,
        *,
        person: str,
        notice: str,
        title: str,
        kernel: Mapping[str, Any],
    ) -> None:
        """Copy a session, all of it or nothing: its latest turns that are over, and no usage.

        Args:
            source: what is copied.
            key: of the copy; there is no such session.
            person: who wanted it; it counts as theirs.
            notice: its first part, which says what it is.
            title: of the copy.
            kernel: as in `records.Session`.

        Raises:
            StoreError: the database cannot be used, or there is such a session.
        """
        now = columns.now()
        begun = {"created": now, "used": now, "title": title, "model": source.model}
        named = {
            name: getattr(key, name) for name in ("platform", "workspace", "channel", "thread")
        }
        session = sa.insert(schema.SESSIONS).values(kernel=dict(kernel), **begun, **named)
        first = {
            "person": person,
            "request_id": "",
            "request": "",
            "attachments": [],
            "status": values.TurnStatus.DONE.value,
            "answer": "",
            "owner": self._instance.id,
            "started": now,
            "ended": now,
        }
        part = {"step": 0, "kind": records.PartKind.NOTICE.value, "text": notice, "created": now}
        over = _TURNS.c.status != values.TurnStatus.RUNNING.value
        latest = sa.select(_TURNS.c.id).where(_TURNS.c.session_id == source.id, over)
        latest = latest.order_by(_TURNS.c.id.desc()).limit(_MOST_TURNS)
        async with self._begin.writing() as transaction:
            made = await _inserted(transaction, session, schema.SESSIONS)
            opening = sa.insert(_TURNS).values(session_id=made, **first)
            turn = await _inserted(transaction, opening, _TURNS)
            await transaction.execute(sa.insert(_PARTS).values(turn_id=turn, **part))
            for old in reversed((await transaction.execute(latest)).scalars().all()):
                await self._copy_turn(transaction, old, made)

    async def _copy_turn(
        self, transaction: transactions.Transaction, old: int, session_id: int
    ) -> None:
        own = {"session_id": session_id, "owner": self._instance.id, "request_id": ""}
        new = await _inserted(transaction, _copied(_TURNS, _TURNS.c.id == old, **own), _TURNS)
        numbers = {}
        whose = sa.select(_EXECUTIONS.c.id).where(_EXECUTIONS.c.turn_id == old)
        whose = whose.order_by(_EXECUTIONS.c.id)
        for one in (await transaction.execute(whose)).scalars().all():
            # Its host knows it as the original's.
            copy = _copied(_EXECUTIONS, _EXECUTIONS.c.id == one, turn_id=new, hosted_id="")
            numbers[one] = await _inserted(transaction, copy, _EXECUTIONS)
        execution = sa.case(numbers, value=_PARTS.c.execution_id) if numbers else sa.null()
        for table, more in ((_PARTS, {"execution_id": execution}), (schema.ARTIFACTS, {})):
            await transaction.execute(_copied(table, table.c.turn_id == old, turn_id=new, **more))


def _copied(table: sa.Table, which: sa.ColumnElement[bool], **replaced: object) -> sa.Insert:
    """Return what copies rows, in their order, with other values in some columns."""
    copied = [column for column in table.c if column.name != "id"]
    chosen: list[sa.ColumnElement[Any]] = []
    for column in copied:
        value = replaced.get(column.name, column)
        if not isinstance(value, sa.ColumnElement):
            value = sa.literal(value, column.type)
        chosen.append(value)
    rows = sa.select(*chosen).where(which).order_by(table.c.id)
    return sa.insert(table).from_select([column.name for column in copied], rows)


async def _inserted(
    transaction: transactions.Transaction, insert: sa.Insert, table: sa.Table
) -> int:
    """Insert one row; return its id."""
    made: int = (await transaction.execute(insert.returning(table.c.id))).scalar_one()
    return made
