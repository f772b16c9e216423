"""Events of a turn as JSON: for the page, for programs (`--json`), and for whoever comes next.

Every event is an object with a `type`; an output has a type of its own kind. A recorded turn is
written as the same events as a running one. Text is as it came, never HTML. Bytes go another way:
pictures and pages are named by their hash. docs/cli.md describes the fields.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import query_listings
from interpreter_bot.sessions import questions
from interpreter_bot.text import safe_text
from interpreter_bot.wording import question_words

EventJson: TypeAlias = dict[str, Any]
"""An event as JSON has it."""


def to_json(event: events.RecordedEvent) -> EventJson:
    """Return an event as JSON; what is empty and optional is left out."""
    match event:
        case events.Queued(ahead=ahead):
            return {"type": "waiting", "ahead": ahead}
        case events.Started():
            return {"type": "begun"}
        case events.StepStarted(number=number):
            return {"type": "step", "number": number}
        case events.ProgressChanged(text=text, share=share):
            return {"type": "progress", "text": text, "share": share}
        case events.TextAdded(text=text):
            return {"type": "text", "text": text}
        case events.CodeDrafted(text=text):
            return {"type": "draft", "text": text}
        case events.CodeStarted(cell=cell, code=code):
            return {"type": "code", "cell": cell, "text": code}
        case events.OutputShown(cell=cell, output=output):
            return _of_output(cell, output)
        case events.StoredDisplayShown(cell=cell, output=display):
            return _of_output(cell, display)
        case events.CodeFinished(cell=cell, finished=finished):
            about: EventJson = {"status": finished.ending.value}
            about["seconds"] = round(finished.seconds, 6)
            if finished.reason:
                about["reason"] = finished.reason
            if finished.kernel_lost:
                about["kernel_lost"] = True
            return {"type": "finished", "cell": cell} | about
        case events.FileMade(cell=cell, artifact=artifact):
            names = {"name": artifact.name, "size_bytes": artifact.size_bytes}
            return {"type": "artifact", "cell": cell, "sha256": artifact.sha256} | names
        case events.NoticeShown(text=text, cell=None):
            return {"type": "announcement", "text": text}
        case events.NoticeShown(text=text, cell=cell):
            return {"type": "announcement", "cell": cell, "text": text}
        case events.PrivateNotice(text=text):
            return {"type": "private", "text": text}
        case events.QuestionAsked(question=question):
            return _of_question(question)
        case events.QuestionClosed(question=question, answer=answer):
            about = {"id": question.id, "outcome": questions.summary(question, answer)}
            return {"type": "settled", "answer": _of_answer(answer)} | about
        case events.UsageChanged(usage=usage):
            return {
                "type": "usage",
                "steps": usage.steps,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                # A decimal number in a string.
                "money": format(usage.money.normalize(), "f"),
                "is_estimated": usage.is_estimated,
            }
        case events.TurnEnded():
            return _of_end(event)


def stored_display(output: values.Image | values.Html) -> values.StoredDisplay:
    """Return a picture or a page by the hash of its content."""
    if isinstance(output, values.Image):
        mime, data = output.mime, output.data
    else:
        mime, data = "text/html", output.html
    return values.StoredDisplay(
        plain=output.plain,
        display_id=output.display_id,
        is_update=output.is_update,
        mime=mime,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
    )


def _of_end(end: events.TurnEnded) -> EventJson:
    about: EventJson = {"type": "over", "status": end.status.value, "text": end.text}
    if end.sentence:
        about["reason"] = end.sentence
    if end.turn_id:
        about["turn_id"] = end.turn_id
    if end.goes_on:
        about["goes_on"] = True
    if end.queries:
        about["queries"] = [
            dataclasses.asdict(query) | {"outcome": query_listings.outcome(query)}
            for query in end.queries
        ]
    return about | {"seconds": round(end.seconds, 6)}


def _of_question(question: events.Question) -> EventJson:
    is_input = isinstance(question, events.InputQuestion)
    about: EventJson = {"type": "input" if is_input else "approve"}
    about |= {"id": question.id, "cell": question.cell}
    if isinstance(question, events.InputQuestion):
        about["text"] = question.prompt
        if question.is_password:
            about["is_password"] = True
        if question.is_of_model:
            about |= {"is_of_model": True, "choices": [*question.choices]}
    else:
        revealed = safe_text.revealed(question.code)
        about |= {"text": question.code, "revealed": revealed.text, "subject": question.subject}
        about["title"] = question_words.title(question.subject)
        about["approve"] = question_words.approve(question.subject)
        if revealed.warning:
            about["warning"] = revealed.warning
        if question.choices:
            about["choices"] = [*question.choices]
        if question.can_edit:
            about["can_edit"] = True
    return about


def _of_answer(answer: events.Answer | None) -> str | None:
    """Return what a person answered; nothing goes on after None."""
    if isinstance(answer, events.TextAnswer):
        return answer.text
    return (answer.scope or "once") if isinstance(answer, events.Approved) else None


def _of_output(cell: int, output: values.Output | values.StoredDisplay) -> EventJson:
    if isinstance(output, values.Image | values.Html):
        output = stored_display(output)
    kind, content = _content(output)
    about: EventJson = {"type": kind, "cell": cell}
    if isinstance(output, values.Display):
        about["text"] = output.plain
        if output.display_id is not None:
            about |= {"display_id": output.display_id, "update": output.is_update}
    return about | content


def _content(output: values.StoredOutput) -> tuple[str, EventJson]:
    """Return the type of an output, and what it has beside the fields of all displays."""
    match output:
        case values.Text():
            return output.stream, {"text": output.text}
        case values.Error():
            names = {"name": output.name, "message": output.message}
            return "error", names | {"traceback": output.traceback}
        case values.Clear():
            return "clear", {"wait": output.wait}
        case values.Notice():
            return "notice", {"text": output.text}
        case values.StoredDisplay():
            kind = "html" if output.mime == "text/html" else "image"
            size = {"size_bytes": output.size_bytes}
            return kind, {"mime": output.mime, "sha256": output.sha256} | size
        case values.Table():
            return "table", _of_table(output)
        case values.Latex():
            return "latex", {"latex": output.latex}
        case values.Json():
            return "json", {"json": output.json}
        case values.Result():
            return "markdown" if output.is_markdown else "result", {}


def _of_table(table: values.Table) -> EventJson:
    about: EventJson = {
        "columns": table.columns,
        "rows": table.rows,
        "row_count": table.row_count,
        "column_count": table.column_count,
        "index_count": table.index_count,
    }
    return about | ({"handle": table.handle} if table.handle else {})
