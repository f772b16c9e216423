"""Turns of the past, told by the same events as one that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from interpreter_bot.platforms.web import event_json
from interpreter_bot.sessions import histories

_INTERRUPTED: Final = (
    "This was cut short: the bot was restarted in the middle of it."
    " What it had shown until then is above; ask again to go on."
)

_STOPPED: Final = "Stopped."


def events_of(turn: histories.PastTurn) -> event_json.Event:
    """Tell a turn as `live_turns.LiveTurn.told` does."""
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


def heading(
    request: str, files: Iterable[str], *, is_code: bool, started: float
) -> event_json.Event:
    """Write what was asked; `started` in seconds since the epoch."""
    return {"request": request, "files": list(files), "is_code": is_code, "started": started}


def _events(turn: histories.PastTurn) -> Iterator[event_json.Event]:
    yield event_json.started()
    step, is_last_words = 0, False
    for part in turn.parts:
        is_last_words = isinstance(part, histories.PastText)
        match part:
            case histories.PastText():
                step += 1
                yield event_json.step(step)
                yield event_json.text(part.text)
            case histories.PastCode():
                yield event_json.code(part.cell, part.code)
            case histories.PastOutput():
                yield _output(part)
            case histories.PastFinished():
                yield event_json.finished(part.cell, part.finished)
            case histories.PastNotice():
                yield event_json.announcement(part.text)
    yield from map(event_json.artifact, turn.artifacts)
    if turn.spent.input_tokens or turn.spent.output_tokens:
        yield event_json.usage(turn.spent)
    if turn.status != "running":
        yield _over(turn, is_last_words=is_last_words)


def _output(part: histories.PastOutput) -> event_json.Event:
    shown = part.output
    if not isinstance(shown, histories.PastDisplay):
        return event_json.output(part.cell, shown)
    return {
        "kind": "output",
        "cell": part.cell,
        "plain": shown.plain,
        "display": shown.display_id,
        "update": shown.is_update,
    } | event_json.kept(shown.mime, shown.sha256)


def _over(turn: histories.PastTurn, *, is_last_words: bool) -> event_json.Event:
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
