"""Outputs as JSON lines for programs (`--json`): one object per line, in the shapes of the
README."""

from __future__ import annotations

import json
from typing import TextIO

from interpreter_bot import values
from interpreter_bot.platforms.console import saved_files, terminal_input
from interpreter_bot.sessions import ports

_KINDS = {
    values.Result: "result",
    values.Latex: "latex",
    values.Json: "json",
    values.Notice: "notice",
}


class ExecutionJsonLines:
    """An output sink that writes JSON lines."""

    def __init__(
        self,
        keeper: saved_files.SavedFiles | None,
        answers: terminal_input.StdinAnswers,
        *,
        out: TextIO,
    ) -> None:
        """Write to `out`; see `terminal_output.ExecutionPrinter` for the rest."""
        self._keeper = keeper
        self._answers = answers
        self._out = out

    def _write(self, kind: str, cell: int | None, fields: dict[str, object]) -> None:
        where = {} if cell is None else {"cell": cell}
        line = json.dumps({"type": kind} | where | fields)
        self._out.write(line + "\n")
        self._out.flush()

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
        """Read a line of standard input."""
        self._write("input", cell, {"text": request.prompt})
        return await self._answers.next(is_password=request.is_password)

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


def _described(output: values.Output) -> tuple[str, dict[str, object]]:
    match output:
        case values.Text():
            return output.stream, {"text": output.text}
        case values.Error():
            fields: dict[str, object] = {"name": output.name, "message": output.message}
            return "error", fields | {"traceback": output.traceback}
        case values.Image():
            size = len(output.data)
            return "image", {"mime": output.mime, "size": size, "text": output.plain}
        case values.Html():
            return "html", {"text": output.html}
        case values.Table():
            return "table", _table(output)
        case values.Clear():
            return "clear", {"wait": output.wait}
        case _:
            return "stdout", {"text": _said(output), "kind": _KINDS[type(output)]}


def _said(output: values.Latex | values.Json | values.Result | values.Notice) -> str:
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
