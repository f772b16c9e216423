"""Tables as structured data rather than HTML, for platforms with tables of their own.

Only the head of a table is sent. As long as the table exists, all of it can be viewed and saved by
its handle; references to the last few small tables keep them alive for that. A result of duckdb is
a query that may be large and slow, so its first rows are fetched once, when it is displayed.
"""

from __future__ import annotations

import collections
import importlib
import os
import secrets
import weakref
from typing import Any

from IPython.core import formatters

from . import safe_reprs, table_columns, table_views

MIME = "application/vnd.interpreter-bot.table+json"
_MAX_ROWS = 20
# With an index of a few columns, still no more than the bot accepts.
_MAX_COLUMNS = 95
_MAX_CELL_CHARACTERS = 499
_MAX_HANDLES = 500
_MAX_KEPT_TABLES = 5
_MAX_KEPT_BYTES = 20_000_000
# Size limit for saving displayed tables that are not variables.
_MAX_SAVED_BYTES = 4_000_000
_MAX_FETCHED_ROWS = 1_000_000
_MAX_FETCHED_CELLS = 8_000_000

_tables: collections.OrderedDict[str, weakref.ref[Any]] = collections.OrderedDict()
_kept_tables: collections.deque[Any] = collections.deque(maxlen=_MAX_KEPT_TABLES)
_fetched_tables: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class TableFormatter(formatters.BaseFormatter):
    """An IPython formatter for `MIME`."""

    format_type = formatters.Unicode(MIME)
    print_method = formatters.ObjectName("_repr_interpreter_bot_table_")
    _return_type = (dict, str)


def install(display_formatter: Any) -> None:
    """Register the table formatter with a shell's formatters; no library need be installed."""
    formatter = TableFormatter(parent=display_formatter)
    formatter.for_type_by_name("pandas", "DataFrame", _describe_frame)
    formatter.for_type_by_name("pandas", "Series", _describe_series)
    # Depending on its version, pandas names these modules as the home of its classes.
    formatter.for_type_by_name("pandas.core.frame", "DataFrame", _describe_frame)
    formatter.for_type_by_name("pandas.core.series", "Series", _describe_series)
    formatter.for_type_by_name("polars.dataframe.frame", "DataFrame", _describe_table)
    formatter.for_type_by_name("polars.series.series", "Series", _describe_table)
    formatter.for_type_by_name("pyarrow.lib", "Table", _describe_table)
    formatter.for_type_by_name("pyarrow.lib", "RecordBatch", _describe_table)
    for module in ("duckdb._relation", "duckdb", "_duckdb"):
        formatter.for_type_by_name(module, "DuckDBPyRelation", _describe_relation)
    display_formatter.formatters[MIME] = formatter
    if display_formatter.active_types:
        display_formatter.active_types = [*display_formatter.active_types, MIME]


def _describe_series(series: Any) -> dict[str, Any]:
    name = "" if series.name is None else series.name
    return _describe_frame(series.to_frame(name=name), source=series)


def _describe_frame(frame: Any, source: Any = None) -> dict[str, Any]:
    """Return the head of a frame, and a handle to the whole frame.

    {"columns", "rows", "row_count", "column_count", "index_count", "handle"}
    """
    head = frame.iloc[:_MAX_ROWS, :_MAX_COLUMNS]
    index_names = [_format_cell(name) if name is not None else "" for name in head.index.names]
    columns = [_format_heading(name) for name in head.columns]
    values = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    index_keys = [key if isinstance(key, tuple) else (key,) for key in head.index.tolist()]
    rows = [
        [*map(_format_cell, key), *(_format_cell(column[row_number]) for column in values)]
        for row_number, key in enumerate(index_keys)
    ]
    return {
        "columns": index_names + columns,
        "rows": rows,
        "row_count": int(frame.shape[0]),
        "column_count": int(frame.shape[1]),
        "index_count": len(index_names),
        "handle": _register(frame if source is None else source),
    }


def _describe_table(table: Any) -> dict[str, Any]:
    """Return the head of a table of polars or pyarrow, as `_describe_frame` does."""
    source = table_columns.read(table)
    rows = slice(0, min(source.row_count, _MAX_ROWS))
    column_numbers = range(min(source.column_count, _MAX_COLUMNS))
    columns = [source.column(number).cells(rows) for number in column_numbers]
    column_texts = [[safe_reprs.text(cell) or "null" for cell in column] for column in columns]
    return {
        "columns": list(map(source.name, column_numbers)),
        "rows": [list(row) for row in zip(*column_texts, strict=True)],
        "row_count": source.row_count,
        "column_count": source.column_count,
        "index_count": 0,
        "handle": _register(table),
    }


def _describe_relation(relation: Any) -> dict[str, Any]:
    """Return the head of a result of duckdb, as `_describe_frame` does."""
    max_rows = max(min(_MAX_FETCHED_CELLS // len(relation.columns), _MAX_FETCHED_ROWS), _MAX_ROWS)
    if relation not in _fetched_tables:
        _fetched_tables[relation] = relation.limit(max_rows).to_arrow_table()
    table = _fetched_tables[relation]
    description = _describe_table(table)
    if table.num_rows == max_rows:
        description["row_count"] = max(relation.count("*").fetchone()[0], max_rows)
    return description


def save(handle: str, name: str) -> bool:
    """Write the whole of a displayed table, as CSV or Parquet; False if it no longer exists.

    Raises:
        FileExistsError: a file of that name exists.
    """
    table = _find_table(handle)
    if table is None:
        return False
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(table, file, is_parquet=name.endswith(".parquet"))
    except BaseException:
        # A partial file could be taken for the table later.
        os.unlink(name)
        raise
    return True


def _write(table: Any, file: Any, *, is_parquet: bool) -> None:
    library = type(table).__module__.partition(".")[0]
    if library == "pyarrow":
        module = importlib.import_module("pyarrow.parquet" if is_parquet else "pyarrow.csv")
        (module.write_table if is_parquet else module.write_csv)(table, file)
    elif library == "polars":
        table = table.to_frame() if hasattr(table, "to_frame") else table
        (table.write_parquet if is_parquet else table.write_csv)(file)
    elif is_parquet:
        frame = table.to_frame() if hasattr(table, "to_frame") else table
        frame.set_axis([str(name) for name in frame.columns], axis=1).to_parquet(file)
    else:
        table.to_csv(file, mode="wb", encoding="utf-8")


def view(handle: str, request: str, execution_count: int) -> str | None:
    """Answer a request about a displayed table, see `table_views`; None if it was freed."""
    table = _find_table(handle)
    return None if table is None else table_views.answer(table, request, (handle, execution_count))


def ensure_handle(table: Any) -> str:
    """Return the handle of a table, a new one if it has none; the caller keeps the table alive."""
    handles = (handle for handle, reference in _tables.items() if reference() is table)
    return next(handles, "") or _new_handle(table)


def collect_handles(variables: dict[str, Any]) -> dict[str, Any]:
    """Return, by handle, the name of the variable with the table; or the table, if it is small."""
    names = {id(value): name for name, value in variables.items() if not name.startswith("_")}
    kept_ids = {id(table) for table in _kept_tables}
    names_and_tables: dict[str, Any] = {}
    for handle, reference in _tables.items():
        if (table := reference()) is None:
            continue
        if id(table) in names:
            names_and_tables[handle] = names[id(table)]
        elif id(table) in kept_ids and size_bytes(table) <= _MAX_SAVED_BYTES:
            names_and_tables[handle] = table
    return names_and_tables


def restore_handles(variables: dict[str, Any], names_and_tables: dict[str, Any]) -> None:
    """Connect the handles that `collect_handles` returned with the restored variables."""
    for handle, name_or_table in names_and_tables.items():
        table = variables.get(name_or_table) if isinstance(name_or_table, str) else name_or_table
        if table is None:
            continue
        _tables[handle] = weakref.ref(table)
        if table is name_or_table:
            _kept_tables.append(table)


def _find_table(handle: str) -> Any:
    return _tables[handle]() if handle in _tables else None


def _register(frame: Any) -> str:
    """Return a new handle of a displayed table, which is kept alive if it is small."""
    handle = _new_handle(frame)
    if size_bytes(frame) <= _MAX_KEPT_BYTES:
        _kept_tables.append(frame)
    return handle


def _new_handle(frame: Any) -> str:
    # Random, because with a counter, a button for an earlier kernel's table could find another.
    handle = f"t{secrets.randbelow(10**12)}"
    _tables[handle] = weakref.ref(frame)
    while len(_tables) > _MAX_HANDLES:
        _tables.popitem(last=False)
    return handle


def size_bytes(table: Any) -> int:
    """Estimate the memory of a table in bytes."""
    if hasattr(table, "memory_usage"):
        size = table.memory_usage()
        return int(size if isinstance(size, int) else size.sum())
    return int(table.nbytes if hasattr(table, "nbytes") else table.estimated_size())


def _format_heading(name: Any) -> str:
    return " / ".join(map(_format_cell, name)) if isinstance(name, tuple) else _format_cell(name)


def _format_cell(value: Any) -> str:
    text = format(value, ".6g") if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CELL_CHARACTERS else text[:_MAX_CELL_CHARACTERS] + "…"
