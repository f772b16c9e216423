"""Variables in a few words each, for people who look what there is. No user's code is run by it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import dataframe_displays, safe_reprs, table_columns

_MOST_CHARACTERS = 120
_TABLES = frozenset({"DataFrame", "Series", "Table", "RecordBatch"})
_SIZED = frozenset({str, bytes, bytearray, list, tuple, set, frozenset, dict})


def describe(names: Iterable[str], space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe variables: type, shape and size where they are known, and what stands in them.

    A table has a handle, by which it can be looked into.

    Args:
        names: of the variables, in the order in which they are wanted.
        space: where they are.
    """
    return [{"name": name} | _described(space[name]) for name in names]


def _described(value: Any) -> dict[str, Any]:
    kind, name = type(value), safe_reprs.class_name(value)
    if name in _TABLES:
        return {"type": name} | _table(value)
    if name == "ndarray" and safe_reprs.is_from(kind, "numpy"):
        dtype, shape = f"{name}, {value.dtype.name}", list(value.shape)
        return {"type": dtype, "shape": shape, "size_bytes": int(value.nbytes)}
    text = safe_reprs.text(value)
    text = ("None" if value is None else "missing") if text is None else text
    words: dict[str, Any] = {"type": name, "text": text[:_MOST_CHARACTERS]}
    if safe_reprs.is_among(kind, _SIZED):
        words |= {"shape": [len(value)], "size_bytes": sys.getsizeof(value)}
    return words


def _table(value: Any) -> dict[str, Any]:
    """Say how large a table is; nothing of one that is of a class of its own."""
    try:
        source = table_columns.read(value)
    except table_columns.ForeignTableError:
        return {}
    return {
        "shape": [source.row_count, source.column_count - source.index_count],
        "size_bytes": dataframe_displays.size_bytes(value),
        "handle": dataframe_displays.handle_of(value),
    }
