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
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import questions
from interpreter_bot.store import databases, records
from interpreter_bot.wording import run_words, session_words

_log = logging.getLogger(__name__)

_BATCH_TURNS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionOverview:
    """One session, for a list.

    Attributes:
        record: as it is stored.
        is_busy: a turn runs or waits in it.
        has_kernel: a live kernel holds its variables.
        memory_bytes: of that kernel, if known.
        idle_seconds: since that kernel last did something.
    """

    record: records.Session
    is_busy: bool
    has_kernel: bool
    memory_bytes: int | None = None
    idle_seconds: float | None = None

    @classmethod
    def of(
        cls, session: records.Session, status: host_ports.KernelStatus | None, *, is_busy: bool
    ) -> SessionOverview:
        """Return the overview of a session with the status of its kernel."""
        live = status if status is not None and not status.loss_reason else None
        return cls(
            record=session,
            is_busy=is_busy,
            has_kernel=live is not None,
            memory_bytes=live.memory_bytes if live else None,
            idle_seconds=live.idle_seconds if live else None,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UsageSummary:
    """Usage and limits.

    Attributes:
        session: by the conversation, ever.
        today: by the person, in all conversations, since midnight UTC.
        allowed_money: of the person in a day; None means no limit.
        allowed_tokens: of the person in a day; None means no limit.
    """

    session: values.Usage
    today: values.Usage
    allowed_money: decimal.Decimal | None
    allowed_tokens: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """One request and its result.

    Attributes:
        record: as it is stored.
        events: what happened, in order, each step's words as one; the last is its end, unless it
            runs.
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
        """What its code sent to data connections, once it has ended."""
        ends = (event.queries for event in self.events if isinstance(event, events.TurnEnded))
        return next(ends, ())


async def load(
    database: databases.Database, session_id: int, *, limit: int
) -> tuple[PastTurn, ...]:
    """Load the latest turns of a session, in the order in which they began."""
    turns = await database.turns.list_for_session(session_id, limit=limit)
    past: list[PastTurn] = []
    # A few at a time, as their outputs are decoded on the event loop.
    for begin in range(0, len(turns), _BATCH_TURNS):
        past += await _load_batch(database, turns[begin : begin + _BATCH_TURNS])
        await asyncio.sleep(0)
    return tuple(past)


async def events_of(database: databases.Database, turn_id: int) -> tuple[events.RecordedEvent, ...]:
    """Load what is recorded of one turn, as events; nothing if there is no such turn."""
    turn = await database.turns.get(turn_id)
    if turn is None:
        return ()
    (past,) = await _load_batch(database, [turn])
    return past.events


async def _load_batch(
    database: databases.Database, turns: Sequence[records.Turn]
) -> Sequence[PastTurn]:
    ids = [turn.id for turn in turns]
    async with database.transaction(is_writing=False):
        parts = _by_turn(
            await database.parts.list_for_turns(ids, excluded_kind=records.PartKind.MEMORY)
        )
        artifacts = _by_turn(await database.artifacts.list_for_turns(ids))
        executions = _by_turn(await database.executions.list_for_turns(ids))
        spent = await database.usage.sum_for_turns(ids)
    return [
        PastTurn(
            record=turn,
            events=(
                events.Started(),
                *_of_parts(parts[turn.id], executions[turn.id]),
                *_of_files(artifacts[turn.id]),
                *_of_usage(spent.get(turn.id), parts[turn.id]),
                *_of_end(turn, parts[turn.id]),
            ),
        )
        for turn in turns
    ]


_Row = TypeVar("_Row", records.Part, records.Artifact, records.Execution)


def _by_turn(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    of_turns: dict[int, list[_Row]] = collections.defaultdict(list)
    for row in rows:
        of_turns[row.turn_id].append(row)
    return of_turns


def _of_parts(
    parts: Sequence[records.Part], executions: Sequence[records.Execution]
) -> Iterator[events.RecordedEvent]:
    of_ids = {execution.id: execution for execution in executions}
    cells = {execution_id: number for number, execution_id in enumerate(sorted(of_ids))}
    running: int | None = None
    text, step = "", 0
    for part in parts:
        if text and (part.kind is not records.PartKind.TEXT or part.step != step):
            yield from _of_words(text, step)
            text = ""
        if running is not None and part.execution_id != running:
            yield from _of_ending(cells[running], of_ids[running])
            running = None
        match part.kind:
            case records.PartKind.TEXT:
                text, step = text + part.text, part.step
            case records.PartKind.NOTICE:
                yield events.NoticeShown(part.text)
            case records.PartKind.QUESTION:
                yield from _of_question(part.detail)
            case records.PartKind.CODE if part.execution_id in cells:
                running = part.execution_id
                yield events.CodeStarted(cells[running], part.text)
            case records.PartKind.OUTPUT if part.execution_id in cells and part.output:
                yield _of_output(cells[part.execution_id], part.output)
    if text:
        yield from _of_words(text, step)
    if running is not None:
        yield from _of_ending(cells[running], of_ids[running])


def _of_words(text: str, step: int) -> Iterator[events.RecordedEvent]:
    yield events.StepStarted(step)
    yield events.TextAdded(text)


def _of_output(cell: int, output: values.StoredOutput) -> events.RecordedEvent:
    if isinstance(output, values.StoredDisplay):
        return events.StoredDisplayShown(cell, output)
    return events.OutputShown(cell, output)


def _of_question(detail: Mapping[str, Any]) -> Iterator[events.RecordedEvent]:
    try:
        question = questions.read_question(detail["question"])
        answer = questions.read_answer(detail.get("answer"))
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("a question of another release is left out", exc_info=error)
        return
    yield events.QuestionAsked(question)
    yield events.QuestionClosed(question, answer)


def _of_ending(cell: int, execution: records.Execution) -> Iterator[events.RecordedEvent]:
    """Return the end of code; none if the bot died before."""
    if execution.ending is not None:
        finished = values.Finished(
            execution.ending, execution.seconds, execution.reason, execution.kernel_lost
        )
        yield events.CodeFinished(cell, finished)


def _of_files(artifacts: Iterable[records.Artifact]) -> Iterator[events.RecordedEvent]:
    """Return the files of a turn; their cells are not stored."""
    for artifact in artifacts:
        artifact_made = values.Artifact(artifact.name, artifact.size_bytes, artifact.sha256)
        yield events.FileMade(0, artifact_made)


def _of_usage(
    spent: values.Usage | None, parts: Sequence[records.Part]
) -> Iterator[events.RecordedEvent]:
    """Return the usage of a turn; whether it is an estimate is not stored."""
    if spent is not None and spent.tokens:
        steps = max((part.step for part in parts), default=0)
        yield events.UsageChanged(dataclasses.replace(spent, steps=steps))


def _of_end(turn: records.Turn, parts: Sequence[records.Part]) -> Iterator[events.RecordedEvent]:
    if turn.status is values.TurnStatus.RUNNING:
        return
    hidden = (records.PartKind.QUERIES, records.PartKind.QUESTION)
    visible = [part for part in parts if part.kind not in hidden]
    is_last_words = bool(visible) and visible[-1].kind is records.PartKind.TEXT
    is_stopped = turn.status is values.TurnStatus.STOPPED
    is_answer = turn.status is values.TurnStatus.DONE or (is_stopped and is_last_words)
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
