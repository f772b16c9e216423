"""Completions of code that a person is writing, and signatures of the functions they are calling.

Found by looking at what there is, without running any method of a user's class: names, what
modules and classes hold, keys and columns, files, and what functions say of themselves.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from . import call_signatures, safe_reprs, static_evaluation

_MOST_READ = 20_000
_MOST_OPTIONS = 200
_MOST_KEYS = 1000
_MOST_FILES = 1000
_NAME_CHARACTERS = 100

_WORD = re.compile(r"(?:[^\W\d]\w*)?\Z")
_IMPORT = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:[\w.]+[ \t]*,[ \t]*)*([\w.]*)\Z", re.MULTILINE
)
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+[\w, \t(]*\Z", re.MULTILINE)
_QUOTED = re.compile(r"#[^\n]*|[\"']{3}|[\"']|[()\[\]{}]")
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    *call_signatures.DESCRIBED,
    staticmethod,
    classmethod,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}


def answer(before: str, space: dict[str, Any], hidden: dict[str, Any]) -> dict[str, Any]:
    """Say how code may go on.

    Args:
        before: the code up to where somebody writes; its beginning may be missing.
        space: the variables there are.
        hidden: those that each kernel begins with.

    Returns:
        `typed`, how many characters of an option are there already, `options`, and `signature`
        of the function that is being called, if there is one.
    """
    quote, brackets = _scanned(before)
    # What is no plain text may do anything when it is looked up.
    space = {name: value for name, value in space.items() if type(name) is str}
    hidden = safe_reprs.plain_names(hidden)
    found: dict[str, Any] = {"typed": 0, "options": [], "signature": None}
    if quote == -1:
        return found
    if quote is not None:
        typed, held = _in_string(before, quote, brackets, space)
        return found | {"typed": len(typed), "options": _fitting(held, typed)}
    typed = _WORD.search(before)[0]  # type: ignore[index]
    called = _called(before, brackets, space)
    if called is not None:
        found["signature"] = call_signatures.describe(called.value, skips=_skips(called))
    shown = {name: value for name, value in space.items() if value is not hidden.get(name, found)}
    options = _names(before, len(before) - len(typed), called, shown)
    return found | {"typed": len(typed), "options": _fitting(options, typed)}


def _scanned(text: str) -> tuple[int | None, list[int]]:
    """Return where the text of an open string begins (-1 for a comment), and the open brackets."""
    brackets: list[int] = []
    at = 0
    while (match := _QUOTED.search(text, at)) is not None:
        mark, at = match[0], match.end()
        if mark[0] == "#":
            if at == len(text):
                return -1, brackets
        elif mark in "([{":
            brackets.append(match.start())
        elif mark in ")]}":
            while brackets and text[brackets.pop()] != _CLOSING[mark]:
                continue
        else:
            start = at
            while True:
                end = text.find(mark, at)
                line = text.find("\n", start) if len(mark) == 1 else -1
                if end < 0 and line < 0:
                    return start, brackets
                if line >= 0 and (end < 0 or line < end):
                    at = line
                    break
                at = end + len(mark)
                if not _is_escaped(text, end):
                    break
    return None, brackets


def _is_escaped(text: str, at: int) -> bool:
    count = 0
    while at - count > 0 and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1


def _fitting(options: Iterable[tuple[str, str, str]], typed: str) -> list[list[str]]:
    """Return the options that begin as it was typed; private names only where one was begun."""
    wanted = typed.casefold()
    found: dict[str, tuple[str, str, str]] = {}
    for option in options:
        name = option[0]
        if name.startswith("_") and not typed.startswith("_"):
            continue
        if len(name) <= _NAME_CHARACTERS and name.casefold().startswith(wanted):
            found.setdefault(name, option)
    ordered = sorted(found, key=lambda name: (name[-1:] != "=", not name.startswith(typed), name))
    return [list(found[name]) for name in ordered[:_MOST_OPTIONS]]


# ---- what may follow


def _names(
    before: str, start: int, called: static_evaluation.Value | None, space: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    if (match := _FROM.search(before)) is not None:
        module = sys.modules.get(match[1])
        if type(module) is types.ModuleType:
            yield from _members(static_evaluation.known(module))
    elif (match := _IMPORT.search(before)) is not None:
        yield from _modules(match[1])
    elif before[:start].rstrip().endswith("."):
        text = before[:start].rstrip()[:-1]
        value = static_evaluation.evaluated(static_evaluation.expression(text), space)
        if value is not None:
            yield from _members(value)
    else:
        if called is not None and re.search(r"[(,]\s*\Z", before[:start]):
            for name in call_signatures.parameters(called.value, skips=_skips(called)):
                yield f"{name}=", "property", ""
        for name in itertools.islice(reversed(space), _MOST_READ):
            if type(name) is str:
                yield name, _kind(space[name]), safe_reprs.class_name(space[name])


def _kind(value: Any) -> str:
    if call_signatures.is_class(value):
        return "class"
    if type(value) is types.ModuleType:
        return "namespace"
    return "function" if safe_reprs.is_among(type(value), _FUNCTIONS) else "property"


def _members(value: static_evaluation.Value) -> Iterator[tuple[str, str, str]]:
    if value.is_known and value.kind is types.ModuleType:
        yield from _options(vars(value.value))
        return
    if value.is_known:
        for name in static_evaluation.columns(value.value):
            if name.isidentifier():
                yield name, "property", "column"
    is_class = value.is_known and issubclass(value.kind, type)
    if value.is_known and not is_class:
        yield from _options(static_evaluation.own(value))
    for one in static_evaluation.mro_of(value.value if is_class else value.kind):
        yield from _options(static_evaluation.dict_of(one))


def _options(held: Any) -> Iterator[tuple[str, str, str]]:
    for name, value in itertools.islice(held.items(), _MOST_READ):
        if type(name) is str:
            yield name, _kind(value), ""


def _modules(typed: str) -> Iterator[tuple[str, str, str]]:
    if "." in typed:
        module = sys.modules.get(typed.rpartition(".")[0])
        places = (
            static_evaluation.own(static_evaluation.known(module)).get("__path__")
            if module is not None
            else None
        )
    else:
        places = sys.path
        for name in sys.builtin_module_names:
            yield name, "namespace", ""
    for place in places if type(places) is list else []:
        for name in _listed(place or ".") if type(place) is str else []:
            stem, _, suffix = name.partition(".")
            is_module = suffix in ("", "py") or suffix.endswith(".so")
            if is_module and stem.isidentifier():
                yield stem, "namespace", ""


def _listed(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [f"{one.name}" for one in itertools.islice(entries, _MOST_FILES)]
    except (OSError, ValueError):
        return []


def _in_string(
    before: str, quote: int, brackets: list[int], space: dict[str, Any]
) -> tuple[str, list[tuple[str, str, str]]]:
    """Return what is typed of a string, and how it may go on: keys, columns, or files."""
    typed = before[quote:]
    opening = before[:quote].rstrip("\"'rbfRBF").rstrip()
    if opening.endswith("[") and brackets and brackets[-1] == len(opening) - 1:
        value = static_evaluation.evaluated(static_evaluation.expression(opening[:-1]), space)
        if value is not None and value.is_known:
            keys = _keys(value.value)
            if keys:
                return typed, [(key, "property", "") for key in keys]
    directory, slash, name = typed.rpartition("/")
    if "\n" in typed or not (opening.endswith(("(", ",", "=")) or slash):
        return typed, []
    files = _listed(directory + slash or ".")
    shown = [one for one in files if one.isprintable() and (one[0] != "." or name[:1] == ".")]
    return name, [(one, "text", "") for one in shown]


def _keys(value: Any) -> list[str]:
    if type(value) is dict:
        keys = itertools.islice(value, _MOST_KEYS)
        return [key for key in keys if type(key) is str and key.isprintable()]
    is_table = safe_reprs.class_name(value) in ("DataFrame", "Table", "RecordBatch")
    return (
        [name for name in static_evaluation.columns(value) if name.isprintable()]
        if is_table
        else []
    )


def _called(
    before: str, brackets: list[int], space: dict[str, Any]
) -> static_evaluation.Value | None:
    """Return the function whose arguments are being written."""
    if not brackets or before[brackets[-1]] != "(":
        return None
    text = before[: brackets[-1]]
    if not re.search(r"[\w\])]\Z", text):
        return None
    value = static_evaluation.evaluated(static_evaluation.expression(text), space)
    return value if value is not None and value.is_known else None


def _skips(called: static_evaluation.Value) -> bool:
    return isinstance(called, static_evaluation.Method) and called.skips
