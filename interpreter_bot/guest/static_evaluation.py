"""Types and values of expressions, as far as they are known without running a user's code."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import sys
import types
from typing import Any

from . import call_signatures, safe_reprs, table_columns

_MOST_READ = 20_000
_MOST_COLUMNS = 1000
_EXPRESSION_CHARACTERS = 300
_MOST_TRIED = 60
_DEEPEST = 20

_STARTS = re.compile(r"[^\W\d]\w*|[\"'(\[{]|\d+")
_TYPE_NAME = re.compile(r"[^\W\d][\w.]*")
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_CHAINS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)
_LITERALS: dict[type, type] = {
    ast.JoinedStr: str,
    ast.List: list,
    ast.ListComp: list,
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.Set: set,
    ast.SetComp: set,
}

mro_of = type.__dict__["__mro__"].__get__
dict_of = type.__dict__["__dict__"].__get__


class Value:
    """What an expression is: a value, or no more than its class (`is_known` is false then)."""

    def __init__(self, kind: type, value: Any = None, *, is_known: bool = False) -> None:
        self.kind = kind
        self.value = value
        self.is_known = is_known


def known(value: Any) -> Value:
    """Return what is known of a value that is there."""
    return Value(type(value), value, is_known=True)


def own(value: Value) -> dict[str, Any]:
    """Return what an object itself holds; nothing where a class of its own would be asked."""
    for one in mro_of(value.kind):
        descriptor = safe_reprs.plain_names(dict_of(one)).get("__dict__")
        if descriptor is not None:
            if not safe_reprs.is_among(type(descriptor), _SLOTS):
                return {}
            held = descriptor.__get__(value.value)
            return safe_reprs.plain_names(held) if type(held) is dict else {}
    return {}


def columns(value: Any) -> list[str]:
    """Return names of a table's columns; none of what is no table."""
    try:
        source = table_columns.read(value)
    except table_columns.ForeignTableError:
        return []
    last = min(source.column_count, source.index_count + _MOST_COLUMNS)
    return [source.name(number) for number in range(source.index_count, last)]


def expression(text: str) -> ast.expr | None:
    """Return the longest expression at the end of a text that names, calls or takes out of."""
    text = text[-_EXPRESSION_CHARACTERS:]
    longest = None
    starts = [match.start() for match in _STARTS.finditer(text)]
    for start in reversed(starts[-_MOST_TRIED:]):
        try:
            node = ast.parse(text[start:].strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(node, _CHAINS) or type(node) in _LITERALS:
            longest = node
    return longest


def evaluated(node: ast.expr | None, space: dict[str, Any], depth: int = 0) -> Value | None:
    """Say what an expression is; None if that is not known."""
    if node is None or depth > _DEEPEST:
        return None
    if isinstance(node, ast.Name):
        if node.id in space:
            return known(space[node.id])
        held = safe_reprs.plain_names(vars(builtins))
        return known(held[node.id]) if node.id in held else None
    if isinstance(node, ast.Constant):
        return known(node.value)
    if type(node) in _LITERALS:
        return Value(_LITERALS[type(node)])
    if isinstance(node, ast.Attribute):
        base = evaluated(node.value, space, depth + 1)
        return None if base is None else _attribute(base, node.attr)
    if isinstance(node, ast.Call):
        called = evaluated(node.func, space, depth + 1)
        return None if called is None or not called.is_known else _result(called)
    if isinstance(node, ast.Subscript):
        base = evaluated(node.value, space, depth + 1)
        return None if base is None else _item(base, node.slice)
    return None


def _attribute(base: Value, name: str) -> Value | None:
    if base.is_known and base.kind is types.ModuleType:
        held = safe_reprs.plain_names(vars(base.value))
        return known(held[name]) if name in held else None
    is_class = base.is_known and issubclass(base.kind, type)
    if base.is_known and not is_class and name in (held := own(base)):
        return known(held[name])
    for one in mro_of(base.value if is_class else base.kind):
        held = safe_reprs.plain_names(dict_of(one))
        if name in held:
            return _bound(held[name], base, is_class=is_class)
    if base.is_known and not is_class and name in columns(base.value):
        return _column_of(base.kind)
    return None


def _bound(member: Any, base: Value, *, is_class: bool) -> Value | None:
    """Say what an attribute is that stands in a class."""
    if safe_reprs.is_among(type(member), (staticmethod, classmethod)):
        member = member.__func__
        if type(member) is types.FunctionType and not is_class:
            return Method(member, base.kind)
        return Method(member, base.value) if is_class else known(member)
    if type(member) is property and not is_class:
        return _annotated(member.fget, base.kind)
    if type(member) is types.FunctionType:
        return Method(member, base.value if is_class else base.kind, skips=not is_class)
    accessor: Any = own(known(member)).get("_accessor")
    if call_signatures.is_class(accessor) and safe_reprs.is_from(accessor, "pandas"):
        return Value(accessor)
    return known(member)


class Method(Value):
    """A function of a class, which may say that it returns one of its own."""

    def __init__(self, function: Any, owner: Any, *, skips: bool = True) -> None:
        super().__init__(type(function), function, is_known=True)
        self.owner = owner
        self.skips = skips


def _result(called: Value) -> Value | None:
    if call_signatures.is_class(called.value):
        return Value(called.value)
    owner = called.owner if isinstance(called, Method) else None
    value = called.value
    if type(value) is types.MethodType:
        owner = type(called.value.__self__)
        value = called.value.__func__
    return _annotated(value, owner)


def _annotated(function: Any, owner: Any) -> Value | None:
    """Say what a function returns, as far as it says so itself."""
    function = call_signatures.unwrapped(function)
    if type(function) is not types.FunctionType:
        return None
    told: Any = safe_reprs.plain_names(function.__annotations__).get("return")
    if call_signatures.is_class(told):
        return Value(told)
    match = _TYPE_NAME.match(told) if type(told) is str else None
    if match is None:
        return None
    name, module = match[0].rpartition(".")[2], function.__module__
    if call_signatures.is_class(owner) and name in ("Self", safe_reprs.name_of(owner)):
        return Value(owner)
    top = module.partition(".")[0] if type(module) is str else ""
    # What is imported for those who check types is named where libraries keep such names.
    modules = [sys.modules.get(one) for one in (top, f"{top}.api.typing")]
    for held in (function.__globals__, *(own(known(one)) for one in modules)):
        found: Any = safe_reprs.plain_names(held).get(name)
        if call_signatures.is_class(found):
            return Value(found)
    return None


def _item(base: Value, place: ast.expr) -> Value | None:
    key = place.value if isinstance(place, ast.Constant) else None
    if base.is_known and safe_reprs.is_among(base.kind, (list, tuple)) and type(key) is int:
        return known(base.value[key]) if -len(base.value) <= key < len(base.value) else None
    if base.is_known and base.kind is dict:
        held = itertools.islice(base.value.items(), _MOST_READ)
        return next((known(one) for name, one in held if type(name) is str and name == key), None)
    if safe_reprs.name_of(base.kind) == "DataFrame":
        return _column_of(base.kind) if type(key) is str else Value(base.kind)
    return None


def _column_of(kind: type) -> Value | None:
    for library in ("pandas", "polars"):
        if safe_reprs.is_from(kind, library):
            return Value(vars(sys.modules[library])["Series"])
    return None
