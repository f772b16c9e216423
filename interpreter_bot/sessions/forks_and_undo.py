"""Forks, branches and undo of conversations, and the cells that made lost variables.

The host copies and restores variables and files; the store does so for turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from interpreter_bot import cancellation, errors, session_variables, values
from interpreter_bot.sessions import (
    jobs,
    lanes,
    requests,
    session_dependencies,
    variable_losses,
    variable_uses,
)
from interpreter_bot.store import records
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

_MAX_CELLS: Final = 300
_MAX_TURNS: Final = 1000
_TITLE_CHARACTERS: Final = 190
# Of one turn.
_MAX_JOBS: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class UndoneTurn:
    """A turn that was undone.

    Attributes:
        request: the person's words or code.
        missed_runs: how many pieces of code ran between the restored save and the turn; 0 if the
            variables are as before the turn.
        files_notice: a sentence why the files were not restored; empty if they were.
    """

    request: str
    missed_runs: int
    files_notice: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _BranchStart:
    """Where a branch begins.

    Attributes:
        turn: the first turn that is not copied.
        checkpoint_turn_id: of the turn whose checkpoint has the branch's variables and files; 0 if
            no code has run since `turn` began, so the present ones are right.
        earlier_executions: the code that ran before `turn`.
    """

    turn: records.Turn
    checkpoint_turn_id: int
    earlier_executions: tuple[records.Execution, ...]

    def cells(self, limit: int) -> tuple[str, ...]:
        """Return the code that succeeded, among the last `limit` pieces."""
        latest_executions = self.earlier_executions[-limit:] if limit else ()
        return tuple(
            execution.code
            for execution in latest_executions
            if execution.ending is values.Ending.OK
        )


class SessionBranches:
    """Forks, branches and undo of sessions; each is refused while a turn of the session runs."""

    def __init__(
        self, services: session_dependencies.SessionDependencies, all_lanes: lanes.Lanes
    ) -> None:
        self._services = services
        self._lanes = all_lanes

    async def fork(self, key: values.SessionKey, new_key: values.SessionKey, person: str) -> None:
        """Copy a session to a new one; they share nothing afterwards.

        The platform has checked that the person may see the source.

        Args:
            new_key: of the new session, which must be unused.

        Raises:
            BotError: the copy failed; the sentence says why. No part of the copy remains.
        """
        hosts, database = self._services.hosts, self._services.database
        async with self._hold_lane(key) as source:
            new_key_text = values.format_key(new_key)
            row = dict(source.kernel)
            title = f"{source.title[:_TITLE_CHARACTERS]} (copy)" if source.title else ""
            try:
                state = await hosts.fork(values.format_key(key), new_key_text)
                await database.session_copies.add(
                    source,
                    new_key,
                    person=person,
                    notice=f"{session_words.BEGAN_AS_COPY} {state.files_notice}".rstrip(),
                    title=title,
                    kernel=row | {"reason": session_words.IS_COPY} if row else row,
                )
            except errors.SessionExistsError:
                raise
            except BaseException:
                await cancellation.shielded(hosts.forget(new_key_text))
                raise

    async def branch(
        self, key: values.SessionKey, turn_id: int, *, new_key: values.SessionKey, person: str
    ) -> tuple[str, ...]:
        """Copy a session as it was before a turn to a new session, a branch of the same tree.

        Variables and files are those of the checkpoint before the turn. If that was deleted, the
        branch has the present files, and its code must run again; a notice in it says so.

        Args:
            key: of the session to be copied. The platform has checked that the person may see it.
            turn_id: of a turn in it that somebody asked for.
            new_key: of the new session, which must be unused.

        Returns:
            The code to be run again, in order.

        Raises:
            BotError: the copy failed; the sentence says why. No part of the copy remains.
        """
        database = self._services.database
        async with self._hold_lane(key) as source:
            start = await self._find_start(source, turn_id)
            try:
                row, state, has_variables = await self._restore(
                    source, new_key, start.checkpoint_turn_id
                )
                if not has_variables:
                    cells = start.cells(_MAX_CELLS)
                    notice = (
                        session_words.BRANCH_RUNS_AGAIN
                        if cells
                        else session_words.BRANCH_WITHOUT_VARIABLES
                    )
                    notice = f"{notice} {state.files_notice}".rstrip()
                else:
                    cells = start.cells(state.missed_runs)
                    notice = session_words.branch_notice(state.missed_runs, state.files_notice)
                cells, omission = self._drop_long_cells(cells)
                await database.session_copies.add(
                    source,
                    new_key,
                    person=person,
                    notice=session_words.BRANCH_PREFIX + notice + omission,
                    title=source.title,
                    kernel=row,
                    before=start.turn.id,
                    instead_of=start.turn.instead_of or start.turn.original or start.turn.id,
                )
            except errors.SessionExistsError:
                raise
            except BaseException:
                await cancellation.shielded(self._services.hosts.forget(values.format_key(new_key)))
                raise
        return cells

    def _drop_long_cells(self, cells: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the cells that fit into a request, and a sentence about those that do not."""
        short_cells = tuple(cell for cell in cells if len(cell) <= requests.MAX_CHARACTERS)
        if len(short_cells) == len(cells):
            return cells, ""
        count = len(cells) - len(short_cells)
        return short_cells, session_words.branch_left_out(count, requests.MAX_CHARACTERS)

    async def _find_start(self, source: records.Session, turn_id: int) -> _BranchStart:
        database = self._services.database
        turns = await database.turns.list_for_session(source.id, limit=_MAX_TURNS)
        index = next((position for position, turn in enumerate(turns) if turn.id == turn_id), None)
        if index is None or not (turns[index].request or turns[index].attachments):
            raise errors.BotError(session_words.QUESTION_GONE)
        turn = (await self._turns_with_same_checkpoint(turns[index]))[0]
        index = turns.index(turn)
        if index and turns[index - 1].instead_of is not None:
            # The turn before has the notice of a branch, so this is another alternative to it.
            turn = turns[index - 1]
        executions = await database.executions.list_for_turns([turn.id for turn in turns])
        executed = [
            execution for execution in executions if execution.ending is not values.Ending.REFUSED
        ]
        later_turn_ids = [
            execution.turn_id for execution in executed if execution.turn_id >= turn.id
        ]
        earlier_executions = tuple(
            execution for execution in executed if execution.turn_id < turn.id
        )
        first_changing_turn = next(
            (later for later in turns if later.id == min(later_turn_ids, default=0)), None
        )
        checkpoint_turn_id = (
            0
            if first_changing_turn is None
            else (await self._turns_with_same_checkpoint(first_changing_turn))[0].id
        )
        return _BranchStart(turn, checkpoint_turn_id, earlier_executions)

    async def _restore(
        self, source: records.Session, new_key: values.SessionKey, checkpoint_turn_id: int
    ) -> tuple[Mapping[str, Any], session_variables.RestoredState, bool]:
        """Copy a session's checkpoint on its host, or its present files if that was deleted.

        Returns:
            The copy's `records.Session.kernel`, its state, and whether it has variables.
        """
        hosts, key, new_key_text = (
            self._services.hosts,
            values.format_key(source.key),
            values.format_key(new_key),
        )
        try:
            state = await hosts.fork(key, new_key_text, checkpoint=f"{checkpoint_turn_id or ''}")
        except errors.SessionExistsError:
            raise
        except errors.KernelError:
            if not checkpoint_turn_id:
                raise
            _log.info("a branch begins without variables", exc_info=True)
            state = await hosts.fork(key, new_key_text)
        else:
            if (saved := state.saved) is not None:
                if not checkpoint_turn_id and source.kernel.get("kernel") == saved.kernel_id:
                    missed_runs = max(source.kernel.get("runs", 0) - saved.run_count, 0)
                    state = dataclasses.replace(state, missed_runs=missed_runs)
                return self._kernel_row(source, state, session_words.IS_COPY), state, True
            if checkpoint_turn_id or not source.kernel:
                return {}, state, True
        await hosts.release(new_key_text)
        return {}, state, False

    async def list_branches(self, key: values.SessionKey) -> tuple[values.SessionKey, ...]:
        """Return the keys of all sessions in the tree of a session, its own last."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return (key,)
        branches = await self._services.database.sessions.list_tree(session)
        return (*(branch.key for branch in branches if branch.id != session.id), key)

    async def list_alternatives(self, key: values.SessionKey) -> tuple[records.Alternatives, ...]:
        """Return the turns of other branches that replace turns of a session."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return ()
        return await self._services.database.session_copies.list_alternatives(session)

    async def undo(self, key: values.SessionKey, *, turn_id: int | None = None) -> UndoneTurn:
        """Go back to before the last turn of a session.

        Args:
            turn_id: of the turn to undo, which has to be the last; None for the last turn.

        Raises:
            BotError: nothing was undone; the sentence says why.
        """
        async with self._hold_lane(key) as session:
            turn = await self._last_turn(session)
            if turn is None:
                raise errors.BotError(session_words.NOTHING_TO_UNDO)
            if turn_id not in (None, turn.id):
                raise errors.BotError(session_words.NOT_LAST)
            undone_turns = await self._turns_with_same_checkpoint(turn)
            state = await cancellation.shielded(self._undo_turns(session, undone_turns))
            return UndoneTurn(undone_turns[0].request, state.missed_runs, state.files_notice)

    async def undo_edited(self, request: requests.Request) -> None:
        """Undo the last turn of a session if a request is an edit of its request.

        The turn stays if undoing it would lose a variable, as somebody who corrects a word expects
        to lose nothing. The caller holds the session's lane.
        """
        if not request.is_edit:
            return
        try:
            session = await self._services.database.sessions.find(request.key)
            turn = await self._last_turn(session) if session is not None else None
            if session and turn and turn.request_id == request.id:
                await cancellation.shielded(
                    self._undo_turns(session, [turn], requires_everything=True)
                )
        except errors.BotError:
            # The request then runs on the present variables, like any other.
            _log.info("an edited message runs on later variables", exc_info=True)

    async def _last_turn(self, session: records.Session) -> records.Turn | None:
        """Return the last turn that a person asked for; None if something else came after it."""
        last = await self._services.database.turns.list_for_session(session.id, limit=1)
        if not last or not (last[0].request or last[0].attachments):
            return None
        if last[0].status is values.TurnStatus.RUNNING:
            raise errors.BotError(session_words.SESSION_BUSY)
        return last[0]

    async def _turns_with_same_checkpoint(self, turn: records.Turn) -> Sequence[records.Turn]:
        """Return the turns that share a turn's checkpoint, and are undone with it; it is the last.

        A turn usually has a checkpoint of its own. The turn of a job shares that of the turn that
        began the job, with all turns between the two.
        """
        earlier = await self._services.database.turns.list_for_session(
            turn.session_id, limit=_MAX_JOBS, before=turn.id
        )
        for position, origin in enumerate(earlier):
            if jobs.is_job_of(origin.id, turn.request_id):
                return [*earlier[position:], turn]
        return [turn]

    async def _undo_turns(
        self,
        session: records.Session,
        undone_turns: Sequence[records.Turn],
        *,
        requires_everything: bool = False,
    ) -> session_variables.RestoredState:
        """Restore the session to before its last turns, and delete these."""
        database, ids = self._services.database, [turn.id for turn in undone_turns]
        executions = await database.executions.list_for_turns(ids)
        if all(execution.ending is values.Ending.REFUSED for execution in executions):
            await database.turns.delete(*ids)
            return session_variables.RestoredState()
        state = await self._services.hosts.restore_checkpoint(
            values.format_key(session.key), f"{ids[0]}", requires_everything=requires_everything
        )
        row = self._kernel_row(session, state, session_words.ANSWER_UNDONE)

        async def write() -> bool:
            try:
                async with database.transaction(is_writing=True):
                    await database.sessions.note_kernel(session.id, row)
                    await database.turns.delete(*ids)
            except errors.StoreError:
                _log.exception("turn %d was undone, but that could not be recorded", ids[0])
                return False
            return True

        if not await write():
            # The host has restored the session already.
            self._services.write_retries.add(write)
        return state

    def _kernel_row(
        self, session: records.Session, state: session_variables.RestoredState, reason: str
    ) -> Mapping[str, Any]:
        """Return the new `records.Session.kernel`, from which the next turn reports the restore."""
        if (saved := state.saved) is None:
            return {}
        return {
            "kernel": saved.kernel_id,
            "bot": self._services.id,
            "names": list(saved.names),
            "more": max(saved.kept_count - len(saved.names), 0),
            "runs": saved.run_count + state.missed_runs,
            "reason": reason,
            "people": variable_losses.list_people(session.kernel),
        }

    async def find_lost_cells(self, key: values.SessionKey) -> tuple[str, ...]:
        """Return the cells that made the lost variables, in the order in which they ran.

        Raises:
            BotError: no variable was lost, or the cells that made them are unknown.
        """
        session = await self._services.database.sessions.find(key)
        if session is None:
            raise errors.BotError(session_words.CONVERSATION_EMPTY)
        variables = await self._services.hosts.variables(values.format_key(key))
        lost = (
            dict(variables.saved.lost).keys() - variables.names
            if variables.saved is not None
            else ()
        )
        executions = await self._services.database.executions.list_for_session(
            session.id, limit=_MAX_CELLS
        )
        codes = [execution.code for execution in executions if execution.ending is values.Ending.OK]
        cells = await asyncio.to_thread(variable_uses.find_latest_assignments, codes, lost)
        if not cells:
            raise errors.BotError(session_words.NOTHING_TO_REBUILD)
        return cells

    @contextlib.asynccontextmanager
    async def _hold_lane(self, key: values.SessionKey) -> AsyncIterator[records.Session]:
        """Hold the lane of a session that exists and has no job; see `Lanes.hold`."""
        await self._services.jobs.require_none(key)
        async with self._lanes.hold(key):
            session = await self._services.database.sessions.find(key)
            if session is None:
                raise errors.BotError(session_words.CONVERSATION_EMPTY)
            yield session
