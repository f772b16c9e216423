"""Read calls that a model writes into its text instead of making them. Pure.

One table of shapes covers the markup of common models, whatever tokens surround a call. The content
of a call is never changed: either it can be read as it is, or there is no call.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interpreter_bot.agent import lenient_json, tools

WrittenCall: TypeAlias = tuple[str, str]
"""A tool's name, and its arguments as they were written."""

_MAX_CALLS: Final = 64
_MAX_CHARACTERS: Final = 200_000

_ANY_TOOL_NAME: Final = "|".join(sorted(map(re.escape, tools.NAMES)))
_NAMESPACE: Final = r"(?:\w{1,20}:|\uff5cDSML\uff5c)?"
_SPECIAL_MARKUP: Final = r"<[|\uff5c][^<>\n]{1,60}[|\uff5c]>"
_MARKER: Final = re.compile(
    rf"<(?!/).*(?:tool|function|call|invoke|action|python_tag|{_ANY_TOOL_NAME})|\[TOOL_",
    re.IGNORECASE,
)
# Tokens that only mark the beginning or the end of a call.
_TOKEN: Final = re.compile(
    rf"\s+|{_SPECIAL_MARKUP}|\[/?TOOL_\w{{1,20}}\]|</?{_NAMESPACE}(?:tool|function)_?\w{{0,10}}>|`{{3,}}\w*\n?",
    re.IGNORECASE,
)
_LAST_TOKENS: Final = re.compile(
    rf"(?:\s|{_SPECIAL_MARKUP}|</?[\w:]{{1,40}}>|\[/?[A-Z_]{{4,20}}\]|`{{3,}})+\Z"
)
_MAX_LAST_CHARACTERS: Final = 400
_BLOCK_START: Final = re.compile(
    rf"<{_NAMESPACE}(?:function|invoke)(?:\s*=\s*|\s+name\s*=\s*)[\"']?([\w.:-]{{1,80}})[\"']?[^<>\n]{{0,80}}>"
)
_BLOCK_END: Final = re.compile(rf"\s*</{_NAMESPACE}(?:function|invoke)>")
_PARAMETER_START: Final = re.compile(
    rf"\s*<{_NAMESPACE}parameter(?:\s*=\s*|\s+name\s*=\s*)[\"']?(\w{{1,40}})[\"']?[^<>\n]{{0,80}}>"
)
_PARAMETER_END: Final = re.compile(
    rf"</{_NAMESPACE}parameter>(?=\s*(?:\Z|</?{_NAMESPACE}(?:parameter|function|invoke|tool_call)\b|<[|\uff5c]))"
)
_HARMONY_MESSAGE: Final = re.compile(
    r"to=([\w.]{1,80})[^\n{]{0,120}?<\|message\|>(.*?)(?=<\|call\|>|<\|end\|>|<\|start\|>|\Z)",
    re.DOTALL,
)
_NAME_BEFORE_JSON: Final = re.compile(
    r"(?<![\w.])([A-Za-z_][\w.-]{0,80})(?::\d{1,4})?\s*+(?:\[CALL_ID\]\w{0,40})?"
    rf"(?:\[ARGS\]|{_SPECIAL_MARKUP}|`{{3,}}\w{{0,10}})?\s*+(?=\{{)"
)
_NAME_KEYS: Final = ("name", "tool_name", "function", "tool")
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
# The beginnings of calls without a marker, without white space.
_UNMARKED_STARTS: Final = (
    *(f'{{"{key}":' for key in (*_NAME_KEYS, *_ARGUMENT_KEYS, "tool_calls")),
    *('{"type":"function', '{"id":'),
    *(f"{name}(" for name in sorted(tools.NAMES)),
)
_MAX_START_CHARACTERS: Final = 60
_CODE_SPAN: Final = re.compile(
    r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)
_INTENDED_CALL: Final = re.compile(
    rf"(?:[<=\"'./:]|to=)(?:{_ANY_TOOL_NAME})\b[\"'>]?\s*+(?:[,({{\[<>|]|\Z)"
    r"|\brun_code\s*+(?:\(\s*+(?:code\s*=|[\"'])|[:=]?\s*+\{|<(?:[|\uff5c]|arg_key>)|\[ARGS\])"
)


def is_marker(tag: str) -> bool:
    """Return whether a tag or token, such as `<tool_call>`, begins a call in some markup."""
    return _MARKER.match(tag) is not None


def begins_call(text: str) -> bool | None:
    """Return whether a line begins a call without a marker; None if more text is needed."""
    beginning = "".join(text[:_MAX_START_CHARACTERS].split()).replace("'", '"').removeprefix("[")
    if any(beginning.startswith(start) for start in _UNMARKED_STARTS):
        return True
    is_open = len(text) < _MAX_START_CHARACTERS
    return (
        None
        if is_open and any(start.startswith(beginning) for start in _UNMARKED_STARTS)
        else False
    )


def read_calls(text: str) -> list[WrittenCall]:
    """Read the calls of tools in a text that begins with a marker.

    Args:
        text: from the marker to the end of the reply, or of the block that the call is in.
    """
    if len(text) > _MAX_CHARACTERS:
        return []
    for shape in _SHAPES:
        try:
            calls = [(tools.canonical_name(name), arguments) for name, arguments in shape(text)]
        except RecursionError:
            # JSON that is nested more deeply than any call.
            continue
        if calls:
            return [call for call in calls if call[0]][:_MAX_CALLS]
    return []


def is_intended_call(text: str) -> bool:
    """Return whether a text without a readable call was meant to be one."""
    return _INTENDED_CALL.search(text) is not None


def has_unmarked_call(words: str) -> bool:
    """Return whether a text holds a call without a known marker; code blocks do not count."""
    return is_intended_call(_CODE_SPAN.sub("", words))


def _read_tag_blocks(text: str) -> Iterator[WrittenCall]:
    """`<function=NAME>`, `<invoke name="NAME">`, with parameters in tags, or JSON."""
    position = 0
    for opening in itertools.islice(_BLOCK_START.finditer(text), _MAX_CALLS):
        # What looks like a call inside the code of another is part of that code.
        if opening.start() < position or not tools.canonical_name(opening[1]):
            continue
        parameters, end = _read_parameters(text, opening.end())
        if not parameters and not _BLOCK_END.match(text, end):
            parameters, end = _read_json_at(text, end)
        if isinstance(parameters, dict):
            position = end
            yield opening[1], json.dumps(parameters)


def _read_parameters(text: str, position: int) -> tuple[object, int]:
    """Return the parameters in tags, and their end; None if one of them is not closed."""
    parameters: dict[str, str] = {}
    while opening := _PARAMETER_START.match(text, position):
        end = _PARAMETER_END.search(text, opening.end())
        if end is None:
            return None, position
        parameters[opening[1]] = _strip_line_ends(text[opening.end() : end.start()])
        position = end.end()
    return parameters, position


def _strip_line_ends(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")


def _read_harmony(text: str) -> Iterator[WrittenCall]:
    """`to=functions.NAME …<|message|>…<|call|>`."""
    for message in _HARMONY_MESSAGE.finditer(text):
        yield message[1], message[2].strip()


def _read_objects(text: str) -> Iterator[WrittenCall]:
    """JSON that names a tool: one object, several, or a list of them."""
    start = _skip_tokens(text, 0)
    while text[start : start + 1] in ("{", "["):
        value, end = _read_json_at(text, start)
        if value is None:
            return
        yield from _find_named_calls(value)
        start = _skip_tokens(text, end, separators=";,")


def _read_named_json(text: str) -> Iterator[WrittenCall]:
    """A tool's name, a separator, and JSON."""
    position = 0
    while opening := _NAME_BEFORE_JSON.search(text, position):
        position = opening.end()
        if tools.canonical_name(opening[1]):
            value, position = _read_json_at(text, position)
            if not isinstance(value, dict):
                return
            yield opening[1], json.dumps(value)


def _find_named_calls(value: object) -> Iterator[WrittenCall]:
    """Yield the calls that an object or a list names."""
    if isinstance(value, list):
        for entry in value:
            yield from _find_named_calls(entry) if isinstance(entry, dict) else ()
    if not isinstance(value, dict):
        return
    inner = value.get("tool_calls", value.get("function"))
    if isinstance(inner, list | dict):
        yield from _find_named_calls(inner)
        return
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    arguments: object = next((value[key] for key in _ARGUMENT_KEYS if key in value), {})
    if tools.canonical_name(name):
        yield name, arguments if isinstance(arguments, str) else json.dumps(arguments)


_DECODER: Final = json.JSONDecoder(strict=False)


def _read_json_at(text: str, start: int) -> tuple[object, int]:
    """Return the JSON that begins at a position, and its end; None if there is none."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    try:
        return lenient_json.parse(_strip_last_tokens(text[start:])), len(text)
    except ValueError:
        return None, start


def _skip_tokens(text: str, start: int, *, separators: str = "") -> int:
    while True:
        if text[start : start + 1] and text[start] in separators:
            start += 1
        elif token := _TOKEN.match(text, start):
            start = token.end()
        else:
            return start


def _strip_last_tokens(text: str) -> str:
    last = _LAST_TOKENS.search(text, max(len(text) - _MAX_LAST_CHARACTERS, 0))
    return text[: last.start()] if last else text


_SHAPES: Final[tuple[Callable[[str], Iterator[WrittenCall]], ...]] = (
    *(_read_harmony, _read_tag_blocks, _read_objects, _read_named_json),
)
