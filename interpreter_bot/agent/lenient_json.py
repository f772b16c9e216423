"""Read nearly-JSON: tool calls that a model wrote with faults. Pure.

Nothing here runs or compiles what it reads, and every pattern takes linear time.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import tokenize
import warnings
from typing import Final

_TRIPLE: Final = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_FENCES: Final = ("```", "~~~")
_BEGINNING: Final = re.compile(r'\s*\{+\s*"(?:code|python_code|source|python|script)"\s*:\s*"')
# Whole characters and whole escapes; the first half of a surrogate pair waits for the second.
_STRING: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+"
)
# What may follow a string in an object that is broken later on: its end, or another key.
_AFTER_STRING: Final = re.compile(
    r'(?:\s|\\n)*+(?:(?:\s|\\n|\})*+\Z|,(?:\s|\\n)*+"\w+"(?:\s|\\n)*+:)'
)
_BRACES: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|\{\{|\}\}', re.DOTALL)
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


def parse(text: str) -> object:
    """Parse JSON, or a model's approximation of it; ValueError if it is neither.

    Also accepted: Python's triple quotes, Python's literals, doubled braces, raw line ends in
    strings. Text in which the end of a string is ambiguous is refused.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long")
    text = text.strip()
    if text.startswith("{{") and text.endswith("}}"):
        # Strings are left alone: a doubled brace in code is code.
        text = _BRACES.sub(lambda match: match[0][:1] if match[0][0] in "{}" else match[0], text)
    quoted = _TRIPLE.sub(lambda match: json.dumps(match[1] or match[2] or ""), text)
    for attempt in (text, quoted):
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
            if _has_adjacent_strings(text):
                raise ValueError("quotes within a string are not escaped")
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("neither JSON nor a literal") from error


def _has_adjacent_strings(text: str) -> bool:
    """Return whether Python would join strings: an unescaped quote then ends a string too early."""
    kinds = [
        token.type
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE)
    ]
    return any(first == second == tokenize.STRING for first, second in itertools.pairwise(kinds))


def intact_code(text: str) -> str | None:
    """Return the code of an object that is broken elsewhere; None unless its string is whole."""
    start = code_start(text)
    if start is None:
        return None
    end, is_closed = string_end(text[start:])
    if not is_closed or not _AFTER_STRING.match(text, start + end + 1):
        return None
    code = without_escapes(text[start : start + end])
    lines = ["pass" if line.startswith(_MAGIC) else line for line in code.splitlines()]
    return code if _parses("\n".join(lines)) else None


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
    """Return whether supposed Python is an answer in words: no line of it parses as Python."""
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
    return _parses(line)


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
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
