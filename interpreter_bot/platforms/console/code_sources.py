"""Cells read from scripts, notebooks and standard input."""

from __future__ import annotations

import io
import pathlib
import re
import sys
import tokenize
import warnings
from typing import Any, Final

from interpreter_bot import errors

# The lines by which editors and jupytext divide scripts; cells marked as prose are no code.
_MARKER: Final = re.compile(r"^# ?%%(.*)$", re.MULTILINE)
_PROSE: Final = re.compile(r"\[(?:markdown|md|raw)\]")
_MOST_BYTES: Final = 64 * 1024 * 1024


class InputFileError(errors.BotError):
    """The file to run cannot be used."""


def read(source: str) -> list[str]:
    """Read cells; those without any code are skipped.

    Args:
        source: path of a notebook or a script, whose `# %%` lines divide it; `-` is standard
            input, a script.

    Raises:
        InputFileError: it cannot be read, or is not what its name says.
    """
    if source == "-":
        return _divided(_text(_bytes_of_stdin(), "Standard input"))
    path = pathlib.Path(source)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputFileError(f"{path} is too large to be code.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read.") from error
    return _notebook(path, data) if path.suffix == ".ipynb" else _divided(_text(data, str(path)))


def _bytes_of_stdin() -> bytes:
    """Read standard input to its end.

    Raises:
        InputFileError: there is none, or too much.
    """
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    except (AttributeError, OSError, ValueError) as error:
        raise InputFileError("Standard input cannot be read.") from error
    if len(data) > _MOST_BYTES:
        raise InputFileError("Standard input is too large to be code.")
    return data


def _text(data: bytes, name: str) -> str:
    """Decode a script as Python does, by its byte order mark or coding line.

    Raises:
        InputFileError: it is no text.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputFileError(f"{name} cannot be read as text.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _divided(script: str) -> list[str]:
    first, *rest = _MARKER.split(script)
    cells = [
        first,
        *(
            code
            for mark, code in zip(rest[::2], rest[1::2], strict=True)
            if not _PROSE.search(mark)
        ),
    ]
    return [cell.strip("\n") for cell in cells if cell.strip()]


def _notebook(path: pathlib.Path, data: bytes) -> list[str]:
    # Imported here: its schemas take longer than a cell of a kernel that is at hand.
    import nbformat

    try:
        with warnings.catch_warnings():
            # Warnings about notebooks that are merely old are no use to the person here.
            warnings.simplefilter("ignore")
            text = data.decode("utf-8-sig")
            notebook: Any = nbformat.reads(text, as_version=4)
            nbformat.validate(notebook)
    except (
        nbformat.ValidationError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InputFileError(f"{path} is not a notebook.") from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if str(language).lower() != "python":
        raise InputFileError(f"{path} is a notebook, but not one in Python.")
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return [cell for cell in cells if cell.strip()]
