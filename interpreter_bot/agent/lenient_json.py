"""Read nearly-JSON: tool calls that a model wrote with faults. Pure.

Nothing here runs or compiles what it reads, and every pattern takes linear time.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Final

_TRIPLE: Final = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_FENCES: Final = ("```", "~~~")
_CODE: Final = re.compile(r'"(?:code|source|python|script)"\s*:\s*"')
_BEGINNING: Final = re.compile(r'\s*\{+\s*"(?:code|source|python|script)"\s*:\s*"')
# Whole characters and whole escapes; the first half of a surrogate pair waits for the second.
_STRING: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+"
)
_END: Final = re.compile(r'"\s*\}*\s*\Z')
_LONGEST: Final = 200_000
_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# IPython's magics, and comments.
_MAGIC: Final = ("%", "!", "#", "?")
_PROSE_CHARACTERS: Final = 2000
_NAMED: Final = ("name", "function", "tool", "tool_name")
_GIVEN: Final = ("arguments", "parameters", "args", "input", "tool_input")


def parse(text: str) -> object:
    """Parse JSON, or a model's approximation of it; ValueError if it is neither.

    Also accepted: Python's triple quotes, Python's literals, doubled braces, raw line ends in
    strings.
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


def _literal(text: str) -> object:
    if text[:1] not in "{[\"'":
        raise ValueError("neither JSON nor a literal")
    try:
        with warnings.catch_warnings():
            # Python warns of invalid escapes in strings, which are the model's fault, not ours.
            warnings.simplefilter("ignore")
            value: object = ast.literal_eval(text)
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("neither JSON nor a literal") from error


def read_call(text: str, names: frozenset[str]) -> tuple[str, str] | None:
    """Read the call of one of the named tools that makes up a text.

    Args:
        text: a fenced block, the inside of tags, or bare JSON.
        names: the tools there are.

    Returns:
        The tool's name and its arguments as text; None if it is no such call.
    """
    text = re.sub(r"</?tool_call>", "", without_fence(text))
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
    """Read a call whose code breaks its JSON, such as by unescaped quotes."""
    name = re.match(r'\s*\{+\s*"(?:name|function|tool)"\s*:\s*"(\w+)"', text)
    if not name or name[1] not in names:
        return None
    code = broken_code(text)
    return (name[1], json.dumps({"code": code})) if code else None


def broken_code(text: str) -> str | None:
    """Extract the code from an object that is not quite JSON."""
    start = _CODE.search(text)
    if not start:
        return None
    rest = text[start.end() :]
    end = _END.search(rest[-200:])
    if end:
        rest = rest[: max(len(rest) - 200, 0) + end.start()]
    return without_escapes(rest)


def code_start(text: str) -> int | None:
    """Find where the code begins in an object that is still being written."""
    start = _BEGINNING.match(text)
    return start.end() if start else None


def string_end(text: str) -> tuple[int, bool]:
    """Return how much of a JSON string's inside can be decoded, and whether its end was reached."""
    match = _STRING.match(text)
    position = match.end() if match else 0
    return position, text[position : position + 1] == '"'


def without_escapes(text: str) -> str:
    """Undo the escapes of JSON; leave everything else alone."""

    def one(match: re.Match[str]) -> str:
        letter = match[1]
        if len(letter) == 5:
            return chr(int(letter[1:], 16))
        return _ESCAPES.get(letter, match[0])

    # JSON writes a character beyond 16 bits as two escapes.
    halves = _ESCAPE.sub(one, text)
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_prose(code: str) -> bool:
    """Say whether supposed Python is an answer in words: no line of it parses as Python."""
    lines = [line.strip() for line in code[:_PROSE_CHARACTERS].splitlines()]
    return bool(code.strip()) and not any(_is_python(line) for line in lines if line)


def printed_text(code: str) -> str:
    """Return the output of code that only prints constant words and numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code[:_PROSE_CHARACTERS]).body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    lines = []
    for statement in body:
        match statement:
            case ast.Expr(ast.Call(ast.Name("print"), [ast.Constant(value)], [])):
                lines.append(str(value))
            case _:
                return ""
    return "\n".join(lines)


def _is_python(line: str) -> bool:
    if line.startswith(_MAGIC) or "(" in line or "import " in line:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def without_fence(text: str) -> str:
    """Remove the fence that wraps a whole text, if there is one."""
    opening, line_end, inside = text.strip().partition("\n")
    if not line_end or not opening.startswith(_FENCES):
        return text
    body, _, closing = inside.rpartition("\n")
    is_closed = closing.strip().startswith(_FENCES) and not closing.strip().strip("`~")
    return body if is_closed else inside
