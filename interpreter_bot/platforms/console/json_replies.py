"""Executions and turns as JSON lines for programs (`--json`): one object per line, in the shapes of
docs/cli.md. Questions have an `id`; their answers are JSON lines, too."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from typing import Final, TextIO

from interpreter_bot import events, values
from interpreter_bot.platforms.console import question_tasks, saved_files, terminal_input
from interpreter_bot.sessions import ports
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import terminal_words

_MAX_SHOWN_CHARACTERS: Final = 80
_KINDS: Final = {
    values.Result: "result",
    values.Latex: "latex",
    values.Json: "json",
    values.Notice: "notice",
}


class JsonAnswers:
    """Answers of the program that reads the lines, one a line: `{"id": 1, "answer": "yes"}`."""

    def __init__(self, lines: terminal_input.StdinAnswers) -> None:
        self._lines = lines
        self._ids = itertools.count(1)

    def new_id(self) -> int:
        """Return the id of the next question."""
        return next(self._ids)

    async def next(self, question: int, on_malformed: Callable[[str], None]) -> str | None:
        """Wait for the answer to a question; None declines it.

        Args:
            question: its id.
            on_malformed: is told of each line that is no answer to it.

        Raises:
            NoAnswerError: standard input has ended.
        """
        while True:
            line = await self._lines.next()
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


class ExecutionJsonLines(ports.Reply):
    """Writes what runs of code show as JSON lines."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: JsonAnswers,
        take_answer: question_tasks.TakesAnswer,
        *,
        out: TextIO,
    ) -> None:
        """Write to `out`; see `terminal_replies.ExecutionPrinter` for the rest."""
        self._keeper = keeper
        self._answers = answers
        self._questions = question_tasks.QuestionTasks(take_answer)
        self._out = out

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        where = {} if cell is None else {"cell": cell}
        line = json.dumps({"type": kind} | where | fields)
        self._out.write(line + "\n")
        self._out.flush()

    def tick(self) -> None:
        """Ignored: a program has a clock of its own."""

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.NoticeShown(text=text, cell=cell):
                self._write("announcement", cell, {"text": text})
            case events.OutputShown(cell=cell, output=output):
                self._write_output(cell, output)
            case events.FileMade(cell=cell, artifact=artifact):
                fields: dict[str, object] = {
                    "name": artifact.name,
                    "size": artifact.size_bytes,
                    "sha256": artifact.sha256,
                }
                if self._keeper is not None:
                    fields["path"] = str(self._keeper.path_of(artifact.name))
                self._write("artifact", cell, fields)
            case events.QuestionAsked(question=question):
                self._ask(question)
            case events.QuestionClosed():
                self._questions.end()
            case events.CodeFinished(cell=cell, finished=finished):
                fields = {
                    "status": finished.ending.value,
                    "seconds": round(finished.seconds, 6),
                }
                if finished.reason:
                    fields["reason"] = finished.reason
                if finished.kernel_lost:
                    fields["kernel_lost"] = True
                self._write("finished", cell, fields)

    def _write_output(self, cell: int, output: values.Output) -> None:
        """Write an output under the type that suits it."""
        kind, fields = _described(output)
        if isinstance(output, values.Image | values.Html) and self._keeper is not None:
            try:
                fields["path"] = str(self._keeper.keep(cell, output))
            except saved_files.SavingError as error:
                self._show(events.NoticeShown(str(error), cell))
        if isinstance(output, values.Display) and output.display_id is not None:
            fields |= {"display_id": output.display_id, "update": output.is_update}
        self._write(kind, cell, fields)

    def _ask(self, question: events.Question) -> None:
        """Write a question, and wait for the line that answers it."""
        number = self._answers.new_id()
        fields: dict[str, object] = {"id": number}
        if isinstance(question, events.ApprovalQuestion):
            fields |= {"text": question.code}
        else:
            fields |= {"text": question.prompt}
            if question.is_password:
                fields["password"] = True
        if question.choices:
            fields["choices"] = [*question.choices]
        is_approval = isinstance(question, events.ApprovalQuestion)
        self._write("approve" if is_approval else "input", question.cell, fields)
        self._questions.begin(question, lambda: self._read(question, number))

    async def _read(self, question: events.Question, number: int) -> events.Answer:
        try:
            answer = await self._answers.next(
                number, lambda sentence: self._write("ignored", None, {"text": sentence})
            )
        except terminal_input.NoAnswerError:
            if isinstance(question, events.ApprovalQuestion):
                self._show(events.NoticeShown(terminal_words.NOBODY_TO_ASK, question.cell))
                return events.Declined()
            if question.choices:
                raise
            return events.TextAnswer(values.END_OF_INPUT)
        if isinstance(question, events.ApprovalQuestion):
            return terminal_input.approval_of(answer or "", question.choices)
        if answer is None:
            return events.Unanswered(terminal_words.INPUT_DECLINED)
        return events.TextAnswer(answer)

    def save(self, name: str) -> ports.FileWriter | None:
        """Save files if a directory was given."""
        return self._keeper.open(name) if self._keeper is not None else None


class TurnJsonLines(ExecutionJsonLines):
    """Writes one turn as JSON; every line says in which `turn` (from 0) it was."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: JsonAnswers,
        take_answer: question_tasks.TakesAnswer,
        *,
        out: TextIO,
        turn: int = 0,
    ) -> None:
        """Write to `out`; see `terminal_replies.ExecutionPrinter` for the rest."""
        super().__init__(keeper, answers, take_answer, out=out)
        self._turn = turn

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        super()._write(kind, cell, {"turn": self._turn} | fields)

    def tell(self, text: str) -> None:
        """Write what a command answers."""
        self._write("answer", None, {"text": text})

    def refuse(self, sentence: str) -> None:
        """Write why a command was not done."""
        self._write("refused", None, {"text": sentence})

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.StepStarted(number=number):
                self._write("step", None, {"number": number})
            case events.ProgressChanged(text=text, share=share):
                # The next line shows that it is over.
                if text:
                    self._write("progress", None, {"text": text, "share": share})
            case events.TextAdded(text=text):
                self._write("text", None, {"text": text})
            case events.PrivateNotice(text=text):
                self._write("private", None, {"text": text})
            case events.CodeStarted(cell=cell, code=code):
                self._write("code", cell, {"text": code})
            case events.UsageChanged(usage=usage):
                fields: dict[str, object] = {
                    "steps": usage.steps,
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cached_tokens": usage.cached_tokens,
                    "money": str(usage.money),
                    "estimated": usage.is_estimated,
                }
                self._write("usage", None, fields)
            case events.TurnEnded():
                fields = {"status": event.status.value, "text": event.text}
                if event.sentence:
                    fields["reason"] = event.sentence
                if event.queries:
                    fields["queries"] = [*map(dataclasses.asdict, event.queries)]
                self._write("over", None, fields | {"seconds": round(event.seconds, 6)})
            case _:
                super()._show(event)


def _described(output: values.Output) -> tuple[str, dict[str, object]]:
    match output:
        case values.Text():
            return output.stream, {"text": safe_text.clean(output.text)}
        case values.Error():
            fields: dict[str, object] = {"name": output.name, "message": output.message}
            return "error", fields | {"traceback": output.traceback}
        case values.Image():
            size = len(output.data)
            return "image", {"mime": output.mime, "size": size, "text": output.plain}
        case values.Html():
            return "html", {"text": output.html.decode("utf-8", "replace")}
        case values.Table():
            return "table", _table(output)
        case values.Clear():
            return "clear", {"wait": output.wait}
        case _:
            return "stdout", {"text": _text_of(output), "kind": _KINDS[type(output)]}


def _text_of(output: values.Latex | values.Json | values.Result | values.Notice) -> str:
    match output:
        case values.Latex():
            return output.latex
        case values.Json():
            return output.json
        case _:
            return output.plain


def _table(output: values.Table) -> dict[str, object]:
    return {
        "text": output.plain,
        "columns": output.columns,
        "rows": output.rows,
        "row_count": output.row_count,
        "column_count": output.column_count,
    }
