"""Code as people are to read it before they let it run: what cannot be seen in it is written out.

Nothing is removed, for what is removed would run all the same. Pure.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Final

# They are drawn as nothing, or as an empty place, though Unicode counts them among letters,
# symbols and marks: fillers of Hangul, an empty Braille cell, variation selectors, and others.
_BLANK: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_SEEN: Final = frozenset(" \t\n")
_SYMBOLS: Final = frozenset({"So", "Sk"})
_PICTURED, _JOINER = "\ufe0f", "\u200d"
# Python and every screen take them for line ends.
_RETURNS: Final = re.compile(r"\r\n?")


@dataclasses.dataclass(frozen=True, slots=True)
class Revealed:
    """Code to show.

    Attributes:
        text: with `⟨U+202E⟩` in the place of a character that cannot be seen or reorders others.
        warning: a sentence about those; empty where there are none.
    """

    text: str
    warning: str = ""


def revealed(code: str) -> Revealed:
    """Write out what cannot be seen in code, or makes it read otherwise than it runs.

    What belongs to a visible emoji is left as it is.
    """
    code = _RETURNS.sub("\n", code)
    if code.isascii() and all(line.isprintable() for line in re.split(r"[\n\t]", code)):
        return Revealed(code)
    shown: list[str] = []
    count = 0
    for place, letter in enumerate(code):
        if letter in _SEEN or not _is_hidden(code, place):
            shown.append(letter)
        else:
            shown.append(f"⟨U+{ord(letter):04X}⟩")
            count += 1
    return Revealed("".join(shown), _warning(count))


def _is_hidden(code: str, place: int) -> bool:
    letter = code[place]
    if unicodedata.category(letter) not in _UNSEEN and not _BLANK.match(letter):
        return False
    before, after = code[place - 1 : place], code[place + 1 : place + 2]
    if letter == _PICTURED:
        return not _is_symbol(before) and after != "\u20e3"
    if letter == _JOINER:
        return not (_is_symbol(before) or before == _PICTURED) or not _is_symbol(after)
    return True


def _is_symbol(letter: str) -> bool:
    return bool(letter) and unicodedata.category(letter) in _SYMBOLS and not _BLANK.match(letter)


def _warning(count: int) -> str:
    if not count:
        return ""
    some = "a character" if count == 1 else f"{count:,} characters"
    return f"This code holds {some} that nobody can see or that reorder text, shown as ⟨U+…⟩."
