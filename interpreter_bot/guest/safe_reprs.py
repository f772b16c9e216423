"""Texts of values, made without running any method of a user's class.

A value of a subclass of `str` may run any code when it is compared or formatted, and so may a time
zone. Only values of classes of Python and of known libraries are converted to text; for others, the
text is the name of the class.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import itertools
import sys
import types
import uuid
import zoneinfo
from collections.abc import Container, Mapping
from typing import Any

_get_type_name = type.__dict__["__name__"].__get__
_get_type_module = type.__dict__["__module__"].__get__
_PLAIN_TYPES = frozenset(
    {bool, complex, datetime.date, datetime.timedelta, decimal.Decimal, uuid.UUID}
)
_ZONED_TYPES = frozenset({datetime.datetime, datetime.time})
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
    dict: ("{", "}"),
}
_MODULE_TYPES = frozenset({types.ModuleType})
_ZONE_TYPES = frozenset({type(None), datetime.timezone, zoneinfo.ZoneInfo})
_MAX_CHARACTERS = 400
_MAX_INT_BITS = 2000
_MAX_NAMES = 20_000
_MAX_DEPTH = 3
_MAX_NESTED_ITEMS = 20

_libraries_by_type: dict[type, str] = {}
"""The library that defines a class; cached, because each value of a column is checked."""


def class_name(value: object) -> str:
    """Return the real name of a value's class, bypassing its metaclass."""
    return type_name(type(value))


def type_name(kind: type) -> str:
    """Return the real name of a class, bypassing its metaclass."""
    return str(_get_type_name(kind))[:100]


def is_from(kind: type, library: str) -> bool:
    """Return whether a module of the library contains this very class under its name."""
    if type(kind) is type and _libraries_by_type.get(kind) == library:
        return True
    name = _get_type_module(kind)
    if type(name) is not str or name.partition(".")[0] != library:
        return False
    module = sys.modules.get(name)
    if not is_exactly_one_of(type(module), _MODULE_TYPES):
        return False
    is_defined = _select_str_keys(vars(module)).get(str(_get_type_name(kind))) is kind
    if is_defined and type(kind) is type:
        _libraries_by_type[kind] = library
    return is_defined


def _select_str_keys(variables: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the entries with plain `str` keys, since comparing other keys may run code."""
    first_items = itertools.islice(variables.items(), _MAX_NAMES)
    return {name: value for name, value in first_items if type(name) is str}


def is_exactly_one_of(kind: type, kinds: Container[type]) -> bool:
    """Return whether a class is in `kinds`; false if it has a metaclass, which may run code."""
    return type(kind) is type and kind in kinds


def is_known_zone(zone: object) -> bool:
    """Return whether a time zone's class is one of Python or of a known library."""
    kind = type(zone)
    return (
        is_exactly_one_of(kind, _ZONE_TYPES) or is_from(kind, "pytz") or is_from(kind, "dateutil")
    )


def text(value: Any, depth: int = 0) -> str | None:
    """Return the text of a table's value; None for a missing value."""
    kind = type(value)
    if kind is str:
        return clip(value)
    if value is None or kind is float:
        return None if value is None or value != value else format(value, ".10g")
    if kind is int:
        return str(value) if value.bit_length() < _MAX_INT_BITS else "<a long number>"
    if is_exactly_one_of(kind, _PLAIN_TYPES):
        return clip(str(value))
    if kind is fractions.Fraction or is_exactly_one_of(kind, _BRACKETS):
        return _container_text(value, kind, depth)
    if kind is bytes:
        return clip(repr(value[:_MAX_CHARACTERS]))
    if is_exactly_one_of(kind, _ZONED_TYPES):
        return str(value) if is_known_zone(value.tzinfo) else f"<{class_name(value)}>"
    return _library_text(value, kind, depth)


def clip(string: str) -> str:
    """Return a text, cut to the maximum length."""
    return string if len(string) <= _MAX_CHARACTERS else string[:_MAX_CHARACTERS] + "…"


def _library_text(value: Any, kind: type, depth: int) -> str | None:
    name = class_name(value)
    if is_from(kind, "numpy") and issubclass(
        kind, sys.modules["numpy"].number | sys.modules["numpy"].bool
    ):
        item = value.item()
        return str(value) if type(item) is kind else text(item, depth)
    if is_from(kind, "numpy") and name in ("datetime64", "timedelta64"):
        return None if value != value else str(value)
    if not is_from(kind, "pandas"):
        return f"<{name}>"
    if name in ("NaTType", "NAType"):
        return None
    is_plain = name in ("Timedelta", "Period", "Interval")
    if is_plain or (name == "Timestamp" and is_known_zone(value.tzinfo)):
        return clip(str(value))
    return f"<{name}>"


def _container_text(value: Any, kind: type, depth: int) -> str:
    if kind is fractions.Fraction:
        return f"{text(value.numerator)}/{text(value.denominator)}"
    if depth >= _MAX_DEPTH:
        return "…"
    first_items = itertools.islice(value.items() if kind is dict else value, _MAX_NESTED_ITEMS)
    if kind is dict:
        parts = [
            f"{_nested_text(key, depth)}: {_nested_text(item, depth)}" for key, item in first_items
        ]
    else:
        parts = [_nested_text(item, depth) for item in first_items]
    opening, closing = _BRACKETS[kind]
    ellipsis = ", …" if len(value) > _MAX_NESTED_ITEMS else ""
    return clip(f"{opening}{', '.join(parts)}{ellipsis}{closing}")


def _nested_text(value: object, depth: int) -> str:
    item_text = text(value, depth + 1)
    return "None" if item_text is None else repr(item_text) if type(value) is str else item_text
