"""Numbers in texts, and whether they can derive from other numbers. Pure."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import Final

_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
# Groups of thousands, separated by spaces or apostrophes.
_GAP: Final = "[ \u00a0\u2009\u202f'\u2019]"
_GROUPED: Final = re.compile(rf"\d{{1,3}}(?:{_GAP}\d{{3}}(?!\d))+(?:[.,]\d+)?")
_WRITTEN: Final = re.compile(rf"{_GROUPED.pattern}|{_NUMBER.pattern}")
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


def written(text: str) -> Iterator[str]:
    """Find numbers as people write them, in English or not: 1,234.5, 1.234,5 or 1 234,5."""
    yield from _WRITTEN.findall(text)


def parts(written: str) -> list[str]:
    """Split what may be several numbers, as in "of 500 120 are new"."""
    return _NUMBER.findall(written)


def readings(written: str) -> Iterator[tuple[float, int]]:
    """Iterate over the values a number may mean, with decimal places: a comma may be a decimal
    point."""
    digits = re.sub(_GAP, "", written)
    for number in {digits.replace(",", ""), digits.replace(".", "").replace(",", ".")}:
        if number.count(".") <= 1:
            yield float(number), len(number.partition(".")[2])


def known_in_any_reading(texts: Iterable[str]) -> list[float]:
    """Return all values that the numbers of the texts may mean, in order."""
    found = {one for text in texts for one in (*_NUMBER.findall(text), *_GROUPED.findall(text))}
    return sorted({value for one in found for value, _ in readings(one)})


def is_among(value: float, places: int, known: list[float]) -> bool:
    """Say whether a number is known, or is a known one rounded to its decimal places."""
    return is_near(value, 0.5 * 10.0**-places + 1e-9 if places else 0.0, known)


def is_near(value: float, slack: float, known: list[float]) -> bool:
    """Say whether a number differs from a known one by at most `slack`."""
    at = bisect.bisect_left(known, value - slack)
    return at < len(known) and known[at] <= value + slack
