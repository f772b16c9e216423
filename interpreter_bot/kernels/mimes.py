"""Choosing what to show of a display: the richest form we know that is what it says. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.kernels import harmless

PLAIN_CHARACTERS: Final = 100_000
TABLE_MIME: Final = "application/vnd.interpreter-bot.table+json"
_MAGIC: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_COLUMNS: Final = 100
_ROWS: Final = 200
_CELL_CHARACTERS: Final = 500


def choose(data: dict[str, object], common: dict[str, Any]) -> values.Shown:
    """Make an output of a bundle.

    Args:
        data: forms by MIME type, as a kernel sent them.
        common: `display_id` and `is_update`, for whatever is chosen.
    """
    plain = _text(data.get("text/plain"), PLAIN_CHARACTERS)
    common = common | {"plain": plain}
    for mime in _MAGIC:
        if (image := _image(mime, data.get(mime))) is not None:
            return values.Image(mime=mime, data=image, **common)
    if svg := _joined(data.get("image/svg+xml")):
        encoded = svg.encode("utf-8", "replace")
        return values.Image(mime="image/svg+xml", data=encoded, **common)
    if (table := _table(data.get(TABLE_MIME), common)) is not None:
        return table
    if html := _joined(data.get("text/html")):
        return values.Html(html=html, **common)
    if latex := _text(data.get("text/latex"), PLAIN_CHARACTERS):
        return values.Latex(latex=latex, **common)
    if "application/json" in data:
        return values.Json(json=_json(data["application/json"]), **common)
    markdown = _text(data.get("text/markdown"), PLAIN_CHARACTERS)
    return values.Result(**common | {"plain": markdown or plain})


def size(data: dict[str, object]) -> int:
    """Measure the largest form of a bundle, in characters as encoded."""
    texts = [_joined(form) for mime, form in data.items() if mime != "application/json"]
    return max(map(len, texts), default=0)


def _joined(form: object) -> str:
    if isinstance(form, str):
        return form
    if isinstance(form, list) and all(isinstance(line, str) for line in form):
        return "".join(form)
    return ""


def _text(form: object, most_characters: int) -> str:
    return harmless.bounded(harmless.clean(_joined(form)), most_characters)


def _image(mime: str, form: object) -> bytes | None:
    text = _joined(form)
    if not text:
        return None
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if data.startswith(_MAGIC[mime]) else None


def _json(form: object) -> str:
    try:
        text = json.dumps(form, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""
    return harmless.bounded(harmless.clean(text), PLAIN_CHARACTERS)


def _table(form: object, common: dict[str, Any]) -> values.Table | None:
    if not isinstance(form, dict):
        return None
    columns, rows = _cells(form.get("columns"), _COLUMNS), form.get("rows")
    numbers = [form.get(name) for name in ("row_count", "column_count", "index_count")]
    if columns is None or not isinstance(rows, list):
        return None
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        return None
    read = [_cells(row, _COLUMNS) for row in rows[:_ROWS]]
    whole = tuple(row for row in read if row is not None and len(row) == len(columns))
    if len(whole) != len(read):
        return None
    row_count, column_count, index_count = (int(str(number)) for number in numbers)
    return values.Table(
        columns=columns,
        rows=whole,
        row_count=max(row_count, len(whole)),
        column_count=column_count,
        index_count=min(index_count, len(columns)),
        **common,
    )


def _cells(form: object, most: int) -> tuple[str, ...] | None:
    if not isinstance(form, list) or len(form) > most:
        return None
    if not all(isinstance(cell, str) for cell in form):
        return None
    return tuple(harmless.clean(cell)[:_CELL_CHARACTERS] for cell in form)
