"""Copies of conversations: new sessions that begin with the turns of another one.

A branch is a copy of all turns before some turn, and belongs to the tree of its original. Its
first new turn, a notice, is the alternative to that turn. Each copied turn refers to its original,
so that the alternatives to a turn can be found in all branches.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_TURNS, _PARTS, _EXECUTIONS = records.Turn, records.Part, records.Execution
_MAX_TURNS: Final = 500
_MAX_ALTERNATIVES: Final = 2000
# The same in all branches: the id of the original turn.
_ORIGINAL_ID: Final = sa.func.coalesce(_TURNS.original, _TURNS.id)


class SessionCopies(transactions.Aggregate):
    """Makes copies of sessions; their turns belong to this bot."""

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
        """Copy the latest ended turns of a session, without usage; all or nothing.

        Args:
            key: of the copy; there is no such session yet.
            person: the person who made the copy and owns it.
            notice: describes the copy; the first turn of a copy, the last turn of a branch.
            kernel: as in `records.Session`.
            before: for a branch, id of the first turn that is not copied; None for a copy.
            instead_of: for a branch, id of the original turn that it replaces.

        Raises:
            StoreError: the database cannot be used, or there is such a session.
        """
        now = columns.now()
        fields = {"created": now, "used": now, "title": title, "model": source.model}
        if before is not None:
            fields |= {"branch_of": source.root_id, "mark": source.mark}
        key_fields = dataclasses.asdict(key)
        insert_session = sa.insert(records.Session).values(
            kernel=dict(kernel), **fields, **key_fields
        )
        has_ended = _TURNS.status != values.TurnStatus.RUNNING
        latest = sa.select(_TURNS.id).where(_TURNS.session_id == source.id, has_ended)
        latest = latest.order_by(_TURNS.id.desc()).limit(_MAX_TURNS)
        origin_fields: dict[str, object] = {"original": None, "instead_of": None}
        if before is not None:
            latest = latest.where(_TURNS.id < before)
            origin_fields = {"original": _ORIGINAL_ID}
        async with self._transactions.transaction(is_writing=True):
            session_id = await self._transactions.one(insert_session.returning(records.Session.id))
            if before is None:
                await self._add_notice_turn(session_id, person, notice, instead_of)
            new_values = {
                "session_id": session_id,
                "owner": self._owner,
                "request_id": "",
                "schedule_run_id": None,
            } | origin_fields
            for turn_id in reversed(await self._transactions.all(latest)):
                await self._copy_turn(turn_id, new_values)
            if before is not None:
                await self._add_notice_turn(session_id, person, notice, instead_of)

    async def _add_notice_turn(
        self,
        session_id: int,
        person: str,
        notice: str,
        instead_of: int | None,
    ) -> None:
        """Add a turn without a request, which only shows a notice."""
        now = columns.now()
        turn = sa.insert(_TURNS).values(
            session_id=session_id,
            person=person,
            request_id="",
            request="",
            attachments=(),
            status=values.TurnStatus.DONE,
            answer="",
            owner=self._owner,
            instead_of=instead_of,
            started=now,
            ended=now,
        )
        turn_id = await self._transactions.one(turn.returning(_TURNS.id))
        part = {"step": 0, "kind": records.PartKind.NOTICE, "text": notice, "created": now}
        await self._transactions.change(
            sa.insert(_PARTS).values(turn_id=turn_id, detail={}, **part)
        )

    async def list_alternatives(self, session: records.Session) -> tuple[records.Alternatives, ...]:
        """Return the alternatives to turns of a session in the branches of its tree.

        Of several branches with the same alternative, the one used last is returned.
        """
        sessions = records.Session
        is_in_tree = sa.or_(sessions.id == session.root_id, sessions.branch_of == session.root_id)
        replaced_ids = sa.select(_TURNS.instead_of).join(sessions)
        replaced_ids = replaced_ids.where(is_in_tree, _TURNS.instead_of.is_not(None))
        position_id = sa.func.coalesce(_TURNS.instead_of, _ORIGINAL_ID)
        key_columns = (sessions.platform, sessions.workspace, sessions.channel, sessions.thread)
        query = (
            sa.select(
                _TURNS.id,
                _TURNS.session_id,
                _ORIGINAL_ID.label("original_id"),
                position_id.label("position_id"),
            )
            .add_columns(*key_columns)
            .join(sessions)
            .where(is_in_tree, position_id.in_(replaced_ids))
            .order_by((sessions.id == session.id).desc(), sessions.used.desc())
            .limit(_MAX_ALTERNATIVES)
        )
        rows = await self._transactions.rows(query)
        keys_by_position: dict[int, dict[int, values.SessionKey]] = collections.defaultdict(dict)
        for row in rows:
            key = values.SessionKey(row.platform, row.workspace, row.channel, row.thread)
            keys_by_position[row.position_id].setdefault(row.original_id, key)
        return tuple(
            records.Alternatives(
                row.id, sorted(keys).index(row.original_id), _in_order_of_turns(keys)
            )
            for row in rows
            if row.session_id == session.id and len(keys := keys_by_position[row.position_id]) > 1
        )

    async def _copy_turn(self, source_id: int, new_values: Mapping[str, object]) -> None:
        insert_turn = _insert_copies(_TURNS, _TURNS.id == source_id, **new_values)
        copy_id = await self._transactions.one(insert_turn.returning(_TURNS.id))
        copy_ids = {}
        executions = sa.select(_EXECUTIONS.id).where(_EXECUTIONS.turn_id == source_id)
        for execution_id in await self._transactions.all(executions.order_by(_EXECUTIONS.id)):
            # The id at the host belongs to the original.
            insert = _insert_copies(
                _EXECUTIONS, _EXECUTIONS.id == execution_id, turn_id=copy_id, hosted_id=""
            )
            copy_ids[execution_id] = await self._transactions.one(insert.returning(_EXECUTIONS.id))
        execution = sa.case(copy_ids, value=_PARTS.execution_id) if copy_ids else sa.null()
        parts = _insert_copies(
            _PARTS, _PARTS.turn_id == source_id, turn_id=copy_id, execution_id=execution
        )
        await self._transactions.change(parts)
        artifacts = records.Artifact
        await self._transactions.change(
            _insert_copies(artifacts, artifacts.turn_id == source_id, turn_id=copy_id)
        )


def _in_order_of_turns(keys: Mapping[int, values.SessionKey]) -> tuple[values.SessionKey, ...]:
    return tuple(keys[turn_id] for turn_id in sorted(keys))


def _insert_copies(
    table: type[records.Record], condition: sa.ColumnElement[bool], **new_values: object
) -> sa.Insert:
    """Build a statement that copies rows in order, with new values in some columns."""
    copied_columns = [column for column in table.__table__.c if column.name != "id"]
    selection: list[sa.ColumnElement[Any]] = []
    for column in copied_columns:
        value = new_values.get(column.name, column)
        if not isinstance(value, sa.ColumnElement):
            value = sa.literal(value, column.type)
        selection.append(value)
    rows = sa.select(*selection).where(condition).order_by(table.__table__.c.id)
    return sa.insert(table).from_select([column.name for column in copied_columns], rows)
