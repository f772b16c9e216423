"""Turns, those that a crash interrupted, and the platform events that were claimed for one.

Networks send an event again, perhaps to the next bot: it is handled once.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

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
# A command becomes no turn; turns without the name of a request, as that of a reset, are of no
# event.
_TURNS_WITH_EVENTS = (
    sa.select(
        _T.id, _EVENTS.platform.label("network"), _EVENTS.event_id, _EVENTS.address,
        _S.platform, _S.workspace, _S.channel, _S.thread,
    )
    .join_from(_T, _S)
    .join(_EVENTS, _EVENTS.request_id == _T.request_id)
    .where(_EVENTS.request_id != "", _EVENTS.address != "")
)  # fmt: skip


async def _begun(
    runner: transactions.Transactions, *conditions: sa.ColumnElement[bool]
) -> list[sa.Row[Any]]:
    """Return the turns that events became, with their events: two sessions may name one alike."""
    return [
        row
        for row in await runner.rows(_TURNS_WITH_EVENTS.where(*conditions))
        if _is_its_place(row)
    ]


def _is_its_place(row: sa.Row[Any]) -> bool:
    """Return whether the session of a turn is that of an event.

    What is said in a channel may be answered in a new thread, and the reverse.
    """
    address = values.key(row.address)
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
    """Ids of claimed events, for a while."""

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
        """Claim an event that another bot claimed, or this one; says whether there is any."""
        update = sa.update(_EVENTS).where(*_is_event(platform, event_id))
        return await self._transactions.change(update.values(owner=self._owner)) == 1

    async def settle(self, platform: str, event_id: str) -> None:
        """Note that nobody waits for an answer to an event any more."""
        done = sa.update(_EVENTS).where(*_is_event(platform, event_id))
        await self._transactions.change(done.values(address="", content=None))

    async def take_orphans(self, platforms: Collection[str]) -> tuple[records.ClaimedEvent, ...]:
        """Find what other bots claimed and did not even begin, in the order of the claims.

        Only events of those platforms; the others wait until somebody can take them again.

        What can be taken again belongs to this bot from now on. If that dies as well, it may
        be for that event: then people are told, and it is not taken once more.
        """
        orphaned = (
            _EVENTS.address != "",
            _EVENTS.platform.in_(platforms),
            _EVENTS.owner != self._owner,
        )
        async with self._transactions.together(is_writing=True):
            # What became a turn is told of, or goes on, as that.
            begun = await _begun(self._transactions, *orphaned)
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
        """Delete events older than any platform repeats them; returns how many."""
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
            Whether it was recorded: not if it had ended, or its session was deleted.
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

    async def delete(self, turn_id: int) -> None:
        """Delete a turn with everything in it. Its usage stays counted."""
        await self._transactions.change(sa.delete(_T).where(_T.id == turn_id))

    async def get(self, turn_id: int) -> records.Turn | None:
        """Return the turn of that id."""
        return await self._transactions.first(sa.select(_T).where(_T.id == turn_id))

    async def of_session(
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

    async def request_ids(self, session_id: int, among: Collection[str]) -> frozenset[str]:
        """Return which of some requests became turns of a session."""
        query = sa.select(_T.request_id).where(
            _T.session_id == session_id, _T.request_id.in_(among)
        )
        return frozenset(await self._transactions.all(query))

    async def people(self, session_id: int) -> frozenset[str]:
        """Return whose turns a session has had."""
        query = sa.select(_T.person).where(_T.session_id == session_id).distinct()
        return frozenset(await self._transactions.all(query))

    async def count(self, session_id: int, *, before: int) -> int:
        """Count the turns of a session before the one with that id."""
        query = sa.select(sa.func.count()).select_from(_T)
        query = query.where(_T.session_id == session_id, _T.id < before)
        (count,) = await self._transactions.all(query)
        return count

    async def note_progress(self, turn_id: int, progress: Mapping[str, Any]) -> None:
        """Record what another bot needs to go on with a turn of this bot that runs."""
        update_query = sa.update(_T).where(
            _T.id == turn_id,
            _T.status == _Status.RUNNING,
            _T.owner == self._owner,
        )
        await self._transactions.change(update_query.values(progress=dict(progress)))

    async def take_orphans(self) -> tuple[records.Turn, ...]:
        """Find turns that other bots left running.

        Those with progress belong to this bot from now on; the others become interrupted.
        Those of which nothing is recorded are deleted where `ClaimedEvents` gives their events
        back: these begin again.

        Returns:
            Those turns, so that they can be gone on with, or people be told.
        """
        orphaned = (_T.status == _Status.RUNNING, _T.owner != self._owner)
        async with self._transactions.together(is_writing=True):
            is_claimed = (_EVENTS.owner == _T.owner, _EVENTS.content.is_not(None))
            begun = await _begun(self._transactions, *orphaned, *_IS_BLANK, *is_claimed)
            await self._transactions.change(
                sa.delete(_T).where(_T.id.in_([row.id for row in begun]))
            )
            update_orphans = sa.update(_T).where(*orphaned).returning(_T)
            end = update_orphans.where(_T.progress.is_(None)).values(
                status=_Status.INTERRUPTED, ended=columns.now()
            )
            turns = await self._transactions.all(end)
            turns += await self._transactions.all(update_orphans.values(owner=self._owner))
        return tuple(sorted(turns, key=lambda turn: turn.id))
