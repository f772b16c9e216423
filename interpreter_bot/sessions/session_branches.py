"""What people do with the state of a conversation: copy it, take its last turn back, run cells
again that made what was lost.

The host copies and goes back with variables and files; the store with what was said.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from interpreter_bot import cancellation, errors, session_variables, values
from interpreter_bot.sessions import (
    assigned_variables,
    lanes,
    requests,
    turn_services,
    variable_losses,
)
from interpreter_bot.store import records

_log = logging.getLogger(__name__)

_BUSY: Final = "Something runs in this conversation. Please try again when it is over."
_EMPTY: Final = "There is nothing in this conversation yet."
_NOTHING: Final = "There is nothing that could be undone."
_NOTHING_LOST: Final = "No variable is missing that recorded code has made."
_COPY: Final = "This conversation began as a copy of another one: variables, files and history."
_COPIED: Final = "This conversation is a copy of another one."
_UNDONE: Final = "The last answer was undone."
# People see the end of an answer a moment before it is recorded.
_RECORDING_SECONDS: Final = 3.0
_MOST_CELLS: Final = 300
_TITLE_CHARACTERS: Final = 190


class SessionBranches:
    """Copies of sessions, and ways back. What a turn does at the same time is never disturbed."""

    def __init__(self, services: turn_services.TurnServices, held: lanes.Lanes) -> None:
        self._services = services
        self._lanes = held

    async def fork(self, key: values.SessionKey, new_key: values.SessionKey, person: str) -> None:
        """Begin a session as a copy of another one. They share nothing from then on.

        Who asks must be allowed to see that one: it is for the platform to know.

        Args:
            key: of the session to be copied.
            new_key: of the new one, which nobody knows yet.
            person: id of who wants it.

        Raises:
            BotError: it cannot be done; the sentence says why, and nothing is left of it.
        """
        hosts, database = self._services.hosts, self._services.database
        async with self._to_ourselves(key) as source:
            address = values.text(new_key)
            row = dict(source.kernel)
            title = f"{source.title[:_TITLE_CHARACTERS]} (copy)" if source.title else ""
            try:
                await hosts.fork(values.text(key), address)
                await database.session_copies.add(
                    source,
                    new_key,
                    person=person,
                    notice=_COPY,
                    title=title,
                    kernel=row | {"reason": _COPIED} if row else row,
                )
            except errors.SessionExistsError:
                raise
            except BaseException:
                await cancellation.shielded(hosts.forget(address))
                raise

    async def undo(self, key: values.SessionKey) -> str:
        """Go back to before the last turn of a session; returns what had been asked in it.

        Raises:
            BotError: it cannot be done; the sentence says why, and nothing is changed.
        """
        async with self._to_ourselves(key) as session:
            turn = await self._last(session)
            if turn is None:
                raise errors.BotError(_NOTHING)
            await cancellation.shielded(self._take_back(session, turn))
            return turn.request

    async def take_back_edited(self, request: requests.Request) -> None:
        """Where a request is an edited one, go back to before it was made, if that can be done.

        It can where nothing was asked since, and only if no variable is lost by it: who corrects a
        word expects no loss. The caller holds the session's lane.
        """
        if not (request.edits and self._services.config.sessions.edits_undo):
            return
        try:
            session = await self._services.database.sessions.find(request.key)
            turn = await self._last(session) if session is not None else None
            if session and turn and turn.request_id.partition("-")[0] == request.edits:
                await cancellation.shielded(self._take_back(session, turn, is_whole=True))
        except errors.BotError:
            # Then it runs on what is there, as what is said next would.
            _log.info("an edited message runs on later variables", exc_info=True)

    async def _last(self, session: records.Session) -> records.Turn | None:
        """Return the last turn that a person asked for; None if something else came after it."""
        last = await self._services.database.turns.of_session(session.id, most=1)
        if not last or not (last[0].request or last[0].attachments):
            return None
        if last[0].status is values.TurnStatus.RUNNING:
            raise errors.BotError(_BUSY)
        return last[0]

    async def _take_back(
        self, session: records.Session, turn: records.Turn, *, is_whole: bool = False
    ) -> None:
        database = self._services.database
        executions = await database.executions.of_turn(turn.id)
        if all(one.ending is values.Ending.REFUSED for one in executions):
            await database.turns.delete(turn.id)
            return
        saved = await self._services.hosts.go_back(
            values.text(session.key), f"{turn.id}", is_whole=is_whole
        )
        row = self._row(session, saved) if saved is not None else {}

        async def write() -> bool:
            try:
                async with database.together(is_writing=True):
                    await database.sessions.note_kernel(session.id, row)
                    await database.turns.delete(turn.id)
            except errors.StoreError:
                _log.exception("that turn %d was undone could not be recorded", turn.id)
                return False
            return True

        if not await write():
            # The host has gone back already.
            self._services.write_retries.add(write)

    def _row(
        self, session: records.Session, saved: session_variables.SavedVariables
    ) -> Mapping[str, Any]:
        """Return the row of `variable_losses` with which the next turn says what is back."""
        return {
            "kernel": saved.kernel,
            "bot": self._services.id,
            "names": list(saved.names),
            "more": max(saved.kept - len(saved.names), 0),
            "runs": saved.runs,
            "reason": _UNDONE,
            "people": variable_losses.people_in(session.kernel),
        }

    async def lost_cells(self, key: values.SessionKey) -> tuple[str, ...]:
        """Return the code that made variables which were not kept, in the order in which it ran.

        Raises:
            BotError: none was lost, or no code is known that made it.
        """
        session = await self._services.database.sessions.find(key)
        if session is None:
            raise errors.BotError(_EMPTY)
        held = await self._services.hosts.variables(values.text(key))
        lost = dict(held.saved.lost).keys() - held.names if held.saved is not None else ()
        executions = await self._services.database.executions.of_session(
            session.id, most=_MOST_CELLS
        )
        codes = [one.code for one in executions if one.ending is values.Ending.OK]
        cells = await asyncio.to_thread(assigned_variables.latest, codes, lost)
        if not cells:
            raise errors.BotError(_NOTHING_LOST)
        return cells

    @contextlib.asynccontextmanager
    async def _to_ourselves(self, key: values.SessionKey) -> AsyncIterator[records.Session]:
        """Hold the lane of a session in which nothing runs, or what runs is just over."""
        async with contextlib.AsyncExitStack() as stack:
            turn = self._lanes.turn(key, person="", waiting=lambda _: None, is_first=True)
            try:
                async with asyncio.timeout(_RECORDING_SECONDS):
                    await stack.enter_async_context(turn)
            except TimeoutError:
                raise errors.BotError(_BUSY) from None
            session = await self._services.database.sessions.find(key)
            if session is None:
                raise errors.BotError(_EMPTY)
            yield session
