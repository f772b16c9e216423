"""Numbers in texts, and whether they can derive from other numbers. Pure."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import Final

_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_LIST_MARK: Final = re.compile(
    r"^[ \t*_#>-]*(?:step )?\d+[.):](?=[\s*_])", re.MULTILINE | re.IGNORECASE
)


def without_list_marks(text: str) -> str:
    """Remove the numbers that only number the items of a list."""
    return _LIST_MARK.sub("", text)


def numbers_in(text: str) -> Iterator[tuple[float, int]]:
    """Find numbers and their decimal places; groups of thousands may have commas."""
    for found in _NUMBER.findall(text):
        number = found.replace(",", "")
        if number.count(".") <= 1:
            yield float(number), len(number.partition(".")[2])


def all_numbers(texts: Iterable[str]) -> list[float]:
    """Return all numbers of the texts, in order."""
    return sorted({value for text in texts for value, _ in numbers_in(text)})


def is_among(value: float, places: int, known: list[float]) -> bool:
    """Return whether a number is known, or is a known one rounded to its decimal places."""
    slack = 0.5 * 10.0**-places + 1e-9 if places else 0.0
    at = bisect.bisect_left(known, value - slack)
    return at < len(known) and known[at] <= value + slack
