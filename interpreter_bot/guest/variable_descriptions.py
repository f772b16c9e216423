"""Short descriptions of variables for people, made without running code of users."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import dataframe_displays, safe_reprs, table_columns

_MAX_CHARACTERS = 120
# Includes IPython's history, which grows by one or two names with each cell.
_MAX_INSPECTED_NAMES = 20_000
_MAX_SHOWN_NAMES = 100
_MAX_NAME_CHARACTERS = 40
_TABLE_CLASSES = frozenset({"DataFrame", "Series", "Table", "RecordBatch"})
_SIZED_TYPES = frozenset({str, bytes, bytearray, list, tuple, set, frozenset, dict})


def defined_variables(
    namespace: dict[Any, Any], initial_variables: dict[Any, Any]
) -> dict[str, Any]:
    """Return variables that code has defined, newest first, without private names.

    Values are only compared by identity with `initial_variables`, which each kernel starts with.
    """
    initial, no_value = _select_public(initial_variables.items()), object()
    public_variables = _select_public(reversed(namespace.items())).items()
    return {
        name: value for name, value in public_variables if value is not initial.get(name, no_value)
    }


def _select_public(variables: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return entries that are neither private nor history, with plain `str` names only."""
    # Copied at once, because threads that the user's code started may define variables meanwhile.
    newest = list(itertools.islice(variables, _MAX_INSPECTED_NAMES))
    return {name: value for name, value in newest if type(name) is str and name[:1] != "_"}


def select_displayable(names: Iterable[str]) -> list[str]:
    """Return the first of the names that are short enough to be shown."""
    return [name for name in names if len(name) <= _MAX_NAME_CHARACTERS][:_MAX_SHOWN_NAMES]


def describe(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe variables: type, text, and perhaps shape and size; tables have a handle."""
    return [{"name": name} | _describe(variables[name]) for name in select_displayable(variables)]


def _describe(value: Any) -> dict[str, Any]:
    kind, name = type(value), safe_reprs.class_name(value)
    if name in _TABLE_CLASSES:
        return {"type": name} | _describe_table(value)
    if name == "ndarray" and safe_reprs.is_from(kind, "numpy"):
        dtype, shape = f"{name}, {value.dtype.name}", list(value.shape)
        return {"type": dtype, "shape": shape, "size_bytes": int(value.nbytes)}
    text = safe_reprs.text(value)
    text = ("None" if value is None else "missing") if text is None else text
    description: dict[str, Any] = {"type": name, "text": text[:_MAX_CHARACTERS]}
    if safe_reprs.is_exactly_one_of(kind, _SIZED_TYPES):
        description |= {"shape": [len(value)], "size_bytes": sys.getsizeof(value)}
    return description


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
