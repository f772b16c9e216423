"""An answer in the making: text and tasks in order, and their form as Markdown. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import past_code
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
class Note(Text):
    """A paragraph that is not the model's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """Markdown of text that code showed."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Something that is done or was done, in one line, with foldable details.

    Attributes:
        id: a later task of the same id replaces this one.
        title: such as "Running Python".
        details: more, such as the code; only those of the first one count.
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


class Answer:
    """Pieces of an answer. `pieces` grows at its end; earlier ones never change."""

    def __init__(self, *, is_code: bool = False) -> None:
        """Begin empty.

        Args:
            is_code: the request is raw code, whose output is the point and stays in its order.
        """
        self.is_code: Final = is_code
        self.pieces: list[Piece] = []
        self._step_begins = 0
        self._ending: str | None = None

    def step(self) -> None:
        """Begin the text of a new step."""
        self._step_begins = len(self.pieces)

    def text(self, text: str) -> None:
        """Add harmless text."""
        if text:
            self.pieces.append(Text(text))

    def paragraph(self, text: str) -> None:
        """Add something that begins and ends with a line of its own."""
        if text.strip():
            self.pieces.append(Note(self._apart(text)))

    def printed(self, text: str) -> None:
        """Add a paragraph that code showed."""
        self.pieces.append(Printed(self._apart(text)))

    def _apart(self, text: str) -> str:
        gap = "\n\n" if self._has_words else ""
        return f"{gap}{text.strip(chr(10))}\n\n"

    def picture(self, picture: Picture) -> None:
        """Add a picture; what comes before it and after it are texts of their own."""
        self.pieces.append(picture)

    def task(self, task: Task) -> None:
        """Add a task, or change it."""
        self.pieces.append(task)

    @property
    def has_anything(self) -> bool:
        """Whether there is anything to read or to see, besides what was done."""
        return any(
            isinstance(p, Picture) or (isinstance(p, Text | Printed) and bool(p.text.strip()))
            for p in self.pieces
        )

    @property
    def may_be_streamed(self) -> bool:
        """Whether it is words and what was done, with pictures only after all of them."""
        texts = itertools.dropwhile(_is_picture, reversed(self.pieces))
        return all(isinstance(piece, Text | Task) for piece in texts)

    @property
    def ends_in_words(self) -> bool:
        """Whether the model's words are the last it did."""
        last = self.pieces[self._step_begins :]
        has_run = any(isinstance(piece, Task) for piece in last)
        return not (self.is_code or has_run) and bool(self.words_of_step().strip())

    def so_far(self) -> Answer:
        """Return what is shown while it grows: pictures follow the words of a model."""
        return self if self.is_code else self._of(p for p in self.pieces if not _is_picture(p))

    def only_pictures(self) -> Answer:
        """Return its pictures."""
        return self._of(filter(_is_picture, self.pieces))

    def final(self, *, leaves_out: bool) -> Answer:
        """Return what is shown in the end: the last words first, then results.

        Args:
            leaves_out: words stand without the code and the printed text that led to them.
        """
        if not self.ends_in_words:
            return self
        before, last = self.pieces[: self._step_begins], self.pieces[self._step_begins :]
        answer = self._of(())
        answer.paragraph("".join(p.text for p in last if isinstance(p, Text)))
        for kind, group in itertools.groupby(before, type):
            pieces = list(group)
            if kind is Text:
                words = "".join(piece.text for piece in pieces if isinstance(piece, Text))
                is_left_out = leaves_out and past_code.is_narration(words)
                pieces = [] if is_left_out else [Text(words)]
            for piece in pieces:
                match piece:
                    case Text(text=text):
                        answer.paragraph(text)
                    case Printed(text=text) if not leaves_out:
                        answer.printed(text)
                    case Task() if not leaves_out:
                        answer.task(piece)
        answer.pieces += filter(_is_picture, before)
        return answer

    def _of(self, pieces: Iterable[Piece]) -> Answer:
        answer = Answer(is_code=self.is_code)
        answer.pieces += pieces
        return answer

    def after(self, pictures: int) -> int:
        """Return the index of the piece that follows the first `pictures` pictures, or the last
        one."""
        found = [n + 1 for n, piece in enumerate(self.pieces) if isinstance(piece, Picture)]
        return [0, *found[:pictures]][-1]

    @property
    def _has_words(self) -> bool:
        texts = (p.text for p in reversed(self.pieces) if isinstance(p, Text | Printed))
        last = next(texts, "")
        return bool(last) and not last.endswith("\n\n")

    def words_of_step(self) -> str:
        """Return the model's text of its last step."""
        return "".join(p.text for p in self.pieces[self._step_begins :] if type(p) is Text)

    def end_step_with(self, text: str) -> bool:
        """Replace the last step's text by its final form; return whether that differs."""
        if not text or text.strip() == self.words_of_step().strip():
            return False
        kept = [p for p in self.pieces[self._step_begins :] if type(p) is not Text]
        self.pieces[self._step_begins :] = [*kept, Text(text)]
        return True


def _is_picture(piece: Piece) -> bool:
    return isinstance(piece, Picture)


def runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Split pieces where pictures begin or end: each run is pictures, or has none."""
    for _, run in itertools.groupby(pieces, key=lambda piece: isinstance(piece, Picture)):
        yield list(run)


def markdown(pieces: Sequence[Piece], *, with_details: bool) -> str:
    """Format all pieces that are no pictures as Markdown."""
    latest = {p.id: p for p in pieces if isinstance(p, Task)}
    details = {p.id: p.details for p in reversed(pieces) if isinstance(p, Task)}
    parts: list[str] = []
    seen: set[str] = set()
    for piece in pieces:
        if isinstance(piece, Text | Printed):
            parts.append(piece.text)
        elif isinstance(piece, Task) and piece.id not in seen:
            seen.add(piece.id)
            gap = "\n\n" if parts and not parts[-1].endswith("\n\n") else ""
            more = details[piece.id] if with_details else ""
            code = f"\n{fences.fenced(more, language='python')}" if more else ""
            parts.append(f"{gap}{latest[piece.id].line}{code}\n\n")
    return "".join(parts).strip("\n")


def open_fence(text: str) -> fences.Fence | None:
    """Return the fence that is open at the end of a text."""
    open_after = [after for _, _, after in fences.scanned(text.splitlines(keepends=True))]
    return open_after[-1] if open_after else None
