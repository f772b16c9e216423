"""Standard output and standard error: lines of ours and text of cells on one stream.

A cell may leave a line open; what is ours begins on a line of its own all the same. Progress bars
write carriage returns, which a terminal obeys; into a file or pipe goes what one would show.
"""

from __future__ import annotations

import io
import os
import re
from typing import Final, TextIO

_PARTS: Final = re.compile(r"[\r\n]|[^\r\n]+")
_BAR_CHARACTERS: Final = 30


class Collapser:
    """Shows each line of printed text as it ended up. Takes time in proportion to the text."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._is_returned = False

    def feed(self, text: str) -> str:
        """Take a piece; returns the lines that are complete with it."""
        lines: list[str] = []
        for part in _PARTS.findall(text):
            if part == "\r":
                self._is_returned = True
            elif part == "\n":
                lines.append(self.rest() + "\n")
            else:
                if self._is_returned:
                    # Only what follows replaces a line: "\r\n" and a last "\r" do not.
                    self._line.clear()
                    self._is_returned = False
                self._line.append(part)
        return "".join(lines)

    def rest(self) -> str:
        """Return what was held back of the line that is not complete, and forget it."""
        rest = "".join(self._line)
        self._line.clear()
        self._is_returned = False
        return rest


class Stream:
    """One of the two."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.is_terminal: Final = file.isatty()
        self._is_coloured = self.is_terminal and not os.environ.get("NO_COLOR")
        self._collapser = None if self.is_terminal else Collapser()
        self._is_line_open = False
        self._has_bar = False
        if isinstance(file, io.TextIOWrapper):
            # What a cell prints need not be what this machine's locale has letters for.
            file.reconfigure(errors="backslashreplace")

    def text(self, text: str) -> None:
        """Write what a cell printed, which ends where it ends.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self._write(text if self._collapser is None else self._collapser.feed(text))

    def flush(self) -> None:
        """Write what was held back of a line, as nothing more will come."""
        if self._collapser is not None:
            self._write(self._collapser.rest())

    def prompt(self, text: str) -> None:
        """Write a question. Its line ends with the answer, which a terminal shows itself."""
        self.text(text)
        self.flush()
        self._is_line_open = self._is_line_open and not self.is_terminal

    def close_line(self) -> None:
        """Make sure that what follows begins a line."""
        self.flush()
        if self._is_line_open:
            self._write("\n")

    def line(self, text: str, *, style: str = "") -> None:
        """Write lines of ours.

        Args:
            text: harmless, without the last line end.
            style: SGR parameters for terminals, such as "31".
        """
        self.close_line()
        if style and self._is_coloured:
            text = f"\x1b[{style}m{text}\x1b[0m"
        self._write(text + "\n")

    def bar(self, share: float | None) -> None:
        """Draw on a terminal how much of something is done; the next call takes its place.

        Args:
            share: from 0 to 1; None takes the bar away.
        """
        if not self.is_terminal:
            return
        if self._has_bar:
            self._write("\x1b[2K\r")
        self._has_bar = share is not None
        if share is not None:
            done = round(share * _BAR_CHARACTERS)
            self._write(f"[{'#' * done:.<{_BAR_CHARACTERS}}] {share:.0%}")

    def _write(self, text: str) -> None:
        if text:
            self._file.write(text)
            self._file.flush()
            self._is_line_open = not text.endswith(("\n", "\r"))
