"""Printed text as it stands on a screen, with nothing in it that a screen would obey. Pure.

Every pattern matches whatever follows its first character and never looks back, so that the
time taken is in proportion to the text, whoever wrote it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# A line end closes a string escape that nobody closed, as in real terminals. Of the C1 controls
# only one that is followed by parameters opens anything: others are text decoded wrongly.
_STRING: Final = r"[^\x07\x18\x1a\x1b\x9c\r\n]*+"
_ESCAPE: Final = (
    rf"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_]{_STRING}[\x07\x18\x1a\x9c]?|[ -/]*+[0-~]?)"
    r"|\x9b[0-?]++[ -/]*+[@-~]?"
)
_UNFINISHED: Final = re.compile(
    rf"(?:\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_]{_STRING}|[ -/]*+)|\x9b[0-?]*+[ -/]*+)\Z"
)
_LONGEST_ESCAPE: Final = 256
_CONTROLS: Final = r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
# They show nothing and can carry words past a reader. What scripts and emoji need is not among
# them: joiners, single marks of direction, variation selectors.
_INVISIBLE: Final = (
    r"[\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb\U000e0000\U000e0001]"
)
# Flags of England, Scotland and Wales are a black flag and tags; elsewhere tags are smuggled.
_TAGS: Final = r"(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007f]++"
_UNWANTED: Final = re.compile(f"{_ESCAPE}|{_CONTROLS}|\x08|{_INVISIBLE}|{_TAGS}")
_PRINTED_UNWANTED: Final = re.compile(f"{_ESCAPE}|{_CONTROLS}|{_INVISIBLE}|{_TAGS}")
# They make text read otherwise than it runs (CVE-2021-42574).
_REORDERING: Final = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_RETURNS: Final = re.compile(r"\r\n?")
_SEPARATORS: Final = str.maketrans("\u2028\u2029", "\n\n")
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
_MOVES: Final = re.compile(r"\r+(?=\n)|[\r\n\x08]|[^\r\n\x08]+")
_ATTACHED: Final = frozenset({"Mn", "Me"})
_JOINER: Final = "\u200d"
_MOST_STACKED: Final = 16


def harmless(text: str) -> str:
    """Make text that is no print-out harmless: escapes and invisible characters are removed.

    What reorders text is written out, such as `\\u202e`, which is also how Python spells it.
    """
    if text.isascii() and text.isprintable():
        return text
    return _visible(_UNWANTED.sub("", _RETURNS.sub("\n", text)))


def settled(text: str) -> str:
    """Return a print-out as it stands in the end; see `Tape`."""
    tape = Tape()
    tape.feed(text)
    return tape.text


def _visible(text: str) -> str:
    if text.isascii():
        return text
    text = _SURROGATES.sub("\ufffd", text).translate(_SEPARATORS)
    return _REORDERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Tape:
    """A print-out that grows: carriage returns and backspaces go back, what follows overwrites.

    A progress bar is therefore one line that changes. Time is in proportion to what is fed.
    """

    def __init__(self) -> None:
        self._done: list[str] = []
        self._cells: list[str] = []
        self._place = 0
        self._pending = ""

    @property
    def line(self) -> str:
        """What stands in the line that is not complete."""
        return "".join(self._cells)

    @property
    def is_returned(self) -> bool:
        """Whether that line is about to be overwritten from its beginning."""
        return self._place == 0 and bool(self._cells)

    @property
    def stable(self) -> str:
        """The lines that are complete, which never change any more."""
        if len(self._done) > 1:
            self._done = ["".join(self._done)]
        return self._done[0] if self._done else ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.stable + self.line

    def feed(self, text: str) -> None:
        """Take what is printed next; an escape may be cut in two."""
        text = self._pending + text
        self._pending = ""
        start = max(text.rfind("\x1b"), text.rfind("\x9b"))
        if 0 <= len(text) - start <= _LONGEST_ESCAPE and _UNFINISHED.match(text, max(start, 0)):
            self._pending = text[start:]
            text = text[:start]
        for part in _MOVES.findall(_visible(_PRINTED_UNWANTED.sub("", text))):
            self._take(part)

    def _take(self, part: str) -> None:
        if part == "\n":
            self._done.append(self.line + "\n")
            self._cells.clear()
            self._place = 0
        elif part[0] == "\r":
            # The return before a line end moves nothing that is seen.
            self._place = 0
        elif part == "\x08":
            self._place = max(self._place - 1, 0)
        elif self._place == len(self._cells) and part.isascii():
            self._cells.extend(part)
            self._place = len(self._cells)
        else:
            self._overwrite(part)

    def _overwrite(self, part: str) -> None:
        """Write letter by letter; a mark belongs to the letter before it."""
        for letter in part:
            before = self._cells[self._place - 1] if self._place else ""
            if before and (_is_attached(letter) or before[-1] == _JOINER):
                # Letters can be stacked without end, over and under what stands around them.
                if len(before) < _MOST_STACKED:
                    self._cells[self._place - 1] += letter
                continue
            self._cells[self._place : self._place + 1] = [letter]
            self._place += 1


def _is_attached(letter: str) -> bool:
    return letter == _JOINER or unicodedata.category(letter) in _ATTACHED
