"""Where one line may be broken when it is longer than a message. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import regex

from interpreter_bot.platforms.rendering import fences

# Two surrogates are what is left of one letter, too, which Unicode says nothing about.
_LETTER: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]|\X")
# One letter may be of any length, and flags are pairs, for which the whole run has to be read; this
# takes quadratic time, so runs are bounded.
_MOST_LOOKED_BACK: Final = 64

AHEAD: Final = 2000
"""So many characters after the break have to be known."""
LONGEST_MARKS: Final = 44
"""Characters of a fence with its indent, without what follows them."""

# What would say something else in halves.
_WHOLE: Final = re.compile(
    r"\\.|&\#?\w{1,31};|!?\[[^\[\]\n]{0,200}\]\([^()\s]{1,1000}\)|<[^<>\n]{1,200}>"
    r"|(?<!`)(`{1,3})(?!`)[^`\n]{1,200}(?<!`)\1(?!`)|\*\*[^*\n]{1,200}\*\*|https?://\S{1,1000}"
)
_FENCE_CHARACTERS: Final = 32
_SPACES: Final = re.compile(r"\s+")
_WORDS_TRIED: Final = 16
_LETTERS_TRIED: Final = 64
# A word is cut rather than a piece left emptier than this.
_FULL_ENOUGH: Final = 0.3


def floor(text: str, place: int) -> int:
    """Return the last boundary not after `place`; where none is in reach, `place` itself."""
    if place >= len(text):
        return place
    reach = max(place - _MOST_LOOKED_BACK, 0)
    *_, last = (found.start() for found in _LETTER.finditer(text[reach : place + 1]))
    return reach + last if last else place


def before(line: str, most: int, *, is_code: bool) -> int:
    """Find the place to break a line at, not after its `most`th character.

    Args:
        line: of which more than `most` characters follow the last break.
        most: how many fit, one at least.
        is_code: nothing in it is Markdown.
    """
    spans = [] if is_code else [found.span() for found in _WHOLE.finditer(line)]
    for place in _places(line, most):
        is_whole = not any(start < place < end for start, end in spans)
        if is_whole and not fences.begins(line[place : place + _FENCE_CHARACTERS]):
            return place
    return floor(line, most)


def _places(line: str, most: int) -> Iterator[int]:
    """Give places, the best first: between words, then between letters."""
    least = int(most * _FULL_ENOUGH)
    ends = [found.end() for found in _SPACES.finditer(line[:most]) if found.end() > least]
    if line[most : most + 1].isspace():
        ends.append(most)
    yield from reversed(ends[-_WORDS_TRIED:])
    place = most
    for _ in range(_LETTERS_TRIED):
        place = floor(line, place)
        if place <= 0:
            return
        yield place
        place -= 1
