"""What an answer must hold, in checks that treat a printed output and a sentence alike. Pure.

None asks for a wording. A check counts what it finds, so that no answer is right because it holds
everything: the numbers in it are limited, and of the names that a column knows, those that were
not asked for may not be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from bench import questions

Check: TypeAlias = Callable[[questions.Answer], bool]

_NUMBER: Final = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)")
# Dates and times are no figures: their parts would be found as some.
_DATE: Final = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b|\b\d{1,2}:\d{2}\b")
_SPARE_NUMBERS: Final = 10


def _numbers(text: str) -> list[float]:
    found = _NUMBER.findall(_DATE.sub(" ", text))
    return [float(one.rstrip(",").replace(",", "")) for one in found]


def numbers(*expected: float, within: float = 0.005) -> Check:
    """All of them are in the text, as rounded as `within` allows, and not too many others.

    A sign does not count, for what is down by 5 % is told in either way.
    """

    def is_right(answer: questions.Answer) -> bool:
        said = [abs(one) for one in _numbers(answer.text)]
        wanted = [abs(one) for one in expected]
        return len(said) <= _SPARE_NUMBERS + 3 * len(expected) and all(
            any(abs(one - each) <= within * max(each, 1) for one in said) for each in wanted
        )

    return is_right


def count(*expected: int) -> Check:
    """Whole numbers, to the one."""
    return numbers(*expected, within=0)


def names(expected: Iterable[str], *, among: Iterable[str]) -> Check:
    """Of those that a column knows, exactly these are in the text."""
    wanted, known = set(expected), set(among)

    def is_right(answer: questions.Answer) -> bool:
        said = {
            one
            for one in known
            if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", answer.text, re.IGNORECASE)
        }
        return said == wanted

    return is_right


def each(expected: Mapping[str, float], *, within: float = 0.005) -> Check:
    """Every name is in the text, and every number."""
    has_numbers = numbers(*expected.values(), within=within)
    return lambda answer: (
        has_numbers(answer) and all(name.lower() in answer.text.lower() for name in expected)
    )


def line(expected: str) -> Check:
    """One line of the text is exactly this, but for blanks, and quotes and marks around it."""
    wanted = "".join(expected.split())

    def is_right(answer: questions.Answer) -> bool:
        lines = ("".join(one.split()) for one in answer.text.splitlines())
        return any(one.strip("*`'\".") == wanted for one in lines)

    return is_right


def every(*checks: Check) -> Check:
    """All parts of the answer are right."""
    return lambda answer: all(check(answer) for check in checks)
