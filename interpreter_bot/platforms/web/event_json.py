"""Events of a turn as JSON for the page: the one place where these shapes are written.

Every event is an object with a `kind`. A past turn is sent as the same events as a running one, so
the page draws both alike. All text is as it came: the page never takes it for HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import code_activity, errors, values
from interpreter_bot.platforms.rendering import query_listings
from interpreter_bot.sessions import live_data_views, ports
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


def queued(ahead: int) -> Event:
    """Event: so many requests come before this one."""
    return {"kind": "waiting", "ahead": ahead}


def started() -> Event:
    """Event: the turn has started."""
    return {"kind": "begun"}


def announcement(text: str) -> Event:
    """Event: a sentence of the bot."""
    return {"kind": "announcement", "text": text}


def private(text: str) -> Event:
    """Event: a sentence of the bot with a link, which is not kept."""
    return {"kind": "private", "text": text}


def step(number: int) -> Event:
    """Event: the model is called."""
    return {"kind": "step", "number": number}


def progress(text: str, share: float | None) -> Event:
    """Event: what is waited for, and how far it is; empty text for nothing."""
    return {"kind": "progress", "text": text, "share": share}


def text(delta: str) -> Event:
    """Event: a piece of the model's text."""
    return {"kind": "text", "delta": delta}


def writing(delta: str) -> Event:
    """Event: a piece of code that may come to be run."""
    return {"kind": "writing", "delta": delta}


def code(cell: int, source: str) -> Event:
    """Event: this code is run."""
    return {"kind": "code", "cell": cell, "code": source}


def printed(cell: int, stream: str, delta: str) -> Event:
    """Event: a piece of printed text."""
    return {"kind": "printed", "cell": cell, "stream": stream, "delta": delta}


def asking(cell: int, question: int, request: values.InputRequested) -> Event:
    """Event: running code waits for an answer."""
    return {
        "kind": "asking",
        "cell": cell,
        "question": question,
        "prompt": request.prompt,
        "is_password": request.is_password,
        "choices": list(request.choices),
    }


def approving(
    cell: int,
    question: int,
    source: str,
    *,
    is_planned: bool = False,
    choices: Sequence[str] = (),
) -> Event:
    """Event: approval is asked for code, or for the plan above that begins with it."""
    revealed = safe_text.revealed(source)
    return {
        "kind": "approving",
        "cell": cell,
        "question": question,
        "code": source,
        "shown": revealed.text,
        "warning": revealed.warning,
        "is_planned": is_planned,
        "choices": list(choices),
    }


def settled(question: int, answer: str | None = None) -> Event:
    """Event: a question is answered, or no longer asked: then, and for secrets, without the
    answer."""
    return {"kind": "settled", "question": question, "answer": answer}


def withdrawn() -> Event:
    """Event: a waiting request was withdrawn; its end follows."""
    return {"kind": "withdrawn"}


def finished(cell: int, end: values.Finished) -> Event:
    """Event: how a cell ended."""
    return {
        "kind": "finished",
        "cell": cell,
        "ending": end.ending.name.lower(),
        "seconds": round(end.seconds, 3),
        "reason": end.reason,
        "kernel_lost": end.kernel_lost,
    }


def artifact(file: values.Artifact) -> Event:
    """Event: a file that was made."""
    return {
        "kind": "artifact",
        "name": file.name,
        "size_bytes": file.size_bytes,
        "sha256": file.sha256,
    }


def usage(spent: values.Usage) -> Event:
    """Event: the usage of the turn; money as a decimal number in a string."""
    return {
        "kind": "usage",
        "steps": spent.steps,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cached_tokens": spent.cached_tokens,
        "money": format(spent.money.normalize(), "f"),
        "is_estimated": spent.is_estimated,
    }


def ended(end: ports.End) -> Event:
    """Event: how the turn ended."""
    return {
        "kind": "over",
        "status": end.status.value,
        "text": end.text,
        "sentence": end.sentence,
        "seconds": round(end.seconds, 3),
        "turn": end.turn_id,
        "goes_on": end.goes_on,
    } | queries(end.queries)


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
            return printed(cell, shown.stream, shown.text)
        case values.Error():
            names = {"name": shown.name, "message": shown.message}
            return event | {"type": "error", "traceback": shown.traceback} | names
        case values.Clear():
            return event | {"type": "clear", "wait": shown.wait}
        case values.Notice():
            return event | {"type": "notice", "text": shown.text}
    event |= {"plain": shown.plain, "display": shown.display_id, "update": shown.is_update}
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
