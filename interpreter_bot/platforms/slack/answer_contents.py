"""Pieces of an answer, and their form as Markdown. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.text import fences, quantities
from interpreter_bot.wording import slack_words

State: TypeAlias = Literal["in_progress", "complete", "error"]
_MARKS: Final[dict[str, str]] = {"in_progress": "⏳", "complete": "✓", "error": "✗"}
FIELD_CHARACTERS: Final = 250
"""The most characters of a task's field; Slack takes 256."""


def shorten(code: str) -> str:
    """Shorten code to what a task holds, whole lines."""
    lines = code.strip().splitlines()
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > FIELD_CHARACTERS - 10:
            return "\n".join([*kept, "…"])
        kept.append(line)
    return "\n".join(kept)


def small_print(
    end: events.TurnEnded, spent: values.Usage | None, *, is_fresh: bool = False
) -> str:
    """Return an answer's small print: duration; with a model, its usage.

    Args:
        is_fresh: it begins a thread of a direct message, with a Python of its own.
    """
    facts = [quantities.duration(end.seconds)]
    if spent is not None:
        facts.append(f"{spent.input_tokens + spent.output_tokens:,} tokens")
    if is_fresh:
        facts.append(slack_words.OWN_PYTHON)
    return " · ".join(facts)


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Markdown, harmless."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """Markdown of text that code showed."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Something that is done or was done, in one line, with foldable details.

    Attributes:
        id: of the task, whose other attributes change.
        title: such as "Running Python".
        details: more, such as the code.
        output: the result, in one line.
    """

    id: str
    title: str
    state: State
    details: str = ""
    output: str = ""

    @property
    def line(self) -> str:
        """Return the task as one line, for where there are no tasks."""
        said = f"{_MARKS[self.state]} _{self.title}_"
        return f"{said}: {self.output}" if self.output else said


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A picture between texts. `about` describes it for people who cannot see it."""

    name: str
    data: bytes
    about: str


Piece: TypeAlias = Text | Printed | Task | Picture


def runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Split pieces where pictures begin or end: each run is pictures, or has none."""
    for _, run in itertools.groupby(pieces, key=lambda piece: isinstance(piece, Picture)):
        yield list(run)


def after(pieces: Sequence[Piece], pictures: int) -> list[Piece]:
    """Return the pieces that follow the first `pictures` pictures, or the last one."""
    places = [number for number, piece in enumerate(pieces, 1) if isinstance(piece, Picture)]
    return list(pieces[[0, *places[:pictures]][-1] :])


def markdown(pieces: Sequence[Piece], *, with_details: bool) -> str:
    """Format all pieces that are no pictures as Markdown, a paragraph each."""
    paragraphs: list[str] = []
    for piece in pieces:
        if isinstance(piece, Text | Printed):
            paragraphs.append(piece.text.strip("\n"))
        elif isinstance(piece, Task):
            more = piece.details if with_details else ""
            code = f"\n{fences.fenced(more, language='python')}" if more else ""
            paragraphs.append(f"{piece.line}{code}")
    return "\n\n".join(filter(str.strip, paragraphs))


def open_fence(text: str) -> fences.Fence | None:
    """Return the fence that is open at the end of a text."""
    open_after = [after for _, _, after in fences.scanned(text.splitlines(keepends=True))]
    return open_after[-1] if open_after else None
