"""The screen of one execution: what its outputs leave visible, as in a notebook. Pure.

Clearing and updates of displays replace earlier outputs; carriage returns and backspaces overwrite
printed text.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.text import safe_text

_MOVES_AND_TEXT: Final = re.compile(r"\r+(?=\n)|[\r\n\x08]|[^\r\n\x08]+")
_COMBINING_CATEGORIES: Final = frozenset({"Mn", "Me"})
_JOINER: Final = "\u200d"
_MAX_STACKED_MARKS: Final = 16


VisibleOutput: TypeAlias = values.Text | values.Error | values.DisplayOutput | values.Notice
"""Any output but `values.Clear`, which shows nothing itself."""


class TerminalText:
    """Printed text, in which carriage returns and backspaces move back and later text overwrites.

    So a progress bar is one line that changes. The time is proportional to the length of the text.
    """

    def __init__(self) -> None:
        self._finished: list[str] = []
        self._cells: list[str] = []
        self._cursor = 0
        self._pending = ""

    @property
    def line(self) -> str:
        """The present, unfinished line."""
        return "".join(self._cells)

    @property
    def is_at_line_start(self) -> bool:
        """Whether the next text overwrites the unfinished line from its beginning."""
        return self._cursor == 0 and bool(self._cells)

    @property
    def finished_lines(self) -> str:
        """The finished lines, which no longer change."""
        if len(self._finished) > 1:
            self._finished = ["".join(self._finished)]
        return self._finished[0] if self._finished else ""

    @property
    def text(self) -> str:
        """All lines."""
        return self.finished_lines + self.line

    def feed(self, text: str) -> None:
        """Apply the next printed text; an escape may be cut in two."""
        text, self._pending = safe_text.split_open_escape(self._pending + text)
        for part in _MOVES_AND_TEXT.findall(safe_text.sanitize_printed(text)):
            self._apply(part)

    def _apply(self, part: str) -> None:
        if part == "\n":
            self._finished.append(self.line + "\n")
            self._cells.clear()
            self._cursor = 0
        elif part[0] == "\r":
            self._cursor = 0
        elif part == "\x08":
            self._cursor = max(self._cursor - 1, 0)
        elif self._cursor == len(self._cells) and part.isascii():
            self._cells.extend(part)
            self._cursor = len(self._cells)
        else:
            self._overwrite(part)

    def _overwrite(self, part: str) -> None:
        """Write letter by letter; a combining mark belongs to the letter before it."""
        for letter in part:
            previous = self._cells[self._cursor - 1] if self._cursor else ""
            if previous and (_is_attached(letter) or previous[-1] == _JOINER):
                # Stacks of marks are limited, as they could cover the text around them.
                if len(previous) < _MAX_STACKED_MARKS:
                    self._cells[self._cursor - 1] += letter
                continue
            self._cells[self._cursor : self._cursor + 1] = [letter]
            self._cursor += 1


def _is_attached(letter: str) -> bool:
    return letter == _JOINER or unicodedata.category(letter) in _COMBINING_CATEGORIES


@dataclasses.dataclass(frozen=True, slots=True)
class ScreenItem:
    """One item of a screen.

    Attributes:
        number: identifies the item through all its updates.
        output: its present content; printed text has no carriage returns.
    """

    number: int
    output: VisibleOutput


class _MutableItem:
    """An item that later outputs may still change."""

    def __init__(self, number: int, output: VisibleOutput) -> None:
        self.number = number
        self.output = output
        self.terminal_text: TerminalText | None = None
        if isinstance(output, values.Text):
            self.terminal_text = TerminalText()
            self.terminal_text.feed(output.text)

    def item(self) -> ScreenItem:
        output = self.output
        if isinstance(output, values.Text) and self.terminal_text is not None:
            output = values.Text(output.stream, self.terminal_text.text)
        return ScreenItem(self.number, output)


class Screen:
    """The screen of one execution, to which its outputs are applied one by one."""

    def __init__(self) -> None:
        self._mutable_items: list[_MutableItem] = []
        self._next_number = 0
        self._clears_before_next = False

    @property
    def items(self) -> tuple[ScreenItem, ...]:
        """The visible items, in order, without empty text."""
        items = (mutable_item.item() for mutable_item in self._mutable_items)
        return tuple(
            item for item in items if not isinstance(item.output, values.Text) or item.output.text
        )

    @property
    def outputs(self) -> tuple[VisibleOutput, ...]:
        """The outputs of the visible items."""
        return tuple(item.output for item in self.items)

    def show(self, output: values.Output) -> None:
        """Apply the next output."""
        if isinstance(output, values.Clear):
            self._clears_before_next = output.wait
            if not output.wait:
                self._mutable_items.clear()
            return
        if self._clears_before_next:
            self._mutable_items.clear()
            self._clears_before_next = False
        if isinstance(output, values.Text):
            self._print(output)
        elif not (isinstance(output, values.Display) and output.is_update and self._redraw(output)):
            self._add(output)

    def _add(self, output: VisibleOutput) -> None:
        self._mutable_items.append(_MutableItem(self._next_number, output))
        self._next_number += 1

    def _print(self, output: values.Text) -> None:
        remaining = output.text
        last = self._last(output.stream)
        if last is not None and last.terminal_text is not None:
            head, remaining = self._split_continuation(remaining, last, last.terminal_text)
            if head:
                last.terminal_text.feed(head)
        if remaining:
            self._add(values.Text(output.stream, remaining))

    def _last(self, stream: str) -> _MutableItem | None:
        """Find the text last printed to a stream."""
        for mutable_item in reversed(self._mutable_items):
            if (
                isinstance(mutable_item.output, values.Text)
                and mutable_item.output.stream == stream
            ):
                return mutable_item
        return None

    def _split_continuation(
        self, text: str, last: _MutableItem, printed: TerminalText
    ) -> tuple[str, str]:
        """Split text into the part that continues the item `last`, and the part for a new item."""
        if last is self._mutable_items[-1]:
            return text, ""
        if printed.line and (text.startswith("\r") or printed.is_at_line_start):
            # A progress bar continues its line even if something was shown since.
            head, end, rest = text.partition("\n")
            return head + end, rest
        return "", text

    def _redraw(self, update: values.DisplayOutput) -> bool:
        """Replace all displays with the id of an update; return False if there are none."""
        displays = [
            mutable_item
            for mutable_item in self._mutable_items
            if isinstance(mutable_item.output, values.Display)
            and mutable_item.output.display_id == update.display_id
        ]
        for mutable_item in displays:
            mutable_item.output = update
        return bool(displays)
