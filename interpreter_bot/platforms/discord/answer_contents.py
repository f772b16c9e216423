"""The log of a turn so far, in the order in which it is shown. No network.

`replies` writes it; `turn_rendering` renders it.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Final, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.text import output_screens

# A kernel's handle is hostile: anything else would not fit into a button.
_BRIEF_CHARACTERS: Final = 300
_BRIEF_LINES: Final = 4
_HANDLE: Final = re.compile(r"t([0-9]{1,12})")


def table_handle(number: int) -> str:
    """Return the handle that a table's button refers to."""
    return f"t{number}"


@dataclasses.dataclass(eq=False)
class Words:
    """The model's text of one step."""

    pieces: list[str] = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the whole text."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@dataclasses.dataclass(eq=False)
class Cell:
    """Code and its outputs; it began at a wall-clock time."""

    number: int
    code: str
    screen: output_screens.Screen = dataclasses.field(default_factory=output_screens.Screen)
    finished: values.Finished | None = None
    began: float = dataclasses.field(default_factory=time.time)


@dataclasses.dataclass(eq=False)
class Note:
    """A sentence about the session."""

    text: str


@dataclasses.dataclass(eq=False)
class Question:
    """A question to a person during a turn.

    Attributes:
        number: by which the answer refers to it.
        prompt: what code asks with `input()`; or the code that wants to be run.
        is_approval: whether it is about running code.
        is_password: the answer is not to be seen by others.
        verdict: how it ended, once it has.
    """

    number: int
    prompt: str
    is_approval: bool = False
    is_password: bool = False
    verdict: str = ""


Entry: TypeAlias = Words | Cell | Note | Question


class AnswerContents:
    """The log of one turn.

    Attributes:
        owner: who asked.
        ahead: how many requests come first; None once it has its turn.
        awaited: a sentence on what its turn waits for; empty if it goes on.
        since: when it began to wait, or to think, in wall-clock time.
        draft: code that the model is writing.
        end: how the turn ended.
    """

    def __init__(self, *, owner: int, is_code: bool, shows_code: bool) -> None:
        self.owner = owner
        self.is_code = is_code
        self.shows_code = shows_code
        self.entries: list[Entry] = []
        self.ahead: int | None = None
        self.awaited = ""
        self.since = time.time()
        self.has_begun = False
        self.draft = ""
        self.steps = 0
        self.artifacts: list[values.Artifact] = []
        self.end: events.TurnEnded | None = None
        self._draft: list[str] = []

    def step(self, number: int) -> None:
        """Begin the text of a new step."""
        self.steps = number
        self.since = time.time()
        self.entries.append(Words())

    def text(self, delta: str) -> None:
        """Append text of the model."""
        last = self._words()
        if last is None:
            last = Words()
            self.entries.append(last)
        last.pieces.append(delta)

    def _words(self) -> Words | None:
        """Return the text that goes on: notes may have come between."""
        for entry in reversed(self.entries):
            if isinstance(entry, Words):
                return entry
            if not isinstance(entry, Note):
                return None
        return None

    def writing(self, delta: str) -> None:
        """Append code that is being written."""
        self._draft.append(delta)
        self.draft = "".join(self._draft)
        self._draft = [self.draft]

    def begin(self, cell: int, code: str) -> None:
        """Add code that runs now."""
        self._draft.clear()
        self.draft = ""
        self.entries.append(Cell(cell, code))

    def cell(self, number: int) -> Cell | None:
        """Return the cell of that number, if there is one."""
        for entry in reversed(self.entries):
            if isinstance(entry, Cell) and entry.number == number:
                return entry
        return None

    def finish(self, end: events.TurnEnded) -> None:
        """Record the end: its text replaces that of the last step."""
        self.end = end
        self.ahead = None
        self._draft.clear()
        self.draft = ""
        if end.text:
            last = self._words()
            if last is None:
                last = Words()
                self.entries.append(last)
            last.pieces = [end.text]

    @property
    def last_words(self) -> Words | None:
        """Return the model's words if they are the last that it did; None if it ended otherwise."""
        last = None if self.is_code or self.end is None else self._words()
        return last if last is not None and last.text.strip() else None

    @property
    def leaves_out(self) -> bool:
        """Whether the final words stand without the code and the text that led to them, which a
        button shows."""
        end = self.end
        is_shown = self.shows_code or self.is_brief or end is None or not end.turn_id
        return self.last_words is not None and not is_shown

    @property
    def has_shown(self) -> bool:
        """Whether the code that ran has visible outputs."""
        return bool(self.artifacts) or any(cell.screen.items for cell in self.cells)

    @property
    def is_brief(self) -> bool:
        """Whether a model answered in a line, and its code was short, went well and showed little.

        Such an answer has no details below it.
        """
        end = self.end
        if end is None or self.is_code or self.artifacts or end.sentence or end.queries:
            return False
        shown = [item.output for cell in self.cells for item in cell.screen.items]
        return (
            len(end.text) <= _BRIEF_CHARACTERS
            and "\n" not in end.text.strip()
            and all(isinstance(output, values.Text | values.Result) for output in shown)
            and sum(output.plain.count("\n") + 1 for output in shown) <= _BRIEF_LINES
            and sum(cell.code.count("\n") + 1 for cell in self.cells) <= _BRIEF_LINES
            and all(
                cell.finished is not None and cell.finished.ending is values.Ending.OK
                for cell in self.cells
            )
        )

    @property
    def tables(self) -> list[int]:
        """Return the numbers of tables that were shown in part and may be had as a whole."""
        shown = (item.output for cell in self.cells for item in cell.screen.items)
        handles = (
            one.handle for one in shown if isinstance(one, values.Table) and not one.is_whole
        )
        return [int(found[1]) for one in handles if (found := _HANDLE.fullmatch(one))]

    @property
    def cells(self) -> list[Cell]:
        """Return all cells."""
        return [entry for entry in self.entries if isinstance(entry, Cell)]
