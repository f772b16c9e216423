"""Parts of a live table for people: sorted, filtered, searched, summarized.

Requests and answers are JSON. No request runs code of the user, and those that would take seconds
are refused, because a kernel that hangs is ended and loses its variables.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import json
import operator
import sys
from collections.abc import Callable
from typing import Any

from . import safe_reprs, table_columns

_MAX_CHARACTERS = 200_000
_MIN_CELL_CHARACTERS = 20
_MAX_SORTED_ROWS = 10_000_000
_MAX_COMPARED_TEXTS = 3_000_000
_MAX_SEARCHED_CELLS = 12_000_000
# Opening a column takes about as long as searching this many rows.
_COLUMN_COST_ROWS = 500
_SAMPLE_ROWS = 200_000
_BIN_COUNT = 24
_TOP_COUNT = 5
_MAX_CATEGORY_SHARE = 0.05
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "≠": operator.ne,
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
}
_TRUTHS = {"true": 1, "yes": 1, "1": 1, "false": 0, "no": 0, "0": 0}
_TOO_LARGE = "This table is too large for that here. Let the code do it."

_latest_order: tuple[tuple[Any, ...], Any] = ((), None)
"""The latest request for sorted or filtered rows, and their order, as people turn its pages."""


class ViewError(ValueError):
    """A request cannot be answered; the text is a sentence for people."""


def answer(table: Any, request_json: str, table_key: tuple[str, int]) -> str:
    """Answer a request about a table.

    Args:
        table: of pandas, polars or pyarrow.
        request_json: see `live_data_views` of the bot's sessions.
        table_key: the table's handle, and a number that changes when code may have changed it.

    Returns:
        JSON with the answer, or with a sentence as its "problem".
    """
    request = json.loads(request_json)
    try:
        importlib.import_module("numpy")
        source = table_columns.read(table)
        if "summaries" in request:
            result: dict[str, Any] = {
                "summaries": [_summarize(source, number) for number in request["summaries"]]
            }
        else:
            result = _read_page(source, request, (*table_key, source.row_count))
    except table_columns.ForeignTableError:
        result = {"problem": "This table is of a class of its own: it can only be saved."}
    except (ViewError, ImportError) as error:
        result = {"problem": f"{error}"}
    return json.dumps(result, ensure_ascii=False)


def _read_page(
    source: table_columns.Source, request: dict[str, Any], table_key: tuple[Any, ...]
) -> Any:
    order = _find_row_order(source, request, table_key)
    count = source.row_count if order is None else len(order)
    (first_row, row_count), (first_column, column_count) = request["rows"], request["columns"]
    first_row = max(min(first_row, count - row_count), 0)
    end_row = min(first_row + row_count, count)
    positions = slice(first_row, end_row) if order is None else order[first_row:end_row]
    column_numbers = range(first_column, min(first_column + column_count, source.column_count))
    page_columns = [source.column(number) for number in column_numbers]
    cells = [list(map(safe_reprs.text, column.cells(positions))) for column in page_columns]
    return {
        "first_row": first_row,
        "match_count": count,
        "rows": _shorten_cells([list(row) for row in zip(*cells, strict=True)]),
        "row_count": source.row_count,
        "column_count": source.column_count,
        "index_count": source.index_count,
        "first_column": first_column,
        "columns": [
            {"name": source.name(number), "dtype": column.dtype, "kind": column.kind}
            for number, column in zip(column_numbers, page_columns, strict=True)
        ],
    }


def _shorten_cells(rows: list[list[str | None]]) -> list[list[str | None]]:
    """Shorten long cells if all cells together are too long for one message."""
    count = sum(map(len, rows))
    if sum(len(cell) for row in rows for cell in row if cell) <= _MAX_CHARACTERS:
        return rows
    max_characters = max(_MAX_CHARACTERS // count, _MIN_CELL_CHARACTERS)
    return [
        [
            cell if cell is None or len(cell) <= max_characters else cell[:max_characters] + "…"
            for cell in row
        ]
        for row in rows
    ]


# ---- selection and order of rows


def _find_row_order(
    source: table_columns.Source, request: dict[str, Any], table_key: tuple[Any, ...]
) -> Any:
    """Return the positions of the requested rows in order; None for all rows unsorted."""
    sort, search, filters = (
        request.get("sort"),
        request.get("search", ""),
        request.get("filters", []),
    )
    if sort is None and not search and not filters:
        return None
    global _latest_order
    key = (*table_key, json.dumps([sort, search, filters]))
    if key != _latest_order[0]:
        if source.row_count > _MAX_SORTED_ROWS:
            raise ViewError(_TOO_LARGE)
        _latest_order = key, _select_rows(source, sort, search, filters)
    return _latest_order[1]


def _select_rows(source: table_columns.Source, sort: Any, search: str, filters: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    is_selected = numpy.ones(source.row_count, dtype=bool)
    for number, operation, text in filters:
        is_selected &= _match_rows(source, number, operation, text)
    if search:
        is_selected &= _search_rows(source, search)
    rows = numpy.flatnonzero(is_selected)
    return rows if sort is None else _sort_rows(source, sort, rows)


def _get_column(source: table_columns.Source, number: int) -> table_columns.Column:
    if number >= source.column_count:
        raise ViewError("The table has no such column any more.")
    return source.column(number)


def _comparable_array(column: table_columns.Column) -> tuple[Any, Any]:
    """Return the values of a column, and a mask of missing values.

    Raises:
        ViewError: the values cannot be compared.
    """
    if column.array is None:
        raise ViewError("The values of this column have no order that could be used.")
    values, is_missing = column.array()
    numpy: Any = sys.modules["numpy"]
    if values.dtype.kind == "O":
        if len(values) > _MAX_COMPARED_TEXTS:
            raise ViewError(_TOO_LARGE)
        is_missing = numpy.array(_find_missing(values.tolist()), dtype=bool)
    elif is_missing is None:
        is_float = values.dtype.kind == "f"
        is_missing = numpy.isnan(values) if is_float else numpy.zeros(len(values), dtype=bool)
    return values, is_missing


def _find_missing(values: list[Any]) -> list[bool]:
    if set(map(type, values)) <= {str, type(None)}:
        return [value is None for value in values]
    return [type(value) is not str and safe_reprs.text(value) is None for value in values]


def _sort_rows(source: table_columns.Source, sort: tuple[int, bool], rows: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    number, is_descending = sort
    column = _get_column(source, number)
    values, missing_mask = _comparable_array(column) if column.ranks is None else column.ranks()
    is_missing = missing_mask[rows]
    present_rows, keys = rows[~is_missing], values[rows[~is_missing]]
    if keys.dtype.kind == "O":
        keys = _rank_objects(keys)
    if is_descending:
        # Reversed twice, so that the descending sort is stable, too.
        positions = len(keys) - 1 - numpy.argsort(keys[::-1], kind="stable")[::-1]
    else:
        positions = numpy.argsort(keys, kind="stable")
    return numpy.concatenate([present_rows[positions], rows[is_missing]])


def _rank_objects(values: Any) -> Any:
    """Return the ranks of objects: numbers come first, then texts, then others by their texts."""
    numpy: Any = sys.modules["numpy"]
    keys = values.tolist()
    distinct_texts = set(keys) if set(map(type, keys)) == {str} else None
    if distinct_texts is not None and len(distinct_texts) > _MAX_CATEGORY_SHARE * len(keys):
        with contextlib.suppress(UnicodeEncodeError):
            return values.astype(numpy.dtypes.StringDType())
    if distinct_texts is None:
        keys = [(1, key) if type(key) is str else _sort_key(key) for key in keys]
    ranks = {key: rank for rank, key in enumerate(sorted(distinct_texts or set(keys)))}
    return numpy.fromiter(map(ranks.__getitem__, keys), "int64", len(keys))


def _sort_key(value: Any) -> tuple[int, Any]:
    if type(value) in (int, float, bool):
        return 0, value
    return 2, safe_reprs.text(value) or ""


def _match_rows(source: table_columns.Source, number: int, operation: str, text: str) -> Any:
    column = _get_column(source, number)
    values, is_missing = _comparable_array(column)
    if operation in ("missing", "present"):
        return is_missing if operation == "missing" else ~is_missing
    if column.kind == "text":
        return _match_texts(values, operation, text) & ~is_missing
    return _OPERATORS[operation](values, _parse_operand(column, text)) & ~is_missing


def _parse_operand(column: table_columns.Column, text: str) -> float:
    """Parse a text that a person typed into a value of a column's type.

    Raises:
        ViewError: the text does not fit the type.
    """
    text = text.strip()
    try:
        if column.kind == "number":
            return float(text) if "." in text or "e" in text.lower() else int(text)
        if column.kind == "truth":
            return _TRUTHS[text.lower()]
        if column.kind == "time" and column.parse_time is not None:
            return column.parse_time(text)
    except (ValueError, KeyError, OverflowError):
        examples = {"number": "12.5", "truth": "true", "time": "2026-01-31"}
        kind = {"number": "number", "truth": "truth value", "time": "date"}[column.kind]
        raise ViewError(f"That is no {kind}; {examples[column.kind]} would be one.") from None
    raise ViewError("This column can only be asked for what is missing.")


def _match_texts(values: Any, operation: str, text: str) -> Any:
    numpy: Any = sys.modules["numpy"]
    folded_text = text.casefold()
    if operation == "contains":
        is_matching: Callable[[str], Any] = lambda cell: folded_text in cell.casefold()  # noqa: E731
    elif operation in ("=", "≠"):
        is_matching = lambda cell: (cell == text) is (operation == "=")  # noqa: E731
    else:
        compare = _OPERATORS[operation]
        is_matching = lambda cell: compare(cell, text)  # noqa: E731
    results: dict[str, Any] = {}

    def is_match(value: Any) -> Any:
        cell_text = value if type(value) is str else safe_reprs.text(value) or ""
        if cell_text not in results:
            results[cell_text] = is_matching(cell_text)
        return results[cell_text]

    return numpy.fromiter(map(is_match, values), bool, len(values))


def _search_rows(source: table_columns.Source, search: str) -> Any:
    """Return a mask of the rows that contain a text, or have it as a number or date."""
    numpy: Any = sys.modules["numpy"]
    has_text = numpy.zeros(source.row_count, dtype=bool)
    if source.column_count * (source.row_count + _COLUMN_COST_ROWS) > _MAX_SEARCHED_CELLS:
        raise ViewError(_TOO_LARGE)
    for number in range(source.column_count):
        column = source.column(number)
        if column.array is None or column.kind == "other":
            continue
        try:
            operation = "contains" if column.kind == "text" else "="
            has_text |= _match_rows(source, number, operation, search)
        except ViewError:
            # The text does not fit the column's type, so no row matches.
            continue
    return has_text


# ---- summaries of columns


def _summarize(source: table_columns.Source, number: int) -> dict[str, Any]:
    """Summarize a column: the number of missing values, and the distribution of the others."""
    numpy: Any = sys.modules["numpy"]
    column = _get_column(source, number)
    step = max(source.row_count // _SAMPLE_ROWS, 1)
    summary: dict[str, Any] = {"column": number, "is_sampled": step > 1}
    if column.kind in ("number", "time"):
        values, is_missing = _comparable_array(column)
        summary["missing"] = int(is_missing.sum())
        positions = numpy.flatnonzero(~is_missing)
        summary |= (
            _summarize_numbers(column, values[positions], positions) if len(positions) else {}
        )
        return summary
    # A sample, because reading all texts of a large table would take seconds.
    sample = column.cells(numpy.arange(0, source.row_count, step)) if source.row_count else []
    texts = [safe_reprs.text(value) for value in sample]
    counts = collections.Counter(value for value in texts if value is not None)
    summary["missing"] = (len(texts) - counts.total()) * step
    summary["distinct"] = len(counts)
    summary["top"] = [[value[:80], count * step] for value, count in counts.most_common(_TOP_COUNT)]
    return summary


def _summarize_numbers(column: table_columns.Column, values: Any, positions: Any) -> dict[str, Any]:
    """Return a histogram, and the texts of the smallest and the largest value."""
    numpy: Any = sys.modules["numpy"]
    sample = values[:: max(len(values) // _SAMPLE_ROWS, 1)].astype("float64")
    finite_values = sample[numpy.isfinite(sample)]
    extremes = [int(positions[position]) for position in (values.argmin(), values.argmax())]
    texts = [
        safe_reprs.text(column.cells(slice(position, position + 1))[0]) or ""
        for position in extremes
    ]
    counts = (
        numpy.histogram(finite_values, bins=_BIN_COUNT)[0].tolist() if len(finite_values) else []
    )
    return {"bins": counts, "minimum": texts[0], "maximum": texts[1]}
