"""Turns with a model on a terminal, and as lines of JSON: cells, and the words between them."""

from __future__ import annotations

from typing import Final, TextIO

from interpreter_bot.platforms.console import (
    execution_output,
    json_output,
    saved_files,
    stdin_answers,
)
from interpreter_bot.sessions import ports
from interpreter_bot.text import formatting, sanitizing

_DIM: Final = "2"
_BOLD_RED: Final = "1;31"


class TurnPrinter(execution_output.ExecutionPrinter):
    """Prints a turn: the model's words to standard output, its code to standard error."""

    _spent = ports.Spent()
    _awaited = ""
    _shown = ""

    def queued(self, ahead: int) -> None:
        """Nobody else is here."""

    def started(self) -> None:
        """Nothing is to be seen yet."""

    def step(self, number: int) -> None:
        """Begin a line for new words."""
        self._out.close_line()

    def progress(self, text: str, share: float | None) -> None:
        """Print what is waited for once, and below it, on a terminal, how far it is."""
        self._err.bar(None)
        if text and text != self._awaited:
            self._say(text, style=_DIM)
        self._awaited = text
        self._err.bar(share)

    def text(self, delta: str) -> None:
        """Print the model's words as they come."""
        self._out.text(sanitizing.harmless(delta))

    def writing(self, delta: str) -> None:
        """Wait for the whole of the code."""

    def code(self, cell: int, code: str) -> None:
        """Print code that runs now; what it prints begins a line of its own."""
        self._out.close_line()
        if code != self._shown:
            self._show(code)
        self._shown = ""

    async def approve(self, cell: int, code: str) -> str | None:
        """Show the code and ask; without anybody to answer it does not run."""
        self._out.close_line()
        revealed = sanitizing.revealed(code)
        self._show(revealed.text)
        if revealed.warning:
            self._say(revealed.warning, style=_BOLD_RED)
        self._err.prompt("Run this? [y/N] ")
        if not await self._answers.agrees():
            return None
        self._shown = code
        return code

    def _show(self, code: str) -> None:
        lines = sanitizing.harmless(code).rstrip("\n").split("\n")
        self._say("\n".join(f"│ {line}" for line in lines), style=_DIM)

    def usage(self, spent: ports.Spent) -> None:
        """Keep it for the end."""
        self._spent = spent

    def ended(self, end: ports.End) -> None:
        """Print how the turn ended, and what it took."""
        self._out.close_line()
        if end.sentence:
            self._say(end.sentence, style=_BOLD_RED)
        spent = self._spent
        if spent.steps:
            tokens = spent.input_tokens + spent.output_tokens
            money = f", {spent.money.normalize():f} of money" if spent.money else ""
            cached = f" ({spent.cached_tokens:,} from cache)" if spent.cached_tokens else ""
            took = formatting.duration(end.seconds)
            steps = formatting.count(spent.steps, "step")
            self._say(f"[{steps}, {tokens:,} tokens{cached}{money}, {took}]", style=_DIM)
        self._spent = ports.Spent()


class TurnJsonLines(json_output.ExecutionJsonLines):
    """Writes a turn as JSON; every line says in which `turn` (from 0) it was."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: stdin_answers.StdinAnswers,
        *,
        out: TextIO,
    ) -> None:
        """Write to `out`; see `execution_output.ExecutionPrinter` for the rest."""
        super().__init__(keeper, answers, out=out)
        self._turn = 0

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        super()._write(kind, cell, {"turn": self._turn} | fields)

    def queued(self, ahead: int) -> None:
        """Nobody else is here."""

    def started(self) -> None:
        """Nothing is to be said yet."""

    def step(self, number: int) -> None:
        """Write that the model is asked."""
        self._write("step", None, {"number": number})

    def progress(self, text: str, share: float | None) -> None:
        """Write what is waited for; that it is over is said by what comes next."""
        if text:
            self._write("progress", None, {"text": text, "share": share})

    def text(self, delta: str) -> None:
        """Write a piece of the model's words."""
        self._write("text", None, {"text": delta})

    def writing(self, delta: str) -> None:
        """Wait for the whole of the code."""

    def code(self, cell: int, code: str) -> None:
        """Write code that runs now."""
        self._write("code", cell, {"text": code})

    async def approve(self, cell: int, code: str) -> str | None:
        """Write the question; the next line of standard input is the answer."""
        self._write("approve", cell, {"text": code})
        return code if await self._answers.agrees() else None

    def usage(self, spent: ports.Spent) -> None:
        """Write what the turn has used so far."""
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
        self._write("over", None, fields | {"seconds": round(end.seconds, 6)})
        self._turn += 1
