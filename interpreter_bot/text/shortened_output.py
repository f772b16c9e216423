"""Long printed text in few lines: the beginning and the end of each stream. Pure."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Final

# A line is cut if whole lines would leave more room than this empty.
_WHOLE_LINES: Final = 0.5
# One of so many parts of a shortened text is its end.
_TAIL_PART: Final = 3
_JOINED: Final = frozenset({"\u200d", "\ufe0e", "\ufe0f"})


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """A text that was printed to a stream."""

    stream: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Gap:
    """A range of a text that is left out, and the line that replaces it."""

    start: int
    end: int
    mark: str


def shorten(
    pieces: Sequence[Printed], *, max_characters: int, max_lines: int | None = None
) -> tuple[str, ...]:
    """Return the text of each piece, without the middle of a stream that is too long.

    A short stream leaves its room to the other one. Lines that replace text are not counted.
    """
    unshortened: dict[str, str] = {}
    for piece in pieces:
        unshortened[piece.stream] = unshortened.get(piece.stream, "") + piece.text
    texts = {name: text.rstrip("\n") for name, text in unshortened.items()}
    lines = {name: text.count("\n") + 1 for name, text in texts.items()}
    characters = _shares({name: len(text) for name, text in texts.items()}, max_characters)
    line_shares = lines if max_lines is None else _shares(lines, max_lines)
    gaps = {name: _gap(text, line_shares[name], characters[name]) for name, text in texts.items()}
    parts: list[str] = []
    ends = dict.fromkeys(unshortened, 0)
    for piece in pieces:
        start = ends[piece.stream]
        end = ends[piece.stream] = start + len(piece.text)
        gap = gaps[piece.stream]
        if gap is None:
            parts.append(piece.text)
            continue
        head = unshortened[piece.stream][start : max(min(end, gap.start), start)]
        tail = unshortened[piece.stream][min(max(start, gap.end), end) : end]
        parts.append(f"{head}{gap.mark if start <= gap.start < end else ''}{tail}")
    return tuple(parts)


def shorten_text(text: str, *, max_characters: int, max_lines: int) -> str:
    """Return another text, without its middle if it is too long."""
    gap = _gap(text, max_lines, max_characters)
    return f"{text[: gap.start]}{gap.mark}{text[gap.end :]}" if gap else text


def _shares(needs: dict[str, int], limit: int) -> dict[str, int]:
    """Divide room equally among streams; those that need less leave theirs to others."""
    shares: dict[str, int] = {}
    for name, need in sorted(needs.items(), key=lambda item: item[1]):
        shares[name] = min(need, max(limit, 0) // (len(needs) - len(shares)))
        limit -= shares[name]
    return shares


def _gap(text: str, max_lines: int, max_characters: int) -> _Gap | None:
    """Return the middle of a text to leave out; None if the text fits."""
    lines = text.split("\n")
    # One line too many takes no more room than the mark in its place.
    if len(lines) <= max_lines + 1 and len(text) <= max_characters:
        return None
    head, tail = text, text
    if len(lines) > max_lines:
        tail_lines = max(max_lines // _TAIL_PART, 1)
        head = "\n".join(lines[: max(max_lines - tail_lines, 0)])
        tail = "\n".join(lines[-tail_lines:])
    tail_characters = max(max_characters // _TAIL_PART, 0)
    start = _whole_lines(head, max(max_characters - tail_characters, 0))
    end = len(text) - _whole_lines(tail[::-1], tail_characters)
    end = max(_whole_letters(text, end), start)
    removed_text = text[start:end].strip("\n")
    if not removed_text:
        return None
    count, total, unit = len(lines) - removed_text.count("\n") - 1, len(lines), "lines"
    if "\n" not in removed_text:
        count, total, unit = len(text) - len(removed_text), len(text), "characters"
    leading_break = "" if text[start - 1 : start] in ("", "\n") else "\n"
    trailing_break = "" if text[end : end + 1] in ("", "\n") else "\n"
    return _Gap(
        start, end, f"{leading_break}… {count:,} of {total:,} {unit} shown …{trailing_break}"
    )


def _whole_lines(text: str, limit: int) -> int:
    """Return how much of a text fits: whole lines, unless that leaves too much room empty."""
    if len(text) <= limit:
        return len(text)
    line_end = text.rfind("\n", 0, limit)
    return line_end if line_end > limit * _WHOLE_LINES else _whole_letters(text, limit)


def _whole_letters(text: str, place: int) -> int:
    """Return a place at or before another that divides no letter from its marks."""
    while 0 < place < len(text) and (
        unicodedata.combining(text[place]) or text[place] in _JOINED or text[place - 1] == "\u200d"
    ):
        place -= 1
    return place
