"""Events of a turn as JSON, for the page and for programs (`--json`).

Every event is an object with a `type`; each kind of output has its own type. A recorded turn has
the same events as a running one. Text is never HTML. Pictures and pages are given by their hash,
and their bytes are fetched separately. docs/cli.md describes the fields.
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
"""An event as a JSON object."""


def to_json(event: events.RecordedEvent) -> EventJson:
    """Return an event as JSON; optional fields are left out if they are empty."""
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
            return _output_json(cell, output)
        case events.StoredDisplayShown(cell=cell, output=display):
            return _output_json(cell, display)
        case events.CodeFinished(cell=cell, finished=finished):
            document: EventJson = {"status": finished.ending.value}
            document["seconds"] = round(finished.seconds, 6)
            if finished.reason:
                document["reason"] = finished.reason
            if finished.kernel_lost:
                document["kernel_lost"] = True
            return {"type": "finished", "cell": cell} | document
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
            return _question_json(question)
        case events.QuestionClosed(question=question, answer=answer):
            document = {"id": question.id, "outcome": questions.summary_sentence(question, answer)}
            return {"type": "settled", "answer": _answer_json(answer)} | document
        case events.UsageChanged(usage=usage):
            return {
                "type": "usage",
                "steps": usage.steps,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                # A decimal number as a string, which loses no digits.
                "money": format(usage.money.normalize(), "f"),
                "is_estimated": usage.is_estimated,
            }
        case events.TurnEnded():
            return _end_json(event)


def to_stored_display(output: values.Image | values.Html) -> values.StoredDisplay:
    """Return the stored form of a picture or a page, which has a hash in place of its content."""
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


def _end_json(end: events.TurnEnded) -> EventJson:
    document: EventJson = {"type": "over", "status": end.status.value, "text": end.text}
    if end.sentence:
        document["reason"] = end.sentence
    if end.turn_id:
        document["turn_id"] = end.turn_id
    if end.goes_on:
        document["goes_on"] = True
    if end.queries:
        document["queries"] = [
            dataclasses.asdict(query) | {"outcome": query_listings.describe_outcome(query)}
            for query in end.queries
        ]
    return document | {"seconds": round(end.seconds, 6)}


def _question_json(question: events.Question) -> EventJson:
    is_input = isinstance(question, events.InputQuestion)
    document: EventJson = {"type": "input" if is_input else "approve"}
    document |= {"id": question.id, "cell": question.cell}
    if isinstance(question, events.InputQuestion):
        document["text"] = question.prompt
        if question.is_password:
            document["is_password"] = True
        if question.is_of_model:
            document |= {"is_of_model": True, "choices": [*question.choices]}
    else:
        revealed = safe_text.reveal_hidden(question.code)
        document |= {"text": question.code, "revealed": revealed.text, "subject": question.subject}
        document["title"] = question_words.title(question.subject)
        if question.facts:
            document["facts"] = question.facts
        document["approve"] = question_words.approve_label(question.subject)
        if question.subject == "schedule":
            document |= {
                "edit": question_words.CHANGE_BUTTON,
                "decline": question_words.CANCEL_BUTTON,
            }
        if revealed.warning:
            document["warning"] = revealed.warning
        if question.choices:
            document["choices"] = [*question.choices]
        if question.can_edit:
            document["can_edit"] = True
    return document


def _answer_json(answer: events.Answer | None) -> str | None:
    """Return a person's answer; None if the question was declined or withdrawn."""
    if isinstance(answer, events.TextAnswer):
        return answer.text
    return (answer.scope or "once") if isinstance(answer, events.Approved) else None


def _output_json(cell: int, output: values.Output | values.StoredDisplay) -> EventJson:
    if isinstance(output, values.Image | values.Html):
        output = to_stored_display(output)
    kind, content = _find_type_and_fields(output)
    document: EventJson = {"type": kind, "cell": cell}
    if isinstance(output, values.Display):
        document["text"] = output.plain
        if output.display_id is not None:
            document |= {"display_id": output.display_id, "update": output.is_update}
    return document | content


def _find_type_and_fields(output: values.StoredOutput) -> tuple[str, EventJson]:
    """Return the type of an output, and its fields besides those of all displays."""
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
            return "table", _table_json(output)
        case values.Latex():
            return "latex", {"latex": output.latex}
        case values.Json():
            return "json", {"json": output.json}
        case values.Result():
            return "markdown" if output.is_markdown else "result", {}


def _table_json(table: values.Table) -> EventJson:
    document: EventJson = {
        "columns": table.columns,
        "rows": table.rows,
        "row_count": table.row_count,
        "column_count": table.column_count,
        "index_count": table.index_count,
    }
    return document | ({"handle": table.handle} if table.handle else {})
