"""The units in which platforms count text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Measure: TypeAlias = Callable[[str], int]
"""Says how long a text is: at least one unit a character, a sum over its parts."""

characters: Final[Measure] = len
"""Unicode code points, as Discord and Python count."""


def utf16_units(text: str) -> int:
    """Count as JavaScript does: what is beyond the basic plane is two."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def utf8_bytes(text: str) -> int:
    """Count the bytes that are sent."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def head(text: str, most_units: int, measure: Measure) -> int:
    """Return how many leading characters of a text fit."""
    low, high = 0, min(len(text), max(most_units, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= most_units:
            low = middle
        else:
            high = middle - 1
    return low
