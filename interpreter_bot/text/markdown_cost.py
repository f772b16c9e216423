"""Whether Markdown costs far more to parse than its length says. Pure."""

from __future__ import annotations

from typing import Final

_MAX_OPEN_BRACKETS: Final = 50


def is_excessive(text: str) -> bool:
    """Return whether brackets of a text stay open in such numbers that only a plain text is cheap.

    For each open bracket markdown-it looks for the end of a link, through all that follow it.
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
