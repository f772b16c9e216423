"""Tracebacks with all of the user's frames, few of the libraries', and no colours."""

from __future__ import annotations

import linecache
import re
import traceback
from types import TracebackType
from typing import Any

from . import data_connection_objects

CELL_PREFIX = "<cell "
_LIBRARY_FRAMES = 2
_CELL_FRAMES = 12
_CAUSES = 3
_MESSAGE_CHARACTERS = 4000
_INSTALLED = re.compile(r"/site-packages/|/lib/python3\.\d+/")
_OURS = ("IPython", "ipykernel")
_WORD = re.compile(r"[^\W\d]\w*")
_TABLES = ("pandas", "polars")
_COLUMNS = 60


def compact(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> list[str]:
    """Describe an exception in few lines, the last being its name and message."""
    # Reading the lines of frames that will not be shown costs tens of milliseconds.
    described = traceback.TracebackException(kind, error, tb, lookup_lines=False, compact=True)
    blocks: list[str] = []
    link = ""
    current: traceback.TracebackException | None = described
    while current is not None and len(blocks) < _CAUSES:
        blocks.append("\n".join(_block(current)) + link)
        if current.__cause__ is not None:
            current, link = current.__cause__, "\n\nwhich was the direct cause of:\n"
        elif current.__context__ is not None and not current.__suppress_context__:
            current, link = current.__context__, "\n\nduring handling of which happened:\n"
        else:
            current = None
    lines = "\n".join(reversed(blocks)).split("\n")
    return [*lines[:-1], *_columns(error, tb), lines[-1]]


def message(error: BaseException) -> str:
    """Return an exception's text, even if its `__str__` raises."""
    try:
        return str(error)[:_MESSAGE_CHARACTERS]
    except Exception:
        # Any exception: the method is the user's.
        return "<text could not be made>"


def _block(described: traceback.TracebackException) -> list[str]:
    lines = []
    frames = [frame for frame in described.stack if not _is_machinery(frame.filename)]
    for index in _chosen(frames):
        if index is None:
            lines.append("  … more frames …")
            continue
        frame = frames[index]
        name = f"Cell {frame.filename[len(CELL_PREFIX) : -1]}" if _is_cell(frame) else _short(frame)
        within = "" if frame.name == "<module>" else f", in {frame.name}"
        lines.append(f"{name}, line {frame.lineno}{within}")
        if frame.line:
            lines.append(f"    {frame.line[:300]}")
    ending = "".join(described.format_exception_only()).rstrip()
    if len(ending) > _MESSAGE_CHARACTERS:
        ending = ending[:_MESSAGE_CHARACTERS] + " …"
    return lines + ending.split("\n")


def _columns(error: BaseException, tb: TracebackType | None) -> list[str]:
    """List the columns of tables on the user's line, after a KeyError or AttributeError."""
    if not isinstance(error, (KeyError, AttributeError)):
        return []
    cells = [
        one for one in traceback.walk_tb(tb) if one[0].f_code.co_filename.startswith(CELL_PREFIX)
    ]
    if not cells:
        return []
    frame, number = cells[-1]
    words = dict.fromkeys(_WORD.findall(linecache.getline(frame.f_code.co_filename, number)))
    known = {**frame.f_globals, **frame.f_locals}
    tables = {word: known[word] for word in words if word in known and _is_table(known[word])}
    return [f"The columns of {word}: {_names(table)}" for word, table in tables.items()]


def _is_table(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in _TABLES


def _names(table: Any) -> str:
    names = ", ".join(f"{name}"[:100] for name in list(table.columns)[:_COLUMNS])
    index = [
        f"{name}"[:100] for name in getattr(getattr(table, "index", None), "names", ()) if name
    ]
    return f"{names} (and the index: {', '.join(index)})" if index else names


def _chosen(frames: list[traceback.FrameSummary]) -> list[int | None]:
    """Choose the frames to show: the user's, and the last few below them."""
    cells = [index for index, frame in enumerate(frames) if _is_cell(frame)]
    if len(cells) > _CELL_FRAMES:
        cells = cells[: _CELL_FRAMES // 2] + cells[-_CELL_FRAMES // 2 :]
    last = range(max(len(frames) - _LIBRARY_FRAMES, 0), len(frames))
    shown: list[int | None] = []
    previous = -1
    for index in sorted({*cells, *last}):
        if index > previous + 1 and shown:
            shown.append(None)
        shown.append(index)
        previous = index
    return shown


def _is_cell(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(CELL_PREFIX)


def _is_machinery(filename: str) -> bool:
    return filename == data_connection_objects.__file__ or any(
        f"/site-packages/{package}/" in filename for package in _OURS
    )


def _short(frame: traceback.FrameSummary) -> str:
    """Return a library's file name from its package on; where it is installed is of no use."""
    return _INSTALLED.split(frame.filename)[-1]
