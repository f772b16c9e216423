"""Making text from a kernel harmless to show: no terminal control, no broken characters. Pure.

Every pattern here matches whatever follows its first character and never looks back, so that
the time taken is in proportion to the text, whoever wrote it.
"""

from __future__ import annotations

import re
from typing import Final

# What is inside a string escape. A line end closes one that nobody closed, as real terminals do
# not: there, a forgotten byte would swallow everything that is printed after it.
_STRING: Final = r"[^\x07\x18\x1a\x1b\x9c\r\n]*+"
_ESCAPE: Final = (
    rf"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_]{_STRING}[\x07\x18\x1a\x9c]?|[ -/]*+[0-~]?)"
)
# C1 controls are removed but open nothing: more often than a terminal's they are the second half
# of a character that was decoded wrongly, and what follows them is somebody's text.
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_UNWANTED: Final = re.compile(f"{_ESCAPE}|{_CONTROL}")
_UNFINISHED: Final = re.compile(rf"\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_]{_STRING}|[ -/]*+)\Z")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# Beyond this many times what is wanted, escapes are not removed before text is shortened.
_ESCAPED_TIMES: Final = 16


def clean(text: str) -> str:
    """Remove escapes and controls but for newline, tab and carriage return."""
    if text.isprintable():
        return text
    return encodable(_UNWANTED.sub("", text))


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 has no bytes for."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class Cleaner:
    """Cleans a stream that comes in pieces, which may cut an escape in two."""

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, text: str) -> str:
        """Take a piece; returns what of it can be shown."""
        text = self._pending + text
        start = text.rfind("\x1b")
        is_open = start >= 0 and _UNFINISHED.match(text, start) is not None
        self._pending = _shortest(text, start) if is_open else ""
        return clean(text)


def _shortest(text: str, start: int) -> str:
    """Write the unfinished escape at `start` as briefly as what may follow it allows."""
    kind = text[start + 1 : start + 2]
    if kind and kind in "]PX^_":
        return "\x1b]"
    opening = "\x1b[" if kind == "[" else "\x1b"
    has_intermediate = len(text) > start + len(opening) and " " <= text[-1] <= "/"
    return f"{opening} " if has_intermediate else opening


def head(text: str, most_bytes: int) -> str:
    """Cut a text to so many bytes of UTF-8, on a character; lone surrogates are replaced."""
    text = encodable(text[:most_bytes])
    if text.isascii():
        return text
    encoded = text.encode()
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", "ignore")


def bounded(text: str, most_characters: int) -> str:
    """Clean a text; of a long one keep so much, and say how much is missing in the middle."""
    if len(text) <= most_characters * _ESCAPED_TIMES:
        text = clean(text)
    if len(text) <= most_characters:
        return text
    half = most_characters // 2
    tail = len(text) - half
    mark = f"\n… {tail - half:,} characters left out …\n"
    return f"{clean(text[:half])}{mark}{clean(text[tail:])}"


def clipped(text: str, most_characters: int) -> str:
    """Clean a text, and end a long one early."""
    text = clean(text[: most_characters * _ESCAPED_TIMES])
    return text if len(text) <= most_characters else text[: most_characters - 1] + "…"
