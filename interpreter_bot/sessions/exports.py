"""Exports of a session: its turns as a notebook or a script, a whole table as a file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from interpreter_bot import errors, events, kernel_calls, values
from interpreter_bot.hosts import cancellable_executions
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import past_turns, questions
from interpreter_bot.wording import session_words, variable_words

_MAX_SAVING_SECONDS: Final = 60.0

_ENDING_SENTENCES = {
    "interrupted": f"*{session_words.CELL_CUT_OFF}*",
    "stopped": f"*{session_words.STOPPED_BY_PERSON}*",
}
_TEXT_MIME_TYPES = ("image/svg+xml", "text/html")


async def save_table(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, handle: str, suffix: str = "csv"
) -> str:
    """Let the kernel write a table that it showed; return the file's name.

    Args:
        kernel: the session's; a later kernel than the one that showed the table lacks the table.
        handle: see `values.Table.handle`.
        suffix: "csv" or "parquet".

    Raises:
        BotError: the table cannot be saved; the sentence says why.
    """
    name = f"table-{handle}.{suffix}"
    outputs: list[values.Output] = []
    code = kernel_calls.save_table(handle, name)
    finished = await cancellable_executions.run(
        hosts, kernel, code, show=outputs.append, seconds=_MAX_SAVING_SECONDS
    )
    last_output = outputs[-1] if outputs else None
    is_saved = isinstance(last_output, values.Json) and last_output.json == '"true"'
    if finished.ending is values.Ending.OK and is_saved:
        return name
    if isinstance(last_output, values.Error):
        if last_output.name == "FileExistsError":
            return name
        raise errors.BotError(
            variable_words.table_not_saved(last_output.message or last_output.name)
        )
    if finished.reason:
        raise errors.BotError(variable_words.table_not_saved(finished.reason))
    raise errors.BotError(session_words.TABLE_GONE)


def write_notebook(turns: Iterable[past_turns.PastTurn], contents: Mapping[str, bytes]) -> bytes:
    """Write a notebook (format 4.5, UTF-8).

    Args:
        contents: bytes of pictures and pages, by their SHA-256; a missing one is left out.
    """
    from nbformat import v4

    cells = [cell for turn in turns for cell in _notebook_cells(turn, contents)]
    for number, cell in enumerate(cells):
        # The library's own ids are random; these make equal notebooks equal.
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = v4.new_notebook(metadata={"kernelspec": kernel}, cells=cells)
    return json.dumps(notebook, indent=1).encode()


def write_script(turns: Iterable[past_turns.PastTurn]) -> bytes:
    """Write a script whose cells are divided by `# %%`; words are comments."""
    cells = []
    for cell in (cell for turn in turns for cell in _notebook_cells(turn, {})):
        source = cell["source"].rstrip()
        if cell["cell_type"] == "code":
            cells.append(f"# %%\n{source}\n")
        else:
            lines = "\n".join(f"# {line}".rstrip() for line in source.splitlines())
            cells.append(f"# %% [markdown]\n{lines}\n")
    return "\n".join(cells).encode("utf-8", "replace")


def final_events(turn: past_turns.PastTurn) -> Iterable[events.RecordedEvent]:
    """Return the events of a turn, the last text in its final form, and how the turn was cut off.

    The final form has no dead links; a failed turn also has a sentence that says why.
    """
    texts = [event for event in turn.events if isinstance(event, events.TextAdded)]
    for event in turn.events:
        is_last = (
            bool(texts)
            and event is texts[-1]
            and turn.record.answer
            and turn.record.status != "failed"
        )
        if is_last:
            yield events.TextAdded(turn.record.answer)
        elif isinstance(event, events.QuestionClosed):
            yield _describe_question(event)
        else:
            yield event
    if turn.record.answer and (not texts or turn.record.status == "failed"):
        yield events.TextAdded(turn.record.answer)
    if turn.record.status in _ENDING_SENTENCES:
        yield events.TextAdded(_ENDING_SENTENCES[turn.record.status])


def _describe_question(event: events.QuestionClosed) -> events.RecordedEvent:
    """Return an answered input as it was printed, or a sentence about an approval."""
    line = questions.printed_answer(event.question, event.answer)
    if line is not None:
        return events.OutputShown(event.question.cell, line)
    return events.NoticeShown(questions.summary_sentence(event.question, event.answer))


def _notebook_cells(
    turn: past_turns.PastTurn, contents: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    from nbformat import v4

    cells: list[dict[str, Any]] = []
    if turn.record.request and not turn.is_code:
        files = "".join(f"\n\n*File: {_escape(name)}*" for name in turn.record.attachments)
        cells.append(v4.new_markdown_cell(f"**Request:** {turn.record.request}{files}"))
    for event in final_events(turn):
        match event:
            case events.TextAdded(text=text):
                cells.append(v4.new_markdown_cell(text))
            case events.CodeStarted(code=code):
                cells.append(v4.new_code_cell(code))
            case events.OutputShown(output=output) | events.StoredDisplayShown(output=output):
                if cells and cells[-1]["cell_type"] == "code":
                    cells[-1]["outputs"] += _notebook_outputs(output, contents)
            case events.NoticeShown(text=text):
                cells.append(v4.new_markdown_cell(f"*{text}*"))
    return cells


def _escape(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("\n", " ")


def _notebook_outputs(
    output: values.Output | values.StoredDisplay, contents: Mapping[str, bytes]
) -> Iterable[dict[str, Any]]:
    from nbformat import v4

    match output:
        case values.Text():
            yield v4.new_output("stream", name=output.stream, text=output.text)
        case values.Notice():
            yield v4.new_output("stream", name="stderr", text=output.text + "\n")
        case values.Error():
            lines = output.traceback.splitlines()
            yield v4.new_output("error", ename=output.name, evalue=output.message, traceback=lines)
        case values.Clear():
            return
        case _:
            yield v4.new_output("display_data", _mime_bundle(output, contents))


def _mime_bundle(
    output: values.DisplayOutput | values.StoredDisplay,
    contents: Mapping[str, bytes],
) -> dict[str, Any]:
    bundle: dict[str, Any] = {"text/plain": output.plain}
    match output:
        case values.StoredDisplay() if output.sha256 in contents:
            data = contents[output.sha256]
            is_text = output.mime in _TEXT_MIME_TYPES
            bundle[output.mime] = (
                data.decode("utf-8", "replace") if is_text else base64.b64encode(data).decode()
            )
        case values.Table():
            bundle["text/html"] = draw_table(output)
        case values.Latex():
            bundle["text/latex"] = output.latex
        case values.Json():
            bundle["text/plain"] = output.json
        case values.Result() if output.is_markdown:
            bundle["text/markdown"] = output.plain
    return bundle


def draw_table(table: values.Table) -> str:
    """Draw the shown rows of a table as HTML; the text in its cells is escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
