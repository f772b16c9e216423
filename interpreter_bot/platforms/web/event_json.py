"""Events of a turn as JSON for the page: the one place where these shapes are written.

Every event is an object with a `kind`. A past turn is sent as the same events as a running one, so
the page draws both alike. All text is as it came: the page never takes it for HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import code_activity, errors, events, values
from interpreter_bot.platforms.rendering import query_listings
from interpreter_bot.sessions import live_data_views
from interpreter_bot.text import safe_text
from interpreter_bot.wording import page_words

Event: TypeAlias = dict[str, Any]

PICTURES: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
}
"""The picture types that the page shows, with their file name suffixes."""


def to_json(event: events.RecordedEvent) -> Event:
    """Return an event of a turn as the page knows it."""
    match event:
        case events.Queued(ahead=ahead):
            return {"kind": "waiting", "ahead": ahead}
        case events.Started():
            return {"kind": "begun"}
        case events.NoticeShown(text=text):
            return {"kind": "announcement", "text": text}
        case events.PrivateNotice(text=text):
            return {"kind": "private", "text": text}
        case events.StepStarted(number=number):
            return {"kind": "step", "number": number}
        case events.ProgressChanged(text=text, share=share):
            return {"kind": "progress", "text": text, "share": share}
        case events.TextAdded(text=text):
            return {"kind": "text", "delta": text}
        case events.CodeDrafted(text=text):
            return {"kind": "writing", "delta": text}
        case events.CodeStarted(cell=cell, code=code):
            return {"kind": "code", "cell": cell, "code": code}
        case events.OutputShown(cell=cell, output=shown):
            return output(cell, shown)
        case events.StoredDisplayShown(cell=cell, output=display):
            return _display(cell, display) | stored_display(display.mime, display.sha256)
        case events.CodeFinished(cell=cell, finished=finished):
            return {
                "kind": "finished",
                "cell": cell,
                "ending": finished.ending.name.lower(),
                "seconds": round(finished.seconds, 3),
                "reason": finished.reason,
                "kernel_lost": finished.kernel_lost,
            }
        case events.FileMade(artifact=artifact):
            return {
                "kind": "artifact",
                "name": artifact.name,
                "size_bytes": artifact.size_bytes,
                "sha256": artifact.sha256,
            }
        case events.QuestionAsked(question=question):
            return _asking(question)
        case events.QuestionClosed(question=question, answer=answer):
            return _settled(question, answer)
        case events.UsageChanged(usage=usage):
            return {
                "kind": "usage",
                "steps": usage.steps,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                # A decimal number in a string.
                "money": format(usage.money.normalize(), "f"),
                "is_estimated": usage.is_estimated,
            }
        case events.TurnEnded():
            return {
                "kind": "over",
                "status": event.status.value,
                "text": event.text,
                "sentence": event.sentence,
                "seconds": round(event.seconds, 3),
                "turn": event.turn_id,
                "goes_on": event.goes_on,
            } | queries(event.queries)


def _asking(question: events.Question) -> Event:
    if isinstance(question, events.InputQuestion):
        return {
            "kind": "asking",
            "cell": question.cell,
            "question": question.id,
            "prompt": question.prompt,
            "is_password": question.is_password,
            "choices": list(question.choices),
        }
    revealed = safe_text.revealed(question.code)
    return {
        "kind": "approving",
        "cell": question.cell,
        "question": question.id,
        "code": question.code,
        "shown": revealed.text,
        "warning": revealed.warning,
        "is_planned": question.subject == "plan",
        "choices": list(question.choices),
    }


def _settled(question: events.Question, answer: events.Answer | None) -> Event:
    """Return the event of a closed question; nothing goes on after one without an answer."""
    text = None
    if isinstance(answer, events.TextAnswer):
        text = answer.text
    elif isinstance(answer, events.Approved):
        text = answer.scope or "once"
    return {"kind": "settled", "question": question.id, "answer": text}


def withdrawn() -> Event:
    """Event: a waiting request was withdrawn; its end follows."""
    return {"kind": "withdrawn"}


def queries(asked: Sequence[code_activity.AskedQuery]) -> Event:
    """Write what code asked of data connections, as a part of the event of the turn's end."""
    return {
        "queries": [
            {"connection": one.connection, "statement": one.statement}
            | {"outcome": query_listings.outcome(one)}
            for one in asked
        ]
    }


def output(cell: int, shown: values.Output) -> Event:
    """Event: an output. Bytes go another way: pictures and pages are named by their hash."""
    event: Event = {"kind": "output", "cell": cell}
    match shown:
        case values.Text():
            return {"kind": "printed", "cell": cell, "stream": shown.stream, "delta": shown.text}
        case values.Error():
            names = {"name": shown.name, "message": shown.message}
            return event | {"type": "error", "traceback": shown.traceback} | names
        case values.Clear():
            return event | {"type": "clear", "wait": shown.wait}
        case values.Notice():
            return event | {"type": "notice", "text": shown.text}
    event = _display(cell, shown)
    match shown:
        case values.Image():
            return event | stored_display(shown.mime, digest(shown.data))
        case values.Html():
            return event | stored_display("text/html", digest(shown.html))
        case values.Table():
            return event | _table(shown)
        case values.Latex():
            return event | {"type": "formula", "latex": shown.latex}
        case values.Json():
            return event | {"type": "json", "text": shown.json}
        case values.Result():
            kind = "markdown" if shown.is_markdown else "text"
            return event | {"type": kind, "text": shown.plain}


def problem(error: errors.BotError) -> Event:
    """Say why a live table cannot be looked at, and whether it can be later, or never more."""
    return {
        "problem": str(error),
        "is_busy": isinstance(error, live_data_views.PythonBusyError),
        "is_gone": isinstance(error, live_data_views.TableGoneError),
    }


def _display(cell: int, shown: values.Display) -> Event:
    about = {"plain": shown.plain, "display": shown.display_id, "update": shown.is_update}
    return {"kind": "output", "cell": cell} | about


def stored_display(mime: str, sha256: str) -> Event:
    """Name a picture or a page by its hash; anything else cannot be shown."""
    if mime == "text/html":
        return {"type": "page", "sha256": sha256}
    if mime in PICTURES:
        return {"type": "picture", "sha256": sha256, "suffix": PICTURES[mime]}
    return {"type": "text", "text": page_words.no_display(mime)}


def digest(data: bytes) -> str:
    """Return the hash by which a picture or a page is fetched."""
    return hashlib.sha256(data).hexdigest()


def _table(table: values.Table) -> Event:
    return {
        "type": "table",
        "columns": table.columns,
        "rows": table.rows,
        "row_count": table.row_count,
        "column_count": table.column_count,
        "index_count": table.index_count,
        "handle": table.handle,
    }
