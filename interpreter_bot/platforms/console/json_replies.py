"""Executions and turns as JSON lines for programs (`--json`), as docs/cli.md describes them.

Questions have an `id`, and their answers are JSON lines, too.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
from collections.abc import Callable
from typing import Final, TextIO

from interpreter_bot import events, values
from interpreter_bot.platforms import program_turns
from interpreter_bot.platforms.console import question_tasks, saved_files, terminal_input
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import ports
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import question_words, terminal_words

_MAX_SHOWN_CHARACTERS: Final = 80


class JsonAnswers:
    """Answers of the program, one a line, such as `{"id": 1, "answer": "yes"}`."""

    def __init__(self, lines: terminal_input.StdinAnswers) -> None:
        self._lines = lines
        self._ids = itertools.count(1)

    def new_id(self) -> int:
        """Return the id of the next question; ids count up, so that answers can be piped in."""
        return next(self._ids)

    async def read_answer(self, question: int, on_malformed: Callable[[str], None]) -> str | None:
        """Wait for the answer to a question; None declines it.

        Args:
            question: its id.
            on_malformed: called with the refusal of each line that does not answer the question.

        Raises:
            NoAnswerError: standard input has ended.
        """
        while True:
            line = await self._lines.read_answer()
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict) and message.get("id") == question:
                answer = message.get("answer", False)
                if answer is None or isinstance(answer, str):
                    return answer
            on_malformed(
                terminal_words.MALFORMED_ANSWER + quantities.one_line(line, _MAX_SHOWN_CHARACTERS)
            )


class JsonLines(ports.Reply):
    """Writes the events of a turn, or of runs of code, as JSON lines."""

    def __init__(
        self,
        saver: saved_files.SavedFiles | None,
        answers: JsonAnswers,
        take_answer: question_tasks.TakeAnswer,
        *,
        out: TextIO,
        turn: int | None = None,
    ) -> None:
        """Write to `out`, with the number of the turn; see `terminal_replies` for the rest."""
        self._saver = saver
        self._answers = answers
        self._questions = question_tasks.QuestionTasks(take_answer)
        self._out = out
        self._turn_fields = {} if turn is None else {"turn": turn}
        self._question_number = 0

    def _write(self, kind: str, fields: event_json.EventJson) -> None:
        self._out.write(json.dumps({"type": kind} | self._turn_fields | fields) + "\n")
        self._out.flush()

    def tick(self) -> None:
        """Do nothing: a program has its own clock."""

    def show_text(self, text: str) -> None:
        """Write the answer of a command."""
        self._write("answer", {"text": text})

    def show_refusal(self, sentence: str) -> None:
        """Write why a command was refused."""
        self._write("refused", {"text": sentence})

    def _show(self, event: events.TurnEvent) -> None:
        fields = event_json.to_json(event)
        match event:
            case events.OutputShown(output=values.Text(text=text)):
                fields["text"] = safe_text.clean(text)
            case events.OutputShown(cell=cell, output=values.Image() | values.Html() as output):
                fields |= self._content_fields(cell, output)
            case events.NoticeShown(is_copy_missing=True) if self._saver is not None:
                self._saver.has_failed = True
            case events.FileMade(copy=pathlib.Path() as copy) if self._saver is not None:
                save = functools.partial(self._saver.save_file, event.artifact.name, copy)
                fields |= self._save(event.cell, save)
            case events.QuestionAsked(question=question):
                number = self._question_number = fields["id"] = self._answers.new_id()
                self._questions.begin(question, lambda: self._read_answer(question, number))
            case events.QuestionClosed():
                fields["id"] = self._question_number
                self._questions.end()
        self._write(fields.pop("type"), fields)

    def _content_fields(
        self, cell: int, output: values.Image | values.Html
    ) -> event_json.EventJson:
        """Return the fields of a picture or a page, whose bytes a program cannot fetch."""
        content: event_json.EventJson = {}
        if isinstance(output, values.Html):
            content["html"] = output.html.decode("utf-8", "replace")
        if self._saver is not None:
            content |= self._save(cell, functools.partial(self._saver.save_display, cell, output))
        return content

    def _save(self, cell: int, save: Callable[[], pathlib.Path]) -> event_json.EventJson:
        """Save something; return its path as fields of its line."""
        try:
            return {"path": str(save())}
        except saved_files.SavingError as error:
            self._show(events.NoticeShown(str(error), cell))
            return {}

    async def _read_answer(self, question: events.Question, number: int) -> events.Answer:
        try:
            answer = await self._answers.read_answer(
                number, lambda sentence: self._write("ignored", {"text": sentence})
            )
        except terminal_input.NoAnswerError:
            if isinstance(question, events.ApprovalQuestion):
                if not question.can_edit:
                    raise
                self._show(events.NoticeShown(terminal_words.NOBODY_TO_ASK, question.cell))
                return events.Declined()
            if question.is_of_model:
                return events.Unanswered(question_words.NOBODY_ANSWERS)
            return events.TextAnswer(values.END_OF_INPUT)
        return program_turns.parse_answer(question, answer)

    @property
    def spool(self) -> pathlib.Path | None:
        return None if self._saver is None else self._saver.directory
