"""Where text may be cut so that what a reader takes for one letter stays whole. Pure.

The rules of Unicode (UAX 29) as far as they are about letters with marks, emoji, flags, Korean
syllables and line ends; tables of the rarer scripts' conjuncts are not here.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_JOINER: Final = "\u200d"
_EXTENDING: Final = frozenset({"Mn", "Me", "Mc"})
# Flags are pairs: it takes the whole run to know where a pair begins, so runs are bounded.
_MOST_LOOKED_BACK: Final = 64


def floor(text: str, place: int) -> int:
    """Return the last boundary that is not after `place`.

    One letter may be of any length: where none begins within reach, `place` itself is returned,
    or the place before it in the midst of a surrogate pair.
    """
    for candidate in range(place, max(place - _MOST_LOOKED_BACK, 0), -1):
        if is_boundary(text, candidate):
            return candidate
    is_in_pair = 0 < place < len(text) and _is_low(text[place]) and _is_high(text[place - 1])
    return place - 1 if is_in_pair and place > 1 else place


def is_boundary(text: str, place: int) -> bool:
    """Say whether a letter ends and another begins at `place`."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    if before.isascii() and after.isascii():
        return not (before == "\r" and after == "\n")
    if before in "\r\n":
        return True
    return not (
        before == _JOINER
        or _is_extending(after)
        or (_is_high(before) and _is_low(after))
        or (_is_regional(after) and _regionals_before(text, place) % 2 == 1)
        or _is_one_syllable(before, after)
    )


def _is_extending(letter: str) -> bool:
    return (
        letter == _JOINER
        or letter == "\u200c"
        or "\U0001f3fb" <= letter <= "\U0001f3ff"
        or "\U000e0020" <= letter <= "\U000e007f"
        or unicodedata.category(letter) in _EXTENDING
    )


def _is_high(letter: str) -> bool:
    return "\ud800" <= letter <= "\udbff"


def _is_low(letter: str) -> bool:
    return "\udc00" <= letter <= "\udfff"


def _is_regional(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"


def _regionals_before(text: str, place: int) -> int:
    count = 0
    while count < _MOST_LOOKED_BACK and count < place and _is_regional(text[place - count - 1]):
        count += 1
    return count


def _is_one_syllable(before: str, after: str) -> bool:
    """Say whether two letters are parts of one Korean syllable."""
    is_vowel = "\u1160" <= after <= "\u11a7"
    is_final = "\u11a8" <= after <= "\u11ff"
    if "\u1100" <= before <= "\u115f":
        return is_vowel or "\u1100" <= after <= "\u115f" or "\uac00" <= after <= "\ud7a3"
    is_syllable = "\uac00" <= before <= "\ud7a3"
    has_final = is_syllable and (ord(before) - 0xAC00) % 28 > 0
    if "\u1160" <= before <= "\u11a7" or (is_syllable and not has_final):
        return is_vowel or is_final
    return is_final and (has_final or "\u11a8" <= before <= "\u11ff")
