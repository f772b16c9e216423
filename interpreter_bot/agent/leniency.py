"""Reading what a model meant where it wrote something else than JSON. Pure.

Nothing here runs or compiles what it reads, and every pattern takes time in proportion to it.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any, Final

_TRIPLE: Final = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_WRAPPING: Final = re.compile(r"\A\s*(?:`{3,}|~{3,})[^\n]*\n(.*?)\n?[ ]*(?:`{3,}|~{3,})?\s*\Z", re.DOTALL)
_CODE: Final = re.compile(r'"(?:code|source|python|script)"\s*:\s*"')
_END: Final = re.compile(r'"\s*\}*\s*\Z')
_LONGEST: Final = 200_000
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "b": "\b"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED: Final = ("name", "function", "tool", "tool_name")
_GIVEN: Final = ("arguments", "parameters", "args", "input", "tool_input")


def parse(text: str) -> Any:
    """Read JSON, or what a model takes for it; ValueError where it is neither.

    Taken too: Python's triple quotes, Python's literals, doubled braces, raw line ends in strings.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long")
    text = text.strip()
    mended = _TRIPLE.sub(lambda match: json.dumps(match[1] or match[2] or ""), text)
    attempts = [text, mended]
    if text.startswith("{{"):
        attempts.append(mended.replace("{{", "{").replace("}}", "}"))
    for attempt in attempts:
        try:
            return json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
    return _literal(text)


def _literal(text: str) -> Any:
    if text[:1] not in "{[\"'":
        raise ValueError("neither JSON nor a literal")
    try:
        with warnings.catch_warnings():
            # Of invalid escapes in strings, which are the model's affair.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("neither JSON nor a literal") from error


def read_call(text: str, names: frozenset[str]) -> tuple[str, str] | None:
    """Find the call of one of the named tools that a text consists of.

    Args:
        text: a fenced block, the inside of tags, or bare JSON.
        names: the tools there are.

    Returns:
        The tool's name and its arguments as text; None where it is no such call.
    """
    text = re.sub(r"</?tool_call>", "", unwrapped(text))
    try:
        value = parse(text)
    except ValueError:
        return _read_broken_call(text, names)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in _NAMED if isinstance(value.get(key), str)), None)
    given = next((value[key] for key in _GIVEN if key in value), None)
    if name not in names:
        return None
    return name, given if isinstance(given, str) else json.dumps(given or {})


def _read_broken_call(text: str, names: frozenset[str]) -> tuple[str, str] | None:
    """Find a call whose code breaks its JSON, such as by quotes that were not escaped."""
    name = re.match(r'\s*\{+\s*"(?:name|function|tool)"\s*:\s*"(\w+)"', text)
    if not name or name[1] not in names:
        return None
    code = broken_code(text)
    return (name[1], json.dumps({"code": code})) if code else None


def broken_code(text: str) -> str | None:
    """Take the code out of an object that is not quite JSON."""
    start = _CODE.search(text)
    if not start:
        return None
    rest = text[start.end() :]
    end = _END.search(rest[-200:])
    if end:
        rest = rest[: max(len(rest) - 200, 0) + end.start()]
    return unescaped(rest)


def unescaped(text: str) -> str:
    """Undo the escapes of JSON, and leave alone what is none."""

    def one(match: re.Match[str]) -> str:
        letter = match[1]
        if len(letter) == 5:
            return chr(int(letter[1:], 16))
        return _ESCAPES.get(letter, match[0])

    return _ESCAPE.sub(one, text)


def unwrapped(text: str) -> str:
    """Take a text out of the fence that wraps all of it, if one does."""
    wrapped = _WRAPPING.match(text)
    return wrapped[1] if wrapped else text
