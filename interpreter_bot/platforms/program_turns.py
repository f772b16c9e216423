"""Turns for programs: their events as they come, and their answer as one value.

What the library and the HTTP interface share.
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
    # The command `exec` has none.
    from interpreter_bot.sessions import session_service


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question, or of code.

    Attributes:
        text: the model's last words, Markdown; of code, all that it showed, as plain text.
        status: how the turn ended.
        sentence: what went wrong, or that it was stopped; empty if all went well.
        code: each piece of code that ran.
        outputs: what the code showed, in order, as a terminal would: replaced outputs are gone.
        ending: how the last piece of code ended; None if none ran.
        files: those that code made or changed, in their latest version.
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
        is_model = bool(end.text or log.step)
        return cls(
            text=end.text if is_model else "".join(output.plain for output in outputs),
            status=end.status,
            sentence=end.sentence or (finished.reason if finished and not is_model else ""),
            code=tuple(cell.code for cell in cells),
            outputs=outputs,
            ending=finished.ending if finished else None,
            files=tuple(event.artifact for event in log.files.values()),
            notices=tuple(part.text for part in log.parts if isinstance(part, events.NoticeShown)),
            usage=log.usage or values.Usage(),
            seconds=end.seconds,
        )


class _Reply(ports.Reply):
    """A reply that passes events on."""

    def __init__(self, show: events.Emit) -> None:
        self._pass_on = show

    def _show(self, event: events.TurnEvent) -> None:
        self._pass_on(event)


async def answer(
    service: session_service.SessionService, request: requests.Request, show: events.Emit
) -> Answer:
    """Run a request to its end, and show its events meanwhile."""
    log = turn_log.TurnLog()

    def apply(event: events.TurnEvent) -> None:
        log.apply(event)
        show(event)

    await service.handle(request, _Reply(apply))
    return Answer.of(log)


async def stream(
    service: session_service.SessionService,
    request: requests.Request,
    *,
    pulse_seconds: float | None = None,
) -> AsyncGenerator[events.TurnEvent | None, None]:
    """Run a request and give its events; whoever closes this stops the turn.

    Args:
        service: the conversations.
        request: the request.
        pulse_seconds: after so long without an event, None is given.
    """
    queue: asyncio.Queue[events.TurnEvent | None] = asyncio.Queue()
    reply = _Reply(queue.put_nowait)
    # A task of its own: its end is shown and recorded whatever becomes of the reader.
    running = asyncio.create_task(service.handle(request, reply), name="turn of a program")
    running.add_done_callback(lambda _: queue.put_nowait(None))
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
        await running
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait({running})


def answer_of(question: events.Question, text: str | None) -> events.Answer:
    """Return the answer of a program that wrote this; None refuses.

    To an approval: yes, no, or one of its choices.
    """
    if isinstance(question, events.ApprovalQuestion):
        return events.approval_of(text or "", question.choices)
    if text is None:
        return events.Unanswered(terminal_words.INPUT_DECLINED)
    return events.TextAnswer(text)
