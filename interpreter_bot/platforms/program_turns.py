"""Turns for programs, as a stream of events or as one answer.

The library and the HTTP interface share it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from interpreter_bot import events, values
from interpreter_bot.sessions import ports, requests, turn_log
from interpreter_bot.wording import terminal_words

if TYPE_CHECKING:
    # `exec` uses this module, and needs no conversations.
    from interpreter_bot.sessions import session_service


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a question, or the result of code.

    Attributes:
        text: the final text of the model, as Markdown; of code, all that it showed, as plain text.
        status: how the turn ended.
        sentence: says what went wrong, or that the turn was stopped; empty if all went well.
        code: each piece of code that ran.
        outputs: what the code showed, in order, as a terminal would: replaced outputs are gone.
        ending: how the last piece of code ended; None if none ran.
        files: those that code made or changed, in their latest versions.
        notices: sentences of the bot, such as that variables were lost.
        usage: of the model.
        seconds: wall time.
    """

    text: str
    status: values.TurnStatus
    sentence: str = ""
    code: tuple[str, ...] = ()
    outputs: tuple[values.Output, ...] = ()
    ending: values.Ending | None = None
    files: tuple[values.Artifact, ...] = ()
    notices: tuple[str, ...] = ()
    usage: values.Usage = dataclasses.field(default_factory=values.Usage)
    seconds: float = 0.0

    @property
    def images(self) -> tuple[values.Image, ...]:
        """The pictures among the outputs."""
        return tuple(output for output in self.outputs if isinstance(output, values.Image))

    @property
    def error(self) -> values.Error | None:
        """The exception that ended the last piece of code, if one did."""
        errors = [output for output in self.outputs if isinstance(output, values.Error)]
        return errors[-1] if errors and self.ending is values.Ending.ERROR else None

    @classmethod
    def of(cls, log: turn_log.TurnLog) -> Answer:
        """Return the answer of a turn that has ended."""
        end = log.end or events.TurnEnded(status=values.TurnStatus.FAILED)
        cells = log.cells
        outputs = tuple(output for cell in cells for output in cell.screen.outputs)
        finished = cells[-1].finished if cells else None
        is_from_model = bool(end.text or log.step)
        return cls(
            text=end.text if is_from_model else "".join(output.plain for output in outputs),
            status=end.status,
            sentence=end.sentence or (finished.reason if finished and not is_from_model else ""),
            code=tuple(cell.code for cell in cells),
            outputs=outputs,
            ending=finished.ending if finished else None,
            files=tuple(event.artifact for event in log.files.values()),
            notices=tuple(part.text for part in log.parts if isinstance(part, events.NoticeShown)),
            usage=log.usage or values.Usage(),
            seconds=end.seconds,
        )


class _Reply(ports.Reply):
    """A reply that passes events on to a function."""

    def __init__(self, show: events.Emit) -> None:
        self._pass_on = show

    def _show(self, event: events.TurnEvent) -> None:
        self._pass_on(event)


async def run_turn(
    service: session_service.SessionService, request: requests.Request, show: events.Emit
) -> Answer:
    """Run a request to its end; `show` receives its events meanwhile."""
    log = turn_log.TurnLog()

    def apply(event: events.TurnEvent) -> None:
        log.apply(event)
        show(event)

    await service.handle(request, _Reply(apply))
    return Answer.of(log)


async def stream_events(
    service: session_service.SessionService,
    request: requests.Request,
    *,
    pulse_seconds: float | None = None,
) -> AsyncGenerator[events.TurnEvent | None, None]:
    """Run a request and yield its events; closing the generator stops the turn.

    Args:
        service: the conversations.
        request: the request.
        pulse_seconds: after so long without an event, None is yielded.
    """
    queue: asyncio.Queue[events.TurnEvent | None] = asyncio.Queue()
    reply = _Reply(queue.put_nowait)
    # A task of its own, so that its end is recorded even if the reader is cancelled.
    turn_task = asyncio.create_task(service.handle(request, reply), name="turn of a program")
    turn_task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(pulse_seconds):
                    event = await queue.get()
            except TimeoutError:
                yield None
                continue
            if event is None:
                break
            yield event
        await turn_task
    finally:
        if not turn_task.done():
            turn_task.cancel()
            await asyncio.wait({turn_task})


def parse_answer(question: events.Question, text: str | None) -> events.Answer:
    """Parse the answer of a program; None declines.

    The answer to an approval is yes, no, or one of the choices.
    """
    if isinstance(question, events.ApprovalQuestion):
        return events.parse_approval(text or "", question.choices)
    if text is None:
        return events.Unanswered(terminal_words.INPUT_DECLINED)
    return events.TextAnswer(text)
