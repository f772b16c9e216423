"""Terminal buffer: printed text after carriage returns and backspaces. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from interpreter_bot.text import safe_text

_MOVES: Final = re.compile(r"\r+(?=\n)|[\r\n\x08]|[^\r\n\x08]+")
_ATTACHED: Final = frozenset({"Mn", "Me"})
_JOINER: Final = "\u200d"
_MOST_STACKED: Final = 16


class Tape:
    """Growing print-out: carriage returns and backspaces move back, later text overwrites.

    A progress bar is therefore one line that changes. Time is proportional to the length of the
    text.
    """

    def __init__(self) -> None:
        self._done: list[str] = []
        self._cells: list[str] = []
        self._place = 0
        self._pending = ""

    @property
    def line(self) -> str:
        """The present, unfinished line."""
        return "".join(self._cells)

    @property
    def is_returned(self) -> bool:
        """Whether that line is about to be overwritten from its beginning."""
        return self._place == 0 and bool(self._cells)

    @property
    def stable(self) -> str:
        """The finished lines, which never change any more."""
        if len(self._done) > 1:
            self._done = ["".join(self._done)]
        return self._done[0] if self._done else ""

    @property
    def text(self) -> str:
        """All lines."""
        return self.stable + self.line

    def feed(self, text: str) -> None:
        """Apply the next printed text; an escape may be cut in two."""
        text, self._pending = safe_text.without_open_escape(self._pending + text)
        for part in _MOVES.findall(safe_text.printed(text)):
            self._take(part)

    def _take(self, part: str) -> None:
        if part == "\n":
            self._done.append(self.line + "\n")
            self._cells.clear()
            self._place = 0
        elif part[0] == "\r":
            # The return before a line end moves nothing visible.
            self._place = 0
        elif part == "\x08":
            self._place = max(self._place - 1, 0)
        elif self._place == len(self._cells) and part.isascii():
            self._cells.extend(part)
            self._place = len(self._cells)
        else:
            self._overwrite(part)

    def _overwrite(self, part: str) -> None:
        """Write letter by letter; a combining mark belongs to the letter before it."""
        for letter in part:
            before = self._cells[self._place - 1] if self._place else ""
            if before and (_is_attached(letter) or before[-1] == _JOINER):
                # Letters can be stacked without end, over and under the text around them.
                if len(before) < _MOST_STACKED:
                    self._cells[self._place - 1] += letter
                continue
            self._cells[self._place : self._place + 1] = [letter]
            self._place += 1


def _is_attached(letter: str) -> bool:
    return letter == _JOINER or unicodedata.category(letter) in _ATTACHED
