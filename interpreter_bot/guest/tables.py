"""Data frames and series as data rather than as HTML, for platforms that draw their own tables."""

from __future__ import annotations

from typing import Any

from IPython.core import formatters

MIME = "application/vnd.interpreter-bot.table+json"
_ROWS = 20
_COLUMNS = 30
_CELL_CHARACTERS = 200


class TableFormatter(formatters.BaseFormatter):
    """An IPython formatter for `MIME`."""

    format_type = formatters.Unicode(MIME)
    print_method = formatters.ObjectName("_repr_interpreter_bot_table_")
    _return_type = (dict, str)


def install(display_formatter: Any) -> None:
    """Teach a shell's display formatter about tables; pandas need not be there."""
    formatter = TableFormatter(parent=display_formatter)
    formatter.for_type_by_name("pandas", "DataFrame", _frame)
    formatter.for_type_by_name("pandas", "Series", _series)
    # pandas says in these modules that its classes live where people import them from, or not.
    formatter.for_type_by_name("pandas.core.frame", "DataFrame", _frame)
    formatter.for_type_by_name("pandas.core.series", "Series", _series)
    display_formatter.formatters[MIME] = formatter
    if display_formatter.active_types:
        display_formatter.active_types = [*display_formatter.active_types, MIME]


def _series(series: Any) -> dict[str, Any]:
    name = "" if series.name is None else series.name
    return _frame(series.to_frame(name=name))


def _frame(frame: Any) -> dict[str, Any]:
    """Give the head of a frame: {"columns", "rows", "row_count", "column_count", "index_count"}."""
    head = frame.iloc[:_ROWS, :_COLUMNS]
    names = [_cell(name) if name is not None else "" for name in head.index.names]
    columns = [_heading(name) for name in head.columns]
    values = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    keys = [key if isinstance(key, tuple) else (key,) for key in head.index.tolist()]
    rows = [
        [*map(_cell, key), *(_cell(column[number]) for column in values)]
        for number, key in enumerate(keys)
    ]
    return {
        "columns": names + columns,
        "rows": rows,
        "row_count": int(frame.shape[0]),
        "column_count": int(frame.shape[1]),
        "index_count": len(names),
    }


def _heading(name: Any) -> str:
    return " / ".join(map(_cell, name)) if isinstance(name, tuple) else _cell(name)


def _cell(value: Any) -> str:
    text = format(value, ".6g") if isinstance(value, float) else str(value)
    return text if len(text) <= _CELL_CHARACTERS else text[:_CELL_CHARACTERS] + "…"
