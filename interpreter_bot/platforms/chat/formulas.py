"""Formulas in a model's Markdown, which chat networks do not draw: they are shown as code. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CODE_SPAN: Final = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)")
# A number before an ordinary word is a price.
_FORMULA_START: Final = r"(?![\s$`]|\d[^\s$`\\^_{]*\s[^\\^_=<>+])"
# Within dollars there must be a character that formulas have, or prices would be one.
_INLINE: Final = re.compile(
    rf"(?P<span>{_CODE_SPAN.pattern})"
    r"|\\\((?P<brackets>[^\n`]{1,500}?)\\\)"
    rf"|(?<![\w$\\])(?P<marks>\${{1,2}}){_FORMULA_START}(?=[^$\n`]*[\\^_=])"
    r"(?P<dollars>[^$\n`]{1,200})(?<!\s)(?P=marks)(?![\w$({])"
)
# What may become one, or code that holds one.
_UNFINISHED: Final = re.compile(
    r"(?:`[^`]{0,300}|\\\((?:(?!\\\))[^\n`]){0,500}|\\"
    rf"|(?<![\w$\\])\${{1,2}}(?:{_FORMULA_START}[^$`\n]{{1,200}}\${{0,2}})?)\Z"
)
_MAX_UNFINISHED_CHARACTERS: Final = 502
_DISPLAY_START: Final = re.compile(r"\s{0,8}(?P<marks>\$\$|\\\[)")
_DISPLAY_ENDS: Final = {"$$": "$$", "\\[": "\\]"}
_MAX_DISPLAY_LINES: Final = 40


def find_end(lines: Sequence[str], start: int, *, is_whole: bool) -> int:
    """Return the index after a formula that begins at a line; 0 if none begins there.

    One beyond the last line if the end of the formula may still come.
    """
    display_start = _DISPLAY_START.match(lines[start])
    if display_start is None:
        return 0
    end_mark = _DISPLAY_ENDS[display_start["marks"]]
    for index in range(start, min(start + _MAX_DISPLAY_LINES, len(lines))):
        line = lines[index][display_start.end() :] if index == start else lines[index]
        _, mark, rest = line.partition(end_mark)
        if mark:
            return 0 if rest.strip() else index + 1
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
    line = _INLINE.sub(_blank, line)
    unfinished = _UNFINISHED.search(line, max(len(line) - _MAX_UNFINISHED_CHARACTERS, 0))
    return unfinished.start() if unfinished else len(line)


def _blank(match: re.Match[str]) -> str:
    # The next character decides whether dollars close a formula.
    is_open = match["marks"] and match.end() == len(match.string)
    return match[0] if is_open else "\n" * len(match[0])
