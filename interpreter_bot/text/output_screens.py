"""The screen of one execution: outputs after clearing and updates, print after backspaces. Pure."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.text import safe_text

_MOVES: Final = re.compile(r"\r+(?=\n)|[\r\n\x08]|[^\r\n\x08]+")
_COMBINING_CATEGORIES: Final = frozenset({"Mn", "Me"})
_JOINER: Final = "\u200d"
_MAX_STACKED_MARKS: Final = 16


VisibleOutput: TypeAlias = values.Text | values.Error | values.DisplayOutput | values.Notice
"""An output that can be visible, which `values.Clear` is not."""


class Tape:
    """Printed text: carriage returns and backspaces move back, and later text overwrites.

    So a progress bar is one line that changes. It takes time in proportion to the text.
    """

    def __init__(self) -> None:
        self._done: list[str] = []
        self._cells: list[str] = []
        self._cursor = 0
        self._pending = ""

    @property
    def line(self) -> str:
        """The present, unfinished line."""
        return "".join(self._cells)

    @property
    def is_returned(self) -> bool:
        """Whether the next text overwrites that line from its beginning."""
        return self._cursor == 0 and bool(self._cells)

    @property
    def stable(self) -> str:
        """The finished lines, which no longer change."""
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
            self._apply(part)

    def _apply(self, part: str) -> None:
        if part == "\n":
            self._done.append(self.line + "\n")
            self._cells.clear()
            self._cursor = 0
        elif part[0] == "\r":
            # The return before a line end moves nothing visible.
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
        number: identifies it as long as it exists, through all updates.
        output: its present content; text without carriage returns.
    """

    number: int
    output: VisibleOutput


class _MutableItem:
    """Mutable item of a screen."""

    def __init__(self, number: int, output: VisibleOutput) -> None:
        self.number = number
        self.output = output
        self.tape: Tape | None = None
        if isinstance(output, values.Text):
            self.tape = Tape()
            self.tape.feed(output.text)

    def item(self) -> ScreenItem:
        output = self.output
        if isinstance(output, values.Text) and self.tape is not None:
            output = values.Text(output.stream, self.tape.text)
        return ScreenItem(self.number, output)


class Screen:
    """Screen of one execution, to which its outputs are applied one by one."""

    def __init__(self) -> None:
        self._mutable_items: list[_MutableItem] = []
        self._count = 0
        self._is_clearing = False

    @property
    def items(self) -> tuple[ScreenItem, ...]:
        """Visible items, in order, without empty text."""
        items = (mutable_item.item() for mutable_item in self._mutable_items)
        return tuple(
            item for item in items if not isinstance(item.output, values.Text) or item.output.text
        )

    @property
    def outputs(self) -> tuple[VisibleOutput, ...]:
        """Visible outputs, without their numbers."""
        return tuple(item.output for item in self.items)

    def show(self, output: values.Output) -> None:
        """Apply the next output."""
        if isinstance(output, values.Clear):
            self._is_clearing = output.wait
            if not output.wait:
                self._mutable_items.clear()
            return
        if self._is_clearing:
            self._mutable_items.clear()
            self._is_clearing = False
        if isinstance(output, values.Text):
            self._print(output)
        elif not (isinstance(output, values.Display) and output.is_update and self._redraw(output)):
            self._add(output)

    def _add(self, output: VisibleOutput) -> None:
        self._mutable_items.append(_MutableItem(self._count, output))
        self._count += 1

    def _print(self, output: values.Text) -> None:
        remaining = output.text
        last = self._last(output.stream)
        if last is not None and last.tape is not None:
            head, remaining = self._split_continuation(remaining, last, last.tape)
            if head:
                last.tape.feed(head)
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

    def _split_continuation(self, text: str, last: _MutableItem, tape: Tape) -> tuple[str, str]:
        """Split text into a part that continues the item `last`, and a part for a new item."""
        if last is self._mutable_items[-1]:
            return text, ""
        if tape.line and (text.startswith("\r") or tape.is_returned):
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
