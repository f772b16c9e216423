"""Calls that a model writes into its text instead of making them: what they look like. Pure.

One table of shapes, for the markups of all models: which tokens stand around a call hardly matters,
as long as they say that it is one. What a call holds is never changed: it is read, or refused.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interpreter_bot.agent import lenient_json, tools

WrittenCall: TypeAlias = tuple[str, str]
"""A tool's name, and its arguments as they were written."""

_MAX_CALLS: Final = 64
_MAX_CHARACTERS: Final = 200_000

_WORDS: Final = (
    r"tool|function|funccall|functioncall|invoke|plugin|action|interpreter|python_tag|recipient"
    r"|execute|dsml"
)
_TAG_NAME: Final = re.compile(r"[a-z_]+")
# Tokens that only mark a beginning or an end.
_TOKEN: Final = re.compile(
    r"\s+|<[|\uff5c][^<>\n]{1,60}[|\uff5c]>|\[/?TOOL_(?:CALLS|REQUEST)\]|\[END_TOOL_REQUEST\]|functools"
    r"|</?(?:\w{1,20}:)?(?:tool_?calls?|tool_?uses?|tool_?code|function_?calls?|tools?|execute"
    r"|start_function_call|end_function_call|end_of_turn|end_code|s)>|`{3,}\w*\n?|✿\w+✿:?",
    re.IGNORECASE,
)
_RAW_CODE: Final = re.compile(
    r"\A\s*(?:<\|python_tag\|>|<\|action_start\|>\s*<\|interpreter\|>|`{3,}(?:tool_code|run_code)\n"
    r"|<(?P<tag>execute|execute_code|execute_python|run_code|python|ipython|code_interpreter"
    r"|interpreter)>)",
    re.IGNORECASE,
)
_BLOCK: Final = re.compile(
    r"<(?P<ns>(?:\w{1,20}:|\uff5cDSML\uff5c)?)(?P<tag>function|invoke|tool_call|call|tool)"
    r"(?:\s*=\s*|\s+name\s*=\s*)[\"']?(?P<name>[\w.:-]{1,80})[\"']?[^<>\n]{0,80}>"
)
_PARAMETER: Final = re.compile(
    r"\s*<(?:\w{1,20}:|\uff5cDSML\uff5c)?(?:parameter|param|argument|arg)(?:\s*=\s*|\s+name\s*=\s*)"
    r"[\"']?(?P<key>\w{1,40})[\"']?[^<>\n]{0,80}>"
)
_PARAMETER_END: Final = re.compile(
    r"</(?:\w{1,20}:|\uff5cDSML\uff5c)?(?:parameter|param|argument|arg)>"
    r"(?=\s*(?:\Z|</?(?:\w{1,20}:|\uff5cDSML\uff5c)?(?:parameter|param|argument|arg|function|invoke"
    r"|tool_call|call|tool)\b|<[|\uff5c]))"
)
_BLOCK_END: Final = re.compile(
    r"</(?:\w{1,20}:|\uff5cDSML\uff5c)?(?:function|invoke|tool_call|call|tool)\b[^<>\n]{0,80}>"
)
_PAIRED: Final = re.compile(r"(?P<name>[\w.:-]{1,80})\s*(?=<arg_key>)")
_PAIR: Final = re.compile(
    r"\s*<arg_key>(?P<key>\w{1,40})</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
    r"(?=\s*(?:<arg_key>|</tool_call>|\Z))",
    re.DOTALL,
)
_HARMONY: Final = re.compile(
    r"to=(?P<name>[\w.]{1,80})[^\n{]{0,120}?<\|message\|>(?P<body>.*?)"
    r"(?=<\|call\|>|<\|end\|>|<\|start\|>|\Z)",
    re.DOTALL,
)
_NAME_BEFORE_JSON: Final = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z_][\w.-]{0,80})(?::\d{1,4})?\s*+(?:\[CALL_ID\]\w{0,40})?"
    r"(?:\[ARGS\]|<[|\uff5c][^<>\n]{1,60}[|\uff5c]>|✿ARGS✿:?|`{3,}\w{0,10}|:|,|=)?\s*+(?=\{)"
)
_ESCAPED: Final = re.compile(
    r"call:(?P<name>\w{1,80})\{(?P<key>\w{1,40}):<escape>(?P<value>.*?)<escape>\}", re.DOTALL
)
_REACT: Final = re.compile(
    r"^Action:[ \t]*(?P<name>[\w.]{1,80})[ \t]*\n+Action[ _]Input:[ \t]*(?=\S)", re.MULTILINE
)
_NAMES: Final = ("name", "function", "tool", "tool_name", "recipient_name", "action")
_GIVEN: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")
# Keys with which hardly anything but a call begins, so that answers are not held back for long.
_FIRST_KEYS: Final = frozenset(
    {*_NAMES, "arguments", "parameters", "tool_input", "action_input", "type", "tool_call_id"}
    | {"tool_calls", "tool_uses", "function_call", "code"}
)
_TYPES: Final = ("function", "function_call", "tool_call", "tool_use")
_SPELLED: Final = "|".join(sorted(map(re.escape, tools.NAMES)))
_CODE: Final = re.compile(
    r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)
_INTENDED: Final = re.compile(
    rf"(?:[<=\"'./:]|to=|Action: ?)(?:{_SPELLED})\b[\"'>]?\s*+(?:[,({{\[<>|]|\Z)"
    r"|\brun_code\s*+(?:\(\s*+(?:code\s*=|[\"'])|[:=]?\s*+\{|<[|\uff5c]|\[ARGS\])"
)

# A line that begins with the name of a tool in marks of no known kind; no link, and no sentence.
_UNKNOWN: Final = re.compile(
    r"^[ \t]*(?:<{1,3}|\[{1,2}|@{1,2}|\{{1,2}|\u27e6|\u00ab)[ \t]*"
    r"(?:(?:tool_?call|function_?call|call|tool|function|invoke|use|exec|action)[ \t:=_\"']{1,3})?"
    rf"(?:functions\.)?(?:{_SPELLED})\b(?!\]\()",
    re.IGNORECASE | re.MULTILINE,
)


def is_marker(tag: str) -> bool:
    """Return whether a tag or token, such as `<tool_call>`, begins a call in some markup."""
    inner = tag.strip("<>|\uff5c[]✿ ").lower().replace("▁", "_").replace("\uff5c", "_")
    if inner.startswith("/"):
        return False
    name = _TAG_NAME.search(inner)
    if name is None:
        return False
    return bool(
        re.search(_WORDS, inner)
        or tools.canonical_name(inner)
        or re.fullmatch(r"(?:call|exec)\b.*", inner)
        or (tag.startswith(("<|", "<\uff5c")) and "call" in inner)
    )


def read(text: str) -> list[WrittenCall]:
    """Read the calls of tools in a text that begins with a marker; none if there is none to read.

    Args:
        text: from the marker to the end of the reply, or of the block that the call is in.
    """
    if len(text) > _MAX_CHARACTERS:
        return []
    for shape in _SHAPES:
        if calls := [(tools.canonical_name(name), arguments) for name, arguments in shape(text)]:
            known_calls = [call for call in calls if call[0]]
            return known_calls[:_MAX_CALLS]
    return []


def is_intended(text: str) -> bool:
    """Return whether a text that holds no readable call was still meant as one."""
    return _INTENDED.search(text) is not None


def is_unmarked(words: str) -> bool:
    """Return whether words hold a call without a marker that is known; code in them is none."""
    prose = _CODE.sub("", words)
    return is_intended(prose) or _UNKNOWN.search(prose) is not None


def may_be_call(text: str) -> bool:
    """Return whether the beginning of an object or list may still become a call."""
    if list_match := _LISTED.match(text):
        name = list_match["name"]
        if list_match["open"]:
            return bool(tools.canonical_name(name))
        return list_match.end() == len(text) and any(name.startswith(name) for name in tools.NAMES)
    beginning = _BEGUN.match(text)
    if beginning is None:
        return False
    key, value, is_whole = beginning["key"], beginning["value"], beginning.end() == len(text)
    if key is None:
        return is_whole
    if not beginning["key_end"]:
        return is_whole and any(name.startswith(key) for name in _FIRST_KEYS)
    if key not in _FIRST_KEYS:
        return False
    if value is None:
        # Another kind of value, unless it has not come yet.
        return is_whole or (key not in (*_NAMES, "type", "code")) or key == "function"
    if key == "type":
        return any(name.startswith(value) for name in _TYPES)
    if key in _NAMES and beginning["end"]:
        return bool(tools.canonical_name(value))
    return True


_LISTED: Final = re.compile(r"\s*\[\s*(?P<name>[A-Za-z_]\w{0,80})(?P<open>\()?")
_BEGUN: Final = re.compile(
    r"\s*(?:\[\s*)?(?:\{\s*){0,2}(?:(?<=[{\s])[\"'](?P<key>\w{0,30})(?P<key_end>[\"'])?"
    r"(?(key_end)\s*(?::\s*(?:[\"'](?P<value>[^\"'\n]{0,100})(?P<end>[\"'])?)?)?))?"
)


def _raw_code(text: str) -> Iterator[WrittenCall]:
    """Code itself, behind a token that says so."""
    opening = _RAW_CODE.match(text)
    if opening is None:
        return
    body = text[opening.end() :]
    if tag := opening["tag"]:
        body, closing, _ = body.partition(f"</{tag}>")
        if not closing:
            return
    else:
        body = _without_last_tokens(body)
    if body.lstrip().startswith(("{", "[")) or any(_python(text)):
        return
    if body.strip():
        yield tools.RUN_CODE, json.dumps({"code": body.strip("\n")})


def _blocks(text: str) -> Iterator[WrittenCall]:
    """`<function=NAME>`, `<invoke name="NAME">`, with parameters in tags, or JSON."""
    position = 0
    for opening in itertools.islice(_BLOCK.finditer(text), _MAX_CALLS):
        # One within the code of another is no call.
        if opening.start() < position or not tools.canonical_name(opening["name"]):
            continue
        body = text[opening.end() :]
        parameters, length = _parameters(body)
        if parameters:
            position = opening.end() + length
            yield opening["name"], json.dumps(parameters)
            continue
        value, length = _json_at(body, len(body) - len(body.lstrip()))
        if isinstance(value, dict):
            position = opening.end() + length
            yield opening["name"], json.dumps(value)
            continue
        if body.lstrip().startswith("<"):
            # Parameters that do not end.
            continue
        end = _BLOCK_END.search(body)
        body = body[: end.start()] if end else body
        position = opening.end() + len(body)
        yield opening["name"], _without_last_tokens(body).strip() or "{}"


def _parameters(body: str) -> tuple[dict[str, str], int]:
    """Read parameters in tags, and return their end; none if one of them does not end."""
    parameters: dict[str, str] = {}
    position = 0
    while opening := _PARAMETER.match(body, position):
        end = _PARAMETER_END.search(body, opening.end())
        if end is None:
            return {}, 0
        parameters[opening["key"]] = _value(body[opening.end() : end.start()])
        position = end.end()
    return parameters, position


def _value(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")


def _pairs(text: str) -> Iterator[WrittenCall]:
    """`NAME<arg_key>…</arg_key><arg_value>…</arg_value>`."""
    for opening in itertools.islice(_PAIRED.finditer(text), _MAX_CALLS):
        pairs: dict[str, str] = {}
        position = opening.end()
        while pair := _PAIR.match(text, position):
            pairs[pair["key"]] = _value(pair["value"])
            position = pair.end()
        if pairs:
            yield opening["name"], json.dumps(pairs)


def _harmony(text: str) -> Iterator[WrittenCall]:
    """`to=functions.NAME …<|message|>…<|call|>`."""
    for message in _HARMONY.finditer(text):
        yield message["name"], message["body"].strip()


def _escaped(text: str) -> Iterator[WrittenCall]:
    """`call:NAME{key:<escape>…<escape>}`."""
    # Without an end, each beginning would be searched to the end of the text.
    for call in _ESCAPED.finditer(text) if "<escape>}" in text else ():
        yield call["name"], json.dumps({call["key"]: call["value"]})


def _objects(text: str) -> Iterator[WrittenCall]:
    """JSON that names a tool: one object, several, or a list of them."""
    start = _skip_tokens(text, 0)
    while text[start : start + 1] in ("{", "["):
        value, end = _json_at(text, start)
        if value is None:
            return
        yield from _named_in(value)
        start = _skip_tokens(text, end, also=";,")


def _named_json(text: str) -> Iterator[WrittenCall]:
    """A tool's name, a separator, and JSON."""
    position = 0
    while opening := _NAME_BEFORE_JSON.search(text, position):
        position = opening.end()
        if not tools.canonical_name(opening["name"]):
            continue
        value, end = _json_at(text, position)
        if isinstance(value, dict):
            yield opening["name"], json.dumps(value)
            position = end
        else:
            # `tools.read` decides whether its arguments can be read after all.
            yield opening["name"], _without_last_tokens(text[position:])
            return


def _react(text: str) -> Iterator[WrittenCall]:
    """`Action: NAME`, and `Action Input: …` below it."""
    if (call := _REACT.search(text)) and tools.canonical_name(call["name"]):
        rest = text[call.end() :].partition("\nObservation:")[0]
        yield call["name"], _without_last_tokens(rest)


def _python(text: str) -> Iterator[WrittenCall]:
    """Python calls of tools with constants: alone, in a list, or printed."""
    start = _skip_tokens(text, 0)
    source = _without_last_tokens(text[start:]).strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source).body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    for statement in body:
        if not isinstance(statement, ast.Expr):
            return
        value = statement.value
        for node in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            call = _python_call(node)
            if call is None:
                return
            yield call


def _python_call(node: ast.expr) -> WrittenCall | None:
    match node:
        case ast.Call(ast.Name("print"), [ast.Call() as inner], []):
            return _python_call(inner)
        case ast.Call(function, positional, keywords):
            name = ast.unparse(function).removesuffix(".call")
            arguments: dict[str, object] = {}
            if len(positional) == 1 and not keywords:
                arguments["code"] = _constant(positional[0])
            elif not positional:
                arguments = {keyword.arg or "": _constant(keyword.value) for keyword in keywords}
            else:
                return None
            if None in arguments.values() or not tools.canonical_name(name):
                return None
            return name, json.dumps(arguments)
    return None


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) and node.value is not Ellipsis else None


def _named_in(value: object) -> Iterator[WrittenCall]:
    """Give the calls that an object or a list names."""
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict):
                yield from _named_in(entry)
        return
    if not isinstance(value, dict):
        return
    for key in ("tool_calls", "tool_uses"):
        if isinstance(value.get(key), list):
            yield from _named_in(value[key])
            return
    for key in ("function", "function_call"):
        if isinstance(value.get(key), dict):
            yield from _named_in(value[key])
            return
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    arguments = next((value[key] for key in _GIVEN if key in value), None)
    if name is not None and tools.canonical_name(name):
        if arguments is None:
            arguments = {
                key: argument
                for key, argument in value.items()
                if key not in (*_NAMES, "type", "id")
            }
        yield name, arguments if isinstance(arguments, str) else json.dumps(arguments)
    elif name is None and isinstance(value.get("code"), str) and value.keys() <= _ONLY_CODE:
        yield tools.RUN_CODE, json.dumps(value)


_ONLY_CODE: Final = frozenset({"code", "language", "title", "description"})
_DECODER: Final = json.JSONDecoder(strict=False)


def _json_at(text: str, start: int) -> tuple[object, int]:
    """Read the JSON that begins at a position, and return its end; None if there is none."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        rest = _without_last_tokens(text[start:])
        try:
            return lenient_json.parse(rest), len(text)
        except ValueError:
            return None, start
    return value, end


def _skip_tokens(text: str, start: int, *, also: str = "") -> int:
    while True:
        if text[start : start + 1] and text[start] in also:
            start += 1
        elif token := _TOKEN.match(text, start):
            start = token.end()
        else:
            return start


_LAST_TOKENS: Final = re.compile(
    r"(?:\s|<[|\uff5c][^<>\n]{1,60}[|\uff5c]>|</?[\w:]{1,40}>|\[/?[A-Z_]{4,20}\]|`{3,})+\Z"
)
_MAX_LAST_CHARACTERS: Final = 400


def _without_last_tokens(text: str) -> str:
    last = _LAST_TOKENS.search(text, max(len(text) - _MAX_LAST_CHARACTERS, 0))
    return text[: last.start()] if last else text


_SHAPES: Final[tuple[Callable[[str], Iterator[WrittenCall]], ...]] = (
    _harmony,
    _blocks,
    _pairs,
    _escaped,
    _objects,
    _raw_code,
    _python,
    _named_json,
    _react,
)
