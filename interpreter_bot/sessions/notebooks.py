"""A conversation as a Jupyter notebook that opens, and runs again. Pure."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

from interpreter_bot import values
from interpreter_bot.sessions import histories

_CUT_OFF = {
    "interrupted": "*The bot was restarted in the middle of this.*",
    "stopped": "*Somebody stopped this.*",
}
_TEXTUAL = ("image/svg+xml", "text/html")


def write(turns: Iterable[histories.PastTurn], contents: Mapping[str, bytes]) -> bytes:
    """Write a notebook (format 4.5, UTF-8).

    Args:
        turns: what happened.
        contents: bytes of pictures and pages, by their SHA-256; a missing one is left out.
    """
    cells = [cell for turn in turns for cell in _cells(turn, contents)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [{"id": f"cell-{number}"} | cell for number, cell in enumerate(cells)],
    }
    return json.dumps(notebook, indent=1).encode()


def _cells(turn: histories.PastTurn, contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    if turn.request and not turn.is_code:
        files = "".join(f"\n\n*File: {_plain(name)}*" for name in turn.attachments)
        cells.append(_words(f"**Request:** {turn.request}{files}"))
    texts = [part for part in turn.parts if isinstance(part, histories.PastText)]
    for part in turn.parts:
        match part:
            case histories.PastText():
                # The last words have a final form, in which no link leads nowhere.
                is_last = part is texts[-1] and turn.answer and turn.status != "failed"
                cells.append(_words(turn.answer if is_last else part.text))
            case histories.PastCode():
                cells.append(_code(part.code))
            case histories.PastOutput() if cells and cells[-1]["cell_type"] == "code":
                cells[-1]["outputs"] += _outputs(part.output, contents)
            case histories.PastNotice():
                cells.append(_words(f"*{part.text}*"))
    if turn.answer and (not texts or turn.status == "failed"):
        cells.append(_words(turn.answer))
    if turn.status in _CUT_OFF:
        cells.append(_words(_CUT_OFF[turn.status]))
    return cells


def _words(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(code: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code,
    }


def _plain(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("\n", " ")


def _outputs(shown: histories.PastShown, contents: Mapping[str, bytes]) -> Iterable[dict[str, Any]]:
    match shown:
        case values.Text():
            yield {"output_type": "stream", "name": shown.stream, "text": shown.text}
        case values.Notice():
            yield {"output_type": "stream", "name": "stderr", "text": shown.text + "\n"}
        case values.Error():
            yield {
                "output_type": "error",
                "ename": shown.name,
                "evalue": shown.message,
                "traceback": shown.traceback.splitlines(),
            }
        case values.Clear():
            return
        case _:
            data = _bundle(shown, contents)
            yield {"output_type": "display_data", "data": data, "metadata": {}}


def _bundle(
    shown: values.Table | values.Latex | values.Json | values.Result | histories.PastDisplay,
    contents: Mapping[str, bytes],
) -> dict[str, Any]:
    bundle: dict[str, Any] = {"text/plain": shown.plain}
    match shown:
        case histories.PastDisplay() if shown.sha256 in contents:
            data = contents[shown.sha256]
            is_text = shown.mime in _TEXTUAL
            bundle[shown.mime] = (
                data.decode("utf-8", "replace") if is_text else base64.b64encode(data).decode()
            )
        case values.Table():
            bundle["text/html"] = _table(shown)
        case values.Latex():
            bundle["text/latex"] = shown.latex
        case values.Json():
            bundle["text/plain"] = shown.json
        case values.Result() if shown.is_markdown:
            bundle["text/markdown"] = shown.plain
    return bundle


def _table(table: values.Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
