"""Completions of code that a person is writing, and signatures of the functions they are calling.

IPython's completer inspects variables, and a user's class may run code when it is inspected. So
this happens in a child process with a time limit (`bounded_children`), which leaves the session as
it is.
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
_IMPORT_STATEMENT = re.compile(r"^[ \t]*(?:import|from)[ \t]", re.MULTILINE)
_EARLIER_IMPORTS = re.compile(r"(?<=import )[ \t]*(?:[\w.]+[ \t]*,[ \t]*)+(?=[\w.]*\Z)")
_DOTTED_NAME = re.compile(r"[^\W\d][\w.]*\Z")
_ARGUMENT_START = re.compile(r"[(,]\s*\Z")
_TOKEN = re.compile(r"#[^\n]*|[\"']{3}|[\"']|[()\[\]{}]")
_OPENING_BRACKETS = {")": "(", "]": "[", "}": "{"}
_FUNCTION_TYPES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    staticmethod,
    classmethod,
)
_PLAIN_TYPES = (type(None), bool, int, float, str)
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# Name, kind as the page's editor calls it, and description.
_Option = tuple[str, str, str]


def find_in_child(shell: Any, code: str) -> dict[str, Any]:
    """Find completions of code.

    Args:
        shell: with the variables.
        code: the code up to the cursor; its beginning may be missing.

    Returns:
        `options`; `typed`, how many characters of each option stand before the cursor already; and
        `signature` of the function whose call is being written, or None.
    """
    answer = bounded_children.run(
        lambda: json.dumps(_in_child(shell, code)).encode(),
        seconds=_MAX_SECONDS,
        max_bytes=_MAX_ANSWER_BYTES,
    )
    result: dict[str, Any] = json.loads(answer) if answer else _matching_options("", ())
    return result


def find(shell: Any, code: str) -> dict[str, Any]:
    """Do what `find_in_child` does, in this process."""
    # Comparing a name of a subclass of `str` may run code.
    namespace = {name: value for name, value in shell.user_ns.items() if type(name) is str}
    shell.Completer.namespace = shell.Completer.global_namespace = namespace
    shell.Completer.use_jedi, shell.Completer.evaluation = False, "limited"
    string_start, brackets = _scan_brackets(code)
    if string_start == -1:
        return _matching_options("", ())
    if string_start is not None:
        return _complete_string(shell.Completer, code, string_start)
    typed_text = _WORD.search(code)[0]  # type: ignore[index]
    code_before = code[: len(code) - len(typed_text)]
    called_function = _find_called_function(namespace, code, brackets)
    options: Iterable[_Option]
    if _IMPORT_STATEMENT.search(code.rpartition("\n")[2]):
        line = _EARLIER_IMPORTS.sub("", code)
        names = _names_after_dot(_ask_ipython(shell.Completer, line))
        options = [(name, "namespace", "") for name in names]
    elif code_before.rstrip().endswith("."):
        options = _attribute_options(
            shell.Completer, namespace, code_before.rstrip()[:-1].rstrip(), typed_text
        )
    else:
        options = itertools.chain(
            _parameter_options(called_function) if _ARGUMENT_START.search(code_before) else (),
            _variable_options(namespace, shell.user_ns_hidden),
        )
    return _matching_options(
        typed_text, options, signature=called_function and _describe_function(*called_function)
    )


def _in_child(shell: Any, code: str) -> dict[str, Any]:
    # Text that a user's class prints in the child is not output of the session.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    return find(shell, code)


def _ask_ipython(ipython: completer.IPCompleter, code: str) -> list[completer.Completion]:
    """Ask IPython about the end of the last line; it takes quadratic time in the length."""
    line = code.rpartition("\n")[2][-_MAX_LINE_CHARACTERS:]
    with completer.provisionalcompleter():
        completions = list(ipython.completions(line, len(line)))
    return [completion for completion in completions if completion.type != "magic"]


def _names_after_dot(completions: Iterable[completer.Completion]) -> list[str]:
    return [completion.text.rpartition(".")[2] for completion in completions]


def _matching_options(typed_text: str, options: Iterable[_Option], **extra: Any) -> dict[str, Any]:
    """Return options that begin with `typed_text`; private ones only if it has an underscore."""
    prefix = typed_text.casefold()
    by_name: dict[str, _Option] = {}
    for option in options:
        name = option[0]
        if name.startswith("_") and not typed_text.startswith("_"):
            continue
        if len(name) <= _MAX_NAME_CHARACTERS and name.casefold().startswith(prefix):
            by_name.setdefault(name, option)
    sorted_names = sorted(
        by_name, key=lambda name: (name[-1:] != "=", not name.startswith(typed_text), name)
    )
    matches = [list(by_name[name]) for name in sorted_names[:_MAX_OPTIONS]]
    return {"typed": len(typed_text), "options": matches, "signature": None} | extra


def _scan_brackets(text: str) -> tuple[int | None, list[int]]:
    """Find the string and the brackets that are open at the end of a text.

    Returns:
        The position of the string's first character, None outside of a string, -1 in a comment; and
        the positions of the brackets.
    """
    brackets: list[int] = []
    position = 0
    while (match := _TOKEN.search(text, position)) is not None:
        token, position = match[0], match.end()
        if token[0] == "#":
            if position == len(text):
                return -1, brackets
        elif token in "([{":
            brackets.append(match.start())
        elif token in ")]}":
            while brackets and text[brackets.pop()] != _OPENING_BRACKETS[token]:
                continue
        else:
            string_start = position
            while True:
                end = text.find(token, position)
                newline = text.find("\n", string_start) if len(token) == 1 else -1
                if end < 0 and newline < 0:
                    return string_start, brackets
                if newline >= 0 and (end < 0 or newline < end):
                    position = newline
                    break
                position = end + len(token)
                if not _is_escaped(text, end):
                    break
    return None, brackets


def _is_escaped(text: str, position: int) -> bool:
    return (position - len(text[:position].rstrip("\\"))) % 2 == 1


# ---- options


def _complete_string(
    ipython: completer.IPCompleter, code: str, string_start: int
) -> dict[str, Any]:
    """Offer keys and columns; if there are none and the string may be a path, files."""
    typed_text, code_before = code[string_start:], code[:string_start].rstrip("\"'rbfRBF").rstrip()
    completions = _ask_ipython(ipython, code)
    keys = [completion.text for completion in completions if completion.type == "dict key"]
    if keys:
        return _matching_options(
            typed_text, ((key, "property", "") for key in keys if key.isprintable())
        )
    if "\n" in typed_text or not (code_before.endswith(("(", ",", "=")) or "/" in typed_text):
        return _matching_options("", ())
    paths = [completion.text.rstrip("/") for completion in completions if completion.type == "path"]
    names = [path.rpartition("/")[2] for path in paths]
    typed_text = typed_text.rpartition("/")[2]
    return _matching_options(
        typed_text, ((name, "text", "") for name in names if name.isprintable())
    )


def _variable_options(
    namespace: dict[str, Any], hidden_variables: dict[str, Any]
) -> Iterator[_Option]:
    for name, value in itertools.islice(reversed(namespace.items()), _MAX_NAMES):
        if name not in hidden_variables or hidden_variables[name] is not value:
            yield name, _kind(value), safe_reprs.class_name(value)


def _kind(value: Any) -> str:
    # Not isinstance(), which asks the value for its class.
    kind = type(value)
    if issubclass(kind, type):
        return "class"
    if kind is types.ModuleType:
        return "namespace"
    return "function" if issubclass(kind, _FUNCTION_TYPES) else "property"


def _attribute_options(
    ipython: completer.IPCompleter, namespace: dict[str, Any], owner_text: str, typed_text: str
) -> Iterator[_Option]:
    owner = _evaluate(namespace, owner_text)
    no_value = object()
    for name in _names_after_dot(_ask_ipython(ipython, f"{owner_text}.{typed_text}")):
        value = inspect.getattr_static(owner, name, no_value)
        is_column = value is no_value and safe_reprs.class_name(owner) == "DataFrame"
        yield name, _kind(value), "column" if is_column else ""


def _evaluate(namespace: dict[str, Any], text: str) -> Any:
    """Return the value of a dotted name; None if there is none, or evaluating it is not safe."""
    match = _DOTTED_NAME.search(text)
    if match is None:
        return None
    context = guarded_eval.EvaluationContext(globals=namespace, locals={}, evaluation="limited")
    try:
        return guarded_eval.guarded_eval(match[0], context)
    except (guarded_eval.GuardRejection, NameError, AttributeError, SyntaxError):
        return None


# ---- the called function


def _find_called_function(
    namespace: dict[str, Any], code: str, brackets: list[int]
) -> tuple[str, Any] | None:
    """Return the name and the function whose arguments are being written."""
    if not brackets or code[brackets[-1]] != "(":
        return None
    text = code[: brackets[-1]]
    value = _evaluate(namespace, text)
    return None if value is None else (_WORD.search(text)[0], value)  # type: ignore[index]


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def _parameter_options(called_function: tuple[str, Any] | None) -> Iterator[_Option]:
    signature = _signature(called_function[1]) if called_function is not None else None
    for parameter in signature.parameters.values() if signature is not None else ():
        if parameter.kind in _KEYWORD_KINDS:
            yield f"{parameter.name}=", "property", ""


def _describe_function(name: str, function: Any) -> dict[str, str] | None:
    """Return a `label` with all parameters of a function or class, and its `doc`, if known."""
    signature, doc = _signature(function), inspect.getdoc(function) or ""
    if signature is not None:
        parameters = [
            parameter.replace(
                annotation=parameter.empty, default=_shorten_default(parameter.default)
            )
            for parameter in signature.parameters.values()
        ]
        short_signature = signature.replace(
            parameters=parameters, return_annotation=signature.empty
        )
        label = f"{name}{short_signature}"
    elif doc.startswith(f"{name}("):
        # For functions in C, the first line of their documentation may be their signature.
        label, _, doc = doc.partition("\n")
    else:
        return None
    label = " ".join(label.split())[:_MAX_LABEL_CHARACTERS]
    return {"label": label, "doc": doc.strip()[:_MAX_DOC_CHARACTERS]}


def _shorten_default(default: Any) -> Any:
    """Return a parameter's default value if it is plain and short."""
    is_shown = type(default) in _PLAIN_TYPES and len(repr(default)) <= _MAX_DEFAULT_CHARACTERS
    return default if is_shown or default is inspect.Parameter.empty else _Ellipsis()


class _Ellipsis:
    """Stands for a default value that is not shown."""

    def __repr__(self) -> str:
        return "…"
