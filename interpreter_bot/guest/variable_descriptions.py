"""Short descriptions of variables for people, made without running code of users."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import dataframe_displays, safe_reprs, table_columns

_MAX_CHARACTERS = 120
# The newest names, history included, of which each cell leaves one or two.
_MAX_LOOKED_AT = 20_000
_SHOWN_NAMES = 100
_NAME_CHARACTERS = 40
_TABLES = frozenset({"DataFrame", "Series", "Table", "RecordBatch"})
_SIZED = frozenset({str, bytes, bytearray, list, tuple, set, frozenset, dict})


def defined_variables(space: dict[Any, Any], hidden: dict[Any, Any]) -> dict[str, Any]:
    """Return variables that code has defined, newest first, without private names.

    Values are only compared by identity with those in `hidden`, which each kernel starts with.
    """
    initial, missing = _public(hidden.items()), object()
    public = _public(reversed(space.items())).items()
    return {name: value for name, value in public if value is not initial.get(name, missing)}


def _public(names: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return entries that are neither private nor history, with plain `str` names only."""
    # Taken at once: threads of code may define more meanwhile.
    first = list(itertools.islice(names, _MAX_LOOKED_AT))
    return {name: value for name, value in first if type(name) is str and name[:1] != "_"}


def displayable(names: Iterable[str]) -> list[str]:
    """Return the first of the names that are short enough to be shown."""
    return [name for name in names if len(name) <= _NAME_CHARACTERS][:_SHOWN_NAMES]


def describe(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe variables: type, text, and perhaps shape and size; tables have a handle."""
    return [{"name": name} | _describe(variables[name]) for name in displayable(variables)]


def _describe(value: Any) -> dict[str, Any]:
    kind, name = type(value), safe_reprs.class_name(value)
    if name in _TABLES:
        return {"type": name} | _describe_table(value)
    if name == "ndarray" and safe_reprs.is_from(kind, "numpy"):
        dtype, shape = f"{name}, {value.dtype.name}", list(value.shape)
        return {"type": dtype, "shape": shape, "size_bytes": int(value.nbytes)}
    text = safe_reprs.text(value)
    text = ("None" if value is None else "missing") if text is None else text
    words: dict[str, Any] = {"type": name, "text": text[:_MAX_CHARACTERS]}
    if safe_reprs.is_exactly_one_of(kind, _SIZED):
        words |= {"shape": [len(value)], "size_bytes": sys.getsizeof(value)}
    return words


def _describe_table(value: Any) -> dict[str, Any]:
    """Describe the size of a table; empty for classes that are not a library's own."""
    try:
        source = table_columns.read(value)
    except table_columns.ForeignTableError:
        return {}
    return {
        "shape": [source.row_count, source.column_count - source.index_count],
        "size_bytes": dataframe_displays.size_bytes(value),
        "handle": dataframe_displays.ensure_handle(value),
    }
