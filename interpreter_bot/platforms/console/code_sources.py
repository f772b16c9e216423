"""Cells read from scripts, notebooks and standard input, and files to attach."""

from __future__ import annotations

import asyncio
import functools
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors
from interpreter_bot.sessions import requests
from interpreter_bot.text import notebook_cells
from interpreter_bot.wording import operator_words, terminal_words

# The lines with which editors and jupytext divide scripts into cells. Cells of prose are skipped.
_CELL_MARKER: Final = re.compile(r"^# ?%%(.*)$", re.MULTILINE)
_PROSE_MARK: Final = re.compile(r"\[(?:markdown|md|raw)\]")
_CHUNK_BYTES: Final = 1024 * 1024
_MAX_SOURCE_BYTES: Final = 64 * 1024 * 1024


class InputFileError(errors.BotError):
    """The file to run cannot be used."""


def read_cells(source: str) -> list[str]:
    """Read cells; cells without any code are skipped.

    Args:
        source: path of a notebook or a script, whose `# %%` lines divide it; `-` is standard
            input, a script.

    Raises:
        InputFileError: the source cannot be read, or has another format than its name says.
    """
    if source == "-":
        return _split_into_cells(_decode(_read_stdin(), terminal_words.STDIN_NAME))
    path = pathlib.Path(source)
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            raise InputFileError(terminal_words.code_too_large(path))
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputFileError(terminal_words.file_unreadable(path, reason or error)) from error
    if path.suffix != ".ipynb":
        return _split_into_cells(_decode(data, str(path)))
    try:
        return notebook_cells.read(data, str(path))
    except notebook_cells.NotebookError as error:
        raise InputFileError(str(error)) from error


def make_attachment(path: pathlib.Path) -> requests.Attachment:
    """Return a file as an attachment of a request."""
    return requests.Attachment(path.name, functools.partial(read_chunks, path))


async def read_chunks(path: pathlib.Path) -> AsyncIterator[bytes]:
    """Read a file in pieces.

    Raises:
        InputFileError: it cannot be read.
    """
    try:
        with await asyncio.to_thread(path.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise InputFileError(operator_words.unreadable(path)) from error


def _read_stdin() -> bytes:
    """Read standard input to its end.

    Raises:
        InputFileError: there is none, or too much.
    """
    try:
        data = sys.stdin.buffer.read(_MAX_SOURCE_BYTES + 1)
    except (AttributeError, OSError, ValueError) as error:
        raise InputFileError(terminal_words.STDIN_UNREADABLE) from error
    if len(data) > _MAX_SOURCE_BYTES:
        raise InputFileError(terminal_words.code_too_large(terminal_words.STDIN_NAME))
    return data


def _decode(data: bytes, name: str) -> str:
    """Decode a script as Python does, by its byte order mark or coding line.

    Raises:
        InputFileError: it is no text.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputFileError(terminal_words.not_text(name)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split_into_cells(script: str) -> list[str]:
    first_cell, *marks_and_cells = _CELL_MARKER.split(script)
    cells = [
        first_cell,
        *(
            code
            for mark, code in zip(marks_and_cells[::2], marks_and_cells[1::2], strict=True)
            if not _PROSE_MARK.search(mark)
        ),
    ]
    return [cell.strip("\n") for cell in cells if cell.strip()]
