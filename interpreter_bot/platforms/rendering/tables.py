"""Tables as plain text, aligned also where letters are twice as wide, and as CSV. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Final

from rich import cells

from interpreter_bot import values
from interpreter_bot.text import safe_text

_GAP: Final = "  "
_MAX_CELL_WIDTH: Final = 60
# Longer values are cut by the kernel.
_CUT_CHARACTERS: Final = 500
_NUMBER: Final = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)|<NA>|NaT", re.I)
# A spreadsheet would run a cell that begins like this (CWE-1236).
_FORMULA: Final = re.compile(r"[=+@\t\r]|-(?![\d.])")


def draw(table: values.Table, max_width: int | None = None, *, max_rows: int | None = None) -> str:
    """Draw a table, with its full size.

    Args:
        table: its cells are foreign text, which is kept within its column.
        max_width: columns beyond it are left out; None for no limit.
        max_rows: further rows are left out; None for no limit.
    """
    rows = table.rows if max_rows is None else table.rows[:max_rows]
    columns = [
        _column([heading, *(row[number] for row in rows)])
        for number, heading in enumerate(table.columns)
    ]
    fitting = _fit(columns, max_width)
    lines = [_GAP.join(line).rstrip() for line in zip(*fitting, strict=True)]
    if lines:
        lines.insert(1, _GAP.join("-" * cells.cell_len(column[0]) for column in fitting))
    return "\n".join([*lines, f"[{size(table, len(rows))}]"])


def size(table: values.Table, shown_rows: int) -> str:
    """Return the size of the whole table in words, and how much of it is shown."""
    text = f"{table.row_count:,} rows x {table.column_count:,} columns"
    return text if shown_rows >= table.row_count else f"{text}, the first {shown_rows} shown"


def file_label(table: values.Table) -> str:
    """Return a part of a file name that says how much of a table a file has; empty for all."""
    parts = []
    if len(table.rows) < table.row_count:
        parts.append(f"first-{len(table.rows)}-of-{table.row_count}-rows")
    if shown_columns(table) < table.column_count:
        parts.append(f"first-{shown_columns(table)}-of-{table.column_count}-columns")
    if _is_shortened(table):
        parts.append("long-values-cut")
    return "".join(f"-{part}" for part in parts)


def file_size(table: values.Table) -> str:
    """Return in words how much of a table a file has."""
    rows, columns = len(table.rows), shown_columns(table)
    parts = [
        f"only the first {rows:,} of {table.row_count:,} rows" if rows < table.row_count else "",
        f"only the first {columns:,} of {table.column_count:,} columns"
        if columns < table.column_count
        else "",
        "long values are cut" if _is_shortened(table) else "",
    ]
    return ", ".join(filter(None, parts)) or size(table, rows)


def _is_shortened(table: values.Table) -> bool:
    return any(
        len(cell) >= _CUT_CHARACTERS and cell.endswith("…") for row in table.rows for cell in row
    )


def shown_columns(table: values.Table) -> int:
    """Return how many columns are shown, without the index."""
    return len(table.columns) - table.index_count


def width(table: values.Table) -> int:
    """Return the width of a table when all its columns are drawn."""
    lines = draw(table).split("\n")[:2]
    return max(map(cells.cell_len, lines))


def as_csv(table: values.Table) -> str:
    """Format the rows of a table as CSV that spreadsheets read without running any of it."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_inert, table.columns))
    writer.writerows(map(_inert, row) for row in table.rows)
    return file.getvalue()


def _inert(text: str) -> str:
    text = safe_text.sanitize(text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _column(texts: Sequence[str]) -> list[str]:
    """Pad heading and cells of one column to equal width; numbers are aligned to the right."""
    cleaned = [_cell(text) for text in texts]
    widest = max(map(cells.cell_len, cleaned))
    is_numeric = len(texts) > 1 and all(_NUMBER.fullmatch(text.strip()) for text in texts[1:])
    padding = [" " * (widest - cells.cell_len(text)) for text in cleaned]
    if is_numeric:
        return [space + text for space, text in zip(padding, cleaned, strict=True)]
    return [text + space for space, text in zip(padding, cleaned, strict=True)]


def _cell(text: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in text)
    if cells.cell_len(text) <= _MAX_CELL_WIDTH:
        return text
    return cells.set_cell_size(text, _MAX_CELL_WIDTH - 1) + "…"


def _fit(columns: list[list[str]], max_width: int | None) -> list[list[str]]:
    """Keep the first columns that fit, at least one; a last column marks omitted ones."""
    if max_width is None:
        return columns
    used, count = 0, 0
    for column in columns:
        used += cells.cell_len(column[0]) + len(_GAP)
        # One character is for the mark of omitted columns.
        if count and used + 1 > max_width:
            break
        count += 1
    if count == len(columns):
        return columns
    return [*columns[:count], ["…"] * len(columns[0])]
