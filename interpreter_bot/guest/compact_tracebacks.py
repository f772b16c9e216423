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
_MAX_GROUP_MEMBERS = 5
_MAX_MESSAGE_CHARACTERS = 4000
_LIBRARY_PATH = re.compile(r"(?:^|.*/)(?:(?:site|dist)-packages|lib/python3\.\d+)/")
_MACHINERY_PACKAGES = ("IPython", "ipykernel")
_GUEST_DIRECTORY = os.path.dirname(__file__)
_WORD = re.compile(r"[^\W\d]\w*")
_TABLE_LIBRARIES = ("pandas", "polars")
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
    exception = traceback.TracebackException(kind, error, tb, lookup_lines=False, compact=True)
    lines = _describe_frames(exception, is_last=True) + _describe_group(exception)
    cause = exception
    for _ in range(_MAX_CAUSES - 1):
        if cause.__cause__ is not None:
            cause, link = cause.__cause__, "This led to:"
        elif cause.__context__ is not None and not cause.__suppress_context__:
            cause, link = cause.__context__, "While this was handled, another error occurred:"
        else:
            break
        # A cause without a frame of the user's code is left out: the library's error is enough.
        if frames := _describe_frames(cause, is_last=False):
            lines = [*frames, *_describe_message(cause), "", link, "", *lines]
    return [*lines, *_list_columns(error, tb), *_describe_message(exception)]


def message(error: BaseException) -> str:
    """Return an exception's text with its notes, even if its `__str__` raises."""
    try:
        if isinstance(error, SyntaxError):
            # str(error) would repeat the line and file.
            return _with_syntax_hint(str(error.msg))
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return f"exit code {error.code}"
        notes = getattr(error, "__notes__", None)
        lines = [str(error), *map(str, notes if isinstance(notes, list) else ())]
        return "\n".join(lines)[:_MAX_MESSAGE_CHARACTERS]
    except Exception:
        # Any exception: `__str__` may be the user's.
        return "<text could not be made>"


def _with_syntax_hint(text: str) -> str:
    hints = [hint for letter, hint in _SYNTAX_HINTS if letter in text]
    return f"{text}. {hints[0]}" if hints else text


def _is_syntax_error(exception: traceback.TracebackException) -> bool:
    return hasattr(exception, "msg")


def _describe_message(exception: traceback.TracebackException) -> list[str]:
    """Return an exception's name and message; a syntax error's line is among the frames."""
    lines = "".join(exception.format_exception_only()).rstrip().split("\n")
    if _is_syntax_error(exception):
        lines = [f"{lines[-1].partition(':')[0]}: {_with_syntax_hint(str(exception.msg))}"]
    text = "\n".join(lines)
    if re.fullmatch(r"SystemExit: -?\d+", text):
        text = text.replace(": ", ": exit code ")
    if len(text) > _MAX_MESSAGE_CHARACTERS:
        text = text[:_MAX_MESSAGE_CHARACTERS] + " …"
    return text.split("\n")


def _describe_frames(exception: traceback.TracebackException, *, is_last: bool) -> list[str]:
    """Describe frames of the user's code; if the last exception has none, the innermost ones."""
    frames = [frame for frame in exception.stack if not _is_machinery(frame.filename)]
    # Only the first of several equal frames in a row, as in a recursion.
    user_indices = [
        index
        for index, frame in enumerate(frames)
        if _is_user_code(frame.filename)
        and not (index and _are_at_same_line(frame, frames[index - 1]))
    ]
    indices = user_indices
    if is_last and not user_indices:
        indices = list(range(len(frames)))[-_MAX_LIBRARY_FRAMES:]
    elif len(user_indices) > _MAX_FRAMES:
        indices = user_indices[: _MAX_FRAMES // 2] + user_indices[-_MAX_FRAMES // 2 :]
    lines: list[str] = []
    previous = indices[0] - 1 if indices else 0
    for index in indices:
        lines += _fold_frames(frames[previous + 1 : index])
        frame, previous = frames[index], index
        function_suffix = "" if frame.name == "<module>" else f", in {frame.name}"
        lines.append(f"{display_path(frame.filename)}, line {frame.lineno}{function_suffix}")
        if frame.line:
            lines.append(f"    {frame.line[:300]}")
    if user_indices:
        lines += _fold_frames(frames[previous + 1 :])
    return lines + (_locate_syntax_error(exception) if is_last or lines else [])


def _are_at_same_line(frame: traceback.FrameSummary, other_frame: traceback.FrameSummary) -> bool:
    return (frame.filename, frame.lineno) == (other_frame.filename, other_frame.lineno)


def _fold_frames(frames: list[traceback.FrameSummary]) -> list[str]:
    """Return a line that names the omitted frames."""
    if not frames:
        return []
    if any(_is_user_code(frame.filename) for frame in frames):
        return ["  … more frames …"]
    names = dict.fromkeys(
        display_path(frame.filename).partition("/")[0].removesuffix(".py") for frame in frames
    )
    return [f"  … in {', '.join(list(names)[:3])}"]


def _locate_syntax_error(exception: traceback.TracebackException) -> list[str]:
    """Return a syntax error's line, with a mark below the place; nothing for other errors."""
    if not _is_syntax_error(exception):
        return []
    lines = "".join(exception.format_exception_only()).rstrip().split("\n")
    marked_lines = [line for line in lines[:-1] if line.startswith("    ")]
    if exception.lineno is None:
        return marked_lines
    return [f"{display_path(exception.filename or '')}, line {exception.lineno}", *marked_lines[:2]]


def _describe_group(group: traceback.TracebackException) -> list[str]:
    """Describe the first exceptions of an exception group."""
    lines: list[str] = []
    for member in (group.exceptions or ())[:_MAX_GROUP_MEMBERS]:
        block = [
            *_describe_frames(member, is_last=True),
            *_describe_group(member),
            *_describe_message(member),
        ]
        lines += [f"  | {line}" for line in block] + ["  |"]
    return lines


def display_path(filename: str) -> str:
    """Return a file's name for people: a cell's number, or a library's path from its package on."""
    if filename.startswith(CELL_PREFIX):
        return f"Cell {filename[len(CELL_PREFIX) : -1]}"
    return _LIBRARY_PATH.sub("", filename).removeprefix(rootfs.DATA + "/")


def _is_user_code(filename: str) -> bool:
    """Return whether a file is the user's: a cell, or a file outside of libraries."""
    if filename.startswith(CELL_PREFIX) or filename == "<string>":
        return True
    is_system = filename.startswith((rootfs.LAYERS, "/usr/")) or bool(_LIBRARY_PATH.match(filename))
    return filename.startswith("/") and not is_system


def _is_machinery(filename: str) -> bool:
    return filename.startswith(_GUEST_DIRECTORY) or any(
        f"/site-packages/{package}/" in filename for package in _MACHINERY_PACKAGES
    )


def install() -> None:
    """Shorten warnings, and remove this machine's paths from tracebacks that code prints."""

    def format_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_: Any,
        **__: Any,
    ) -> str:
        text = f"{category.__name__}: {message}\n"
        return (
            text if _is_machinery(filename) else f"{display_path(filename)}, line {lineno}: {text}"
        )

    format_original = traceback.StackSummary.format_frame_summary

    def format_frame(
        summary: traceback.StackSummary, frame: traceback.FrameSummary, *args: Any, **options: Any
    ) -> str:
        text: str = format_original(summary, frame, *args, **options)
        return text.replace(frame.filename, display_path(frame.filename), 1)

    warnings.formatwarning = format_warning
    summaries: Any = traceback.StackSummary
    summaries.format_frame_summary = format_frame


def _list_columns(error: BaseException, tb: TracebackType | None) -> list[str]:
    """After a KeyError or AttributeError, list the columns of tables named in the cell's line."""
    if not isinstance(error, (KeyError, AttributeError)):
        return []
    cell_frames = [
        frame_and_line
        for frame_and_line in traceback.walk_tb(tb)
        if frame_and_line[0].f_code.co_filename.startswith(CELL_PREFIX)
    ]
    if not cell_frames:
        return []
    frame, line_number = cell_frames[-1]
    words = dict.fromkeys(_WORD.findall(linecache.getline(frame.f_code.co_filename, line_number)))
    variables = {**frame.f_globals, **frame.f_locals}
    tables = {
        word: variables[word] for word in words if word in variables and _is_table(variables[word])
    }
    return [f"The columns of {word}: {_list_column_names(table)}" for word, table in tables.items()]


def _is_table(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in _TABLE_LIBRARIES


def _list_column_names(table: Any) -> str:
    column_names = ", ".join(f"{name}"[:100] for name in list(table.columns)[:_MAX_COLUMNS])
    index_names = [
        f"{name}"[:100] for name in getattr(getattr(table, "index", None), "names", ()) if name
    ]
    return (
        f"{column_names} (and the index: {', '.join(index_names)})" if index_names else column_names
    )
