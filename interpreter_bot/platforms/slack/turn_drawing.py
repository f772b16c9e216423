"""The log of a turn drawn as pieces of an answer. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from interpreter_bot import events, settings, values
from interpreter_bot.platforms.rendering import past_code
from interpreter_bot.platforms.slack import answer_contents, execution_results, markdown
from interpreter_bot.sessions import turn_log
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import command_words, run_words, slack_words

_NOTICE_CHARACTERS: Final = 1000
_HEADING_CHARACTERS: Final = 3_000


class TurnDrawing:
    """Draws the log of one turn, each time it changes."""

    def __init__(
        self,
        log: turn_log.TurnLog,
        config: settings.Slack,
        limits: settings.Limits,
        *,
        is_code: bool,
    ) -> None:
        """Draw nothing yet.

        Args:
            config: says how much of the code is shown.
            is_code: the request is raw code, whose output is the point and stays in its order.
        """
        self._log = log
        self._code_display = config.code
        self._limit_seconds = limits.execution_seconds
        self._is_code = is_code
        self._results = execution_results.ExecutionResults()
        self._results_by_cell: dict[int, execution_results.Shown] = {}

    @property
    def pieces(self) -> list[answer_contents.Piece]:
        """All of it, in the order in which it came."""
        parts = [piece for part in self._log.parts for piece in self._draw_part(part)]
        return [*parts, *self._draw_end()]

    @property
    def has_content(self) -> bool:
        """Whether there is text or a picture, besides tasks."""
        return any(
            isinstance(piece, answer_contents.Picture)
            or (
                isinstance(piece, answer_contents.Text | answer_contents.Printed)
                and piece.text.strip()
            )
            for piece in self.pieces
        )

    @property
    def running(self) -> turn_log.Cell | None:
        """The code that runs."""
        cells = self._log.cells
        return cells[-1] if cells and cells[-1].finished is None else None

    @property
    def live_output(self) -> str:
        """What the running code has shown until now, as Markdown."""
        if (cell := self.running) is None:
            return ""
        return self._results.of_cell(cell.number, cell.screen.items, None).text

    @property
    def finished_results(self) -> list[execution_results.Shown]:
        """What the code that has ended showed."""
        return [self._cell_results(cell) for cell in self._log.cells if cell.finished is not None]

    @property
    def hides_code(self) -> bool:
        """Whether the final answer hides code and printed text behind the button "Show code"."""
        end = self._log.end
        return self._code_display == "short" and end is not None and bool(end.turn_id)

    @property
    def ends_in_words(self) -> bool:
        """Whether the model's words are the last it did."""
        return not self._is_code and self._log.last_words is not None

    def final_pieces(self) -> list[answer_contents.Piece]:
        """Return the finished answer: the last words, then results, then pictures."""
        last = self._log.last_words
        if last is None or self._is_code:
            return self.pieces
        index = self._log.parts.index(last)
        pieces = [piece for part in self._log.parts[index:] for piece in self._draw_part(part)]
        pieces += self._draw_end()
        pictures: list[answer_contents.Piece] = []
        for part in self._log.parts[:index]:
            words = part.text if isinstance(part, turn_log.Words) else ""
            if self.hides_code and words and past_code.is_narration(words):
                continue
            for piece in self._draw_part(part):
                if isinstance(piece, answer_contents.Picture):
                    pictures.append(piece)
                elif isinstance(piece, answer_contents.Text) or not self.hides_code:
                    pieces.append(piece)
        return [*pieces, *pictures]

    def status(self, *, is_streamed: bool) -> str:
        """Return what the turn waits for and how long already, unless the pieces show it."""
        log, seconds = self._log, time.time() - self._log.since
        if log.ahead:
            return run_words.elapsed(run_words.queued(log.ahead), seconds)
        if log.progress is not None:
            sentence = run_words.waiting_sentence(log.progress.text, log.progress.share)
            return run_words.elapsed(sentence, seconds)
        if self.running is not None:
            return self._elapsed(self.running) if self._is_code else ""
        if is_streamed or seconds < run_words.MIN_ELAPSED_SECONDS:
            return ""
        return run_words.elapsed(slack_words.THINKING, seconds)

    def is_code_shortened(self, *, is_streamed: bool) -> bool:
        """Whether any code is shown shortened."""
        return any(not self._shows_all(cell.code, is_streamed) for cell in self._log.cells)

    def _shows_all(self, code: str, is_streamed: bool) -> bool:
        if self._is_code:
            return _is_whole_in_heading(code)
        if self._code_display != "short":
            return True
        excerpt = _details(code)
        return (markdown.streamable_code(excerpt) if is_streamed else excerpt) == code.strip()

    def _draw_part(self, part: turn_log.Part) -> Iterator[answer_contents.Piece]:
        match part:
            case turn_log.Words():
                yield answer_contents.Text(part.text)
            case events.NoticeShown(text=text):
                notice = markdown.defused(quantities.one_line(text, _NOTICE_CHARACTERS))
                yield answer_contents.Text(f"_{notice}_")
            case turn_log.Cell():
                yield from self._draw_cell(part)

    def _draw_cell(self, cell: turn_log.Cell) -> Iterator[answer_contents.Piece]:
        if not self._is_code:
            if self._code_display == "full":
                readable = safe_text.revealed(cell.code)
                yield answer_contents.Text(markdown.python(readable.text, readable.warning))
            yield self._draw_task(cell)
        if cell.finished is not None:
            yield from self._cell_results(cell).parts

    def _cell_results(self, cell: turn_log.Cell) -> execution_results.Shown:
        if cell.number not in self._results_by_cell:
            self._results_by_cell[cell.number] = self._results.of_cell(
                cell.number, cell.screen.items, cell.finished, made_files=not self._is_code
            )
        return self._results_by_cell[cell.number]

    def _draw_task(self, cell: turn_log.Cell) -> answer_contents.Task:
        name = f"cell-{cell.number}"
        details = _details(cell.code) if self._code_display == "short" else ""
        if (finished := cell.finished) is None:
            line = safe_text.clean(cell.last_line).strip().rpartition("\r")[2]
            output = quantities.one_line(line, answer_contents.FIELD_CHARACTERS)
            title = self._elapsed(cell) or slack_words.RUNNING
            return answer_contents.Task(name, title, "in_progress", details, output)
        is_picture = [
            isinstance(piece, answer_contents.Picture) for piece in self._cell_results(cell).parts
        ]
        duration = quantities.duration(finished.seconds) if finished.seconds >= 0.05 else ""
        picture_count = quantities.count(sum(is_picture), "picture") if any(is_picture) else ""
        state: answer_contents.State = (
            "complete" if finished.ending is values.Ending.OK else "error"
        )
        outcome = " · ".join(filter(None, (duration, picture_count)))
        title = run_words.TITLES[finished.ending]
        return answer_contents.Task(name, title, state, details, outcome)

    def _elapsed(self, cell: turn_log.Cell) -> str:
        """Return how long code has been running; empty at first."""
        seconds = time.time() - cell.began
        if seconds < run_words.MIN_ELAPSED_SECONDS:
            return ""
        return run_words.elapsed(slack_words.RUNNING, seconds, self._limit_seconds)

    def _draw_end(self) -> Sequence[answer_contents.Piece]:
        if (end := self._log.end) is None:
            return ()
        if end.sentence:
            mark = "" if end.status is values.TurnStatus.DONE else "⚠️ "
            return (answer_contents.Text(f"{mark}{markdown.defused(end.sentence)}"),)
        is_stopped = end.status is values.TurnStatus.STOPPED
        return (answer_contents.Text(run_words.CUT_SHORT),) if is_stopped else ()


def heading(name: str, code: str) -> str:
    """Return the heading that says whose code runs."""
    readable = safe_text.revealed(code)
    shown = markdown.python(_head(readable.text), readable.warning)
    return command_words.run_by(markdown.defused(quantities.one_line(name, 80)), shown)


def _is_whole_in_heading(code: str) -> bool:
    """Return whether the heading shows all of the code."""
    text = safe_text.revealed(code).text
    return _head(text) == text


def _head(text: str) -> str:
    is_whole = len(text) <= _HEADING_CHARACTERS
    return text if is_whole else f"{text[:_HEADING_CHARACTERS]}\n…"


def _details(code: str) -> str:
    """Return the head of code that stands below the line of its task."""
    return answer_contents.shorten(safe_text.revealed(code).text)
