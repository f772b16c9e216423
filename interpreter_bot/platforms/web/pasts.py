"""Turns of the past, told by the same events as one that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from interpreter_bot.platforms.web import events
from interpreter_bot.sessions import histories

_INTERRUPTED: Final = (
    "This was cut short: the bot was restarted in the middle of it."
    " What it had shown until then is above; ask again to go on."
)

_STOPPED: Final = "Stopped."


def told(turn: histories.PastTurn) -> events.Event:
    """Tell a turn as `turns.Turn.told` does."""
    head = heading(
        turn.request, turn.attachments, is_code=turn.is_code, started=turn.started.timestamp()
    )
    return head | {
        "id": f"past-{turn.id}",
        "number": turn.id,
        "request_id": turn.request_id,
        "is_elsewhere": turn.status == "running",
        "events": list(_events(turn)),
    }


def heading(request: str, files: Iterable[str], *, is_code: bool, started: float) -> events.Event:
    """Write what was asked; `started` in seconds since the epoch."""
    return {"request": request, "files": list(files), "is_code": is_code, "started": started}


def _events(turn: histories.PastTurn) -> Iterator[events.Event]:
    yield events.begun()
    step, is_last_words = 0, False
    for part in turn.parts:
        is_last_words = isinstance(part, histories.PastText)
        match part:
            case histories.PastText():
                step += 1
                yield events.step(step)
                yield events.text(part.text)
            case histories.PastCode():
                yield events.code(part.cell, part.code)
            case histories.PastOutput():
                yield _output(part)
            case histories.PastFinished():
                yield events.finished(part.cell, part.finished)
            case histories.PastNotice():
                yield events.announcement(part.text)
    yield from map(events.artifact, turn.artifacts)
    if turn.spent.input_tokens or turn.spent.output_tokens:
        yield events.usage(turn.spent)
    if turn.status != "running":
        yield _over(turn, is_last_words=is_last_words)


def _output(part: histories.PastOutput) -> events.Event:
    shown = part.output
    if not isinstance(shown, histories.PastDisplay):
        return events.output(part.cell, shown)
    return {
        "kind": "output",
        "cell": part.cell,
        "plain": shown.plain,
        "display": shown.display_id,
        "update": shown.is_update,
    } | events.kept(shown.mime, shown.sha256)


def _over(turn: histories.PastTurn, *, is_last_words: bool) -> events.Event:
    seconds = (turn.ended - turn.started).total_seconds() if turn.ended is not None else 0.0
    is_answer = turn.status == "done" or (turn.status == "stopped" and is_last_words)
    sentence = "" if is_answer else turn.answer
    if turn.status == "stopped":
        sentence = _STOPPED
    if turn.status == "interrupted":
        sentence = _INTERRUPTED
    return {
        "kind": "over",
        "status": turn.status,
        "text": turn.answer if is_answer else "",
        "sentence": sentence,
        "seconds": round(seconds, 3),
        "turn": turn.id,
    }
