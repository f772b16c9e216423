"""Where an address ends that stands in a sentence. Pure."""

from __future__ import annotations

from typing import Final

PATTERN: Final = r"https?://[^\s<>()]+(?:\([^\s<>()]*\)[^\s<>()]*)*"
"""An address as the target of a link: its parentheses are in pairs, as in Markdown."""
_TRAILING: Final = ".,;:!?*_~|'\"}"
_CLOSING: Final = {")": "(", "]": "["}


def without_trailing(address: str) -> str:
    """Return an address without the marks of the sentence around it: what it opens it closes."""
    end = len(address)
    excess = {
        close: address.count(close) - address.count(start) for close, start in _CLOSING.items()
    }
    while end:
        last = address[end - 1]
        if last in _CLOSING and excess[last] > 0:
            excess[last] -= 1
        elif last not in _TRAILING:
            break
        end -= 1
    return address[:end]
