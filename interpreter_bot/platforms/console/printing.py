"""Outputs on a terminal, for people."""

from __future__ import annotations

import sys

import rich.box
import rich.console
import rich.table
import rich.text

from interpreter_bot import values
from interpreter_bot.platforms.console import answering, keeping
from interpreter_bot.sessions import ports


class Printer:
    """An audience that prints. Text comes without escapes; names are shown as they are safe."""

    def __init__(self, keeper: keeping.Keeper | None, answers: answering.Answers) -> None:
        self._keeper = keeper
        self._answers = answers
        self._out = rich.console.Console(soft_wrap=True, highlight=False, markup=False)
        self._err = rich.console.Console(
            stderr=True, soft_wrap=True, highlight=False, markup=False, style="dim"
        )

    def announcement(self, cell: int, text: str) -> None:
        """Print a sentence about the session."""
        self._err.print(rich.text.Text(text, style="yellow"))

    def output(self, cell: int, output: values.Output) -> None:
        """Print an output, in whatever form a terminal has for it."""
        match output:
            case values.Text():
                stream = sys.stderr if output.stream == "stderr" else sys.stdout
                stream.write(output.text)
                stream.flush()
            case values.Error():
                self._out.print(rich.text.Text(output.traceback, style="red"))
            case values.Image() | values.Html():
                self._display(cell, output)
            case values.Table():
                self._out.print(_table(output))
            case values.Notice():
                self.announcement(cell, output.text)
            case values.Clear():
                pass
            case _:
                self._out.print(rich.text.Text(output.plain))

    def _display(self, cell: int, output: values.Image | values.Html) -> None:
        words = output.plain or ("a page" if isinstance(output, values.Html) else output.mime)
        where = "use --keep DIR to save it"
        if self._keeper is not None:
            where = f"saved as {self._keeper.keep(cell, output)}"
        self._err.print(rich.text.Text(f"[{words}: {where}]"))

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Print the prompt and read a line."""
        sys.stdout.write(request.prompt)
        sys.stdout.flush()
        return await self._answers.next()

    def save(self, cell: int, name: str) -> ports.Saving | None:
        """Keep files where a directory was given."""
        return self._keeper.open(name) if self._keeper is not None else None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Print about a file."""
        where = f", saved as {self._keeper.path_of(artifact.name)}" if self._keeper else ""
        words = f"[file {artifact.name}, {artifact.size_bytes:,} bytes{where}]"
        self._err.print(rich.text.Text(words))

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Print how a cell ended, where that is not plain to see."""
        if finished.reason:
            text = f"[{finished.ending.value}] {finished.reason}"
            self._err.print(rich.text.Text(text, style="bold red"))


def _table(output: values.Table) -> rich.table.Table:
    shown = f"{output.row_count:,} rows x {output.column_count:,} columns"
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, caption=shown, caption_justify="left")
    for column in output.columns:
        table.add_column(rich.text.Text(column))
    for row in output.rows:
        table.add_row(*map(rich.text.Text, row))
    return table
