"""Recognise Markdown that takes far longer to parse than its length suggests. Pure."""

from __future__ import annotations

from typing import Final

_MAX_OPEN_BRACKETS: Final = 50


def is_slow_to_parse(text: str) -> bool:
    """Return whether a text has so many unclosed brackets that it should not be parsed.

    For each open bracket, markdown-it searches the rest of the text for the end of a link.
    """
    if text.count("[") <= _MAX_OPEN_BRACKETS:
        return False
    open_brackets = 0
    for character in text:
        if character == "[":
            open_brackets += 1
            if open_brackets > _MAX_OPEN_BRACKETS:
                return True
        elif character == "]" and open_brackets:
            open_brackets -= 1
    return False
