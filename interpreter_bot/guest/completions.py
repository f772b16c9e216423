"""Completions of code that a person is writing, and signatures of the functions they are calling.

IPython's completer finds them, and a user's class may run code when it is asked what it has. So it
all happens in a child process under a time limit (`bounded_children`): the session stays as it is.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from IPython.core import completer, guarded_eval

from . import bounded_children, safe_reprs

_MAX_SECONDS = 2.0
_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_NAMES = 20_000
_MAX_OPTIONS = 200
_MAX_NAME_CHARACTERS = 100
_MAX_LINE_CHARACTERS = 500
_MAX_LABEL_CHARACTERS = 400
_MAX_DOC_CHARACTERS = 1200
_MAX_DEFAULT_CHARACTERS = 40

_WORD = re.compile(r"(?:[^\W\d]\w*)?\Z")
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]", re.MULTILINE)
_IMPORTED_BEFORE = re.compile(r"(?<=import )[ \t]*(?:[\w.]+[ \t]*,[ \t]*)+(?=[\w.]*\Z)")
_DOTTED = re.compile(r"[^\W\d][\w.]*\Z")
_ARGUMENT = re.compile(r"[(,]\s*\Z")
_QUOTED = re.compile(r"#[^\n]*|[\"']{3}|[\"']|[()\[\]{}]")
_CLOSING = {")": "(", "]": "[", "}": "{"}
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    staticmethod,
    classmethod,
)
_PLAIN_DEFAULTS = (type(None), bool, int, float, str)
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_Option = tuple[str, str, str]


def answer(shell: Any, code: str) -> dict[str, Any]:
    """Find completions of code.

    Args:
        shell: with the variables.
        code: the code up to the cursor; its beginning may be missing.

    Returns:
        `typed`, the number of characters of an option before the cursor, `options`, and `signature`
        of the function that is being called, if there is one.
    """
    encoded = bounded_children.run(
        lambda: json.dumps(_in_child(shell, code)).encode(),
        seconds=_MAX_SECONDS,
        max_bytes=_MAX_ANSWER_BYTES,
    )
    result: dict[str, Any] = json.loads(encoded) if encoded else _matching_options("", ())
    return result


def find(shell: Any, code: str) -> dict[str, Any]:
    """Do what `answer` does, in this process."""
    # A name of another class than `str` may run code when it is compared.
    space = {name: value for name, value in shell.user_ns.items() if type(name) is str}
    shell.Completer.namespace = shell.Completer.global_namespace = space
    shell.Completer.use_jedi, shell.Completer.evaluation = False, "limited"
    quote, brackets = _scan_brackets(code)
    if quote == -1:
        return _matching_options("", ())
    if quote is not None:
        return _complete_string(shell.Completer, code, quote)
    typed = _WORD.search(code)[0]  # type: ignore[index]
    start = code[: len(code) - len(typed)]
    called_function = _find_called_function(space, code, brackets)
    options: Iterable[_Option]
    if _IMPORT.search(code.rpartition("\n")[2]):
        line = _IMPORTED_BEFORE.sub("", code)
        names = _last_parts(_ask_ipython(shell.Completer, line))
        options = [(name, "namespace", "") for name in names]
    elif start.rstrip().endswith("."):
        options = _attribute_options(shell.Completer, space, start.rstrip()[:-1].rstrip(), typed)
    else:
        options = itertools.chain(
            _parameter_options(called_function) if _ARGUMENT.search(start) else (),
            _variable_options(space, shell.user_ns_hidden),
        )
    return _matching_options(
        typed, options, signature=called_function and _describe_function(*called_function)
    )


def _in_child(shell: Any, code: str) -> dict[str, Any]:
    # Text that a user's class prints here is not output of the session.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    return find(shell, code)


def _ask_ipython(ipython: completer.IPCompleter, code: str) -> list[completer.Completion]:
    """Ask IPython, which looks at the last line; its time grows with the square of the length."""
    line = code.rpartition("\n")[2][-_MAX_LINE_CHARACTERS:]
    with completer.provisionalcompleter():
        options = list(ipython.completions(line, len(line)))
    return [option for option in options if option.type != "magic"]


def _last_parts(options: Iterable[completer.Completion]) -> list[str]:
    return [option.text.rpartition(".")[2] for option in options]


def _matching_options(typed: str, options: Iterable[_Option], **extra: Any) -> dict[str, Any]:
    """Keep the options that begin as was typed; private names only if one was begun."""
    prefix = typed.casefold()
    by_name: dict[str, _Option] = {}
    for option in options:
        name = option[0]
        if name.startswith("_") and not typed.startswith("_"):
            continue
        if len(name) <= _MAX_NAME_CHARACTERS and name.casefold().startswith(prefix):
            by_name.setdefault(name, option)
    ordered = sorted(by_name, key=lambda name: (name[-1:] != "=", not name.startswith(typed), name))
    options_shown = [list(by_name[name]) for name in ordered[:_MAX_OPTIONS]]
    return {"typed": len(typed), "options": options_shown, "signature": None} | extra


def _scan_brackets(text: str) -> tuple[int | None, list[int]]:
    """Return the start of an open string's text (-1 for a comment), and of all open brackets."""
    brackets: list[int] = []
    position = 0
    while (match := _QUOTED.search(text, position)) is not None:
        token, position = match[0], match.end()
        if token[0] == "#":
            if position == len(text):
                return -1, brackets
        elif token in "([{":
            brackets.append(match.start())
        elif token in ")]}":
            while brackets and text[brackets.pop()] != _CLOSING[token]:
                continue
        else:
            start = position
            while True:
                end = text.find(token, position)
                line = text.find("\n", start) if len(token) == 1 else -1
                if end < 0 and line < 0:
                    return start, brackets
                if line >= 0 and (end < 0 or line < end):
                    position = line
                    break
                position = end + len(token)
                if not _is_escaped(text, end):
                    break
    return None, brackets


def _is_escaped(text: str, position: int) -> bool:
    return (position - len(text[:position].rstrip("\\"))) % 2 == 1


# ---- what may follow


def _complete_string(ipython: completer.IPCompleter, code: str, quote: int) -> dict[str, Any]:
    """Offer keys and columns; if there are none, files, if the string may be a path."""
    typed, opening = code[quote:], code[:quote].rstrip("\"'rbfRBF").rstrip()
    options = _ask_ipython(ipython, code)
    keys = [option.text for option in options if option.type == "dict key"]
    if keys:
        return _matching_options(
            typed, ((key, "property", "") for key in keys if key.isprintable())
        )
    if "\n" in typed or not (opening.endswith(("(", ",", "=")) or "/" in typed):
        return _matching_options("", ())
    paths = [option.text.rstrip("/") for option in options if option.type == "path"]
    names = [path.rpartition("/")[2] for path in paths]
    typed = typed.rpartition("/")[2]
    return _matching_options(typed, ((name, "text", "") for name in names if name.isprintable()))


def _variable_options(space: dict[str, Any], hidden: dict[str, Any]) -> Iterator[_Option]:
    for name, value in itertools.islice(reversed(space.items()), _MAX_NAMES):
        if name not in hidden or hidden[name] is not value:
            yield name, _kind(value), safe_reprs.class_name(value)


def _kind(value: Any) -> str:
    # Not isinstance(), which asks the value for its class.
    kind = type(value)
    if issubclass(kind, type):
        return "class"
    if kind is types.ModuleType:
        return "namespace"
    return "function" if issubclass(kind, _FUNCTIONS) else "property"


def _attribute_options(
    ipython: completer.IPCompleter, space: dict[str, Any], owner_text: str, typed: str
) -> Iterator[_Option]:
    owner = _evaluate(space, owner_text)
    missing = object()
    for name in _last_parts(_ask_ipython(ipython, f"{owner_text}.{typed}")):
        value = inspect.getattr_static(owner, name, missing)
        is_column = value is missing and safe_reprs.class_name(owner) == "DataFrame"
        yield name, _kind(value), "column" if is_column else ""


def _evaluate(space: dict[str, Any], text: str) -> Any:
    """Return the value of a dotted name; None if there is none, or evaluating it is not safe."""
    match = _DOTTED.search(text)
    if match is None:
        return None
    context = guarded_eval.EvaluationContext(globals=space, locals={}, evaluation="limited")
    try:
        return guarded_eval.guarded_eval(match[0], context)
    except (guarded_eval.GuardRejection, NameError, AttributeError, SyntaxError):
        return None


# ---- the called function


def _find_called_function(
    space: dict[str, Any], code: str, brackets: list[int]
) -> tuple[str, Any] | None:
    """Return the function whose arguments are being written, and its name."""
    if not brackets or code[brackets[-1]] != "(":
        return None
    text = code[: brackets[-1]]
    value = _evaluate(space, text)
    return None if value is None else (_WORD.search(text)[0], value)  # type: ignore[index]


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def _parameter_options(called_function: tuple[str, Any] | None) -> Iterator[_Option]:
    signature = _signature(called_function[1]) if called_function is not None else None
    for parameter in signature.parameters.values() if signature is not None else ():
        if parameter.kind in _NAMED_KINDS:
            yield f"{parameter.name}=", "property", ""


def _describe_function(name: str, function: Any) -> dict[str, str] | None:
    """Return a `label` with all parameters of a function or class, and its `doc`, if known."""
    signature, doc = _signature(function), inspect.getdoc(function) or ""
    if signature is not None:
        parameters = [
            parameter.replace(
                annotation=parameter.empty, default=_Default.from_parameter(parameter)
            )
            for parameter in signature.parameters.values()
        ]
        bare = signature.replace(parameters=parameters, return_annotation=signature.empty)
        label = f"{name}{bare}"
    elif doc.startswith(f"{name}("):
        # For functions in C, the first line of their documentation may be their signature.
        label, _, doc = doc.partition("\n")
    else:
        return None
    label = " ".join(label.split())[:_MAX_LABEL_CHARACTERS]
    return {"label": label, "doc": doc.strip()[:_MAX_DOC_CHARACTERS]}


class _Default:
    """A parameter's default value as it is shown: others than plain ones as `…`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    @classmethod
    def from_parameter(cls, parameter: inspect.Parameter) -> Any:
        if parameter.default is parameter.empty:
            return parameter.empty
        text = repr(parameter.default) if type(parameter.default) in _PLAIN_DEFAULTS else "…"
        return cls(text if len(text) <= _MAX_DEFAULT_CHARACTERS else "…")
