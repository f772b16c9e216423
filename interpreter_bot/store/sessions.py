"""Sessions: conversations, found by platform, workspace, channel and thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_SESSIONS = records.Session

MAX_SEARCHED_CHARACTERS: Final = 50_000
"""Of a request, and of an answer; PostgreSQL indexes no text of more than a million bytes."""


class Sessions(transactions.Aggregate):
    """Table of sessions."""

    async def open(self, key: values.SessionKey) -> records.Session:
        """Find or create the session of a conversation, and mark it as used now."""
        now = columns.now()
        insert = self._transactions.insert(_SESSIONS).values(
            **dataclasses.asdict(key), title="", created=now, used=now
        )
        statement = insert.on_conflict_do_update(
            index_elements=["platform", "workspace", "channel", "thread"], set_={"used": now}
        ).returning(_SESSIONS)
        return await self._transactions.one(statement)

    async def find(self, key: values.SessionKey) -> records.Session | None:
        """Find the session of a conversation without creating it."""
        return await self._transactions.first(sa.select(_SESSIONS).where(*_matches(key)))

    async def get(self, session_id: int) -> records.Session | None:
        """Return the session with an id."""
        return await self._transactions.first(
            sa.select(_SESSIONS).where(_SESSIONS.id == session_id)
        )

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
        query = sa.select(_SESSIONS).where(_SESSIONS.platform == platform)
        if workspace is not None:
            query = query.where(_SESSIONS.workspace == workspace)
        if person:
            sessions_of_person = sa.select(records.Turn.session_id).where(
                records.Turn.person == person
            )
            query = query.where(_SESSIONS.id.in_(sessions_of_person))
        if channel is not None:
            query = query.where(_SESSIONS.channel == channel)
        if mark is not None:
            query = query.where(_SESSIONS.mark == mark)
        query = query.order_by(_SESSIONS.used.desc(), _SESSIONS.id.desc()).limit(limit)
        return await self._transactions.all(query)

    async def count(self, platform: str, channel: str) -> int:
        """Return how many sessions a channel has."""
        of_channel = (_SESSIONS.platform == platform, _SESSIONS.channel == channel)
        query = sa.select(sa.func.count()).select_from(_SESSIONS).where(*of_channel)
        return await self._transactions.one(query)

    async def search(
        self, platform: str, workspace: str, words: Sequence[str], *, limit: int
    ) -> tuple[tuple[records.Session, str], ...]:
        """Find sessions whose title or one of whose turns matches all words, as prefixes.

        Args:
            platform: of the sessions.
            workspace: of the sessions.
            words: at least one, of letters, digits and underscores.
            limit: number of sessions; those used last are returned.

        Returns:
            Each session with the text of its latest matching turn, of which request and answer are
            each cut to `MAX_SEARCHED_CHARACTERS`; the text is empty if only the title matches.
        """
        turns = records.Turn
        matches = (
            sa.select(turns.session_id, sa.func.max(turns.id).label("turn_id"))
            .where(self._matches_words(words))
            .group_by(turns.session_id)
            .subquery()
        )
        words_of_turn = sa.func.coalesce(_text_of_turn(turns), "").label("words")
        is_titled = sa.and_(*(_SESSIONS.title.icontains(word, autoescape=True) for word in words))
        query = (
            sa.select(_SESSIONS, words_of_turn)
            .outerjoin(matches, matches.c.session_id == _SESSIONS.id)
            .outerjoin(turns, turns.id == matches.c.turn_id)
            .where(_SESSIONS.platform == platform, _SESSIONS.workspace == workspace)
            .where(is_titled | turns.id.is_not(None))
            .order_by(_SESSIONS.used.desc())
            .limit(limit)
        )
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    def _matches_words(self, words: Sequence[str]) -> sa.ColumnElement[bool]:
        """Build the condition that a turn matches all words, by the index of this database."""
        if self._transactions.is_sqlite:
            index = sa.table("turn_words", sa.column("rowid"), sa.column("turn_words"))
            pattern = " ".join(f'"{word}"*' for word in words)
            rows = sa.select(index.c.rowid).where(index.c.turn_words.match(pattern))
            return records.Turn.id.in_(rows)
        pattern = " & ".join(f"{word}:*" for word in words)
        simple: sa.ColumnElement[str] = sa.literal_column("'simple'::regconfig")
        indexed = sa.func.to_tsvector(simple, _text_of_turn(records.Turn))
        return indexed.bool_op("@@")(sa.func.to_tsquery(simple, pattern))

    async def set_model(self, session_id: int, model: str | None) -> None:
        """Set the model; None is the default."""
        await self._set(session_id, model=model)

    async def set_title(self, session_id: int, title: str, *, expected: str | None = None) -> bool:
        """Set the title; if `expected` is given, only while that is the title.

        Returns:
            Whether it was set.
        """
        condition = [] if expected is None else [_SESSIONS.title == expected]
        return await self._set(session_id, *condition, title=title)

    async def set_mark(self, key: values.SessionKey, mark: str) -> None:
        """Set the mark for lists, if the session exists."""
        await self._update(*_matches(key), mark=mark)

    async def note_kernel(
        self,
        session_id: int,
        hints: Mapping[str, Any],
        *,
        expected: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the hints about the kernel, which are any JSON.

        Args:
            expected: if given, the hints are replaced only while they equal these.
        """
        condition = [] if expected is None else [_SESSIONS.kernel == dict(expected)]
        await self._set(session_id, *condition, kernel=dict(hints))

    async def note_files(
        self,
        session_id: int,
        hints: Mapping[str, str],
        *,
        expected: Mapping[str, str] | None = None,
    ) -> bool:
        """Replace the sentences about the files; see `records.Session`.

        Args:
            expected: if given, the sentences are replaced only while they equal these.

        Returns:
            Whether they were set. With `expected`, only one of several callers gets True.
        """
        condition = []
        if expected is not None:
            condition = [_SESSIONS.files == dict(expected)]
        return await self._set(session_id, *condition, files=dict(hints))

    async def list_tree(self, session: records.Session) -> tuple[records.Session, ...]:
        """Return a session and all branches of its tree, the least recently used first."""
        is_branch = sa.or_(_SESSIONS.id == session.root_id, _SESSIONS.branch_of == session.root_id)
        return await self._transactions.all(
            sa.select(_SESSIONS).where(is_branch).order_by(_SESSIONS.used)
        )

    async def touch(self, key: values.SessionKey) -> None:
        """Mark a session as used now, if it exists."""
        await self._update(*_matches(key), used=columns.now())

    async def list_with_owners(self) -> tuple[tuple[records.Session, str], ...]:
        """Return all sessions with the person who began each, the least recently used first."""
        turns = records.Turn
        first_person = (
            sa.select(turns.person)
            .where(turns.session_id == _SESSIONS.id, turns.person != "")
            .order_by(turns.id)
            .limit(1)
            .scalar_subquery()
        )
        query = sa.select(_SESSIONS, sa.func.coalesce(first_person, "").label("person")).order_by(
            _SESSIONS.used
        )
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    async def delete(self, session_id: int) -> None:
        """Delete a conversation with everything in it. Its usage stays counted."""
        await self._transactions.change(sa.delete(_SESSIONS).where(_SESSIONS.id == session_id))

    async def _set(
        self, session_id: int, *conditions: sa.ColumnElement[bool], **fields: object
    ) -> bool:
        return await self._update(_SESSIONS.id == session_id, *conditions, **fields)

    async def _update(self, *conditions: sa.ColumnElement[bool], **fields: object) -> bool:
        return (
            await self._transactions.change(
                sa.update(_SESSIONS).where(*conditions).values(**fields)
            )
            == 1
        )


def _matches(key: values.SessionKey) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(
        getattr(_SESSIONS, name) == value for name, value in dataclasses.asdict(key).items()
    )


def _text_of_turn(turns: type[records.Turn]) -> sa.ColumnElement[str]:
    """Build the request and the answer of a turn, exactly as in the index of PostgreSQL."""
    limit: sa.ColumnElement[int] = sa.literal_column(str(MAX_SEARCHED_CHARACTERS))
    parts = (turns.request, turns.answer)
    request, answer = (sa.func.substr(part, sa.literal_column("1"), limit) for part in parts)
    return request.concat(sa.literal_column("' '")).concat(answer)
