"""Copies of conversations: a new session that begins with what was said in another one.

A branch is a copy up to some turn, and belongs to the tree of its original. Its first turn of its
own, a notice, is the alternative to that turn. All know which turns they are copies of, so that
what takes the place of a turn is found however often it was copied.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_TURNS, _PARTS, _EXECUTIONS = schema.TURNS, schema.PARTS, schema.EXECUTIONS
_MAX_TURNS: Final = 500
_MAX_ALTERNATIVES: Final = 2000
# The turn that is meant in all branches: itself, or what it was copied of.
_ORIGINAL: Final = sa.func.coalesce(_TURNS.c.original, _TURNS.c.id)


class SessionCopies:
    """Makes copies of sessions; their turns belong to this bot."""

    def __init__(self, begin: transactions.Transactions, owner: str) -> None:
        self._begin = begin
        self._owner = owner

    async def add(
        self,
        source: records.Session,
        key: values.SessionKey,
        *,
        person: str,
        notice: str,
        title: str,
        kernel: Mapping[str, Any],
        before: int | None = None,
        instead_of: int | None = None,
    ) -> None:
        """Copy a session, all of it or nothing: its latest turns that are over, and no usage.

        Args:
            source: what is copied.
            key: of the copy; there is no such session.
            person: who wanted it; it counts as theirs.
            notice: says what it is: the first of a copy, the last of a branch.
            title: of the copy.
            kernel: as in `records.Session`.
            before: id of the turn up to which this is a branch; None for a copy.
            instead_of: id of the original turn in whose place the branch goes on.

        Raises:
            StoreError: the database cannot be used, or there is such a session.
        """
        now = columns.now()
        begun = {"created": now, "used": now, "title": title, "model": source.model}
        if before is not None:
            begun |= {"branch_of": source.tree, "mark": source.mark}
        named = {
            name: getattr(key, name) for name in ("platform", "workspace", "channel", "thread")
        }
        session = sa.insert(schema.SESSIONS).values(kernel=dict(kernel), **begun, **named)
        over = _TURNS.c.status != values.TurnStatus.RUNNING.value
        latest = sa.select(_TURNS.c.id).where(_TURNS.c.session_id == source.id, over)
        latest = latest.order_by(_TURNS.c.id.desc()).limit(_MAX_TURNS)
        descent: dict[str, object] = {"original": None, "instead_of": None}
        if before is not None:
            latest = latest.where(_TURNS.c.id < before)
            descent = {"original": _ORIGINAL}
        async with self._begin.writing() as transaction:
            made = await _inserted(transaction, session, schema.SESSIONS)
            if before is None:
                await self._notify(transaction, made, person, notice, instead_of)
            own = {"session_id": made, "owner": self._owner, "request_id": ""} | descent
            for old in reversed((await transaction.execute(latest)).scalars().all()):
                await self._copy_turn(transaction, old, own)
            if before is not None:
                await self._notify(transaction, made, person, notice, instead_of)

    async def _notify(
        self,
        transaction: transactions.Transaction,
        session_id: int,
        person: str,
        notice: str,
        instead_of: int | None,
    ) -> None:
        """Add a turn that nobody asked for, with a notice."""
        now = columns.now()
        turn = sa.insert(_TURNS).values(
            session_id=session_id,
            person=person,
            request_id="",
            request="",
            attachments=[],
            status=values.TurnStatus.DONE.value,
            answer="",
            owner=self._owner,
            instead_of=instead_of,
            started=now,
            ended=now,
        )
        made = await _inserted(transaction, turn, _TURNS)
        part = {"step": 0, "kind": records.PartKind.NOTICE.value, "text": notice, "created": now}
        await transaction.execute(sa.insert(_PARTS).values(turn_id=made, **part))

    async def alternatives(self, session: records.Session) -> tuple[records.Alternatives, ...]:
        """Return what there is in place of turns of a session, in the branches of its tree.

        Where several branches have one of them, the latest used is the one to go to.
        """
        sessions = schema.SESSIONS
        is_near = sa.or_(sessions.c.id == session.tree, sessions.c.branch_of == session.tree)
        replaced = sa.select(_TURNS.c.instead_of).join(sessions)
        replaced = replaced.where(is_near, _TURNS.c.instead_of.is_not(None))
        place = sa.func.coalesce(_TURNS.c.instead_of, _ORIGINAL)
        names = (sessions.c[name] for name in ("platform", "workspace", "channel", "thread"))
        query = (
            sa.select(_TURNS.c.id, _TURNS.c.session_id, _ORIGINAL.label("one"), place.label("at"))
            .add_columns(*names)
            .join(sessions)
            .where(is_near, place.in_(replaced))
            .order_by((sessions.c.id == session.id).desc(), sessions.c.used.desc())
            .limit(_MAX_ALTERNATIVES)
        )
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        places: dict[int, dict[int, values.SessionKey]] = collections.defaultdict(dict)
        for row in rows:
            key = values.SessionKey(row.platform, row.workspace, row.channel, row.thread)
            places[row.at].setdefault(row.one, key)
        return tuple(
            records.Alternatives(row.id, sorted(there).index(row.one), _in_order(there))
            for row in rows
            if row.session_id == session.id and len(there := places[row.at]) > 1
        )

    async def _copy_turn(
        self, transaction: transactions.Transaction, old: int, own: Mapping[str, object]
    ) -> None:
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


def _in_order(there: Mapping[int, values.SessionKey]) -> tuple[values.SessionKey, ...]:
    return tuple(there[one] for one in sorted(there))


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
