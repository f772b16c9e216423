"""Formulas in a model's Markdown, which chat networks do not draw: they are shown as code. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CODE_SPAN: Final = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)[^`]*(?P=ticks)(?!`)")
# Within dollars there must be a character that formulas have, or prices would be one.
_INLINE: Final = re.compile(
    rf"(?P<span>{_CODE_SPAN.pattern})"
    r"|\\\((?P<brackets>[^\n`]{1,500}?)\\\)"
    r"|(?<![\w$\\])\$(?=[^\s$`])(?=[^$\n`]*[\\^_=])(?P<dollars>[^$\n`]{1,200})(?<!\s)\$(?![\w$])"
)
# What may become one, or code that holds one. A price is not taken for the beginning.
_UNFINISHED: Final = re.compile(
    r"(?:`[^`]{0,300}|\\\((?:(?!\\\))[^`]){0,500}|(?<![\w$\\])\$(?:[^\s$`\d][^$`]{0,200})?|\\)\Z"
)
_MAX_UNFINISHED_CHARACTERS: Final = 502
_DISPLAY_START: Final = re.compile(r"\s{0,3}(?P<marks>\$\$|\\\[)")
_DISPLAY_ENDS: Final = {"$$": "$$", "\\[": "\\]"}
_MAX_DISPLAY_LINES: Final = 40


def find_end(lines: Sequence[str], start: int, *, is_whole: bool) -> int:
    """Return the index after a formula that begins at a line; 0 if none begins there.

    One beyond the last line if the end of the formula may still come.
    """
    display_start = _DISPLAY_START.match(lines[start])
    if display_start is None:
        return 0
    marks = display_start["marks"]
    for index in range(start, min(start + _MAX_DISPLAY_LINES, len(lines))):
        line = lines[index][display_start.end() :] if index == start else lines[index]
        if line.rstrip().endswith(_DISPLAY_ENDS[marks]):
            return index + 1
    may_come = not is_whole and len(lines) - start < _MAX_DISPLAY_LINES
    return len(lines) + 1 if may_come else 0


def strip_marks(lines: Sequence[str]) -> str:
    """Return the formula that fills some lines, without the marks around it."""
    text = "\n".join(lines).strip()
    for mark in (*_DISPLAY_ENDS, *_DISPLAY_ENDS.values()):
        text = text.removeprefix(mark).removesuffix(mark)
    return text.strip()


def mark_as_code(line: str) -> str:
    """Turn the formulas within a line into spans of code."""
    return _INLINE.sub(_mark_as_code, line)


def _mark_as_code(match: re.Match[str]) -> str:
    return match["span"] or f"`{(match['brackets'] or match['dollars']).strip()}`"


def safe_length(line: str) -> int:
    """Return the length of the part of a growing line that cannot become a formula."""
    line = _CODE_SPAN.sub(lambda span: " " * len(span[0]), line)
    unfinished = _UNFINISHED.search(line, max(len(line) - _MAX_UNFINISHED_CHARACTERS, 0))
    return unfinished.start() if unfinished else len(line)
