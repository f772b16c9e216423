"""Read the JSON of tool calls although the model made mistakes in it. Pure.

Nothing is run or compiled, and everything takes linear time. The package `json_repair` is not used:
it takes seconds for 4 kB of hostile text, which would block the event loop.
"""

from __future__ import annotations

import json
import re
from typing import Final

_TRIPLE_QUOTED: Final = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_FENCES: Final = ("```", "~~~")
_CODE_START: Final = re.compile(r'\s*\{\s*"(?:code|python_code|source|python|script)"\s*:\s*"')
# Complete characters and escapes. A high surrogate is complete only with its low surrogate.
_STRING_CONTENT: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+"
)
_MAX_CHARACTERS: Final = 200_000
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


def parse(text: str) -> object:
    """Parse JSON, also with raw line ends, Python's triple quotes, and escapes that JSON lacks.

    Raises:
        ValueError: it is something else, or the end of a string is ambiguous.
    """
    if len(text) > _MAX_CHARACTERS:
        raise ValueError("too long")
    text = text.strip()
    requoted = _TRIPLE_QUOTED.sub(lambda match: json.dumps(match[1] or match[2] or ""), text)
    for candidate in (text, requoted, _ESCAPE.sub(_correct_escape, requoted)):
        try:
            return json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
    raise ValueError("no JSON")


def _correct_escape(match: re.Match[str]) -> str:
    r"""Return an escape as JSON has it: models write `\d` of a pattern, and `\'` as in Python."""
    letter = match[1]
    if letter == "'":
        return letter
    return match[0] if letter in _ESCAPES or len(letter) == 5 else f"\\{match[0]}"


def find_code_start(text: str) -> int | None:
    """Find where the code begins in an object that is still being written."""
    start = _CODE_START.match(text)
    return start.end() if start else None


def find_string_end(text: str) -> tuple[int, bool]:
    """Return how much of a JSON string's content can be decoded, and whether it has ended."""
    match = _STRING_CONTENT.match(text)
    position = match.end() if match else 0
    return position, text[position : position + 1] == '"'


def decode_escapes(text: str) -> str:
    """Decode the escapes of JSON, and keep all other text."""

    def replace_escape(match: re.Match[str]) -> str:
        letter = match[1]
        if len(letter) == 5:
            return chr(int(letter[1:], 16))
        return _ESCAPES.get(letter, match[0])

    # JSON writes a character beyond 16 bits as two escapes, which are joined here.
    decoded = _ESCAPE.sub(replace_escape, text)
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def strip_fence(text: str) -> str:
    """Remove the fence that wraps a whole text, if there is one."""
    opening, line_end, content = text.strip().partition("\n")
    if not line_end or not opening.startswith(_FENCES):
        return text
    body, _, closing = content.rpartition("\n")
    is_closed = closing.strip().startswith(_FENCES) and not closing.strip().strip("`~")
    return body if is_closed else content
