"""Past turns and overviews of sessions, with their usage, for display and export."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import decimal
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from interpreter_bot import code_activity, events, values
from interpreter_bot.sessions import questions
from interpreter_bot.store import databases, records
from interpreter_bot.wording import run_words, session_words

_log = logging.getLogger(__name__)

_BATCH_TURNS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionOverview:
    """One session, for a list.

    Attributes:
        record: the stored session.
        is_busy: a turn runs or waits in it.
        has_kernel: a live kernel holds its variables.
        memory_bytes: of that kernel, if known.
    """

    record: records.Session
    is_busy: bool
    has_kernel: bool
    memory_bytes: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UsageSummary:
    """Usage and limits.

    Attributes:
        session: usage of the conversation since it began.
        today: usage of the person in all conversations, since midnight UTC.
        allowed_money: the person's limit a day; None means no limit.
        allowed_tokens: the person's limit a day; None means no limit.
    """

    session: values.Usage
    today: values.Usage
    allowed_money: decimal.Decimal | None
    allowed_tokens: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """One request and its result.

    Attributes:
        record: the stored turn.
        events: in order, with one event for all text of a step; the last is the turn's end, unless
            the turn still runs.
    """

    record: records.Turn
    events: tuple[events.RecordedEvent, ...]

    @property
    def is_code(self) -> bool:
        """Whether the request was itself the code that ran."""
        codes = (event.code for event in self.events if isinstance(event, events.CodeStarted))
        return next(codes, None) == self.record.request

    @property
    def queries(self) -> tuple[code_activity.ShownQuery, ...]:
        """The queries of its code to data connections, once the turn has ended."""
        ends = (event.queries for event in self.events if isinstance(event, events.TurnEnded))
        return next(ends, ())


async def load(
    database: databases.Database, session_id: int, *, limit: int
) -> tuple[PastTurn, ...]:
    """Load the latest turns of a session, in the order in which they began."""
    turns = await database.turns.list_for_session(session_id, limit=limit)
    past_turns: list[PastTurn] = []
    # In batches, as decoding all outputs at once would block the event loop.
    for begin in range(0, len(turns), _BATCH_TURNS):
        past_turns += await _load_batch(database, turns[begin : begin + _BATCH_TURNS])
        await asyncio.sleep(0)
    return tuple(past_turns)


async def load_events(
    database: databases.Database, turn_id: int
) -> tuple[events.RecordedEvent, ...]:
    """Load the recorded events of a turn; none if there is no such turn."""
    turn = await database.turns.get(turn_id)
    if turn is None:
        return ()
    (past_turn,) = await _load_batch(database, [turn])
    return past_turn.events


async def _load_batch(
    database: databases.Database, turns: Sequence[records.Turn]
) -> Sequence[PastTurn]:
    ids = [turn.id for turn in turns]
    async with database.transaction(is_writing=False):
        parts = _group_by_turn(
            await database.parts.list_for_turns(ids, excluded_kind=records.PartKind.MEMORY)
        )
        artifacts = _group_by_turn(await database.artifacts.list_for_turns(ids))
        executions = _group_by_turn(await database.executions.list_for_turns(ids))
        usages = await database.usage.sum_for_turns(ids)
    return [
        PastTurn(
            record=turn,
            events=(
                events.Started(),
                *_part_events(parts[turn.id], executions[turn.id]),
                *_file_events(artifacts[turn.id]),
                *_usage_events(usages.get(turn.id), parts[turn.id]),
                *_end_events(turn, parts[turn.id]),
            ),
        )
        for turn in turns
    ]


_Row = TypeVar("_Row", records.Part, records.Artifact, records.Execution)


def _group_by_turn(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    rows_by_turn: dict[int, list[_Row]] = collections.defaultdict(list)
    for row in rows:
        rows_by_turn[row.turn_id].append(row)
    return rows_by_turn


def _part_events(
    parts: Sequence[records.Part], executions: Sequence[records.Execution]
) -> Iterator[events.RecordedEvent]:
    executions_by_id = {execution.id: execution for execution in executions}
    cell_numbers = {
        execution_id: number for number, execution_id in enumerate(sorted(executions_by_id))
    }
    open_execution_id: int | None = None
    text, step = "", 0
    for part in parts:
        if text and (part.kind is not records.PartKind.TEXT or part.step != step):
            yield from _text_events(text, step)
            text = ""
        if open_execution_id is not None and part.execution_id != open_execution_id:
            yield from _ending_events(
                cell_numbers[open_execution_id], executions_by_id[open_execution_id]
            )
            open_execution_id = None
        match part.kind:
            case records.PartKind.TEXT:
                text, step = text + part.text, part.step
            case records.PartKind.NOTICE:
                yield events.NoticeShown(part.text)
            case records.PartKind.QUESTION:
                yield from _question_events(part.detail)
            case records.PartKind.CODE if part.execution_id in cell_numbers:
                open_execution_id = part.execution_id
                yield events.CodeStarted(cell_numbers[open_execution_id], part.text)
            case records.PartKind.OUTPUT if part.execution_id in cell_numbers and part.output:
                yield _output_event(cell_numbers[part.execution_id], part.output)
    if text:
        yield from _text_events(text, step)
    if open_execution_id is not None:
        yield from _ending_events(
            cell_numbers[open_execution_id], executions_by_id[open_execution_id]
        )


def _text_events(text: str, step: int) -> Iterator[events.RecordedEvent]:
    yield events.StepStarted(step)
    yield events.TextAdded(text)


def _output_event(cell_number: int, output: values.StoredOutput) -> events.RecordedEvent:
    if isinstance(output, values.StoredDisplay):
        return events.StoredDisplayShown(cell_number, output)
    return events.OutputShown(cell_number, output)


def _question_events(detail: Mapping[str, Any]) -> Iterator[events.RecordedEvent]:
    try:
        question = questions.read_question(detail["question"])
        answer = questions.read_answer(detail.get("answer"))
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("a question of another release is left out", exc_info=error)
        return
    yield events.QuestionAsked(question)
    yield events.QuestionClosed(question, answer)


def _ending_events(cell: int, execution: records.Execution) -> Iterator[events.RecordedEvent]:
    """Return the end of code; none if the bot died before the end was recorded."""
    if execution.ending is not None:
        finished = values.Finished(
            execution.ending, execution.seconds, execution.reason, execution.kernel_lost
        )
        yield events.CodeFinished(cell, finished)


def _file_events(artifacts: Iterable[records.Artifact]) -> Iterator[events.RecordedEvent]:
    """Return the files of a turn; their cells are not stored."""
    for artifact in artifacts:
        artifact_made = values.Artifact(artifact.name, artifact.size_bytes, artifact.sha256)
        yield events.FileMade(0, artifact_made)


def _usage_events(
    usage: values.Usage | None, parts: Sequence[records.Part]
) -> Iterator[events.RecordedEvent]:
    """Return the usage of a turn; whether it is an estimate is not stored."""
    if usage is not None and usage.tokens:
        steps = max((part.step for part in parts), default=0)
        yield events.UsageChanged(dataclasses.replace(usage, steps=steps))


def _end_events(
    turn: records.Turn, parts: Sequence[records.Part]
) -> Iterator[events.RecordedEvent]:
    if turn.status is values.TurnStatus.RUNNING:
        return
    hidden_kinds = (records.PartKind.QUERIES, records.PartKind.QUESTION)
    visible = [part for part in parts if part.kind not in hidden_kinds]
    ends_in_text = bool(visible) and visible[-1].kind is records.PartKind.TEXT
    is_stopped = turn.status is values.TurnStatus.STOPPED
    is_answer = turn.status is values.TurnStatus.DONE or (is_stopped and ends_in_text)
    sentence = "" if is_answer else turn.answer
    if is_stopped:
        sentence = run_words.RUN_CUT_SHORT
    elif turn.status is values.TurnStatus.INTERRUPTED:
        sentence = session_words.TURN_INTERRUPTED
    yield events.TurnEnded(
        status=turn.status,
        text=turn.answer if is_answer else "",
        sentence=sentence,
        seconds=(turn.ended - turn.started).total_seconds() if turn.ended is not None else 0.0,
        turn_id=turn.id,
        queries=tuple(
            code_activity.ShownQuery(**query)
            for part in parts
            if part.kind is records.PartKind.QUERIES
            for query in part.detail["queries"]
        ),
    )
