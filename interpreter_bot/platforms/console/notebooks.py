"""Cells from what people have: scripts, notebooks, standard input."""

from __future__ import annotations

import pathlib
import re
import sys

import nbformat

from interpreter_bot import errors

_MARKER = re.compile(r"^# ?%%.*$", re.MULTILINE)
_MOST_BYTES = 64 * 1024 * 1024


class InputFileError(errors.BotError):
    """The file to run cannot be used."""


def read(source: str) -> list[str]:
    """Read cells.

    Args:
        source: path of a notebook or a script, whose `# %%` lines divide it; `-` is standard
            input, a script.

    Raises:
        InputFileError: it cannot be read, or is not what its name says.
    """
    if source == "-":
        return _divided(sys.stdin.read())
    path = pathlib.Path(source)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputFileError(f"{path} is too large to be code.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read as text.") from error
    return _notebook(path, text) if path.suffix == ".ipynb" else _divided(text)


def _divided(script: str) -> list[str]:
    cells = [cell.strip("\n") for cell in _MARKER.split(script)]
    return [cell for cell in cells if cell.strip()]


def _notebook(path: pathlib.Path, text: str) -> list[str]:
    try:
        notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
    except (
        nbformat.reader.NotJSONError,
        nbformat.ValidationError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise InputFileError(f"{path} is not a notebook.") from error
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return [cell for cell in cells if cell.strip()]
