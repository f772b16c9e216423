"""Where text may be cut so that what a reader takes for one letter stays whole. Pure.

The rules and tables of Unicode (UAX 29) are those of the library `regex`.
"""

from __future__ import annotations

from typing import Final

import regex

# Two surrogates are what is left of one letter, too, which Unicode says nothing about.
_LETTER: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]|\X")
# One letter may be of any length, and flags are pairs, for which the whole run has to be read; this
# takes quadratic time, so runs are bounded.
_MOST_LOOKED_BACK: Final = 64


def floor(text: str, place: int) -> int:
    """Return the last boundary not after `place`; where none is in reach, `place` itself."""
    if place >= len(text):
        return place
    reach = max(place - _MOST_LOOKED_BACK, 0)
    *_, last = (found.start() for found in _LETTER.finditer(text[reach : place + 1]))
    return reach + last if last else place
