"""Find URLs in prose, without the punctuation that follows them. Pure."""

from __future__ import annotations

from typing import Final

URL_PATTERN: Final = r"https?://[^\s<>()]+(?:\([^\s<>()]*\)[^\s<>()]*)*"
"""Matches a URL; its parentheses must be in pairs, as in Markdown."""
_TRAILING_PUNCTUATION: Final = ".,;:!?*_~|'\"}"
_OPENING_BY_CLOSING: Final = {")": "(", "]": "["}


def strip_trailing_punctuation(address: str) -> str:
    """Remove punctuation after a URL; a bracket that the URL itself opened is kept."""
    end = len(address)
    excess = {
        close: address.count(close) - address.count(start)
        for close, start in _OPENING_BY_CLOSING.items()
    }
    while end:
        last = address[end - 1]
        if last in _OPENING_BY_CLOSING and excess[last] > 0:
            excess[last] -= 1
        elif last not in _TRAILING_PUNCTUATION:
            break
        end -= 1
    return address[:end]
