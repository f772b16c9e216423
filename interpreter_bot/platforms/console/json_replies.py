"""Executions and turns as JSON lines for programs (`--json`): one object per line, in the shapes of
docs/cli.md. Questions have an `id`; their answers are JSON lines, too."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from interpreter_bot import errors, values
from interpreter_bot.platforms.console import saved_files, terminal_input
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


class ExecutionJsonLines:
    """An output sink that writes JSON lines."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: JsonAnswers,
        *,
        out: TextIO,
    ) -> None:
        """Write to `out`; see `terminal_replies.ExecutionPrinter` for the rest."""
        self._keeper = keeper
        self._answers = answers
        self._out = out

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        where = {} if cell is None else {"cell": cell}
        line = json.dumps({"type": kind} | where | fields)
        self._out.write(line + "\n")
        self._out.flush()

    def tick(self) -> None:
        """Ignored: a program has a clock of its own."""

    def announcement(self, cell: int, text: str) -> None:
        """Write a sentence about the session."""
        self._write("announcement", cell, {"text": text})

    def output(self, cell: int, output: values.Output) -> None:
        """Write an output under the type that suits it."""
        kind, fields = _described(output)
        if isinstance(output, values.Image | values.Html) and self._keeper is not None:
            try:
                fields["path"] = str(self._keeper.keep(cell, output))
            except saved_files.SavingError as error:
                self.announcement(cell, str(error))
        if isinstance(output, values.Display) and output.display_id is not None:
            fields |= {"display_id": output.display_id, "update": output.is_update}
        self._write(kind, cell, fields)

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Write the question, and wait for its answer."""
        fields: dict[str, object] = {"text": request.prompt}
        if request.is_password:
            fields["password"] = True
        if request.choices:
            fields["choices"] = [*request.choices]
        try:
            answer = await self._answer("input", cell, fields)
        except terminal_input.NoAnswerError:
            if request.choices:
                raise
            return values.END_OF_INPUT
        if answer is None:
            raise errors.BotError(terminal_words.INPUT_DECLINED)
        return answer

    async def _answer(self, kind: str, cell: int, fields: dict[str, object]) -> str | None:
        """Ask; None declines.

        Raises:
            NoAnswerError: standard input has ended.
        """
        question = self._answers.new_id()
        self._write(kind, cell, {"id": question} | fields)
        return await self._answers.next(
            question, lambda sentence: self._write("ignored", None, {"text": sentence})
        )

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        """Save files if a directory was given."""
        return self._keeper.open(name) if self._keeper is not None else None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Write about a file."""
        fields: dict[str, object] = {
            "name": artifact.name,
            "size": artifact.size_bytes,
            "sha256": artifact.sha256,
        }
        if self._keeper is not None:
            fields["path"] = str(self._keeper.path_of(artifact.name))
        self._write("artifact", cell, fields)

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Write how a cell ended."""
        fields: dict[str, object] = {"status": finished.ending.value}
        fields["seconds"] = round(finished.seconds, 6)
        if finished.reason:
            fields["reason"] = finished.reason
        if finished.kernel_lost:
            fields["kernel_lost"] = True
        self._write("finished", cell, fields)


@ports.silent_after_end
class TurnJsonLines(ExecutionJsonLines):
    """Writes one turn as JSON; every line says in which `turn` (from 0) it was."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: JsonAnswers,
        *,
        out: TextIO,
        turn: int = 0,
    ) -> None:
        """Write to `out`; see `terminal_replies.ExecutionPrinter` for the rest."""
        super().__init__(keeper, answers, out=out)
        self._turn = turn

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        super()._write(kind, cell, {"turn": self._turn} | fields)

    def tell(self, text: str) -> None:
        """Write what a command answers."""
        self._write("answer", None, {"text": text})

    def refuse(self, sentence: str) -> None:
        """Write why a command was not done."""
        self._write("refused", None, {"text": sentence})

    def queued(self, ahead: int) -> None:
        """Ignored: there is only one session here."""

    def started(self) -> None:
        """Ignored: there is nothing to write yet."""

    def step(self, number: int) -> None:
        """Write that the model is called."""
        self._write("step", None, {"number": number})

    def progress(self, text: str, share: float | None) -> None:
        """Write what is waited for; the next line shows that it is over."""
        if text:
            self._write("progress", None, {"text": text, "share": share})

    def text(self, delta: str) -> None:
        """Write a piece of the model's words."""
        self._write("text", None, {"text": delta})

    def writing(self, delta: str) -> None:
        """Ignored: code is written when it is complete."""

    async def tell_privately(self, text: str) -> bool:
        """Write a sentence for the person whose program reads this."""
        self._write("private", None, {"text": text})
        return True

    def code(self, cell: int, code: str) -> None:
        """Write code that runs now."""
        self._write("code", cell, {"text": code})

    async def approve(
        self, cell: int, code: str, *, choices: Sequence[str] = (), is_personal: bool = False
    ) -> str | None:
        """Write the question, and wait for its answer: yes, no or a choice."""
        fields: dict[str, object] = {"text": code} | ({"choices": [*choices]} if choices else {})
        try:
            answer = await self._answer("approve", cell, fields)
        except terminal_input.NoAnswerError:
            self.announcement(cell, terminal_words.NOBODY_TO_ASK)
            return None
        return terminal_input.approved((answer or "").strip().lower(), code, choices)

    def usage(self, spent: values.Usage) -> None:
        """Write the usage of the turn so far."""
        fields: dict[str, object] = {
            "steps": spent.steps,
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "cached_tokens": spent.cached_tokens,
            "money": str(spent.money),
            "estimated": spent.is_estimated,
        }
        self._write("usage", None, fields)

    def ended(self, end: ports.End) -> None:
        """Write how the turn ended."""
        fields: dict[str, object] = {"status": end.status.value, "text": end.text}
        if end.sentence:
            fields["reason"] = end.sentence
        if end.queries:
            fields["queries"] = [*map(dataclasses.asdict, end.queries)]
        self._write("over", None, fields | {"seconds": round(end.seconds, 6)})


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
