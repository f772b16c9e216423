"""Sessions: conversations, found by platform, workspace, channel and thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_T = records.Session

SEARCHED_CHARACTERS: Final = 50_000
"""Of a request, and of an answer; PostgreSQL indexes no text of more than a million bytes."""


class Sessions(transactions.Aggregate):
    """Table of sessions."""

    async def open(self, key: values.SessionKey) -> records.Session:
        """Find or create the session of a conversation, and mark it as used now."""
        now = columns.now()
        insert = self._transactions.insert(_T).values(
            **dataclasses.asdict(key), title="", created=now, used=now
        )
        statement = insert.on_conflict_do_update(
            index_elements=["platform", "workspace", "channel", "thread"], set_={"used": now}
        ).returning(_T)
        return await self._transactions.one(statement)

    async def find(self, key: values.SessionKey) -> records.Session | None:
        """Find the session of a conversation without creating it."""
        return await self._transactions.first(sa.select(_T).where(*_matches(key)))

    async def get(self, session_id: int) -> records.Session | None:
        """Return the session with an id."""
        return await self._transactions.first(sa.select(_T).where(_T.id == session_id))

    async def list_recent(
        self,
        platform: str,
        workspace: str | None = "",
        *,
        channel: str | None = None,
        person: str = "",
        mark: str | None = None,
        limit: int = 50,
    ) -> tuple[records.Session, ...]:
        """Return the sessions used last, the latest first.

        Args:
            platform: of the sessions.
            workspace: of the sessions; None for all workspaces.
            channel: of the sessions; None for all channels.
            person: only sessions with turns of this person; empty for all.
            mark: of the sessions; None for any.
            limit: number of sessions.
        """
        query = sa.select(_T).where(_T.platform == platform)
        if workspace is not None:
            query = query.where(_T.workspace == workspace)
        if person:
            sessions_of_person = sa.select(records.Turn.session_id).where(
                records.Turn.person == person
            )
            query = query.where(_T.id.in_(sessions_of_person))
        if channel is not None:
            query = query.where(_T.channel == channel)
        if mark is not None:
            query = query.where(_T.mark == mark)
        query = query.order_by(_T.used.desc(), _T.id.desc()).limit(limit)
        return await self._transactions.all(query)

    async def count(self, platform: str, channel: str) -> int:
        """Return how many sessions a channel has."""
        of_channel = (_T.platform == platform, _T.channel == channel)
        query = sa.select(sa.func.count()).select_from(_T).where(*of_channel)
        return await self._transactions.one(query)

    async def search(
        self, platform: str, workspace: str, words: Sequence[str], *, limit: int
    ) -> tuple[tuple[records.Session, str], ...]:
        """Find sessions with a title or a turn that has words that begin with each of the words.

        Args:
            platform: of the sessions.
            workspace: of the sessions.
            words: of letters, digits and underscores; at least one.
            limit: number of sessions, the latest used first.

        Returns:
            Each with the text of its latest turn that was found, cut after `SEARCHED_CHARACTERS`
            of request and of answer; empty if only its title was found.
        """
        turns = records.Turn
        hit = (
            sa.select(turns.session_id, sa.func.max(turns.id).label("turn_id"))
            .where(self._matches_words(words))
            .group_by(turns.session_id)
            .subquery()
        )
        words_of_turn = sa.func.coalesce(_text_of(turns), "").label("words")
        is_titled = sa.and_(*(_T.title.icontains(word, autoescape=True) for word in words))
        query = (
            sa.select(_T, words_of_turn)
            .outerjoin(hit, hit.c.session_id == _T.id)
            .outerjoin(turns, turns.id == hit.c.turn_id)
            .where(_T.platform == platform, _T.workspace == workspace)
            .where(is_titled | turns.id.is_not(None))
            .order_by(_T.used.desc())
            .limit(limit)
        )
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    def _matches_words(self, words: Sequence[str]) -> sa.ColumnElement[bool]:
        """Build the condition that a turn has all words, by the index of this database."""
        if self._transactions.is_sqlite:
            index = sa.table("turn_words", sa.column("rowid"), sa.column("turn_words"))
            pattern = " ".join(f'"{word}"*' for word in words)
            rows = sa.select(index.c.rowid).where(index.c.turn_words.match(pattern))
            return records.Turn.id.in_(rows)
        pattern = " & ".join(f"{word}:*" for word in words)
        simple: sa.ColumnElement[str] = sa.literal_column("'simple'::regconfig")
        indexed = sa.func.to_tsvector(simple, _text_of(records.Turn))
        return indexed.bool_op("@@")(sa.func.to_tsquery(simple, pattern))

    async def choose_model(self, session_id: int, model: str | None) -> None:
        """Set the model; None is the default."""
        await self._set(session_id, model=model)

    async def set_title(
        self, session_id: int, title: str, *, instead_of: str | None = None
    ) -> bool:
        """Set the title; if `instead_of` is given, only while that is the title.

        Returns:
            Whether it was set.
        """
        condition = [] if instead_of is None else [_T.title == instead_of]
        return await self._set(session_id, *condition, title=title)

    async def set_mark(self, key: values.SessionKey, mark: str) -> None:
        """Set the mark for lists, if the session exists."""
        await self._update(*_matches(key), mark=mark)

    async def note_kernel(
        self,
        session_id: int,
        hints: Mapping[str, Any],
        *,
        instead_of: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the hints about the kernel, which are any JSON.

        Args:
            instead_of: if given, hints that differ from these are kept.
        """
        condition = [] if instead_of is None else [_T.kernel == dict(instead_of)]
        await self._set(session_id, *condition, kernel=dict(hints))

    async def note_files(
        self,
        session_id: int,
        hints: Mapping[str, str],
        *,
        instead_of: Mapping[str, str] | None = None,
    ) -> bool:
        """Replace the sentences about the files; see `records.Session`.

        Args:
            instead_of: if given, sentences that differ from these are kept.

        Returns:
            Whether they were set: of several callers, in any process, only one gets True.
        """
        condition = []
        if instead_of is not None:
            condition = [_T.files == dict(instead_of)]
        return await self._set(session_id, *condition, files=dict(hints))

    async def list_tree(self, session: records.Session) -> tuple[records.Session, ...]:
        """Return a session and all branches of its tree, the least recently used first."""
        is_branch = sa.or_(_T.id == session.root_id, _T.branch_of == session.root_id)
        return await self._transactions.all(sa.select(_T).where(is_branch).order_by(_T.used))

    async def touch(self, key: values.SessionKey) -> None:
        """Mark a session as used now, if it exists."""
        await self._update(*_matches(key), used=columns.now())

    async def list_with_owners(self) -> tuple[tuple[records.Session, str], ...]:
        """Return all sessions with the person who began each, the least recently used first."""
        turns = records.Turn
        first = (
            sa.select(turns.person)
            .where(turns.session_id == _T.id, turns.person != "")
            .order_by(turns.id)
            .limit(1)
            .scalar_subquery()
        )
        query = sa.select(_T, sa.func.coalesce(first, "").label("person")).order_by(_T.used)
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    async def delete(self, session_id: int) -> None:
        """Delete a conversation with everything in it. Its usage stays counted."""
        await self._transactions.change(sa.delete(_T).where(_T.id == session_id))

    async def _set(
        self, session_id: int, *conditions: sa.ColumnElement[bool], **fields: object
    ) -> bool:
        return await self._update(_T.id == session_id, *conditions, **fields)

    async def _update(self, *conditions: sa.ColumnElement[bool], **fields: object) -> bool:
        return (
            await self._transactions.change(sa.update(_T).where(*conditions).values(**fields)) == 1
        )


def _matches(key: values.SessionKey) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(getattr(_T, name) == value for name, value in dataclasses.asdict(key).items())


def _text_of(turns: type[records.Turn]) -> sa.ColumnElement[str]:
    """Build the request and the answer of a turn, exactly as in the index of PostgreSQL."""
    limit: sa.ColumnElement[int] = sa.literal_column(str(SEARCHED_CHARACTERS))
    parts = (turns.request, turns.answer)
    first, second = (sa.func.substr(part, sa.literal_column("1"), limit) for part in parts)
    return first.concat(sa.literal_column("' '")).concat(second)
