"""Turns, and the platform events that bots claimed in order to handle each once.

Platforms may send an event again, perhaps to the next bot.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schedules, transactions

_EVENTS = records.ClaimedEvent

_T = records.Turn
_S = records.Session
_Status = values.TurnStatus
# Nothing was run, or paid for.
_IS_BLANK = (
    _T.progress.is_(None),
    *(
        ~sa.exists().where(table.turn_id == _T.id)
        for table in (records.Execution, records.Part, records.Usage)
    ),
)
# A command becomes no turn, and turns without the id of a request, such as resets, have no event.
_TURNS_WITH_EVENTS = (
    sa.select(
        _T.id, _EVENTS.platform.label("network"), _EVENTS.event_id, _EVENTS.address,
        _S.platform, _S.workspace, _S.channel, _S.thread,
    )
    .join_from(_T, _S)
    .join(_EVENTS, _EVENTS.request_id == _T.request_id)
    .where(_EVENTS.request_id != "", _EVENTS.address != "")
)  # fmt: skip


async def _turns_of_events(
    runner: transactions.Transactions, *conditions: sa.ColumnElement[bool]
) -> list[sa.Row[Any]]:
    """Return turns with their events; requests of two sessions may have the same id."""
    return [
        row
        for row in await runner.rows(_TURNS_WITH_EVENTS.where(*conditions))
        if _is_same_place(row)
    ]


def _is_same_place(row: sa.Row[Any]) -> bool:
    """Return whether the session of a turn is the one that its event was sent to.

    A message in a channel may be answered in a new thread, and the reverse.
    """
    address = values.parse_key(row.address)
    place = tuple(
        map(columns.storable_name, (address.platform, address.workspace, address.channel))
    )
    threads = {columns.storable_name(address.thread), row.thread}
    return place == (row.platform, row.workspace, row.channel) and (
        len(threads) == 1 or "" in threads
    )


def _is_event(platform: str, event_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _EVENTS.platform == platform, _EVENTS.event_id == event_id


class ClaimedEvents(transactions.Aggregate):
    """Table of claimed events, which are kept for a while."""

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
            platform: the platform that sent it.
            event_id: unique within the platform.
            address: of the session whose people wait for an answer, until `settle`.
            request_id: of the request that it becomes.
            content: what its platform needs to handle it again; None if it cannot.
        """
        insert = self._transactions.insert(_EVENTS).values(
            platform=platform,
            event_id=event_id,
            seen=columns.now(),
            owner=self._owner,
            address=address,
            request_id=request_id,
            content=content,
        )
        return await self._transactions.change(insert.on_conflict_do_nothing()) == 1

    async def reclaim(self, platform: str, event_id: str) -> bool:
        """Claim an event that was claimed already; return whether it exists."""
        update = sa.update(_EVENTS).where(*_is_event(platform, event_id))
        return await self._transactions.change(update.values(owner=self._owner)) == 1

    async def settle(self, platform: str, event_id: str) -> None:
        """Record that nobody waits for an answer to an event."""
        done = sa.update(_EVENTS).where(*_is_event(platform, event_id))
        await self._transactions.change(done.values(address="", content=None))

    async def take_orphans(self, platforms: Collection[str]) -> tuple[records.ClaimedEvent, ...]:
        """Find events that other bots claimed but did not begin to handle, in the order of claims.

        Events of other platforms wait until a bot can handle them again.

        Events with content belong to this bot from now on. If it dies as well, the event may be the
        cause: then people are told, and it is not handled again.
        """
        orphaned = (
            _EVENTS.address != "",
            _EVENTS.platform.in_(platforms),
            _EVENTS.owner != self._owner,
        )
        async with self._transactions.together(is_writing=True):
            # Events that became turns are handled with these.
            begun = await _turns_of_events(self._transactions, *orphaned)
            is_begun = sa.tuple_(_EVENTS.platform, _EVENTS.event_id).in_(
                [(row.network, row.event_id) for row in begun]
            )
            unbegun = sa.select(_EVENTS).where(*orphaned, ~is_begun).order_by(_EVENTS.seen)
            events = await self._transactions.all(unbegun)
            over = sa.or_(is_begun, _EVENTS.content.is_(None))
            update = sa.update(_EVENTS).where(*orphaned)
            await self._transactions.change(update.where(over).values(address="", content=None))
            await self._transactions.change(update.values(owner=self._owner, content=None))
        return events

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete events so old that no platform repeats them; return their number."""
        old = sa.delete(_EVENTS).where(_EVENTS.seen < columns.now() - age)
        return await self._transactions.change(old)


class Turns(transactions.Aggregate):
    """Table of turns; new ones belong to this bot."""

    async def start(
        self,
        session_id: int,
        *,
        person: str,
        text: str,
        request_id: str = "",
        schedule_run_id: int | None = None,
        attachments: Sequence[str] = (),
    ) -> records.Turn:
        """Record the start of a turn, which a crash cannot undo.

        Raises:
            StoreError: the session was deleted, or the database cannot be used.
        """
        insert = sa.insert(_T).values(
            session_id=session_id,
            request_id=request_id,
            schedule_run_id=schedule_run_id,
            person=person,
            request=text,
            attachments=tuple(attachments),
            status=_Status.RUNNING,
            answer="",
            owner=self._owner,
            started=columns.now(),
        )
        return await self._transactions.one(insert.returning(_T))

    async def finish(self, turn_id: int, status: values.TurnStatus, *, answer: str = "") -> bool:
        """Record how a turn of this bot ended. The first end counts.

        Returns:
            Whether it was recorded: False if it had ended, or its session was deleted.
        """
        is_open = sa.and_(_T.status == _Status.RUNNING, _T.owner == self._owner)
        end = (
            sa.update(_T)
            .where(_T.id == turn_id, is_open)
            .values(status=status, answer=answer, ended=columns.now(), progress=None)
        )
        questions = sa.delete(records.Question).where(records.Question.turn_id == turn_id)
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(questions)
            return await self._transactions.change(end) == 1

    async def delete(self, *turn_ids: int) -> None:
        """Delete turns with everything in them. Their usage stays counted."""
        await self._transactions.change(sa.delete(_T).where(_T.id.in_(turn_ids)))

    async def get(self, turn_id: int) -> records.Turn | None:
        """Return the turn with an id."""
        return await self._transactions.first(sa.select(_T).where(_T.id == turn_id))

    async def find_by_schedule_run(self, run_id: int) -> records.Turn | None:
        """Return the turn of a run of a schedule, if it has begun."""
        query = sa.select(_T).where(_T.schedule_run_id == run_id)
        return await self._transactions.first(query)

    async def list_for_session(
        self, session_id: int, *, limit: int = 200, before: int | None = None
    ) -> tuple[records.Turn, ...]:
        """Return the latest turns of a session, in the order in which they began.

        Args:
            before: id of a turn that they all precede, to page backwards.
        """
        query = sa.select(_T).where(_T.session_id == session_id)
        if before is not None:
            query = query.where(_T.id < before)
        latest = await self._transactions.all(query.order_by(_T.id.desc()).limit(limit))
        return latest[::-1]

    async def filter_request_ids(self, session_id: int, among: Collection[str]) -> frozenset[str]:
        """Return which of some requests became turns of a session."""
        query = sa.select(_T.request_id).where(
            _T.session_id == session_id, _T.request_id.in_(among)
        )
        return frozenset(await self._transactions.all(query))

    async def list_done_for_request(
        self, platform: str, channel: str, request_id: str
    ) -> tuple[tuple[records.Session, records.Turn], ...]:
        """Return the turns of a request that are done, with their sessions, of a channel."""
        sessions = records.Session
        query = (
            sa.select(sessions, _T)
            .join(sessions, sessions.id == _T.session_id)
            .where(_T.request_id == request_id, _T.status == _Status.DONE)
            .where(sessions.platform == platform, sessions.channel == channel)
        )
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    async def list_people(self, session_id: int) -> frozenset[str]:
        """Return the people who had turns in a session."""
        query = sa.select(_T.person).where(_T.session_id == session_id).distinct()
        return frozenset(await self._transactions.all(query))

    async def count(self, session_id: int, *, before: int) -> int:
        """Count the turns of a session before the one with that id."""
        query = sa.select(sa.func.count()).select_from(_T)
        query = query.where(_T.session_id == session_id, _T.id < before)
        (count,) = await self._transactions.all(query)
        return count

    async def note_progress(self, turn_id: int, progress: Mapping[str, Any]) -> None:
        """Record what another bot needs to continue a running turn of this bot."""
        update_query = sa.update(_T).where(
            _T.id == turn_id,
            _T.status == _Status.RUNNING,
            _T.owner == self._owner,
        )
        await self._transactions.change(update_query.values(progress=dict(progress)))

    async def take_orphans(self) -> tuple[records.Turn, ...]:
        """Find turns that other bots left running.

        Turns with progress belong to this bot from now on; the others become interrupted. Turns
        that did nothing are deleted if `ClaimedEvents` can handle their events again, or if a
        schedule made them.

        Returns:
            The turns to continue, and the interrupted ones, so that people can be told.
        """
        orphaned = (_T.status == _Status.RUNNING, _T.owner != self._owner)
        async with self._transactions.together(is_writing=True):
            is_claimed = (_EVENTS.owner == _T.owner, _EVENTS.content.is_not(None))
            begun = await _turns_of_events(self._transactions, *orphaned, *_IS_BLANK, *is_claimed)
            begin_again = _T.id.in_([row.id for row in begun]) | sa.and_(
                *orphaned, *_IS_BLANK, schedules.is_unfinished(_T.schedule_run_id)
            )
            await self._transactions.change(sa.delete(_T).where(begin_again))
            update_orphans = sa.update(_T).where(*orphaned).returning(_T)
            end = update_orphans.where(_T.progress.is_(None)).values(
                status=_Status.INTERRUPTED, ended=columns.now()
            )
            turns = await self._transactions.all(end)
            turns += await self._transactions.all(update_orphans.values(owner=self._owner))
        return tuple(sorted(turns, key=lambda turn: turn.id))
