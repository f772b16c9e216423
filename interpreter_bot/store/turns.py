"""Turns, and the platform events that bots claimed in order to handle each once.

Platforms may send an event again, perhaps to the next bot.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, schedules, transactions

_EVENTS = records.ClaimedEvent

_TURNS = records.Turn
_SESSIONS = records.Session
_Status = values.TurnStatus
# People no longer wait for the rest of an older answer.
_MAX_UNSHOWN_AGE: Final = datetime.timedelta(hours=1)
# The turn has run no code, shown nothing and cost nothing.
_IS_BLANK = (
    _TURNS.progress.is_(None),
    *(
        ~sa.exists().where(table.turn_id == _TURNS.id)
        for table in (records.Execution, records.Part, records.Usage)
    ),
)
# Commands become no turns. Turns without the id of a request, such as resets, have no event.
_TURNS_WITH_EVENTS = (
    sa.select(
        _TURNS.id, _EVENTS.platform.label("network"), _EVENTS.event_id, _EVENTS.address,
        _SESSIONS.platform, _SESSIONS.workspace, _SESSIONS.channel, _SESSIONS.thread,
    )
    .join_from(_TURNS, _SESSIONS)
    .join(_EVENTS, _EVENTS.request_id == _TURNS.request_id)
    .where(_EVENTS.request_id != "", _EVENTS.address != "")
)  # fmt: skip


async def _find_turns_of_events(
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

    The threads may differ if one is empty: a message in a channel may be answered in a new thread,
    and one in a thread in the channel.
    """
    address = values.parse_key(row.address)
    place = tuple(
        map(columns.make_name_storable, (address.platform, address.workspace, address.channel))
    )
    threads = {columns.make_name_storable(address.thread), row.thread}
    return place == (row.platform, row.workspace, row.channel) and (
        len(threads) == 1 or "" in threads
    )


def _is_event(platform: str, event_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _EVENTS.platform == platform, _EVENTS.event_id == event_id


class ClaimedEvents(transactions.Aggregate):
    """Table of claimed events; `prune` deletes the old ones."""

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
            event_id: unique within the platform.
            address: key of the session whose people wait for an answer, until `settle`.
            request_id: id of the request that is made of it.
            content: the data that its platform needs to handle it again; None if it cannot.
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
        update = sa.update(_EVENTS).where(*_is_event(platform, event_id))
        await self._transactions.change(update.values(address="", content=None))

    async def take_orphans(self, platforms: Collection[str]) -> tuple[records.ClaimedEvent, ...]:
        """Find events that other bots claimed but did not begin to handle, in the order of claims.

        Events of other platforms stay until a bot can handle them again.

        The events belong to this bot from now on, and lose their content: if this bot dies as well,
        they may be the cause, so they are not handled a third time, and people are told.
        """
        is_orphaned = (
            _EVENTS.address != "",
            _EVENTS.platform.in_(platforms),
            _EVENTS.owner != self._owner,
        )
        async with self._transactions.transaction(is_writing=True):
            # The turns that events became are taken by `Turns.take_orphans`.
            turns = await _find_turns_of_events(self._transactions, *is_orphaned)
            is_begun = sa.tuple_(_EVENTS.platform, _EVENTS.event_id).in_(
                [(row.network, row.event_id) for row in turns]
            )
            query = sa.select(_EVENTS).where(*is_orphaned, ~is_begun).order_by(_EVENTS.seen)
            events = await self._transactions.all(query)
            is_settled = sa.or_(is_begun, _EVENTS.content.is_(None))
            update = sa.update(_EVENTS).where(*is_orphaned)
            await self._transactions.change(
                update.where(is_settled).values(address="", content=None)
            )
            await self._transactions.change(update.values(owner=self._owner, content=None))
        return events

    async def prune(self, max_age: datetime.timedelta) -> int:
        """Delete events so old that no platform repeats them; return their number."""
        delete = sa.delete(_EVENTS).where(_EVENTS.seen < columns.now() - max_age)
        return await self._transactions.change(delete)


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
        insert = sa.insert(_TURNS).values(
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
        return await self._transactions.one(insert.returning(_TURNS))

    async def finish(
        self,
        turn_id: int,
        status: values.TurnStatus,
        *,
        answer: str = "",
        keeps_question: bool = False,
    ) -> bool:
        """Record how a turn of this bot ended. The first end counts.

        Args:
            keeps_question: its latest question stays, see `TurnQuestions.load_left_behind`.

        Returns:
            Whether it was recorded: False if it had ended, or its session was deleted.
        """
        is_open = sa.and_(_TURNS.status == _Status.RUNNING, _TURNS.owner == self._owner)
        end = (
            sa.update(_TURNS)
            .where(_TURNS.id == turn_id, is_open)
            .values(status=status, answer=answer, ended=columns.now(), progress=None)
        )
        questions = sa.delete(records.Question).where(records.Question.turn_id == turn_id)
        async with self._transactions.transaction(is_writing=True):
            if not keeps_question:
                await self._transactions.change(questions)
            return await self._transactions.change(end) == 1

    async def delete(self, *turn_ids: int) -> None:
        """Delete turns with everything in them. Their usage stays counted."""
        await self._transactions.change(sa.delete(_TURNS).where(_TURNS.id.in_(turn_ids)))

    async def get(self, turn_id: int) -> records.Turn | None:
        """Return the turn with an id."""
        return await self._transactions.first(sa.select(_TURNS).where(_TURNS.id == turn_id))

    async def find_by_schedule_run(self, run_id: int) -> records.Turn | None:
        """Return the turn of a run of a schedule, if it has begun."""
        query = sa.select(_TURNS).where(_TURNS.schedule_run_id == run_id)
        return await self._transactions.first(query)

    async def list_for_session(
        self, session_id: int, *, limit: int = 200, before: int | None = None
    ) -> tuple[records.Turn, ...]:
        """Return the latest turns of a session, in the order in which they began.

        Args:
            before: id of a turn that they all precede, to page backwards.
        """
        query = sa.select(_TURNS).where(_TURNS.session_id == session_id)
        if before is not None:
            query = query.where(_TURNS.id < before)
        latest = await self._transactions.all(query.order_by(_TURNS.id.desc()).limit(limit))
        return latest[::-1]

    async def filter_request_ids(
        self, session_id: int, request_ids: Collection[str]
    ) -> frozenset[str]:
        """Return which of some request ids have turns in a session."""
        query = sa.select(_TURNS.request_id).where(
            _TURNS.session_id == session_id, _TURNS.request_id.in_(request_ids)
        )
        return frozenset(await self._transactions.all(query))

    async def list_done_for_request(
        self, platform: str, channel: str, request_id: str
    ) -> tuple[tuple[records.Session, records.Turn], ...]:
        """Return the finished turns of a request in a channel, with their sessions."""
        sessions = records.Session
        query = (
            sa.select(sessions, _TURNS)
            .join(sessions, sessions.id == _TURNS.session_id)
            .where(_TURNS.request_id == request_id, _TURNS.status == _Status.DONE)
            .where(sessions.platform == platform, sessions.channel == channel)
        )
        return tuple((row[0], row[1]) for row in await self._transactions.rows(query))

    async def list_people(self, session_id: int) -> frozenset[str]:
        """Return the people who had turns in a session."""
        query = sa.select(_TURNS.person).where(_TURNS.session_id == session_id).distinct()
        return frozenset(await self._transactions.all(query))

    async def count(self, session_id: int, *, before: int) -> int:
        """Count the turns of a session before the one with that id."""
        query = sa.select(sa.func.count()).select_from(_TURNS)
        query = query.where(_TURNS.session_id == session_id, _TURNS.id < before)
        (count,) = await self._transactions.all(query)
        return count

    async def note_progress(self, turn_id: int, progress: Mapping[str, Any]) -> None:
        """Record what another bot needs to continue a running turn of this bot."""
        update_query = sa.update(_TURNS).where(
            _TURNS.id == turn_id,
            _TURNS.status == _Status.RUNNING,
            _TURNS.owner == self._owner,
        )
        await self._transactions.change(update_query.values(progress=dict(progress)))

    async def list_unshown(self) -> tuple[records.Turn, ...]:
        """Return turns of other bots that ended lately, but may not have been shown in full.

        Their events are not settled, as that is done once all of the answer is posted.
        """
        rows = await _find_turns_of_events(
            self._transactions,
            _TURNS.status != _Status.RUNNING,
            _TURNS.ended > columns.now() - _MAX_UNSHOWN_AGE,
            _TURNS.owner != self._owner,
            _EVENTS.owner != self._owner,
        )
        query = sa.select(_TURNS).where(_TURNS.id.in_([row.id for row in rows]))
        return await self._transactions.all(query.order_by(_TURNS.id))

    async def take_orphans(self) -> tuple[records.Turn, ...]:
        """Find turns that other bots left running.

        Turns with progress belong to this bot from now on; others become interrupted. Turns that
        did nothing are deleted if they begin again, by an event that can be handled again or by a
        schedule.

        Returns:
            The turns to continue, and the interrupted ones, so that people can be told.
        """
        is_orphaned = (_TURNS.status == _Status.RUNNING, _TURNS.owner != self._owner)
        async with self._transactions.transaction(is_writing=True):
            is_claimed = (_EVENTS.owner == _TURNS.owner, _EVENTS.content.is_not(None))
            blank_turns = await _find_turns_of_events(
                self._transactions, *is_orphaned, *_IS_BLANK, *is_claimed
            )
            begins_again = _TURNS.id.in_([row.id for row in blank_turns]) | sa.and_(
                *is_orphaned, *_IS_BLANK, schedules.is_unfinished(_TURNS.schedule_run_id)
            )
            await self._transactions.change(sa.delete(_TURNS).where(begins_again))
            update_orphans = sa.update(_TURNS).where(*is_orphaned).returning(_TURNS)
            end = update_orphans.where(_TURNS.progress.is_(None)).values(
                status=_Status.INTERRUPTED, ended=columns.now()
            )
            turns = await self._transactions.all(end)
            turns += await self._transactions.all(update_orphans.values(owner=self._owner))
        return tuple(sorted(turns, key=lambda turn: turn.id))
