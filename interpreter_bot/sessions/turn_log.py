"""The state of one turn, built from its events: words, code, outputs, notices, files, the end.

A platform applies each event and draws the log anew. For a reader who joins late, `TurnLog.events`
returns the fewest events that make an equal log.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.sessions import questions
from interpreter_bot.text import output_screens


@dataclasses.dataclass(eq=False, slots=True)
class StepText:
    """The Markdown that the model writes in one step.

    Attributes:
        step: number of the model call; 0 if there was none.
        pieces: the text so far, in pieces.
    """

    step: int
    pieces: list[str] = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole text so far."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return "".join(self.pieces)


@dataclasses.dataclass(eq=False, slots=True)
class Cell:
    """Code that runs or ran.

    Attributes:
        number: within the turn, from 0.
        code: empty if the turn's code is not shown.
        started_at: wall-clock time.
        outputs: in order.
        finished: its result; None while it runs, and if the result is unknown.
    """

    number: int
    code: str
    started_at: float
    outputs: list[values.Output | values.StoredDisplay] = dataclasses.field(default_factory=list)
    finished: values.Finished | None = None
    _screen: output_screens.Screen = dataclasses.field(default_factory=output_screens.Screen)
    _screen_output_count: int = 0

    @property
    def screen(self) -> output_screens.Screen:
        """The outputs as a terminal would show them, without stored displays."""
        for output in self.outputs[self._screen_output_count :]:
            if not isinstance(output, values.StoredDisplay):
                self._screen.show(output)
        self._screen_output_count = len(self.outputs)
        return self._screen

    @property
    def last_line(self) -> str:
        """The last printed line; empty if there is none."""
        for output in reversed(self.screen.outputs):
            if isinstance(output, values.Text) and output.text.strip():
                return output.text.rstrip().rpartition("\n")[2]
        return ""

    def drop_oldest(self, excess: int) -> int:
        """Drop the oldest outputs that have at least `excess` characters; return their length."""
        dropped_characters = count = 0
        while count < len(self.outputs) and dropped_characters < excess:
            dropped_characters += _count_characters(self.outputs[count])
            count += 1
        del self.outputs[:count]
        self._screen_output_count = max(self._screen_output_count - count, 0)
        return dropped_characters

    def events(self) -> Iterator[events.RecordedEvent]:
        """Return the events of the cell until now."""
        yield events.CodeStarted(self.number, self.code)
        yield from _merge(self.number, self.outputs)
        if self.finished is not None:
            yield events.CodeFinished(self.number, self.finished)


@dataclasses.dataclass(eq=False, slots=True)
class AskedQuestion:
    """A question to a person.

    Attributes:
        is_open: whether it can be answered.
        answer: None while the question is open, and if it was withdrawn.
    """

    question: events.Question
    is_open: bool = True
    answer: events.Answer | None = None

    def events(self) -> Iterator[events.RecordedEvent]:
        """Return the events of the question until now."""
        yield events.QuestionAsked(self.question)
        if not self.is_open:
            yield events.QuestionClosed(self.question, self.answer)


Part: TypeAlias = StepText | Cell | AskedQuestion | events.NoticeShown
"""A part of an answer."""


class TurnLog:
    """The log of one turn.

    Attributes:
        parts: in order; the last ones may still change.
        ahead: number of requests that are served first; None once the turn has started.
        has_started: whether the turn has started; stays True after its end.
        step: number of the latest model call; 0 before the first.
        progress: progress of a wait, except for code or model; None if there is none.
        activity_start: wall-clock time when the turn's present activity began.
        files: the files that code made or changed, by name, in their latest version.
        private_notices: for the person who asked only, so they are not part of the answer.
        usage: until now; None if nothing was used.
        end: the turn's end; None until then.
        is_cut: whether the oldest outputs were dropped.
    """

    def __init__(
        self, *, max_characters: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Make an empty log.

        Args:
            max_characters: of all outputs; beyond it the oldest are dropped. None keeps all.
            clock: returns the wall-clock time.
        """
        self.parts: list[Part] = []
        self.ahead: int | None = None
        self.has_started = False
        self.step = 0
        self.progress: events.ProgressChanged | None = None
        self.activity_start = clock()
        self.files: dict[str, events.FileMade] = {}
        self.private_notices: list[str] = []
        self.usage: values.Usage | None = None
        self.end: events.TurnEnded | None = None
        self.is_cut = False
        self._max_characters: Final = max_characters
        self._clock: Final = clock
        self._characters = 0
        self._cells: dict[int, Cell] = {}
        self._words: StepText | None = None
        self._draft: list[str] = []

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order in which they ran."""
        return [*self._cells.values()]

    @property
    def draft(self) -> str:
        """Code that the model is writing; it may never run."""
        return "".join(self._draft)

    @property
    def last_words(self) -> StepText | None:
        """The model's words after the last code; None if it wrote none."""
        return self._words if self._words is not None and self._words.text.strip() else None

    @property
    def open_question(self) -> events.Question | None:
        """The question that can be answered now."""
        for part in self.parts:
            if isinstance(part, AskedQuestion) and part.is_open:
                return part.question
        return None

    def apply(self, event: events.RecordedEvent) -> None:
        """Apply the next event."""
        match event:
            case events.Queued(ahead=ahead):
                self.ahead = ahead
            case events.Started():
                self.ahead = None
                self.has_started = True
                self.activity_start = self._clock()
            case events.StepStarted(number=number):
                self.step = number
                self._words = None
                self._draft.clear()
                self.activity_start = self._clock()
            case events.ProgressChanged(text=text):
                # Further progress belongs to the same wait.
                if not (text and self.progress):
                    self.activity_start = self._clock()
                self.progress = event if text else None
            case events.TextAdded(text=text):
                self._current_words().pieces.append(text)
                self.activity_start = self._clock()
            case events.CodeDrafted(text=text):
                self._draft.append(text)
            case events.CodeStarted(cell=number, code=code):
                self._find_or_add_cell(number, code)
            case events.OutputShown(cell=number, output=output):
                self._add_output(number, output)
            case events.StoredDisplayShown(cell=number, output=display):
                self._add_output(number, display)
            case events.CodeFinished(cell=number, finished=finished):
                self._find_or_add_cell(number).finished = finished
                self.activity_start = self._clock()
            case events.FileMade(artifact=artifact):
                self.files.pop(artifact.name, None)
                self.files[artifact.name] = event
            case events.NoticeShown():
                self.parts.append(event)
            case events.PrivateNotice(text=text):
                self.private_notices.append(text)
            case events.QuestionAsked(question=question):
                self._draft.clear()
                self.parts.append(AskedQuestion(question))
            case events.QuestionClosed(question=question, answer=answer):
                self.activity_start = self._clock()
                question_parts = [
                    part
                    for part in self.parts
                    if isinstance(part, AskedQuestion) and part.question == question
                ]
                if (line := questions.printed_answer(question, answer)) is not None:
                    self.parts = [part for part in self.parts if part not in question_parts]
                    self._add_output(question.cell, line)
                for part in question_parts:
                    part.is_open, part.answer = False, answer
            case events.UsageChanged(usage=usage):
                self.usage = usage
            case events.TurnEnded(text=text):
                self.end = event
                for question_part in self.parts:
                    if isinstance(question_part, AskedQuestion) and not event.goes_on:
                        question_part.is_open = False
                self.ahead = self.progress = None
                self._draft.clear()
                if text:
                    self._current_words().pieces = [text]

    def events(self) -> Iterator[events.RecordedEvent]:
        """Return the fewest events that make an equal log."""
        if self.ahead is not None:
            yield events.Queued(self.ahead)
        if self.has_started:
            yield events.Started()
        step = 0
        for part in self.parts:
            match part:
                case StepText():
                    if part.step != step:
                        step = part.step
                        yield events.StepStarted(step)
                    yield events.TextAdded(part.text)
                case Cell() | AskedQuestion():
                    yield from part.events()
                case events.NoticeShown():
                    yield part
        if self.step != step:
            yield events.StepStarted(self.step)
        yield from map(events.PrivateNotice, self.private_notices)
        yield from self.files.values()
        if self._draft:
            yield events.CodeDrafted(self.draft)
        if self.progress is not None:
            yield self.progress
        if self.usage is not None:
            yield events.UsageChanged(self.usage)
        if self.end is not None:
            yield self.end

    def _current_words(self) -> StepText:
        """Return the words of the present step, which notices do not end; begin them if needed."""
        if self._words is None:
            self._words = StepText(self.step)
            self.parts.append(self._words)
        return self._words

    def _find_or_add_cell(self, number: int, code: str = "") -> Cell:
        """Return the cell of a number; a new cell is added after all parts."""
        cell = self._cells.get(number)
        if cell is None:
            self.activity_start = self._clock()
            cell = self._cells[number] = Cell(number, code, self.activity_start)
            self.parts.append(cell)
            self._words = None
            self._draft.clear()
        return cell

    def _add_output(self, number: int, output: values.Output | values.StoredDisplay) -> None:
        self._find_or_add_cell(number).outputs.append(output)
        if self._max_characters is None:
            return
        self._characters += _count_characters(output)
        if self._characters > self._max_characters:
            self.is_cut = True
            # Drop down to half of the limit, so that this happens rarely.
            for cell in self._cells.values():
                excess = self._characters - self._max_characters // 2
                self._characters -= cell.drop_oldest(excess)


def _count_characters(output: values.Output | values.StoredDisplay) -> int:
    """Return roughly how many characters an output has as JSON."""
    return len(output.text if isinstance(output, values.Text) else repr(output))


def _merge(
    cell_number: int, outputs: list[values.Output | values.StoredDisplay]
) -> Iterator[events.RecordedEvent]:
    """Return outputs as events, with consecutive texts of a stream as one event."""
    pieces: list[str] = []
    for index, output in enumerate(outputs):
        if isinstance(output, values.StoredDisplay):
            yield events.StoredDisplayShown(cell_number, output)
            continue
        if isinstance(output, values.Text):
            pieces.append(output.text)
            next_output = outputs[index + 1] if index + 1 < len(outputs) else None
            if isinstance(next_output, values.Text) and next_output.stream == output.stream:
                continue
            output = values.Text(output.stream, "".join(pieces))
            pieces.clear()
        yield events.OutputShown(cell_number, output)
