"""Sessions: conversations, found by platform, workspace, channel and thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_T = schema.SESSIONS


class Sessions:
    """Table of sessions."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def open(self, key: values.SessionKey) -> records.Session:
        """Find or create the session of a conversation, and mark it as used now."""
        now = columns.now()
        insert = self._begin.insert(_T).values(
            platform=key.platform,
            workspace=key.workspace,
            channel=key.channel,
            thread=key.thread,
            title="",
            created=now,
            used=now,
        )
        statement = insert.on_conflict_do_update(
            index_elements=[_T.c.platform, _T.c.workspace, _T.c.channel, _T.c.thread],
            set_={"used": now},
        ).returning(*_T.c)
        async with self._begin.writing() as transaction:
            return _record((await transaction.execute(statement)).one())

    async def find(self, key: values.SessionKey) -> records.Session | None:
        """Find the session of a conversation without creating it."""
        return await self._one(*_is(key))

    async def get(self, session_id: int) -> records.Session | None:
        """Return the session of that id."""
        return await self._one(_T.c.id == session_id)

    async def recent(
        self,
        platform: str,
        workspace: str = "",
        *,
        channel: str | None = None,
        person: str = "",
        most: int = 50,
    ) -> tuple[records.Session, ...]:
        """Return the latest used sessions, the latest first; those of one person, if named."""
        query = sa.select(_T).where(_T.c.platform == platform, _T.c.workspace == workspace)
        if person:
            asked = sa.select(schema.TURNS.c.session_id).where(schema.TURNS.c.person == person)
            query = query.where(_T.c.id.in_(asked))
        if channel is not None:
            query = query.where(_T.c.channel == channel)
        query = query.order_by(_T.c.used.desc(), _T.c.id.desc()).limit(most)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))

    async def choose_model(self, session_id: int, model: str | None) -> None:
        """Set the model; None goes back to the default."""
        await self._set(session_id, model=model)

    async def set_title(self, session_id: int, title: str) -> None:
        """Set the title."""
        await self._set(session_id, title=title)

    async def note_kernel(
        self,
        session_id: int,
        hints: Mapping[str, Any],
        *,
        instead_of: Mapping[str, Any] | None = None,
    ) -> None:
        """Set what is known of the kernel, all of it anew: anything that JSON can say.

        Args:
            instead_of: where something else than this is known by now, that stays.
        """
        condition = [] if instead_of is None else [_T.c.kernel == dict(instead_of)]
        await self._set(session_id, *condition, kernel=dict(hints))

    async def note_files(
        self,
        session_id: int,
        hints: Mapping[str, str],
        *,
        instead_of: Mapping[str, str] | None = None,
    ) -> bool:
        """Set what is to be said of the files; see `records.Session`.

        Args:
            instead_of: where something else than this is said by now, that stays.

        Returns:
            Whether it was set: of all who would replace the same, in any process, one gets True.
        """
        condition = []
        if instead_of is not None:
            same = _T.c.files == dict(instead_of)
            condition = [same if instead_of else same | _T.c.files.is_(None)]
        return await self._set(session_id, *condition, files=dict(hints))

    async def touch(self, key: values.SessionKey) -> None:
        """Mark a session as used now, if there is one."""
        await self._update(*_is(key), used=columns.now())

    async def owned(self) -> tuple[tuple[records.Session, str], ...]:
        """Return all sessions with the person who began each, the least recently used first."""
        turns = schema.TURNS
        first = (
            sa.select(turns.c.person)
            .where(turns.c.session_id == _T.c.id, turns.c.person != "")
            .order_by(turns.c.id)
            .limit(1)
            .scalar_subquery()
        )
        query = sa.select(_T, sa.func.coalesce(first, "").label("person")).order_by(_T.c.used)
        async with self._begin.reading() as transaction:
            return tuple((_record(row), row.person) for row in await transaction.execute(query))

    async def delete(self, session_id: int) -> None:
        """Delete a conversation with everything in it. Its usage stays counted."""
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_T).where(_T.c.id == session_id))

    async def _set(
        self, session_id: int, *conditions: sa.ColumnElement[bool], **fields: object
    ) -> bool:
        return await self._update(_T.c.id == session_id, *conditions, **fields)

    async def _update(self, *conditions: sa.ColumnElement[bool], **fields: object) -> bool:
        update = sa.update(_T).where(*conditions).values(**fields)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(update)).rowcount == 1

    async def _one(self, *conditions: sa.ColumnElement[bool]) -> records.Session | None:
        async with self._begin.reading() as transaction:
            row = (await transaction.execute(sa.select(_T).where(*conditions))).one_or_none()
        return None if row is None else _record(row)


def _is(key: values.SessionKey) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _T.c.platform == key.platform,
        _T.c.workspace == key.workspace,
        _T.c.channel == key.channel,
        _T.c.thread == key.thread,
    )


def _record(row: sa.Row[Any]) -> records.Session:
    return records.Session(
        id=row.id,
        key=values.SessionKey(row.platform, row.workspace, row.channel, row.thread),
        title=row.title,
        model=row.model,
        kernel=row.kernel or {},
        files=row.files or {},
        created=row.created,
        used=row.used,
    )
