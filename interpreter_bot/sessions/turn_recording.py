"""Record a turn in the store while it happens, so that a bot that is killed loses little of it.

Words and outputs come faster than a database writes. They are gathered, adjacent ones are joined,
and all of it is written now and then, in one transaction; code is written before it runs. What
cannot be written at the end of a turn goes to `write_retries`.

Where kernels outlive the bot, what the next one needs to go on with the turn is written too; only
then may their host forget what code showed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from interpreter_bot import cancellation, code_activity, errors, events, values
from interpreter_bot.sessions import questions, requests
from interpreter_bot.store import databases, records, usage

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.5
# What is urgent seldom comes alone: code ends, its variables are known, the model is asked again.
_GATHERING_SECONDS: Final = 0.02
_Kind: Final = records.PartKind
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """What is to be written at once, as of that moment."""

    parts: list[records.NewPart]
    ended: list[tuple[int, values.Finished]]
    artifacts: list[values.Artifact]
    heard: Mapping[int, int]
    used: values.Usage
    kernel: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    covers: int


async def _write_nothing() -> None:
    """Nothing else is to be written."""


class Recorder:
    """Records one turn: `begin`, its events, `close`, `end`.

    A database that fails in the middle of a turn is logged and does not end the turn: what was
    not written is tried again with what comes next.

    Attributes:
        turn_id: its id in the store; 0 if it has not begun.
        is_behind: the last write failed.
        asked_queries: what code asked of data connections, once that is over.
        model: title of the model that is asked.
        step_number: of the model call that was made last.
        progress: returns what another bot needs to go on with the turn; None where none can.
    """

    def __init__(self, database: databases.Database, acknowledge: Callable[[str], None]) -> None:
        """Record into a database.

        Args:
            database: the store.
            acknowledge: called with the id of an execution that the host may forget.
        """
        self.turn_id = 0
        self.is_behind = False
        self.asked_queries: tuple[code_activity.AskedQuery, ...] = ()
        self.model = ""
        self.progress: Callable[[], Mapping[str, Any]] | None = None
        self._database = database
        self._acknowledge = acknowledge
        self._progress: Mapping[str, Any] | None = None
        self._progress_covers = 0
        self._hosted_id = ""
        self._output_numbers: dict[int, int] = {}
        self._unacknowledged: list[str] = []
        self._pending: list[records.NewPart] = []
        self._writing = asyncio.Lock()
        self.step_number = 0
        self._steps_before = 0
        self._execution_id: int | None = None
        self._ended_executions: list[tuple[int, values.Finished]] = []
        self._artifacts: list[values.Artifact] = []
        self._used = self._counted = values.Usage()
        self._session: records.Session | None = None
        self._kernel: Mapping[str, Any] | None = None
        self._is_urgent = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def begin(self, request: requests.Request) -> records.Session:
        """Record the beginning of the turn; from now on it is found even if the bot dies.

        Returns:
            The session it belongs to.

        Raises:
            StoreError: it cannot be recorded, so it must not be run.
        """
        async with self._database.together(is_writing=True):
            session = self._session = await self._database.sessions.open(request.key)
            turn = await self._database.turns.start(
                session.id,
                person=request.person.id,
                text=request.text,
                request_id=request.id,
                attachments=[
                    *(attachment.name for attachment in request.attachments),
                    *request.files,
                ],
            )
        self._open(turn.id)
        return session

    async def take_over(self, turn: records.Turn) -> records.Session:
        """Go on recording a turn that another bot began.

        Returns:
            The session it belongs to.

        Raises:
            StoreError: that was deleted, or cannot be read.
        """
        session = self._session = await self._database.sessions.get(turn.session_id)
        if session is None:
            raise errors.StoreError
        self._open(turn.id)
        return session

    async def go_on(self, step: int, *, is_asked_again: bool) -> None:
        """Count on from a step of another bot; if its model is asked again, forget what it said.

        Raises:
            StoreError: it cannot be.
        """
        self._steps_before = self.step_number = step
        if is_asked_again and step:
            self._steps_before -= 1
            await self._database.parts.remove_text(self.turn_id, since_step=step)

    def _open(self, turn_id: int) -> None:
        self.turn_id = turn_id
        self._writer = asyncio.create_task(self._write_on(), name=f"record turn {turn_id}")

    async def close(self) -> None:
        """Stop the periodic writes."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait({self._writer})

    async def end(self, status: values.TurnStatus, *, answer: str) -> bool:
        """Record how the turn ended, and all that is not written yet.

        Returns:
            Whether all of it is written. If not, it may be tried again.
        """
        finish = functools.partial(self._database.turns.finish, self.turn_id, status, answer=answer)
        try:
            await self._write_with(finish)
        except errors.StoreError:
            _log.exception("the end of turn %d could not be recorded", self.turn_id)
            return False
        self._acknowledge_all(len(self._unacknowledged))
        return True

    def record(self, event: events.TurnEvent) -> bool:
        """Record an event, soon; return False for an output that is recorded already."""
        match event:
            case events.StepStarted(number=number):
                self.step_number = self._steps_before + number
                self.note_progress()
            case events.TextAdded(text=text):
                self._add_text(text)
            case events.NoticeShown(text=text):
                self._add(_Kind.NOTICE, text=text)
            case events.OutputShown(output=output, number=number):
                if number and not self._is_new(number):
                    return False
                self._add_output(output)
            case events.CodeFinished(finished=finished):
                self._finish_code(finished)
            case events.QuestionClosed(question=question, answer=answer):
                detail = {"question": questions.to_document(question)}
                if answer is not None:
                    detail["answer"] = questions.to_document(answer)
                self._add(_Kind.QUESTION, detail=detail)
            case events.FileMade(artifact=artifact):
                self._artifacts.append(artifact)
            case events.UsageChanged(usage=spent):
                # Rounded as a whole, not call by call, so that the differences add up to it.
                money = usage.whole_micros(spent.money)
                cpu_seconds = self._used.cpu_seconds
                self._used = dataclasses.replace(spent, money=money, cpu_seconds=cpu_seconds)
                self._is_urgent.set()
        return True

    def _add_text(self, text: str) -> None:
        last = self._pending[-1] if self._pending else None
        if last is not None and last.kind is _Kind.TEXT and last.step == self.step_number:
            self._pending[-1] = dataclasses.replace(last, text=last.text + text)
        else:
            self._add(_Kind.TEXT, text=text)

    def queries(self, asked_queries: Sequence[code_activity.AskedQuery]) -> None:
        """Code asked this of data connections."""
        self.asked_queries = tuple(asked_queries)
        if asked_queries:
            self._add(_Kind.QUERIES, detail={"queries": [*map(dataclasses.asdict, asked_queries)]})

    def _add_output(self, output: values.Output) -> None:
        last = self._pending[-1].output if self._pending else None
        if (
            isinstance(output, values.Text)
            and isinstance(last, values.Text)
            and last.stream == output.stream
        ):
            joined = values.Text(output.stream, last.text + output.text)
            self._pending[-1] = dataclasses.replace(self._pending[-1], output=joined)
        else:
            self._add(_Kind.OUTPUT, output=output)

    def memory(self, detail: Mapping[str, Any], pictures: Iterable[values.Image] = ()) -> None:
        """Record what the model remembers of this turn later, and the pictures it is shown
        again."""
        for image in pictures:
            self._add(_Kind.MEMORY, output=image)
        self._add(_Kind.MEMORY, detail=detail)

    async def run(self, code: str, hosted_id: str) -> None:
        """Code is about to run; this is written first, and what came before it.

        Args:
            code: what will run.
            hosted_id: by which its host will know it.

        Raises:
            StoreError: it cannot be.
        """
        progress = self.progress() if self.progress is not None else None

        async def start() -> int:
            started = await self._database.executions.start(
                self.turn_id, code, hosted_id=hosted_id, progress=progress
            )
            part = records.NewPart(
                kind=_Kind.CODE, step=self.step_number, execution_id=started, text=code
            )
            await self._database.parts.add(self.turn_id, part)
            return started

        async def begin() -> None:
            self._execution_id = await self._write_with(start)

        try:
            # Else nobody would know whether what came before is written.
            await cancellation.shielded(begin())
        except asyncio.CancelledError:
            if self._execution_id is not None:
                self._finish_code(values.Finished(values.Ending.STOPPED, 0.0))
            raise
        self._hosted_id = hosted_id

    def follow(self, execution: records.Execution) -> None:
        """Code that another bot ran is followed."""
        self._execution_id, self._hosted_id = execution.id, execution.hosted_id
        self._output_numbers[execution.id] = execution.heard

    def _is_new(self, number: int) -> bool:
        if self._execution_id is None or number <= self._output_numbers.get(self._execution_id, 0):
            return False
        self._output_numbers[self._execution_id] = number
        return True

    def _finish_code(self, finished: values.Finished) -> None:
        if self._hosted_id:
            self._unacknowledged.append(self._hosted_id)
        self._hosted_id = ""
        if self.progress is None:
            self._acknowledge_all(len(self._unacknowledged))
        if self._execution_id is not None:
            self._ended_executions.append((self._execution_id, finished))
        self._execution_id = None
        self._is_urgent.set()

    def kernel(self, hints: Mapping[str, Any]) -> None:
        """Record what is now known of the session's kernel."""
        self._kernel = hints
        self._is_urgent.set()

    def note_cpu(self, cpu_seconds: float) -> None:
        """Record the processor time of the turn until now."""
        self._used = dataclasses.replace(self._used, cpu_seconds=cpu_seconds)

    async def flush(self) -> None:
        """Write what is not written yet; `is_behind` says whether something is left."""
        if self._is_due:
            try:
                await self._write_with(_write_nothing)
            except errors.StoreError:
                _log.exception("part of turn %d could not be recorded", self.turn_id)

    @property
    def _is_due(self) -> bool:
        is_more = (
            self._pending
            or self._ended_executions
            or self._artifacts
            or self._used != self._counted
        )
        return bool(is_more) or self._kernel is not None or self._progress is not None

    async def _write_with(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Write what is not written yet in one transaction with other work, which comes last.

        Raises:
            StoreError: nothing was written.
        """
        async with self._writing:
            is_due, batch = self._is_due, self._take()
            try:
                rows = await self._database.parts.rows(self.turn_id, batch.parts)
                async with self._database.together(is_writing=True):
                    await self._write(batch, rows)
                    result = await work()
            except errors.StoreError:
                self._pending = batch.parts + self._pending
                self._ended_executions = batch.ended + self._ended_executions
                self._artifacts = batch.artifacts + self._artifacts
                self.is_behind = is_due
                raise
            self._note_written(batch)
            return result

    def _take(self) -> _Due:
        batch = _Due(
            parts=self._pending,
            ended=self._ended_executions,
            artifacts=self._artifacts,
            heard=dict(self._output_numbers),
            used=self._used,
            kernel=self._kernel,
            progress=self._progress,
            covers=self._progress_covers,
        )
        self._pending, self._ended_executions, self._artifacts = [], [], []
        return batch

    async def _write(self, batch: _Due, rows: Sequence[Mapping[str, Any]]) -> None:
        database, turn_id = self._database, self.turn_id
        await database.parts.insert(rows, heard=batch.heard)
        for execution_id, finished in batch.ended:
            await database.executions.finish(execution_id, finished)
        await database.artifacts.add(turn_id, *batch.artifacts)
        if batch.used != self._counted:
            increase = usage.difference(batch.used, self._counted)
            await database.usage.add(turn_id, increase, model=self.model)
        if batch.kernel is not None and self._session is not None:
            await database.sessions.note_kernel(self._session.id, batch.kernel)
        if batch.progress is not None:
            await database.turns.note_progress(turn_id, batch.progress)

    def _note_written(self, batch: _Due) -> None:
        self.is_behind = False
        self._counted = batch.used
        # Of code that ended meanwhile, what it showed last may still be to be written.
        written_counts = {pair for pair in batch.heard.items() if pair[0] != self._execution_id}
        self._output_numbers = dict(self._output_numbers.items() - written_counts)
        if self._kernel is batch.kernel:
            self._kernel = None
        if batch.progress is not None:
            self._acknowledge_all(batch.covers)
            if self._progress is batch.progress:
                self._progress = None

    def note_progress(self) -> None:
        """Let what is now known of the turn be written; with it, its host may forget the rest."""
        if self.progress is not None:
            self._progress = self.progress()
            self._progress_covers = len(self._unacknowledged)
            self._is_urgent.set()

    def _acknowledge_all(self, count: int) -> None:
        """Let the host forget the first of the executions that have ended."""
        acknowledged, self._unacknowledged = (
            self._unacknowledged[:count],
            self._unacknowledged[count:],
        )
        self._progress_covers = max(self._progress_covers - count, 0)
        for hosted_id in acknowledged:
            self._acknowledge(hosted_id)

    def _add(self, kind: records.PartKind, **fields: Any) -> None:
        part = records.NewPart(
            kind=kind, step=self.step_number, execution_id=self._execution_id, **fields
        )
        self._pending.append(part)

    async def _write_on(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._is_urgent.wait()
                await asyncio.sleep(_GATHERING_SECONDS)
            self._is_urgent.clear()
            # Cancelling a write at the end of the turn would lose what it had taken from the queue.
            await asyncio.shield(self.flush())
