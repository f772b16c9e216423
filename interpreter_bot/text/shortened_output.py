"""Shorten long printed text to the beginning and the end of each stream. Pure."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Final

# If whole lines would fill less than this share of the room, the last line is cut instead.
_MIN_FILLED_SHARE: Final = 0.5
# The end gets one part in three of a shortened text, the beginning the rest.
_TAIL_DIVISOR: Final = 3
_JOINING_CHARACTERS: Final = frozenset({"\u200d", "\ufe0e", "\ufe0f"})


@dataclasses.dataclass(frozen=True, slots=True)
class PrintedPiece:
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
    pieces: Sequence[PrintedPiece], *, max_characters: int, max_lines: int | None = None
) -> tuple[str, ...]:
    """Return the text of each piece, without the middle of a stream that is too long.

    A short stream leaves its room to the other one. Lines that replace text are not counted.
    """
    full_texts: dict[str, str] = {}
    for piece in pieces:
        full_texts[piece.stream] = full_texts.get(piece.stream, "") + piece.text
    texts = {name: text.rstrip("\n") for name, text in full_texts.items()}
    lines = {name: text.count("\n") + 1 for name, text in texts.items()}
    characters = _divide({name: len(text) for name, text in texts.items()}, max_characters)
    line_shares = lines if max_lines is None else _divide(lines, max_lines)
    gaps = {
        name: _find_gap(text, line_shares[name], characters[name]) for name, text in texts.items()
    }
    parts: list[str] = []
    ends = dict.fromkeys(full_texts, 0)
    for piece in pieces:
        start = ends[piece.stream]
        end = ends[piece.stream] = start + len(piece.text)
        gap = gaps[piece.stream]
        if gap is None:
            parts.append(piece.text)
            continue
        head = full_texts[piece.stream][start : max(min(end, gap.start), start)]
        tail = full_texts[piece.stream][min(max(start, gap.end), end) : end]
        parts.append(f"{head}{gap.mark if start <= gap.start < end else ''}{tail}")
    return tuple(parts)


def shorten_text(text: str, *, max_characters: int, max_lines: int) -> str:
    """Return a text, without its middle if it is too long."""
    gap = _find_gap(text, max_lines, max_characters)
    return f"{text[: gap.start]}{gap.mark}{text[gap.end :]}" if gap else text


def _divide(needs: dict[str, int], limit: int) -> dict[str, int]:
    """Divide room equally among streams; those that need less leave theirs to others."""
    shares: dict[str, int] = {}
    for name, need in sorted(needs.items(), key=lambda item: item[1]):
        shares[name] = min(need, max(limit, 0) // (len(needs) - len(shares)))
        limit -= shares[name]
    return shares


def _find_gap(text: str, max_lines: int, max_characters: int) -> _Gap | None:
    """Return the middle of a text to leave out; None if the text fits."""
    lines = text.split("\n")
    # One line too many is kept, as the line that would replace it takes the same room.
    if len(lines) <= max_lines + 1 and len(text) <= max_characters:
        return None
    head, tail = text, text
    if len(lines) > max_lines:
        tail_lines = max(max_lines // _TAIL_DIVISOR, 1)
        head = "\n".join(lines[: max(max_lines - tail_lines, 0)])
        tail = "\n".join(lines[-tail_lines:])
    tail_characters = max(max_characters // _TAIL_DIVISOR, 0)
    start = _fitting_length(head, max(max_characters - tail_characters, 0))
    end = len(text) - _fitting_length(tail[::-1], tail_characters)
    end = max(_letter_boundary(text, end), start)
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


def _fitting_length(text: str, limit: int) -> int:
    """Return how much of a text fits: whole lines, unless that leaves too much room empty."""
    if len(text) <= limit:
        return len(text)
    line_end = text.rfind("\n", 0, limit)
    return line_end if line_end > limit * _MIN_FILLED_SHARE else _letter_boundary(text, limit)


def _letter_boundary(text: str, index: int) -> int:
    """Return the last position up to `index` that separates no letter from its marks."""
    while 0 < index < len(text) and (
        unicodedata.combining(text[index])
        or text[index] in _JOINING_CHARACTERS
        or text[index - 1] == "\u200d"
    ):
        index -= 1
    return index
