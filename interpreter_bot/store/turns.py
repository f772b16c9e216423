"""Turns, those that a crash interrupted, and the platform events that were claimed for one.

Networks send an event again, perhaps to the next bot: it is handled once.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schema, transactions

_EVENTS = schema.EVENTS

_T = schema.TURNS
_S = schema.SESSIONS
_Status = values.TurnStatus
# Nothing was run, or paid for.
_IS_BLANK = (
    _T.c.progress.is_(None),
    *(
        ~sa.exists().where(table.c.turn_id == _T.c.id)
        for table in (schema.EXECUTIONS, schema.PARTS, schema.USAGE)
    ),
)
# A command becomes no turn; turns without the name of a request, as that of a reset, are of no
# event.
_BEGUN: sa.Select[Any] = (
    sa.select(
        _T.c.id, _EVENTS.c.platform.label("network"), _EVENTS.c.event_id, _EVENTS.c.address,
        _S.c.platform, _S.c.workspace, _S.c.channel, _S.c.thread,
    )
    .join_from(_T, _S)
    .join(_EVENTS, _EVENTS.c.request_id == _T.c.request_id)
    .where(_EVENTS.c.request_id != "", _EVENTS.c.address != "")
)  # fmt: skip


async def _begun(
    transaction: transactions.Transaction, *which: sa.ColumnElement[bool]
) -> list[sa.Row[Any]]:
    """Return the turns that events became, with their events: two sessions may name one alike."""
    return [row for row in await transaction.execute(_BEGUN.where(*which)) if _is_its_place(row)]


def _is_its_place(row: sa.Row[Any]) -> bool:
    """Return whether the session of a turn is that of an event.

    What is said in a channel may be answered in a new thread, and the reverse.
    """
    said = values.key(row.address)
    place = tuple(map(columns.identity, (said.platform, said.workspace, said.channel)))
    threads = {columns.identity(said.thread), row.thread}
    return place == (row.platform, row.workspace, row.channel) and (
        len(threads) == 1 or "" in threads
    )


class ClaimedEvents:
    """Ids of claimed events, for a while."""

    def __init__(self, begin: transactions.Transactions, owner: str) -> None:
        self._begin = begin
        self._owner = owner

    async def claim(
        self,
        platform: str,
        event_id: str,
        *,
        address: str = "",
        request_id: str = "",
        content: Mapping[str, Any] | None = None,
    ) -> bool:
        """Claim an event; True for exactly one caller.

        Args:
            platform: that sent it.
            event_id: among all of the platform.
            address: of the session whose people wait for an answer, until `settle`.
            request_id: of the request that it becomes.
            content: what its platform needs to take it again; None where that cannot be.
        """
        insert = self._begin.insert(_EVENTS).values(
            platform=platform,
            event_id=event_id,
            seen=columns.now(),
            owner=self._owner,
            address=address,
            request_id=request_id,
            content=content,
        )
        async with self._begin.writing() as transaction:
            return (await transaction.execute(insert.on_conflict_do_nothing())).rowcount == 1

    async def reclaim(self, platform: str, event_id: str) -> bool:
        """Claim an event that another bot claimed, or this one; says whether there is any."""
        update = sa.update(_EVENTS).where(
            _EVENTS.c.platform == platform, _EVENTS.c.event_id == event_id
        )
        async with self._begin.writing() as transaction:
            return bool((await transaction.execute(update.values(owner=self._owner))).rowcount)

    async def settle(self, platform: str, event_id: str) -> None:
        """Note that nobody waits for an answer to an event any more."""
        done = sa.update(_EVENTS).where(
            _EVENTS.c.platform == platform, _EVENTS.c.event_id == event_id
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(done.values(address="", content=None))

    async def take_orphans(self, platforms: Collection[str]) -> tuple[records.ClaimedEvent, ...]:
        """Find what other bots claimed and did not even begin, in the order of the claims.

        Only events of those platforms; the others wait until somebody can take them again.

        What can be taken again belongs to this bot from now on. If that dies as well, it may
        be for that event: then people are told, and it is not taken once more.
        """
        theirs = (
            _EVENTS.c.address != "",
            _EVENTS.c.platform.in_(platforms),
            _EVENTS.c.owner != self._owner,
        )
        async with self._begin.writing() as transaction:
            # What became a turn is told of, or goes on, as that.
            begun = await _begun(transaction, *theirs)
            is_begun = sa.tuple_(_EVENTS.c.platform, _EVENTS.c.event_id).in_(
                [(row.network, row.event_id) for row in begun]
            )
            names = [one.name for one in dataclasses.fields(records.ClaimedEvent)]
            found = sa.select(*(_EVENTS.c[name] for name in names)).where(*theirs, ~is_begun)
            rows = (await transaction.execute(found.order_by(_EVENTS.c.seen))).all()
            over = sa.or_(is_begun, _EVENTS.c.content.is_(None))
            update = sa.update(_EVENTS).where(*theirs)
            await transaction.execute(update.where(over).values(address="", content=None))
            await transaction.execute(update.values(owner=self._owner, content=None))
        return tuple(records.ClaimedEvent(**row._asdict()) for row in rows)

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete events older than any platform repeats them; returns how many."""
        old = sa.delete(_EVENTS).where(_EVENTS.c.seen < columns.now() - age)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(old)).rowcount


class Turns:
    """Table of turns; new ones belong to this bot."""

    def __init__(self, begin: transactions.Transactions, owner: str) -> None:
        self._begin = begin
        self._owner = owner

    async def start(
        self,
        session_id: int,
        *,
        person: str,
        text: str,
        request_id: str = "",
        attachments: Sequence[str] = (),
    ) -> records.Turn:
        """Record the start of a turn, which a crash cannot undo.

        Raises:
            StoreError: the session was deleted, or the database cannot be used.
        """
        insert = sa.insert(_T).values(
            session_id=session_id,
            request_id=request_id,
            person=person,
            request=text,
            attachments=[columns.storable(name) for name in attachments],
            status=_Status.RUNNING.value,
            answer="",
            owner=self._owner,
            started=columns.now(),
        )
        async with self._begin.writing() as transaction:
            row = (await transaction.execute(insert.returning(*_T.c))).one()
        return _record(row)

    async def finish(self, turn_id: int, status: values.TurnStatus, *, answer: str = "") -> bool:
        """Record how a turn of this bot ended. The first end counts.

        Returns:
            Whether it was recorded: not if it had ended, or its session was deleted.
        """
        is_open = sa.and_(_T.c.status == _Status.RUNNING.value, _T.c.owner == self._owner)
        end = (
            sa.update(_T)
            .where(_T.c.id == turn_id, is_open)
            .values(status=status.value, answer=answer, ended=columns.now(), progress=None)
        )
        questions = sa.delete(schema.QUESTIONS).where(schema.QUESTIONS.c.turn_id == turn_id)
        async with self._begin.writing() as transaction:
            await transaction.execute(questions)
            return (await transaction.execute(end)).rowcount == 1

    async def delete(self, turn_id: int) -> None:
        """Delete a turn with everything in it. Its usage stays counted."""
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_T).where(_T.c.id == turn_id))

    async def get(self, turn_id: int) -> records.Turn | None:
        """Return the turn of that id."""
        async with self._begin.reading() as transaction:
            row = (await transaction.execute(sa.select(_T).where(_T.c.id == turn_id))).one_or_none()
        return None if row is None else _record(row)

    async def of_session(
        self, session_id: int, *, limit: int = 200, before: int | None = None
    ) -> tuple[records.Turn, ...]:
        """Return the latest turns of a session, in the order in which they began.

        Args:
            before: id of a turn that they all precede, to page backwards.
        """
        query = sa.select(_T).where(_T.c.session_id == session_id)
        if before is not None:
            query = query.where(_T.c.id < before)
        query = query.order_by(_T.c.id.desc()).limit(limit)
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(map(_record, reversed(rows)))

    async def request_ids(self, session_id: int, among: Collection[str]) -> frozenset[str]:
        """Return which of some requests became turns of a session."""
        query = sa.select(_T.c.request_id).where(
            _T.c.session_id == session_id, _T.c.request_id.in_(among)
        )
        async with self._begin.reading() as transaction:
            return frozenset((await transaction.execute(query)).scalars())

    async def people(self, session_id: int) -> frozenset[str]:
        """Return whose turns a session has had."""
        query = sa.select(_T.c.person).where(_T.c.session_id == session_id).distinct()
        async with self._begin.reading() as transaction:
            return frozenset((await transaction.execute(query)).scalars())

    async def count(self, session_id: int, *, before: int) -> int:
        """Count the turns of a session before the one with that id."""
        query = sa.select(sa.func.count()).select_from(_T)
        query = query.where(_T.c.session_id == session_id, _T.c.id < before)
        async with self._begin.reading() as transaction:
            return int((await transaction.execute(query)).scalar_one())

    async def note_progress(self, turn_id: int, progress: Mapping[str, Any]) -> None:
        """Record what another bot needs to go on with a turn of this bot that runs."""
        noting = sa.update(_T).where(
            _T.c.id == turn_id,
            _T.c.status == _Status.RUNNING.value,
            _T.c.owner == self._owner,
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(noting.values(progress=dict(progress)))

    async def take_orphans(self) -> tuple[records.Turn, ...]:
        """Find turns that other bots left running.

        Those with progress belong to this bot from now on; the others become interrupted.
        Those of which nothing is recorded are deleted where `ClaimedEvents` gives their events
        back: these begin again.

        Returns:
            Those turns, so that they can be gone on with, or people be told.
        """
        theirs = (_T.c.status == _Status.RUNNING.value, _T.c.owner != self._owner)
        async with self._begin.writing() as transaction:
            is_claimed = (_EVENTS.c.owner == _T.c.owner, _EVENTS.c.content.is_not(None))
            begun = await _begun(transaction, *theirs, *_IS_BLANK, *is_claimed)
            await transaction.execute(sa.delete(_T).where(_T.c.id.in_([row.id for row in begun])))
            take = sa.update(_T).where(*theirs).returning(*_T.c)
            end = take.where(_T.c.progress.is_(None)).values(
                status=_Status.INTERRUPTED.value, ended=columns.now()
            )
            rows = [*(await transaction.execute(end)).all()]
            rows += (await transaction.execute(take.values(owner=self._owner))).all()
        return tuple(sorted(map(_record, rows), key=lambda turn: turn.id))


def _record(row: sa.Row[Any]) -> records.Turn:
    fields = row._asdict()
    fields["attachments"] = tuple(fields["attachments"])
    fields["status"] = _Status(fields["status"])
    return records.Turn(**fields)
