"""Sessions: conversations, found by platform, workspace, channel and thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_T = schema.SESSIONS

SEARCHED_CHARACTERS: Final = 50_000
"""Of a request, and of an answer; PostgreSQL indexes no text of more than a million bytes."""


class Sessions:
    """Table of sessions."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def open(self, key: values.SessionKey) -> records.Session:
        """Find or create the session of a conversation, and mark it as used now."""
        now = columns.now()
        insert = self._begin.insert(_T).values(
            **dataclasses.asdict(key), title="", created=now, used=now
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
        workspace: str | None = "",
        *,
        channel: str | None = None,
        person: str = "",
        mark: str | None = None,
        limit: int = 50,
    ) -> tuple[records.Session, ...]:
        """Return the latest used sessions, the latest first; those of one person or with one mark,
        if named, and of all workspaces if that is None.
        """
        query = sa.select(_T).where(_T.c.platform == platform)
        if workspace is not None:
            query = query.where(_T.c.workspace == workspace)
        if person:
            asked = sa.select(schema.TURNS.c.session_id).where(schema.TURNS.c.person == person)
            query = query.where(_T.c.id.in_(asked))
        if channel is not None:
            query = query.where(_T.c.channel == channel)
        if mark is not None:
            query = query.where(_T.c.mark == mark)
        query = query.order_by(_T.c.used.desc(), _T.c.id.desc()).limit(limit)
        async with self._begin.reading() as transaction:
            return tuple(map(_record, await transaction.execute(query)))

    async def search(
        self, platform: str, workspace: str, words: Sequence[str], *, limit: int
    ) -> tuple[tuple[records.Session, str], ...]:
        """Find sessions whose title, or one of whose turns, has all words, or words that begin so.

        Args:
            platform: of the sessions.
            workspace: of the sessions.
            words: of letters, digits and underscores; at least one.
            limit: number of sessions, the latest used first.

        Returns:
            Each with the words of its latest turn that was found, cut after `SEARCHED_CHARACTERS`
            of request and of answer; empty if only its title has them.
        """
        turns = schema.TURNS
        hit = (
            sa.select(turns.c.session_id, sa.func.max(turns.c.id).label("turn_id"))
            .where(self._has(words))
            .group_by(turns.c.session_id)
            .subquery()
        )
        said = sa.func.coalesce(_said(turns), "").label("said")
        is_titled = sa.and_(*(_T.c.title.icontains(word, autoescape=True) for word in words))
        query = (
            sa.select(_T, said)
            .outerjoin(hit, hit.c.session_id == _T.c.id)
            .outerjoin(turns, turns.c.id == hit.c.turn_id)
            .where(_T.c.platform == platform, _T.c.workspace == workspace)
            .where(is_titled | turns.c.id.is_not(None))
            .order_by(_T.c.used.desc())
            .limit(limit)
        )
        async with self._begin.reading() as transaction:
            found = await transaction.execute(query)
            return tuple((_record(row), row.said) for row in found)

    def _has(self, words: Sequence[str]) -> sa.ColumnElement[bool]:
        """Build the condition that a turn has all words, by the index of this database."""
        if self._begin.is_sqlite:
            index = sa.table("turn_words", sa.column("rowid"), sa.column("turn_words"))
            wanted = " ".join(f'"{word}"*' for word in words)
            rows = sa.select(index.c.rowid).where(index.c.turn_words.match(wanted))
            return schema.TURNS.c.id.in_(rows)
        wanted = " & ".join(f"{word}:*" for word in words)
        simple: sa.ColumnElement[str] = sa.literal_column("'simple'::regconfig")
        indexed = sa.func.to_tsvector(simple, _said(schema.TURNS))
        return indexed.bool_op("@@")(sa.func.to_tsquery(simple, wanted))

    async def choose_model(self, session_id: int, model: str | None) -> None:
        """Set the model; None goes back to the default."""
        await self._set(session_id, model=model)

    async def set_title(
        self, session_id: int, title: str, *, instead_of: str | None = None
    ) -> bool:
        """Set the title, of which `instead_of` is the former, if another one is to stay.

        Returns:
            Whether it was set.
        """
        condition = [] if instead_of is None else [_T.c.title == instead_of]
        return await self._set(session_id, *condition, title=title)

    async def set_mark(self, key: values.SessionKey, mark: str) -> None:
        """Set the mark for lists, if there is such a session."""
        await self._update(*_is(key), mark=mark)

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

    async def tree(self, session: records.Session) -> tuple[records.Session, ...]:
        """Return a session and all branches of its tree, the least recently used first."""
        is_one = sa.or_(_T.c.id == session.tree, _T.c.branch_of == session.tree)
        async with self._begin.reading() as transaction:
            found = await transaction.execute(sa.select(_T).where(is_one).order_by(_T.c.used))
            return tuple(map(_record, found))

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
    return tuple(_T.c[name] == value for name, value in dataclasses.asdict(key).items())


def _said(turns: sa.Table) -> sa.ColumnElement[str]:
    """Build what both said in a turn, exactly as the index of PostgreSQL has it."""
    limit: sa.ColumnElement[int] = sa.literal_column(str(SEARCHED_CHARACTERS))
    parts = (turns.c.request, turns.c.answer)
    first, second = (sa.func.substr(part, sa.literal_column("1"), limit) for part in parts)
    return first.concat(sa.literal_column("' '")).concat(second)


def _record(row: sa.Row[Any]) -> records.Session:
    return records.Session(
        id=row.id,
        key=values.SessionKey(row.platform, row.workspace, row.channel, row.thread),
        title=row.title,
        model=row.model,
        kernel=row.kernel or {},
        files=row.files or {},
        mark=row.mark,
        branch_of=row.branch_of,
        created=row.created,
        used=row.used,
    )
