"""Parts of a live table as a person looks at it: sorted, filtered, searched, summed up.

What is asked for comes from the bot, as JSON; so goes what is found. No user's code is run by it,
and what would take seconds is refused: whoever looks at a table must not lose their variables.
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

_MOST_CHARACTERS = 200_000
_SHORTEST_CELL = 20
_MOST_SORTED = 10_000_000
_MOST_TEXTS = 3_000_000
_MOST_SEARCHED = 12_000_000
# About as long as these take it to begin with a column.
_COLUMN_COST_ROWS = 500
_SAMPLED = 200_000
_BINS = 24
_TOP = 5
_KEPT_ORDERS = 4
_KEPT_BYTES = 40_000_000
_FEW = 0.05
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "≠": operator.ne,
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
}
_TRUTHS = {"true": 1, "yes": 1, "1": 1, "false": 0, "no": 0, "0": 0}
_LARGE = "This table is too large for that here. Let the code do it."

_orders: collections.OrderedDict[tuple[Any, ...], Any] = collections.OrderedDict()


class ViewError(ValueError):
    """What is wanted cannot be had; the text says why, to people."""


def answer(table: Any, wanted: str, about: tuple[str, int]) -> str:
    """Answer a question about a table.

    Args:
        table: any.
        wanted: JSON, see `live_data_views` of the bot's sessions.
        about: the table's handle, and another number once code may have changed it.

    Returns:
        JSON: what was found, or the sentence why not as its "problem".
    """
    asked = json.loads(wanted)
    try:
        importlib.import_module("numpy")
        source = table_columns.read(table)
        if "summaries" in asked:
            found: dict[str, Any] = {
                "summaries": [_summary(source, one) for one in asked["summaries"]]
            }
        else:
            found = _page(source, asked, (*about, source.row_count))
    except table_columns.ForeignTableError:
        found = {"problem": "This table is of a class of its own: it can only be saved."}
    except (ViewError, ImportError) as error:
        found = {"problem": f"{error}"}
    return json.dumps(found, ensure_ascii=False)


def _page(source: table_columns.Source, asked: dict[str, Any], about: tuple[Any, ...]) -> Any:
    order = _order(source, asked, about)
    count = source.row_count if order is None else len(order)
    (first, rows), (left, columns) = asked["rows"], asked["columns"]
    first = max(min(first, count - rows), 0)
    last = min(first + rows, count)
    places = slice(first, last) if order is None else order[first:last]
    numbers = range(left, min(left + columns, source.column_count))
    read = [source.column(number) for number in numbers]
    cells = [list(map(safe_reprs.text, one.cells(places))) for one in read]
    return {
        "first": first,
        "found": count,
        "rows": _fitting([list(row) for row in zip(*cells, strict=True)]),
        "row_count": source.row_count,
        "column_count": source.column_count,
        "index_count": source.index_count,
        "left": left,
        "columns": [
            {"name": source.name(number), "dtype": one.dtype, "kind": one.kind}
            for number, one in zip(numbers, read, strict=True)
        ],
    }


def _fitting(rows: list[list[str | None]]) -> list[list[str | None]]:
    """Shorten long cells where all are too much for one message."""
    count = sum(map(len, rows))
    if sum(len(cell) for row in rows for cell in row if cell) <= _MOST_CHARACTERS:
        return rows
    most = max(_MOST_CHARACTERS // count, _SHORTEST_CELL)
    return [
        [cell if cell is None or len(cell) <= most else cell[:most] + "…" for cell in row]
        for row in rows
    ]


# ---- which rows, in which order


def _order(source: table_columns.Source, asked: dict[str, Any], about: tuple[Any, ...]) -> Any:
    """Return the positions of the rows that are wanted, in order; None for all as they are."""
    sort, search, filters = asked.get("sort"), asked.get("search", ""), asked.get("filters", [])
    if sort is None and not search and not filters:
        return None
    key = (*about, json.dumps([sort, search, filters]))
    if key not in _orders:
        if source.row_count > _MOST_SORTED:
            raise ViewError(_LARGE)
        for old in [old for old in _orders if old[1] != about[1]]:
            del _orders[old]
        _orders[key] = _ordered(source, sort, search, filters)
        while len(_orders) > 1 and (
            len(_orders) > _KEPT_ORDERS or sum(one.nbytes for one in _orders.values()) > _KEPT_BYTES
        ):
            _orders.popitem(last=False)
    _orders.move_to_end(key)
    return _orders[key]


def _ordered(source: table_columns.Source, sort: Any, search: str, filters: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    kept = numpy.ones(source.row_count, dtype=bool)
    for number, operation, text in filters:
        kept &= _matching(source, number, operation, text)
    if search:
        kept &= _found(source, search)
    rows = numpy.flatnonzero(kept)
    return rows if sort is None else _sorted(source, sort, rows)


def _column(source: table_columns.Source, number: int) -> table_columns.Column:
    if number >= source.column_count:
        raise ViewError("The table has no such column any more.")
    return source.column(number)


def _array(column: table_columns.Column) -> tuple[Any, Any]:
    """Return the values of a column, and which are missing.

    Raises:
        ViewError: they cannot be compared.
    """
    if column.array is None:
        raise ViewError("The values of this column have no order that could be used.")
    values, missing = column.array()
    numpy: Any = sys.modules["numpy"]
    if values.dtype.kind == "O":
        if len(values) > _MOST_TEXTS:
            raise ViewError(_LARGE)
        missing = numpy.array(_gaps(values.tolist()), dtype=bool)
    elif missing is None:
        is_float = values.dtype.kind == "f"
        missing = numpy.isnan(values) if is_float else numpy.zeros(len(values), dtype=bool)
    return values, missing


def _gaps(values: list[Any]) -> list[bool]:
    if set(map(type, values)) <= {str, type(None)}:
        return [one is None for one in values]
    return [type(one) is not str and safe_reprs.text(one) is None for one in values]


def _sorted(source: table_columns.Source, sort: tuple[int, bool], rows: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    number, is_descending = sort
    column = _column(source, number)
    values, missing = _array(column) if column.ranks is None else column.ranks()
    gaps = missing[rows]
    there, keys = rows[~gaps], values[rows[~gaps]]
    if keys.dtype.kind == "O":
        keys = _ranks(keys)
    if is_descending:
        # Equal ones stay in the order in which they are.
        places = len(keys) - 1 - numpy.argsort(keys[::-1], kind="stable")[::-1]
    else:
        places = numpy.argsort(keys, kind="stable")
    return numpy.concatenate([there[places], rows[gaps]])


def _ranks(values: Any) -> Any:
    """Number objects in order: numbers, then texts, then the rest, by their texts."""
    numpy: Any = sys.modules["numpy"]
    keys = values.tolist()
    distinct = set(keys) if set(map(type, keys)) == {str} else None
    if distinct is not None and len(distinct) > _FEW * len(keys):
        with contextlib.suppress(UnicodeEncodeError):
            return values.astype(numpy.dtypes.StringDType())
    if distinct is None:
        keys = [(1, one) if type(one) is str else _key(one) for one in keys]
    ranks = {key: rank for rank, key in enumerate(sorted(distinct or set(keys)))}
    return numpy.fromiter(map(ranks.__getitem__, keys), "int64", len(keys))


def _key(value: Any) -> tuple[int, Any]:
    if type(value) in (int, float, bool):
        return 0, value
    return 2, safe_reprs.text(value) or ""


def _matching(source: table_columns.Source, number: int, operation: str, text: str) -> Any:
    column = _column(source, number)
    values, missing = _array(column)
    if operation in ("missing", "present"):
        return missing if operation == "missing" else ~missing
    if column.kind == "text":
        return _texts_matching(values, operation, text) & ~missing
    return _OPERATORS[operation](values, _limit(column, text)) & ~missing


def _limit(column: table_columns.Column, text: str) -> float:
    """Turn what a person typed into what a column's values are compared with.

    Raises:
        ViewError: it is no such thing.
    """
    text = text.strip()
    try:
        if column.kind == "number":
            return float(text) if "." in text or "e" in text.lower() else int(text)
        if column.kind == "truth":
            return _TRUTHS[text.lower()]
        if column.kind == "time" and column.moment is not None:
            return column.moment(text)
    except (ValueError, KeyError, OverflowError):
        examples = {"number": "12.5", "truth": "true", "time": "2026-01-31"}
        wanted = {"number": "number", "truth": "truth value", "time": "date"}[column.kind]
        raise ViewError(f"That is no {wanted}; {examples[column.kind]} would be one.") from None
    raise ViewError("This column can only be asked for what is missing.")


def _texts_matching(values: Any, operation: str, text: str) -> Any:
    numpy: Any = sys.modules["numpy"]
    wanted = text.casefold()
    if operation == "contains":
        matches: Callable[[str], Any] = lambda one: wanted in one.casefold()  # noqa: E731
    elif operation in ("=", "≠"):
        matches = lambda one: (one == text) is (operation == "=")  # noqa: E731
    else:
        compare = _OPERATORS[operation]
        matches = lambda one: compare(one, text)  # noqa: E731
    known: dict[str, Any] = {}

    def is_match(value: Any) -> Any:
        words = value if type(value) is str else safe_reprs.text(value) or ""
        if words not in known:
            known[words] = matches(words)
        return known[words]

    return numpy.fromiter(map(is_match, values), bool, len(values))


def _found(source: table_columns.Source, search: str) -> Any:
    """Return which rows have a text with these words in it, or just this number or date."""
    numpy: Any = sys.modules["numpy"]
    found = numpy.zeros(source.row_count, dtype=bool)
    if source.column_count * (source.row_count + _COLUMN_COST_ROWS) > _MOST_SEARCHED:
        raise ViewError(_LARGE)
    for number in range(source.column_count):
        column = source.column(number)
        if column.array is None or column.kind == "other":
            continue
        try:
            operation = "contains" if column.kind == "text" else "="
            found |= _matching(source, number, operation, search)
        except ViewError:
            # No number, or no date: then it is in none of this column.
            continue
    return found


# ---- what is in a column


def _summary(source: table_columns.Source, number: int) -> dict[str, Any]:
    """Sum up a column: how many are missing, how the others are spread."""
    numpy: Any = sys.modules["numpy"]
    column = _column(source, number)
    step = max(source.row_count // _SAMPLED, 1)
    told: dict[str, Any] = {"column": number, "is_sampled": step > 1}
    if column.kind in ("number", "time"):
        values, missing = _array(column)
        told["missing"] = int(missing.sum())
        places = numpy.flatnonzero(~missing)
        told |= _spread(column, values[places], places) if len(places) else {}
        return told
    # To look at each text of a large table would take as long as a cell of its own.
    read = column.cells(numpy.arange(0, source.row_count, step)) if source.row_count else []
    words = [safe_reprs.text(one) for one in read]
    counted = collections.Counter(one for one in words if one is not None)
    told["missing"] = (len(words) - counted.total()) * step
    told["distinct"] = len(counted)
    told["top"] = [[one[:80], times * step] for one, times in counted.most_common(_TOP)]
    return told


def _spread(column: table_columns.Column, values: Any, places: Any) -> dict[str, Any]:
    """Count the values in steps from the least to the greatest, whose texts are given too."""
    numpy: Any = sys.modules["numpy"]
    sample = values[:: max(len(values) // _SAMPLED, 1)].astype("float64")
    finite = sample[numpy.isfinite(sample)]
    ends = [int(places[one]) for one in (values.argmin(), values.argmax())]
    texts = [safe_reprs.text(column.cells(slice(one, one + 1))[0]) or "" for one in ends]
    counts = numpy.histogram(finite, bins=_BINS)[0].tolist() if len(finite) else []
    return {"bins": counts, "least": texts[0], "most": texts[1]}
