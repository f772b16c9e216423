"""Short tracebacks: the frames of the user's code and the last line, without libraries' frames.

Every exception that a person or a model sees is formatted here. `install` shortens warnings, and
removes this machine's paths from tracebacks that code prints itself.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
import warnings
from types import TracebackType
from typing import Any

from . import rootfs

CELL_PREFIX = "<cell "
_MAX_LIBRARY_FRAMES = 2
_MAX_FRAMES = 12
_MAX_CAUSES = 3
_MAX_GROUPED = 5
_MESSAGE_CHARACTERS = 4000
_LIBRARY = re.compile(r"(?:^|.*/)(?:(?:site|dist)-packages|lib/python3\.\d+)/")
_MACHINERY = ("IPython", "ipykernel")
_GUEST_DIRECTORY = os.path.dirname(__file__)
_WORD = re.compile(r"[^\W\d]\w*")
_TABLES = ("pandas", "polars")
_MAX_COLUMNS = 60
_SYNTAX_HINTS = (
    ("U+201C", "Use straight quotes instead of typographic ones."),
    ("U+201D", "Use straight quotes instead of typographic ones."),
    ("U+2018", "Use straight quotes instead of typographic ones."),
    ("U+2019", "Use straight quotes instead of typographic ones."),
    ("U+00A0", "Replace the no-break spaces by ordinary ones."),
)


def compact(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> list[str]:
    """Describe an exception in few lines, the last being its name and message."""
    # Reading the lines of frames that will not be shown costs tens of milliseconds.
    described = traceback.TracebackException(kind, error, tb, lookup_lines=False, compact=True)
    lines = _describe_frames(described, is_last=True) + _describe_group(described)
    cause = described
    for _ in range(_MAX_CAUSES - 1):
        if cause.__cause__ is not None:
            cause, link = cause.__cause__, "This led to:"
        elif cause.__context__ is not None and not cause.__suppress_context__:
            cause, link = cause.__context__, "While this was handled, another error occurred:"
        else:
            break
        # Within a library, one error leads to the next, and the last one says it all.
        if frames := _describe_frames(cause, is_last=False):
            lines = [*frames, *_last_lines(cause), "", link, "", *lines]
    return [*lines, *_list_columns(error, tb), *_last_lines(described)]


def message(error: BaseException) -> str:
    """Return an exception's text with its notes, even if its `__str__` raises."""
    try:
        if isinstance(error, SyntaxError):
            # str() of it would repeat the line and file.
            return _with_syntax_hint(str(error.msg))
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return f"exit code {error.code}"
        notes = getattr(error, "__notes__", None)
        lines = [str(error), *map(str, notes if isinstance(notes, list) else ())]
        return "\n".join(lines)[:_MESSAGE_CHARACTERS]
    except Exception:
        # Any exception: the method is the user's.
        return "<text could not be made>"


def _with_syntax_hint(text: str) -> str:
    hints = [hint for letter, hint in _SYNTAX_HINTS if letter in text]
    return f"{text}. {hints[0]}" if hints else text


def _is_of_syntax(described: traceback.TracebackException) -> bool:
    return hasattr(described, "msg")


def _last_lines(described: traceback.TracebackException) -> list[str]:
    """Return the last lines; a syntax error's place is among the frames instead."""
    lines = "".join(described.format_exception_only()).rstrip().split("\n")
    if _is_of_syntax(described):
        lines = [f"{lines[-1].partition(':')[0]}: {_with_syntax_hint(str(described.msg))}"]
    text = "\n".join(lines)
    if re.fullmatch(r"SystemExit: -?\d+", text):
        text = text.replace(": ", ": exit code ")
    if len(text) > _MESSAGE_CHARACTERS:
        text = text[:_MESSAGE_CHARACTERS] + " …"
    return text.split("\n")


def _describe_frames(described: traceback.TracebackException, *, is_last: bool) -> list[str]:
    """Describe frames of a person's code, or for the last exception at least those of libraries."""
    frames = [frame for frame in described.stack if not _is_machinery(frame.filename)]
    # In a recursion, only the first of several equal frames is shown.
    own = [
        index
        for index, frame in enumerate(frames)
        if _is_own(frame.filename) and not (index and _are_alike(frame, frames[index - 1]))
    ]
    indices = own
    if is_last and not own:
        indices = list(range(len(frames)))[-_MAX_LIBRARY_FRAMES:]
    elif len(own) > _MAX_FRAMES:
        indices = own[: _MAX_FRAMES // 2] + own[-_MAX_FRAMES // 2 :]
    lines: list[str] = []
    previous = indices[0] - 1 if indices else 0
    for index in indices:
        lines += _fold_frames(frames[previous + 1 : index])
        frame, previous = frames[index], index
        within = "" if frame.name == "<module>" else f", in {frame.name}"
        lines.append(f"{place(frame.filename)}, line {frame.lineno}{within}")
        if frame.line:
            lines.append(f"    {frame.line[:300]}")
    if own:
        lines += _fold_frames(frames[previous + 1 :])
    return lines + (_syntax_place(described) if is_last or lines else [])


def _are_alike(frame: traceback.FrameSummary, other: traceback.FrameSummary) -> bool:
    return (frame.filename, frame.lineno) == (other.filename, other.lineno)


def _fold_frames(frames: list[traceback.FrameSummary]) -> list[str]:
    """Return a line that names the omitted frames."""
    if not frames:
        return []
    if any(_is_own(frame.filename) for frame in frames):
        return ["  … more frames …"]
    names = dict.fromkeys(
        place(frame.filename).partition("/")[0].removesuffix(".py") for frame in frames
    )
    return [f"  … in {', '.join(list(names)[:3])}"]


def _syntax_place(described: traceback.TracebackException) -> list[str]:
    """Return the line that could not be read, with a mark below the place."""
    if not _is_of_syntax(described):
        return []
    lines = "".join(described.format_exception_only()).rstrip().split("\n")
    marked = [line for line in lines[:-1] if line.startswith("    ")]
    if described.lineno is None:
        return marked
    return [f"{place(described.filename or '')}, line {described.lineno}", *marked[:2]]


def _describe_group(described: traceback.TracebackException) -> list[str]:
    """Describe the first exceptions of an exception group."""
    lines: list[str] = []
    for member in (described.exceptions or ())[:_MAX_GROUPED]:
        block = [
            *_describe_frames(member, is_last=True),
            *_describe_group(member),
            *_last_lines(member),
        ]
        lines += [f"  | {line}" for line in block] + ["  |"]
    return lines


def place(filename: str) -> str:
    """Return the name of a file: a cell's number, or a library's path from its package on."""
    if filename.startswith(CELL_PREFIX):
        return f"Cell {filename[len(CELL_PREFIX) : -1]}"
    return _LIBRARY.sub("", filename).removeprefix(rootfs.DATA + "/")


def _is_own(filename: str) -> bool:
    """Return whether a file is the user's code: a cell, or a file outside of libraries."""
    if filename.startswith(CELL_PREFIX) or filename == "<string>":
        return True
    is_system = filename.startswith((rootfs.LAYERS, "/usr/")) or bool(_LIBRARY.match(filename))
    return filename.startswith("/") and not is_system


def _is_machinery(filename: str) -> bool:
    return filename.startswith(_GUEST_DIRECTORY) or any(
        f"/site-packages/{package}/" in filename for package in _MACHINERY
    )


def install() -> None:
    """Show warnings in a line, and tracebacks that code prints without paths of this machine."""

    def format_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_: Any,
        **__: Any,
    ) -> str:
        text = f"{category.__name__}: {message}\n"
        return text if _is_machinery(filename) else f"{place(filename)}, line {lineno}: {text}"

    original = traceback.StackSummary.format_frame_summary

    def format_frame(
        summary: traceback.StackSummary, frame: traceback.FrameSummary, *args: Any, **options: Any
    ) -> str:
        text: str = original(summary, frame, *args, **options)
        return text.replace(frame.filename, place(frame.filename), 1)

    warnings.formatwarning = format_warning
    summaries: Any = traceback.StackSummary
    summaries.format_frame_summary = format_frame


def _list_columns(error: BaseException, tb: TracebackType | None) -> list[str]:
    """List the columns of tables on the user's line, after a KeyError or AttributeError."""
    if not isinstance(error, (KeyError, AttributeError)):
        return []
    cells = [
        entry
        for entry in traceback.walk_tb(tb)
        if entry[0].f_code.co_filename.startswith(CELL_PREFIX)
    ]
    if not cells:
        return []
    frame, number = cells[-1]
    words = dict.fromkeys(_WORD.findall(linecache.getline(frame.f_code.co_filename, number)))
    variables = {**frame.f_globals, **frame.f_locals}
    tables = {
        word: variables[word] for word in words if word in variables and _is_table(variables[word])
    }
    return [f"The columns of {word}: {_names(table)}" for word, table in tables.items()]


def _is_table(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in _TABLES


def _names(table: Any) -> str:
    names = ", ".join(f"{name}"[:100] for name in list(table.columns)[:_MAX_COLUMNS])
    index = [
        f"{name}"[:100] for name in getattr(getattr(table, "index", None), "names", ()) if name
    ]
    return f"{names} (and the index: {', '.join(index)})" if index else names
