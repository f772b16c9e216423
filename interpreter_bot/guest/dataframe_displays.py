"""Data frames and series as structured data rather than HTML, for platforms with their own tables.

Only the head of a table is sent. The whole can be fetched by its handle as long as the frame lives;
only the last few small frames are kept alive for that.
"""

from __future__ import annotations

import collections
import os
import secrets
import weakref
from typing import Any

from IPython.core import formatters

MIME = "application/vnd.interpreter-bot.table+json"
_ROWS = 20
# Together with the columns of most indexes, as many as the bot accepts.
_COLUMNS = 95
_CELL_CHARACTERS = 499
_MOST_HANDLES = 500
_KEPT = 5
_KEPT_BYTES = 20_000_000

_frames: collections.OrderedDict[str, weakref.ref[Any]] = collections.OrderedDict()
_kept: collections.deque[Any] = collections.deque(maxlen=_KEPT)


class TableFormatter(formatters.BaseFormatter):
    """An IPython formatter for `MIME`."""

    format_type = formatters.Unicode(MIME)
    print_method = formatters.ObjectName("_repr_interpreter_bot_table_")
    _return_type = (dict, str)


def install(display_formatter: Any) -> None:
    """Register the table formatter with a shell's formatters; pandas need not be installed."""
    formatter = TableFormatter(parent=display_formatter)
    formatter.for_type_by_name("pandas", "DataFrame", _frame)
    formatter.for_type_by_name("pandas", "Series", _series)
    # Depending on its version, pandas names these modules as the home of its classes.
    formatter.for_type_by_name("pandas.core.frame", "DataFrame", _frame)
    formatter.for_type_by_name("pandas.core.series", "Series", _series)
    display_formatter.formatters[MIME] = formatter
    if display_formatter.active_types:
        display_formatter.active_types = [*display_formatter.active_types, MIME]


def _series(series: Any) -> dict[str, Any]:
    name = "" if series.name is None else series.name
    return _frame(series.to_frame(name=name), source=series)


def _frame(frame: Any, source: Any = None) -> dict[str, Any]:
    """Return the head of a frame, and a handle where there is more.

    {"columns", "rows", "row_count", "column_count", "index_count", "handle"}
    """
    head = frame.iloc[:_ROWS, :_COLUMNS]
    names = [_cell(name) if name is not None else "" for name in head.index.names]
    columns = [_heading(name) for name in head.columns]
    values = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    keys = [key if isinstance(key, tuple) else (key,) for key in head.index.tolist()]
    rows = [
        [*map(_cell, key), *(_cell(column[number]) for column in values)]
        for number, key in enumerate(keys)
    ]
    is_clipped = any(len(cell) > _CELL_CHARACTERS for row in rows for cell in row)
    is_more = is_clipped or frame.shape != head.shape
    return {
        "columns": names + columns,
        "rows": rows,
        "row_count": int(frame.shape[0]),
        "column_count": int(frame.shape[1]),
        "index_count": len(names),
        "handle": _handle(frame if source is None else source) if is_more else "",
    }


def save(handle: str, name: str) -> bool:
    """Write the whole of a displayed table as CSV; False if its frame no longer exists.

    Raises:
        FileExistsError: a file of that name exists.
    """
    frame = _frames[handle]() if handle in _frames else None
    if frame is None:
        return False
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(file, "w", encoding="utf-8", newline="") as opened:
        frame.to_csv(opened)
    return True


def _handle(frame: Any) -> str:
    # Random, not a counter: a button made for an earlier kernel must not find another table.
    handle = f"t{secrets.randbelow(10**12)}"
    _frames[handle] = weakref.ref(frame)
    size = frame.memory_usage()
    if (size if isinstance(size, int) else size.sum()) <= _KEPT_BYTES:
        _kept.append(frame)
    while len(_frames) > _MOST_HANDLES:
        _frames.popitem(last=False)
    return handle


def _heading(name: Any) -> str:
    return " / ".join(map(_cell, name)) if isinstance(name, tuple) else _cell(name)


def _cell(value: Any) -> str:
    text = format(value, ".6g") if isinstance(value, float) else str(value)
    return text if len(text) <= _CELL_CHARACTERS else text[:_CELL_CHARACTERS] + "…"
