"""Making text from a kernel harmless to show: no terminal control, no broken characters. Pure."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`-~])"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# The beginning of an escape whose end may come with the next message.
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_PENDING_CHARACTERS: Final = 4096


def clean(text: str) -> str:
    """Remove escapes and controls but for newline, tab and carriage return."""
    if text.isprintable():
        return text
    text = _ESCAPE.sub("", text)
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


class Cleaner:
    """Cleans a stream that comes in pieces, which may cut an escape in two."""

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, text: str) -> str:
        """Take a piece; returns what can be shown of all that came so far."""
        text = self._pending + text
        self._pending = ""
        start = text.rfind("\x1b", max(0, len(text) - _PENDING_CHARACTERS))
        # The end of one string escape begins like another: look from the one before, too.
        before = text.rfind("\x1b", max(0, len(text) - _PENDING_CHARACTERS), max(start, 0))
        for position in (before, start):
            if position >= 0 and _UNFINISHED.match(text, position):
                self._pending = text[position:]
                text = text[:position]
                break
        return clean(text)


def bounded(text: str, most_characters: int) -> str:
    """Keep head and tail of a long text, and say how much is missing between them."""
    if len(text) <= most_characters:
        return text
    half = most_characters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n… {left_out:,} characters left out …\n{text[-half:]}"
