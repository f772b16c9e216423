"""The screen of one execution: its outputs after `clear_output` and display updates. Pure."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from interpreter_bot import values
from interpreter_bot.text import terminal_buffers

Standing: TypeAlias = values.Text | values.Error | values.Shown | values.Notice
"""Visible output; a `values.Clear` is not."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScreenItem:
    """One item of a screen.

    Attributes:
        number: identifies it as long as it exists, through all updates.
        version: grows when its content changes.
        output: its present content; text without carriage returns.
    """

    number: int
    version: int
    output: Standing


class _Place:
    """Mutable item of a screen."""

    def __init__(self, number: int, output: Standing) -> None:
        self.number = number
        self.version = 0
        self.output = output
        self.tape: terminal_buffers.Tape | None = None
        if isinstance(output, values.Text):
            self.tape = terminal_buffers.Tape()
            self.tape.feed(output.text)

    def item(self) -> ScreenItem:
        output = self.output
        if isinstance(output, values.Text) and self.tape is not None:
            output = values.Text(output.stream, self.tape.text)
        return ScreenItem(self.number, self.version, output)


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
        rest = output.text
        place = self._last(output.stream)
        if place is not None and place.tape is not None:
            own, rest = self._divided(rest, place, place.tape)
            if own:
                place.tape.feed(own)
                place.version += 1
        if rest:
            self._add(values.Text(output.stream, rest))

    def _last(self, stream: str) -> _Place | None:
        """Find the text last printed to a stream."""
        for place in reversed(self._places):
            if isinstance(place.output, values.Text) and place.output.stream == stream:
                return place
        return None

    def _divided(self, text: str, place: _Place, tape: terminal_buffers.Tape) -> tuple[str, str]:
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
        found = [
            place
            for place in self._places
            if isinstance(place.output, values.Display)
            and place.output.display_id == update.display_id
        ]
        for place in found:
            place.output = update
            place.version += 1
        return bool(found)
