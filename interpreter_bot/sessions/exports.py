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

_SECONDS: Final = 60.0

_CUT_OFF = {
    "interrupted": f"*{session_words.CELL_CUT_OFF}*",
    "stopped": f"*{session_words.STOPPED_BY_PERSON}*",
}
_TEXTUAL = ("image/svg+xml", "text/html")


async def save_table(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, handle: str, suffix: str = "csv"
) -> str:
    """Let the kernel write a table that it showed; return the file's name.

    Args:
        hosts: where it is.
        kernel: the one that showed it, or its successor, which knows nothing of it.
        handle: see `values.Table.handle`.
        suffix: "csv" or "parquet".

    Raises:
        BotError: it cannot be had; the sentence says why.
    """
    name = f"table-{handle}.{suffix}"
    outputs: list[values.Output] = []
    code = kernel_calls.save_table(handle, name)
    finished = await cancellable_executions.run(
        hosts, kernel, code, show=outputs.append, seconds=_SECONDS
    )
    last = outputs[-1] if outputs else None
    is_saved = isinstance(last, values.Json) and last.json == '"true"'
    if finished.ending is values.Ending.OK and is_saved:
        return name
    if isinstance(last, values.Error):
        if last.name == "FileExistsError":
            return name
        raise errors.BotError(variable_words.table_not_saved(last.message or last.name))
    if finished.reason:
        raise errors.BotError(variable_words.table_not_saved(finished.reason))
    raise errors.BotError(session_words.TABLE_GONE)


def write(turns: Iterable[past_turns.PastTurn], contents: Mapping[str, bytes]) -> bytes:
    """Write a notebook (format 4.5, UTF-8).

    Args:
        turns: the past turns.
        contents: bytes of pictures and pages, by their SHA-256; a missing one is left out.
    """
    from nbformat import v4

    cells = [cell for turn in turns for cell in _cells(turn, contents)]
    for number, cell in enumerate(cells):
        # Deterministic ids, where the library draws random ones.
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = v4.new_notebook(metadata={"kernelspec": kernel}, cells=cells)
    return json.dumps(notebook, indent=1).encode()


def script(turns: Iterable[past_turns.PastTurn]) -> bytes:
    """Write a script whose cells are divided by `# %%`; words are comments."""
    cells = []
    for cell in (cell for turn in turns for cell in _cells(turn, {})):
        source = cell["source"].rstrip()
        if cell["cell_type"] == "code":
            cells.append(f"# %%\n{source}\n")
        else:
            lines = "\n".join(f"# {line}".rstrip() for line in source.splitlines())
            cells.append(f"# %% [markdown]\n{lines}\n")
    return "\n".join(cells).encode("utf-8", "replace")


def final_events(turn: past_turns.PastTurn) -> Iterable[events.RecordedEvent]:
    """Return the events of a turn with its last words in their final form, and how it was cut off.

    The final form has no dead links; a turn that failed has a sentence besides.
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
            yield _of_question(event)
        else:
            yield event
    if turn.record.answer and (not texts or turn.record.status == "failed"):
        yield events.TextAdded(turn.record.answer)
    if turn.record.status in _CUT_OFF:
        yield events.TextAdded(_CUT_OFF[turn.record.status])


def _of_question(closed: events.QuestionClosed) -> events.RecordedEvent:
    """Return an answered input as it was printed, or a sentence about an approval."""
    line = questions.printed_answer(closed.question, closed.answer)
    if line is not None:
        return events.OutputShown(closed.question.cell, line)
    return events.NoticeShown(questions.summary(closed.question, closed.answer))


def _cells(turn: past_turns.PastTurn, contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
    from nbformat import v4

    cells: list[dict[str, Any]] = []
    if turn.record.request and not turn.is_code:
        files = "".join(f"\n\n*File: {_plain(name)}*" for name in turn.record.attachments)
        cells.append(v4.new_markdown_cell(f"**Request:** {turn.record.request}{files}"))
    for event in final_events(turn):
        match event:
            case events.TextAdded(text=text):
                cells.append(v4.new_markdown_cell(text))
            case events.CodeStarted(code=code):
                cells.append(v4.new_code_cell(code))
            case events.OutputShown(output=output) | events.StoredDisplayShown(output=output):
                if cells and cells[-1]["cell_type"] == "code":
                    cells[-1]["outputs"] += _outputs(output, contents)
            case events.NoticeShown(text=text):
                cells.append(v4.new_markdown_cell(f"*{text}*"))
    return cells


def _plain(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("\n", " ")


def _outputs(
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
            yield v4.new_output("display_data", _bundle(output, contents))


def _bundle(
    output: values.DisplayOutput | values.StoredDisplay,
    contents: Mapping[str, bytes],
) -> dict[str, Any]:
    bundle: dict[str, Any] = {"text/plain": output.plain}
    match output:
        case values.StoredDisplay() if output.sha256 in contents:
            data = contents[output.sha256]
            is_text = output.mime in _TEXTUAL
            bundle[output.mime] = (
                data.decode("utf-8", "replace") if is_text else base64.b64encode(data).decode()
            )
        case values.Table():
            bundle["text/html"] = table(output)
        case values.Latex():
            bundle["text/latex"] = output.latex
        case values.Json():
            bundle["text/plain"] = output.json
        case values.Result() if output.is_markdown:
            bundle["text/markdown"] = output.plain
    return bundle


def table(head_of_table: values.Table) -> str:
    """Return what was shown of a table as HTML, in which nothing of its own is HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in head_of_table.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in head_of_table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
