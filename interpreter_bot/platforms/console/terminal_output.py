"""Standard output and standard error, each with lines of the bot and text of cells.

A cell may leave a line unfinished; the bot then begins a new line. Progress bars write carriage
returns, which a terminal obeys; a file or pipe gets the text that a terminal would show in the end.
"""

from __future__ import annotations

import io
import os
import re
from typing import Final, TextIO

from interpreter_bot.text import safe_text

_LINE_PARTS: Final = re.compile(r"[\r\n]|[^\r\n]+")
_BAR_CHARACTERS: Final = 30


class LineCollapser:
    """Applies carriage returns to printed text, in linear time."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._has_returned = False

    def feed(self, text: str) -> str:
        """Add a piece; return the lines that it completes."""
        lines: list[str] = []
        for part in _LINE_PARTS.findall(text):
            if part == "\r":
                self._has_returned = True
            elif part == "\n":
                lines.append(self.take_incomplete_line() + "\n")
            else:
                if self._has_returned:
                    # A line is only replaced by text that follows, not by "\r\n" or a last "\r".
                    self._line.clear()
                    self._has_returned = False
                self._line.append(part)
        return "".join(lines)

    def take_incomplete_line(self) -> str:
        """Return and forget the incomplete line."""
        incomplete_line = "".join(self._line)
        self._line.clear()
        self._has_returned = False
        return incomplete_line


class Stream:
    """Standard output or standard error."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.is_terminal: Final = file.isatty()
        self._is_coloured = self.is_terminal and not os.environ.get("NO_COLOR")
        self._collapser = None if self.is_terminal else LineCollapser()
        self.is_line_open = False
        self._has_status = False
        self._has_colours = False
        if isinstance(file, io.TextIOWrapper):
            # A cell may print letters that the locale of this machine lacks.
            file.reconfigure(errors="backslashreplace")

    def write_text(self, text: str) -> None:
        """Write text of a cell, without adding a line end; colours are dropped if not supported.

        Raises:
            BrokenPipeError: the reader is gone.
        """
        if not self._is_coloured and "\x1b" in text:
            text = safe_text.clean(text)
        self._has_colours = self._has_colours or "\x1b[" in text
        self._write(text if self._collapser is None else self._collapser.feed(text))

    def flush(self) -> None:
        """Write the unfinished line, and end colours."""
        if self._collapser is not None:
            self._write(self._collapser.take_incomplete_line())
        if self._has_colours:
            self._has_colours = False
            self._file.write("\x1b[0m")
            self._file.flush()

    def write_escapes(self, text: str) -> None:
        """Write escapes to a terminal; `text` is empty, or ends with a line end."""
        self.close_line()
        self._write(text)

    def write_prompt(self, text: str) -> None:
        """Write a question; the terminal shows the answer on the same line."""
        self.write_text(text)
        self.flush()
        self.is_line_open = self.is_line_open and not self.is_terminal

    def close_line(self) -> None:
        """Ensure that what follows begins a line."""
        self.flush()
        if self.is_line_open:
            self._write("\n")

    def write_line(self, text: str, *, style: str = "") -> None:
        """Write lines of the bot.

        Args:
            text: sanitized, without the last line end.
            style: SGR parameters for terminals, such as "31".
        """
        self.close_line()
        if style and self._is_coloured:
            text = f"\x1b[{style}m{text}\x1b[0m"
        self._write(text + "\n")

    def show_status(self, text: str) -> None:
        """Show a line on a terminal until something else is written; an empty one removes it."""
        if not self.is_terminal or self.is_line_open:
            return
        if text or self._has_status:
            self._file.write(f"\r\x1b[2K{text}")
            self._file.flush()
        self._has_status = bool(text)

    def _write(self, text: str) -> None:
        if text:
            self.show_status("")
            self._file.write(text)
            self._file.flush()
            self.is_line_open = not text.endswith(("\n", "\r"))


def draw_bar(share: float) -> str:
    """Draw a progress bar for a share from 0 to 1."""
    filled = round(share * _BAR_CHARACTERS)
    return f"[{'#' * filled:.<{_BAR_CHARACTERS}}] {share:.0%}"
