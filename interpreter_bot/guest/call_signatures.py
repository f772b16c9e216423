"""What functions and classes take, as they say themselves, without running anything of a user's."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any

from . import safe_reprs

DESCRIBED = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""Classes of functions that are written in C."""
_LABEL_CHARACTERS = 400
_DOC_CHARACTERS = 1200
_DEFAULT_CHARACTERS = 40
_DEEPEST = 20
_OWN = re.compile(r"\(\$\w+(?:, /)?(?:, )?")

_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_text_of = type.__dict__["__text_signature__"].__get__


def is_class(value: Any) -> bool:
    """Say whether a value is a class, without asking it."""
    return issubclass(type(value), type)


def unwrapped(function: Any) -> Any:
    """Return the function that a decorator was put around."""
    for _ in range(_DEEPEST):
        held = function.__dict__ if type(function) is types.FunctionType else {}
        held = safe_reprs.plain_names(held) if type(held) is dict else {}
        if "__wrapped__" not in held:
            break
        function = held["__wrapped__"]
    return function


def parameters(called: Any, *, skips: bool = False) -> list[str]:
    """Return the names that arguments may be given by.

    Args:
        called: a function or a class.
        skips: the first one is given already.
    """
    function, is_bound = _function(called)
    if type(function) is not types.FunctionType:
        return []
    code = function.__code__
    first = code.co_posonlyargcount or int(skips or is_bound)
    return list(code.co_varnames[first : code.co_argcount + code.co_kwonlyargcount])


def describe(called: Any, *, skips: bool = False) -> dict[str, str] | None:
    """Return a `label` with all parameters of a function or class, and its `doc`, if known."""
    function, is_bound = _function(called)
    name = safe_reprs.name_of(called) if is_class(called) else ""
    label = ""
    if type(function) is types.FunctionType:
        name = name or function.__code__.co_name
        label = f"{name}({', '.join(_parts(function)[int(skips or is_bound) :])})"
    elif safe_reprs.is_among(type(function), DESCRIBED) or is_class(function):
        text = _text_of(function) if is_class(function) else function.__text_signature__
        if text:
            label = (name or function.__name__) + _OWN.sub("(", text)
    doc = _doc(called) or _doc(function)
    if not label and safe_reprs.is_from(type(called), "numpy") and type(called.__doc__) is str:
        # Its functions in C say in the first line of their words what they take.
        label, _, doc = inspect.cleandoc(called.__doc__).partition("\n")
    if not label:
        return None
    return {
        "label": " ".join(label.split())[:_LABEL_CHARACTERS],
        "doc": doc.strip()[:_DOC_CHARACTERS],
    }


def _function(called: Any) -> tuple[Any, bool]:
    """Return what runs when something is called, and whether it is given its first argument."""
    if type(called) is types.MethodType:
        return unwrapped(called.__func__), True
    if not is_class(called):
        return unwrapped(called), False
    for one in _mro_of(called):
        for name in ("__init__", "__new__"):
            member = safe_reprs.plain_names(_dict_of(one)).get(name)
            member = member.__func__ if type(member) is staticmethod else member
            if type(unwrapped(member)) is types.FunctionType:
                return unwrapped(member), True
    return called, False


def _doc(value: Any) -> str:
    doc: Any = ""
    if is_class(value):
        doc = safe_reprs.plain_names(_dict_of(value)).get("__doc__")
    elif type(value) is types.FunctionType or safe_reprs.is_among(type(value), DESCRIBED):
        doc = value.__doc__
    return inspect.cleandoc(doc[: 4 * _DOC_CHARACTERS]) if type(doc) is str else ""


def _parts(function: types.FunctionType) -> list[str]:
    """Return the parameters as they stand in a definition."""
    code = function.__code__
    positional, count = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    defaults = function.__defaults__ or ()
    texts = dict(zip(names[positional - len(defaults) : positional], defaults, strict=False))
    texts |= safe_reprs.plain_names(function.__kwdefaults__ or {})
    parts = [f"{name}={_default(texts[name])}" if name in texts else name for name in names]
    after = count
    if code.co_flags & inspect.CO_VARARGS:
        parts.insert(positional, f"*{code.co_varnames[after]}")
        after += 1
    elif code.co_kwonlyargcount:
        parts.insert(positional, "*")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{code.co_varnames[after]}")
    return parts


def _default(value: Any) -> str:
    if type(value) is str:
        return repr(value[:_DEFAULT_CHARACTERS])
    text = "None" if value is None else safe_reprs.text(value) or "nan"
    return "…" if text.startswith("<") or len(text) > _DEFAULT_CHARACTERS else text
