"""Tables as plain text, aligned even with letters of double width, and as CSV. Pure."""

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
# The kernel cuts longer values.
_MIN_CUT_CHARACTERS: Final = 500
_NUMBER_PATTERN: Final = re.compile(
    r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)|<NA>|NaT", re.I
)
# A spreadsheet would run a cell that begins like this (CWE-1236).
_FORMULA_START: Final = re.compile(r"[=+@\t\r]|-(?![\d.])")


def draw_table(
    table: values.Table, max_width: int | None = None, *, max_rows: int | None = None
) -> str:
    """Draw a table, with its full size.

    Args:
        table: its cells are foreign text, which cannot leave its column.
        max_width: columns beyond it are left out; None for no limit.
        max_rows: further rows are left out; None for no limit.
    """
    rows = table.rows if max_rows is None else table.rows[:max_rows]
    columns = [
        _draw_column([heading, *(row[number] for row in rows)])
        for number, heading in enumerate(table.columns)
    ]
    fitting_columns = _select_fitting(columns, max_width)
    lines = [_GAP.join(line).rstrip() for line in zip(*fitting_columns, strict=True)]
    if lines:
        lines.insert(1, _GAP.join("-" * cells.cell_len(column[0]) for column in fitting_columns))
    return "\n".join([*lines, f"[{describe_size(table, len(rows))}]"])


def describe_size(table: values.Table, shown_rows: int) -> str:
    """Describe the size of a table, and how many of its rows are shown."""
    text = f"{table.row_count:,} rows x {table.column_count:,} columns"
    return text if shown_rows >= table.row_count else f"{text}, the first {shown_rows} shown"


def file_label(table: values.Table) -> str:
    """Return the part of a file name that says what a file lacks of a table; empty if nothing."""
    parts = []
    if len(table.rows) < table.row_count:
        parts.append(f"first-{len(table.rows)}-of-{table.row_count}-rows")
    if count_shown_columns(table) < table.column_count:
        parts.append(f"first-{count_shown_columns(table)}-of-{table.column_count}-columns")
    if _is_shortened(table):
        parts.append("long-values-cut")
    return "".join(f"-{part}" for part in parts)


def describe_file_size(table: values.Table) -> str:
    """Describe what a file lacks of a table, or the size of the table if it has all."""
    rows, columns = len(table.rows), count_shown_columns(table)
    parts = [
        f"only the first {rows:,} of {table.row_count:,} rows" if rows < table.row_count else "",
        f"only the first {columns:,} of {table.column_count:,} columns"
        if columns < table.column_count
        else "",
        "long values are cut" if _is_shortened(table) else "",
    ]
    return ", ".join(filter(None, parts)) or describe_size(table, rows)


def _is_shortened(table: values.Table) -> bool:
    return any(
        len(cell) >= _MIN_CUT_CHARACTERS and cell.endswith("…")
        for row in table.rows
        for cell in row
    )


def count_shown_columns(table: values.Table) -> int:
    """Return how many columns are shown, without the index."""
    return len(table.columns) - table.index_count


def measure_width(table: values.Table) -> int:
    """Return the width of a table when all its columns are drawn."""
    lines = draw_table(table).split("\n")[:2]
    return max(map(cells.cell_len, lines))


def write_csv(table: values.Table) -> str:
    """Return the rows of a table as CSV in which spreadsheets find no formulas."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_neutralize_formula, table.columns))
    writer.writerows(map(_neutralize_formula, row) for row in table.rows)
    return file.getvalue()


def _neutralize_formula(text: str) -> str:
    text = safe_text.sanitize(text)
    return (
        f"'{text}" if _FORMULA_START.match(text) and not _NUMBER_PATTERN.fullmatch(text) else text
    )


def _draw_column(texts: Sequence[str]) -> list[str]:
    """Pad heading and cells of one column to equal width; numbers are aligned to the right."""
    cell_texts = [_draw_cell(text) for text in texts]
    column_width = max(map(cells.cell_len, cell_texts))
    is_numeric = len(texts) > 1 and all(
        _NUMBER_PATTERN.fullmatch(text.strip()) for text in texts[1:]
    )
    padding = [" " * (column_width - cells.cell_len(text)) for text in cell_texts]
    if is_numeric:
        return [space + text for space, text in zip(padding, cell_texts, strict=True)]
    return [text + space for space, text in zip(padding, cell_texts, strict=True)]


def _draw_cell(text: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in text)
    if cells.cell_len(text) <= _MAX_CELL_WIDTH:
        return text
    return cells.set_cell_size(text, _MAX_CELL_WIDTH - 1) + "…"


def _select_fitting(columns: list[list[str]], max_width: int | None) -> list[list[str]]:
    """Return the first columns that fit, at least one, and a mark if columns are omitted."""
    if max_width is None:
        return columns
    used_width, count = 0, 0
    for column in columns:
        used_width += cells.cell_len(column[0]) + len(_GAP)
        # One character is reserved for the mark of omitted columns.
        if count and used_width + 1 > max_width:
            break
        count += 1
    if count == len(columns):
        return columns
    return [*columns[:count], ["…"] * len(columns[0])]
