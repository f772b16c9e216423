"""Past turns and overviews of sessions, with their usage, for display and export."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import decimal
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from interpreter_bot import code_activity, values
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.store import databases, records

_BATCH_TURNS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionOverview:
    """One session, for a list.

    Attributes:
        title: empty until a person sets it.
        model: title of the chosen model; empty for the default.
        used: when it was last used.
        mark: "pinned" or "archived" in lists; empty for most.
        tree: number of the tree of branches that it belongs to.
        is_busy: a turn runs or waits in it.
        has_kernel: a live kernel holds its variables.
        memory_bytes: of that kernel, if known.
        idle_seconds: since that kernel last did something.
    """

    key: values.SessionKey
    title: str
    model: str
    used: datetime.datetime
    mark: str
    tree: int
    is_busy: bool
    has_kernel: bool
    memory_bytes: int | None = None
    idle_seconds: float | None = None

    @classmethod
    def of(
        cls, session: records.Session, status: host_ports.KernelStatus | None, *, is_busy: bool
    ) -> SessionOverview:
        """Return that of a session, with the status of its kernel."""
        live = status if status is not None and not status.loss_reason else None
        return cls(
            key=session.key,
            title=session.title,
            model=session.model or "",
            used=session.used,
            mark=session.mark,
            tree=session.tree,
            is_busy=is_busy,
            has_kernel=live is not None,
            memory_bytes=live.memory_bytes if live else None,
            idle_seconds=live.idle_seconds if live else None,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UsageSummary:
    """What was used, and what may be.

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


@dataclasses.dataclass(frozen=True, slots=True)
class PastText:
    """The model's text of one step."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class PastCode:
    """Code that was run."""

    cell: int
    code: str


@dataclasses.dataclass(frozen=True, slots=True)
class PastOutput:
    """An output of code."""

    cell: int
    output: values.StoredOutput


@dataclasses.dataclass(frozen=True, slots=True)
class PastFinished:
    """How code ended; missing if the bot died before."""

    cell: int
    finished: values.Finished


@dataclasses.dataclass(frozen=True, slots=True)
class PastNotice:
    """A notice of the bot."""

    text: str


Past: TypeAlias = PastText | PastCode | PastOutput | PastFinished | PastNotice
"""One part of a past turn."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """One request and its result.

    Attributes:
        person: id of who asked.
        request: their words, or their code.
        attachments: names of the files that came along, as they were sent.
        answer: the final words, if there are any; of a turn that failed, the sentence that says
            why.
        ended: None while it runs.
        parts: what happened, in order.
        artifacts: files that were sent to the person.
        request_id: the platform's id of the message; empty if it has none.
        spent: the turn's usage until now; whether that is an estimate is not stored.
        queries: that its code sent to data connections.
    """

    id: int
    person: str
    request: str
    attachments: tuple[str, ...]
    status: values.TurnStatus
    answer: str
    started: datetime.datetime
    ended: datetime.datetime | None
    parts: tuple[Past, ...]
    artifacts: tuple[values.Artifact, ...]
    request_id: str = ""
    spent: values.Usage = dataclasses.field(default_factory=values.Usage)
    queries: tuple[code_activity.AskedQuery, ...] = ()

    @property
    def is_code(self) -> bool:
        """Whether the request was itself the code that ran."""
        codes = [part for part in self.parts if isinstance(part, PastCode)]
        return bool(codes) and codes[0].code == self.request


async def load(database: databases.Database, session_id: int, *, most: int) -> tuple[PastTurn, ...]:
    """Load the latest turns of a session, in the order in which they began."""
    turns = await database.turns.of_session(session_id, most=most)
    past: list[PastTurn] = []
    # A few at a time: what they showed is decoded on the event loop.
    for begin in range(0, len(turns), _BATCH_TURNS):
        past += await _load_batch(database, turns[begin : begin + _BATCH_TURNS])
        await asyncio.sleep(0)
    return tuple(past)


async def _load_batch(
    database: databases.Database, turns: Sequence[records.Turn]
) -> Iterable[PastTurn]:
    ids = [turn.id for turn in turns]
    async with database.together(is_writing=False):
        parts = _by_turn(await database.parts.of_turns(ids, without=records.PartKind.MEMORY))
        artifacts = _by_turn(await database.artifacts.of_turns(ids))
        executions = _by_turn(await database.executions.of_turns(ids))
        spent = await database.usage.of_turns(ids)
    return [
        _past(
            turn,
            parts[turn.id],
            executions={one.id: one for one in executions[turn.id]},
            artifacts=artifacts[turn.id],
            spent=spent.get(turn.id, values.Usage()),
        )
        for turn in turns
    ]


_Row = TypeVar("_Row", records.Part, records.Artifact, records.Execution)


def _by_turn(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    found: dict[int, list[_Row]] = collections.defaultdict(list)
    for row in rows:
        found[row.turn_id].append(row)
    return found


def _past(
    turn: records.Turn,
    parts: Sequence[records.Part],
    *,
    executions: dict[int, records.Execution],
    artifacts: Iterable[records.Artifact],
    spent: values.Usage,
) -> PastTurn:
    steps = max((part.step for part in parts), default=0)
    return PastTurn(
        id=turn.id,
        person=turn.person,
        request=turn.request,
        attachments=turn.attachments,
        status=turn.status,
        answer=turn.answer,
        started=turn.started,
        ended=turn.ended,
        parts=tuple(_happened(parts, executions)),
        artifacts=tuple(values.Artifact(a.name, a.size_bytes, a.sha256) for a in artifacts),
        request_id=turn.request_id,
        spent=dataclasses.replace(spent, steps=steps),
        queries=tuple(
            code_activity.AskedQuery(**asked)
            for part in parts
            if part.kind is records.PartKind.QUERIES
            for asked in part.detail["queries"]
        ),
    )


def _happened(
    parts: Sequence[records.Part], executions: dict[int, records.Execution]
) -> Iterable[Past]:
    cells = {one: number for number, one in enumerate(sorted(executions))}
    running: int | None = None
    text, step = "", 0
    for part in parts:
        if text and (part.kind is not records.PartKind.TEXT or part.step != step):
            yield PastText(text)
            text = ""
        if running is not None and part.execution_id != running:
            yield from _ended(cells[running], executions[running])
            running = None
        match part.kind:
            case records.PartKind.TEXT:
                text, step = text + part.text, part.step
            case records.PartKind.NOTICE:
                yield PastNotice(part.text)
            case records.PartKind.CODE if part.execution_id in cells:
                running = part.execution_id
                yield PastCode(cells[running], part.text)
            case records.PartKind.OUTPUT if part.execution_id in cells and part.output:
                yield PastOutput(cells[part.execution_id], part.output)
    if text:
        yield PastText(text)
    if running is not None:
        yield from _ended(cells[running], executions[running])


def _ended(cell: int, execution: records.Execution) -> Iterable[Past]:
    if execution.ending is not None:
        finished = values.Finished(
            execution.ending, execution.seconds, execution.reason, execution.kernel_lost
        )
        yield PastFinished(cell, finished)
