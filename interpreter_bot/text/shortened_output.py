"""Long printed text in few lines: the beginning and the end of each stream. Pure."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Final

# A line is cut rather than so much room left empty.
_WHOLE_LINES: Final = 0.5
_MARK_CHARACTERS: Final = 40
_JOINED: Final = frozenset({"\u200d", "\ufe0e", "\ufe0f"})


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """What was printed to a stream in one piece."""

    stream: str
    text: str


def shorten(
    pieces: Sequence[Printed], *, most_characters: int, most_lines: int | None = None
) -> tuple[str, ...]:
    """Return the text of each piece, without the middle of a stream that is too long.

    A short stream leaves its room to the other one. A line says what is left out.
    """
    streams = dict.fromkeys(piece.stream for piece in pieces)
    whole = {name: "".join(p.text for p in pieces if p.stream == name) for name in streams}
    characters = _shares({name: len(text) for name, text in whole.items()}, most_characters)
    lines = {name: text.count("\n") + 1 for name, text in whole.items()}
    line_shares = lines if most_lines is None else _shares(lines, most_lines)
    gaps: dict[str, tuple[int, int]] = {}
    for name, text in whole.items():
        has_too_many_lines = lines[name] > line_shares[name]
        if has_too_many_lines or len(text) > characters[name]:
            room = line_shares[name] - 1 if has_too_many_lines else len(text)
            gaps[name] = _gap(text, max(characters[name] - _MARK_CHARACTERS, 0), room)
        else:
            gaps[name] = len(text), len(text)
    shown: list[str] = []
    places = dict.fromkeys(streams, 0)
    for piece in pieces:
        start = places[piece.stream]
        end = places[piece.stream] = start + len(piece.text)
        first, last = gaps[piece.stream]
        head = piece.text[: max(first - start, 0)]
        if start <= first < end and first < last:
            text = whole[piece.stream]
            is_after_line = not first or text[first - 1] == "\n"
            mark = _mark(text[first:last], is_after_line=is_after_line)
            head += mark[: characters[piece.stream]]
        shown.append(head + piece.text[max(last - start, 0) :] if last < end else head)
    return tuple(shown)


def _shares(needs: dict[str, int], most: int) -> dict[str, int]:
    """Divide room among streams, equally but for what one does not need."""
    shares: dict[str, int] = {}
    for name, need in sorted(needs.items(), key=lambda item: item[1]):
        shares[name] = min(need, most // (len(needs) - len(shares)))
        most -= shares[name]
    return shares


def _gap(text: str, most_characters: int, most_lines: int) -> tuple[int, int]:
    """Return where the gap begins and ends, at whole lines unless those are long."""
    stripped = len(text.rstrip("\n"))
    tail_characters, tail_lines = most_characters // 2, max(most_lines // 2, 1)
    first = _end_of_lines(text, max(most_lines - tail_lines, 0))
    limit = most_characters - tail_characters
    if first > limit:
        line_end = text.rfind("\n", 0, limit) + 1
        first = line_end if line_end > limit * _WHOLE_LINES else _whole_letters(text, limit)
    last = stripped
    for _ in range(tail_lines):
        last = text.rfind("\n", 0, last) if last > 0 else -1
    last = max(last + 1, 0)
    limit = max(stripped - tail_characters, 0)
    if last < limit:
        line_start = text.find("\n", limit, stripped) + 1
        is_near = 0 < line_start < stripped - tail_characters * _WHOLE_LINES
        last = line_start if is_near else _whole_letters(text, limit)
    return first, max(first, last)


def _end_of_lines(text: str, count: int) -> int:
    end = 0
    for _ in range(count):
        end = text.find("\n", end) + 1
        if not end:
            return len(text)
    return end


def _whole_letters(text: str, place: int) -> int:
    """Return a place at or before another that divides no letter from its marks."""
    while 0 < place < len(text) and (
        unicodedata.combining(text[place]) or text[place] in _JOINED or text[place - 1] == "\u200d"
    ):
        place -= 1
    return place


def _mark(left_out: str, *, is_after_line: bool) -> str:
    lines = left_out.count("\n")
    count = f"{lines:,} lines" if lines > 1 else f"{len(left_out):,} characters"
    before = "" if is_after_line else "\n"
    return f"{before}… {count} left out …\n"
