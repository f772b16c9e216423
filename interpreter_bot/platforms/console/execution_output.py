"""Outputs on a terminal, for people."""

from __future__ import annotations

import shutil
from typing import Final, TextIO

from interpreter_bot import values
from interpreter_bot.platforms.console import output_streams, saved_files, stdin_answers
from interpreter_bot.platforms.rendering import tables
from interpreter_bot.sessions import ports
from interpreter_bot.text import formatting

_MOST_ROWS: Final = 20

_RED: Final = "31"
_BOLD_RED: Final = "1;31"
_YELLOW: Final = "33"
_DIM: Final = "2"


def draw_table(table: values.Table, most_width: int | None = None) -> str:
    """Draw the head of a table, no wider than the terminal where that is known."""
    return tables.draw(table, most_width, most_rows=_MOST_ROWS)


class ExecutionPrinter:
    """An audience that prints. Text comes without escapes; names are shown as they are safe.

    What a cell showed goes to standard output, what we say about it to standard error.
    """

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: stdin_answers.StdinAnswers,
        *,
        out: TextIO,
        err: TextIO,
    ) -> None:
        """Print.

        Args:
            keeper: saves displays and files, if they are to be.
            answers: those to `input()`.
            out: standard output.
            err: standard error.
        """
        self._keeper = keeper
        self._answers = answers
        self._out = output_streams.Stream(out)
        self._err = output_streams.Stream(err)

    def announcement(self, cell: int, text: str) -> None:
        """Print a sentence about the session."""
        self._say(text, style=_YELLOW)

    def output(self, cell: int, output: values.Output) -> None:
        """Print an output, in whatever form a terminal has for it."""
        match output:
            case values.Text():
                stream = self._err if output.stream == "stderr" else self._out
                stream.text(output.text)
            case values.Error():
                self._out.line(output.traceback, style=_RED)
            case values.Image() | values.Html():
                self._display(cell, output)
            case values.Table():
                self._out.line(draw_table(output, self._width()))
            case values.Notice():
                self.announcement(cell, output.text)
            case values.Json():
                self._out.line(output.json)
            case values.Latex():
                self._out.line(output.plain or output.latex)
            case values.Result():
                self._out.line(output.plain)
            case values.Clear():
                # What a terminal has shown may have scrolled away; nothing is taken back.
                pass

    def _width(self) -> int | None:
        """Return the width of the terminal; files and pipes have none."""
        return shutil.get_terminal_size().columns if self._out.is_terminal else None

    def _display(self, cell: int, output: values.Image | values.Html) -> None:
        words = output.plain or ("a page" if isinstance(output, values.Html) else output.mime)
        where = "use --keep DIR to save it"
        if self._keeper is not None:
            try:
                where = f"saved as {self._keeper.keep(cell, output)}"
            except saved_files.SavingError as error:
                where = str(error)
        self._say(f"[{words}: {where}]", style=_DIM)

    def _say(self, text: str, *, style: str) -> None:
        """Print a line of ours, after what the cell has printed so far."""
        if self._out.is_terminal and self._err.is_terminal:
            self._out.close_line()
        else:
            self._out.flush()
        self._err.line(text, style=style)

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Print the prompt and read a line."""
        self._out.prompt(request.prompt)
        return await self._answers.next(is_password=request.is_password)

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        """Keep files where a directory was given."""
        return self._keeper.open(name) if self._keeper is not None else None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Print about a file."""
        where = f", saved as {self._keeper.path_of(artifact.name)}" if self._keeper else ""
        self._say(
            f"[file {artifact.name}, {formatting.size(artifact.size_bytes)}{where}]", style=_DIM
        )

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Print how a cell ended, where that is not plain to see."""
        self._out.flush()
        self._err.flush()
        if finished.reason:
            self._say(f"[{finished.ending.value}] {finished.reason}", style=_BOLD_RED)
