"""Record a turn in the store while it happens, so that little is lost if the bot is killed.

Text and outputs arrive faster than a database writes. They are batched, adjacent ones are joined,
and each batch is one transaction; code is written before it runs. A write that fails at the end of
a turn goes to `write_retries`.

If kernels outlive the bot, the turn's progress is written, too, for the next bot. Only after that
may their host forget the outputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from interpreter_bot import cancellation, code_activity, errors, events, values
from interpreter_bot.sessions import questions, requests
from interpreter_bot.store import databases, records, usage

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.5
# An urgent event, such as the end of code, is often followed by others that fit into its batch.
_BATCH_SECONDS: Final = 0.02
_Kind: Final = records.PartKind
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The content of one transaction.

    Attributes:
        output_numbers: by execution, the number of its last output.
        acknowledgeable_count: how many ended executions the host may forget afterwards.
    """

    parts: list[records.NewPart]
    ended_executions: list[tuple[int, values.Finished]]
    artifacts: list[values.Artifact]
    output_numbers: Mapping[int, int]
    used: values.Usage
    kernel_hints: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    acknowledgeable_count: int


async def _write_nothing() -> None:
    """Add nothing to a batch."""


class Recorder:
    """Records one turn: `begin`, its events, `close`, `end`.

    A database failure in the middle of a turn is logged and does not end the turn: the next batch
    includes the failed one.

    Attributes:
        turn_id: its id in the store; 0 if it has not begun.
        is_behind: the last write failed.
        asked_queries: queries of the turn's code to data connections, once it has ended.
        model: title of the model that is asked.
        step_number: of the latest model call.
        progress: returns what another bot needs to go on with the turn; None if none can.
    """

    def __init__(self, database: databases.Database, acknowledge: Callable[[str], None]) -> None:
        """Record into a database.

        Args:
            acknowledge: called with the id of an execution that the host may forget.
        """
        self.turn_id = 0
        self.is_behind = False
        self.asked_queries: tuple[code_activity.ShownQuery, ...] = ()
        self.model = ""
        self.progress: Callable[[], Mapping[str, Any]] | None = None
        self._database = database
        self._acknowledge = acknowledge
        self._progress: Mapping[str, Any] | None = None
        self._acknowledgeable_count = 0
        self._hosted_id = ""
        self._output_numbers: dict[int, int] = {}
        self._unacknowledged: list[str] = []
        self._pending: list[records.NewPart] = []
        self._write_lock = asyncio.Lock()
        self.step_number = 0
        self._former_step_count = 0
        self._execution_id: int | None = None
        self._ended_executions: list[tuple[int, values.Finished]] = []
        self._artifacts: list[values.Artifact] = []
        self._usage = self._written_usage = values.Usage()
        self._session: records.Session | None = None
        self._kernel_hints: Mapping[str, Any] | None = None
        self._is_urgent = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def begin(self, request: requests.Request) -> records.Session:
        """Record the beginning of the turn, so that it is known even if the bot dies.

        Returns:
            The session it belongs to.

        Raises:
            StoreError: the beginning cannot be recorded, so the turn must not run.
        """
        async with self._database.transaction(is_writing=True):
            session = self._session = await self._database.sessions.open(request.key)
            turn = await self._database.turns.start(
                session.id,
                person=request.person.id,
                text=request.text,
                request_id=request.id,
                schedule_run_id=request.schedule_run_id,
                attachments=[
                    *(attachment.name for attachment in request.attachments),
                    *request.files,
                ],
            )
        self._start_writer(turn.id)
        return session

    async def take_over(self, turn: records.Turn) -> records.Session:
        """Go on recording a turn that another bot began.

        Returns:
            The session it belongs to.

        Raises:
            StoreError: the session was deleted, or cannot be read.
        """
        session = self._session = await self._database.sessions.get(turn.session_id)
        if session is None:
            raise errors.StoreError
        self._start_writer(turn.id)
        return session

    async def continue_steps(self, step: int, *, is_asked_again: bool) -> None:
        """Number steps after those of another bot; delete the text of a step that is repeated.

        Raises:
            StoreError: the text cannot be deleted.
        """
        self._former_step_count = self.step_number = step
        if is_asked_again and step:
            self._former_step_count -= 1
            await self._database.parts.remove_text(self.turn_id, since_step=step)

    def begin_next_step(self) -> None:
        """Count the next events to the next model call.

        A bot that takes over repeats that call, and deletes only the text since this point.
        """
        self.step_number += 1

    def _start_writer(self, turn_id: int) -> None:
        self.turn_id = turn_id
        self._writer = asyncio.create_task(
            self._write_periodically(), name=f"record turn {turn_id}"
        )

    async def close(self) -> None:
        """Stop the periodic writes."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait({self._writer})

    async def end(self, write_end: Callable[[], Awaitable[object]]) -> bool:
        """Write the end of the turn with the last batch; return False if it must be retried."""
        try:
            await self._write_with(write_end)
        except errors.StoreError:
            _log.exception("the end of turn %d could not be recorded", self.turn_id)
            return False
        self._acknowledge_all(len(self._unacknowledged))
        return True

    def record(self, event: events.TurnEvent) -> bool:
        """Add an event to the next batch; return False for an output that is recorded already."""
        match event:
            case events.StepStarted(number=number):
                self.step_number = self._former_step_count + number
                self.note_progress()
            case events.TextAdded(text=text):
                self._add_text(text)
            case events.NoticeShown(text=text):
                self._add(_Kind.NOTICE, text=text)
            case events.OutputShown(output=output, number=number):
                if number and not self._is_new_output(number):
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
                # The sum is rounded, not each call, so that the written differences add up to it.
                money = usage.round_up_to_micros(spent.money)
                cpu_seconds = self._usage.cpu_seconds
                self._usage = dataclasses.replace(spent, money=money, cpu_seconds=cpu_seconds)
                self._is_urgent.set()
        return True

    def _add_text(self, text: str) -> None:
        last_part = self._pending[-1] if self._pending else None
        if (
            last_part is not None
            and last_part.kind is _Kind.TEXT
            and last_part.step == self.step_number
        ):
            self._pending[-1] = dataclasses.replace(last_part, text=last_part.text + text)
        else:
            self._add(_Kind.TEXT, text=text)

    def record_queries(self, asked_queries: Sequence[code_activity.ShownQuery]) -> None:
        """Record the queries of the turn's code to data connections."""
        self.asked_queries = tuple(asked_queries)
        if asked_queries:
            self._add(_Kind.QUERIES, detail={"queries": [*map(dataclasses.asdict, asked_queries)]})

    def _add_output(self, output: values.Output) -> None:
        last_output = self._pending[-1].output if self._pending else None
        if (
            isinstance(output, values.Text)
            and isinstance(last_output, values.Text)
            and last_output.stream == output.stream
        ):
            joined_text = values.Text(output.stream, last_output.text + output.text)
            self._pending[-1] = dataclasses.replace(self._pending[-1], output=joined_text)
        else:
            self._add(_Kind.OUTPUT, output=output)

    def record_memory(
        self, detail: Mapping[str, Any], pictures: Iterable[values.Image] = ()
    ) -> None:
        """Record the model's memory of this turn, and the pictures that it refers to."""
        for image in pictures:
            self._add(_Kind.MEMORY, output=image)
        self._add(_Kind.MEMORY, detail=detail)

    async def record_start(self, code: str, hosted_id: str) -> None:
        """Write all earlier events, and that code is about to run.

        Args:
            hosted_id: of the execution on its host.

        Raises:
            StoreError: this cannot be written, so the code must not run.
        """
        progress = self.progress() if self.progress is not None else None

        async def start() -> int:
            execution_id = await self._database.executions.start(
                self.turn_id, code, hosted_id=hosted_id, progress=progress
            )
            part = records.NewPart(
                kind=_Kind.CODE, step=self.step_number, execution_id=execution_id, text=code
            )
            await self._database.parts.add(self.turn_id, part)
            return execution_id

        async def begin() -> None:
            self._execution_id = await self._write_with(start)

        try:
            # Shielded as a whole: a cancelled turn has to end code whose start was written.
            await cancellation.shielded(begin())
        except asyncio.CancelledError:
            if self._execution_id is not None:
                self._finish_code(values.Finished(values.Ending.STOPPED, 0.0))
            raise
        self._hosted_id = hosted_id

    def follow_execution(self, execution: records.Execution) -> None:
        """Record the rest of an execution that another bot began."""
        self._execution_id, self._hosted_id = execution.id, execution.hosted_id
        self._output_numbers[execution.id] = execution.last_output_number

    async def hand_over(self, progress: Mapping[str, Any], request_id: str) -> records.Turn:
        """Move the running code to a turn of its own; return that turn.

        Raises:
            StoreError: nothing was changed.
        """
        database = self._database
        own_progress = self.progress() if self.progress is not None else None

        async def move() -> records.Turn:
            former_turn = await database.turns.get(self.turn_id)
            executions = await database.executions.list_for_turn(self.turn_id)
            if former_turn is None or not executions:
                raise errors.StoreError
            running, session_id, person = executions[-1], former_turn.session_id, former_turn.person
            turn = await database.turns.start(
                session_id, person=person, text=running.code, request_id=request_id
            )
            await database.executions.move(running.id, turn.id)
            await database.turns.note_progress(turn.id, progress)
            if own_progress is not None:
                await database.turns.note_progress(self.turn_id, own_progress)
            return turn

        turn = await self._write_with(move)
        # The host must not forget that execution when this turn ends.
        self._execution_id, self._hosted_id = None, ""
        return turn

    def _is_new_output(self, number: int) -> bool:
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

    def record_kernel(self, hints: Mapping[str, Any]) -> None:
        """Record what is known of the session's kernel, see `variable_losses`."""
        self._kernel_hints = hints
        self._is_urgent.set()

    def note_cpu(self, cpu_seconds: float) -> None:
        """Record the processor time of the turn until now."""
        self._usage = dataclasses.replace(self._usage, cpu_seconds=cpu_seconds)

    async def flush(self) -> None:
        """Write the next batch unless it is empty; `is_behind` tells whether that failed."""
        if self._is_due:
            try:
                await self._write_with(_write_nothing)
            except errors.StoreError:
                _log.exception("part of turn %d could not be recorded", self.turn_id)

    @property
    def _is_due(self) -> bool:
        has_records = (
            self._pending
            or self._ended_executions
            or self._artifacts
            or self._usage != self._written_usage
        )
        return bool(has_records) or self._kernel_hints is not None or self._progress is not None

    async def _write_with(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Write the next batch and then `work`, in one transaction, despite cancellation.

        A cancelled write would lose the batch, and leave it unknown whether it was written.

        Raises:
            StoreError: nothing was written.
        """
        return await cancellation.shielded(self._write_batch_with(work))

    async def _write_batch_with(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async with self._write_lock:
            is_due, batch = self._is_due, self._take_batch()
            try:
                rows = await self._database.parts.prepare_rows(self.turn_id, batch.parts)
                async with self._database.transaction(is_writing=True):
                    await self._write(batch, rows)
                    result = await work()
            except errors.StoreError:
                self._pending = batch.parts + self._pending
                self._ended_executions = batch.ended_executions + self._ended_executions
                self._artifacts = batch.artifacts + self._artifacts
                self.is_behind = is_due
                raise
            self._note_written(batch)
            return result

    def _take_batch(self) -> _Batch:
        batch = _Batch(
            parts=self._pending,
            ended_executions=self._ended_executions,
            artifacts=self._artifacts,
            output_numbers=dict(self._output_numbers),
            used=self._usage,
            kernel_hints=self._kernel_hints,
            progress=self._progress,
            acknowledgeable_count=self._acknowledgeable_count,
        )
        self._pending, self._ended_executions, self._artifacts = [], [], []
        return batch

    async def _write(self, batch: _Batch, rows: Sequence[Mapping[str, Any]]) -> None:
        database, turn_id = self._database, self.turn_id
        await database.parts.insert(rows, output_numbers=batch.output_numbers)
        for execution_id, finished in batch.ended_executions:
            await database.executions.finish(execution_id, finished)
        await database.artifacts.add(turn_id, *batch.artifacts)
        if batch.used != self._written_usage:
            increase = usage.subtract(batch.used, self._written_usage)
            await database.usage.add(turn_id, increase, model=self.model)
        if batch.kernel_hints is not None and self._session is not None:
            await database.sessions.note_kernel(self._session.id, batch.kernel_hints)
        if batch.progress is not None:
            await database.turns.note_progress(turn_id, batch.progress)

    def _note_written(self, batch: _Batch) -> None:
        self.is_behind = False
        self._written_usage = batch.used
        # Code that ended meanwhile may have outputs that are not written yet.
        written_counts = {
            pair for pair in batch.output_numbers.items() if pair[0] != self._execution_id
        }
        self._output_numbers = dict(self._output_numbers.items() - written_counts)
        if self._kernel_hints is batch.kernel_hints:
            self._kernel_hints = None
        if batch.progress is not None:
            self._acknowledge_all(batch.acknowledgeable_count)
            if self._progress is batch.progress:
                self._progress = None

    def note_progress(self) -> None:
        """Add the turn's progress to the next batch, after which its host may forget outputs."""
        if self.progress is not None:
            self._progress = self.progress()
            self._acknowledgeable_count = len(self._unacknowledged)
            self._is_urgent.set()

    def _acknowledge_all(self, count: int) -> None:
        """Let the host forget the first `count` executions that have ended."""
        hosted_ids, self._unacknowledged = (
            self._unacknowledged[:count],
            self._unacknowledged[count:],
        )
        self._acknowledgeable_count = max(self._acknowledgeable_count - count, 0)
        for hosted_id in hosted_ids:
            self._acknowledge(hosted_id)

    def _add(self, kind: records.PartKind, **fields: Any) -> None:
        part = records.NewPart(
            kind=kind, step=self.step_number, execution_id=self._execution_id, **fields
        )
        self._pending.append(part)

    async def _write_periodically(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._is_urgent.wait()
                await asyncio.sleep(_BATCH_SECONDS)
            self._is_urgent.clear()
            await self.flush()
