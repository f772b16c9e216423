"""The screen of one execution: outputs after clearing and updates, print after backspaces. Pure."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.text import safe_text

_MOVES: Final = re.compile(r"\r+(?=\n)|[\r\n\x08]|[^\r\n\x08]+")
_ATTACHED: Final = frozenset({"Mn", "Me"})
_JOINER: Final = "\u200d"
_MAX_STACKED: Final = 16


Standing: TypeAlias = values.Text | values.Error | values.Shown | values.Notice
"""Visible output; a `values.Clear` is not."""


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
            previous = self._cells[self._place - 1] if self._place else ""
            if previous and (_is_attached(letter) or previous[-1] == _JOINER):
                # Letters can be stacked without end, over and under the text around them.
                if len(previous) < _MAX_STACKED:
                    self._cells[self._place - 1] += letter
                continue
            self._cells[self._place : self._place + 1] = [letter]
            self._place += 1


def _is_attached(letter: str) -> bool:
    return letter == _JOINER or unicodedata.category(letter) in _ATTACHED


@dataclasses.dataclass(frozen=True, slots=True)
class ScreenItem:
    """One item of a screen.

    Attributes:
        number: identifies it as long as it exists, through all updates.
        output: its present content; text without carriage returns.
    """

    number: int
    output: Standing


class _Place:
    """Mutable item of a screen."""

    def __init__(self, number: int, output: Standing) -> None:
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
    """Screen that takes the outputs of one execution one by one."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._count = 0
        self._is_clearing = False

    @property
    def items(self) -> tuple[ScreenItem, ...]:
        """Visible items, in order, without empty text."""
        items = (place.item() for place in self._places)
        return tuple(
            item for item in items if not isinstance(item.output, values.Text) or item.output.text
        )

    @property
    def outputs(self) -> tuple[Standing, ...]:
        """Visible outputs, without their numbers."""
        return tuple(item.output for item in self.items)

    def show(self, output: values.Output) -> None:
        """Apply the next output."""
        if isinstance(output, values.Clear):
            self._is_clearing = output.wait
            if not output.wait:
                self._places.clear()
            return
        if self._is_clearing:
            self._places.clear()
            self._is_clearing = False
        if isinstance(output, values.Text):
            self._print(output)
        elif not (isinstance(output, values.Display) and output.is_update and self._redraw(output)):
            self._add(output)

    def _add(self, output: Standing) -> None:
        self._places.append(_Place(self._count, output))
        self._count += 1

    def _print(self, output: values.Text) -> None:
        remaining = output.text
        place = self._last(output.stream)
        if place is not None and place.tape is not None:
            head, remaining = self._divided(remaining, place, place.tape)
            if head:
                place.tape.feed(head)
        if remaining:
            self._add(values.Text(output.stream, remaining))

    def _last(self, stream: str) -> _Place | None:
        """Find the text last printed to a stream."""
        for place in reversed(self._places):
            if isinstance(place.output, values.Text) and place.output.stream == stream:
                return place
        return None

    def _divided(self, text: str, place: _Place, tape: Tape) -> tuple[str, str]:
        """Split text into what continues `place` and what begins a new item."""
        if place is self._places[-1]:
            return text, ""
        if tape.line and (text.startswith("\r") or tape.is_returned):
            # A progress bar continues in place, though something was shown since.
            head, end, rest = text.partition("\n")
            return head + end, rest
        return "", text

    def _redraw(self, update: values.Shown) -> bool:
        """Replace every display that an update is for; False if there is none."""
        places = [
            place
            for place in self._places
            if isinstance(place.output, values.Display)
            and place.output.display_id == update.display_id
        ]
        for place in places:
            place.output = update
        return bool(places)
