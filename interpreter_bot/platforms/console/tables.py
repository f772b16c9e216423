"""Tables as plain text, aligned also where letters are twice as wide. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich import cells

from interpreter_bot import values

_GAP: Final = "  "
_MOST_CELL_WIDTH: Final = 60
_NUMBER: Final = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)|<NA>|NaT", re.I)


def draw(table: values.Table, most_width: int | None = None) -> str:
    """Draw a table and how large it is as a whole.

    Args:
        table: its cells are foreign text; nothing in them leaves its place.
        most_width: columns that are wider together are left out from the right.
    """
    columns = [
        _column([heading, *(row[number] for row in table.rows)])
        for number, heading in enumerate(table.columns)
    ]
    shown = _fitting(columns, most_width)
    lines = [_GAP.join(line).rstrip() for line in zip(*shown, strict=True)]
    if lines:
        lines.insert(1, _GAP.join("-" * cells.cell_len(column[0]) for column in shown))
    size = f"{table.row_count:,} rows x {table.column_count:,} columns"
    is_head = len(table.rows) < table.row_count
    return "\n".join(
        [*lines, f"[{size}, the first {len(table.rows)} shown]" if is_head else f"[{size}]"]
    )


def _column(texts: Sequence[str]) -> list[str]:
    """Make heading and cells of one column equally wide; numbers stand to the right."""
    cleaned = [_cell(text) for text in texts]
    width = max(map(cells.cell_len, cleaned))
    is_numeric = len(texts) > 1 and all(_NUMBER.fullmatch(text.strip()) for text in texts[1:])
    padded = [" " * (width - cells.cell_len(text)) for text in cleaned]
    if is_numeric:
        return [space + text for space, text in zip(padded, cleaned, strict=True)]
    return [text + space for space, text in zip(padded, cleaned, strict=True)]


def _cell(text: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    if cells.cell_len(text) <= _MOST_CELL_WIDTH:
        return text
    return cells.set_cell_size(text, _MOST_CELL_WIDTH - 1) + "…"


def _fitting(columns: list[list[str]], most_width: int | None) -> list[list[str]]:
    """Keep the leading columns that fit beside each other, one at least, and say if some do not."""
    if most_width is None:
        return columns
    width, count = 0, 0
    for column in columns:
        width += cells.cell_len(column[0]) + len(_GAP)
        # Room for the sign that there are more.
        if count and width + 1 > most_width:
            break
        count += 1
    if count == len(columns):
        return columns
    return [*columns[:count], ["…"] * len(columns[0])]
