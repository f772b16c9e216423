"""Split Markdown into messages, each within its limit and readable on its own. Pure.

Code that is cut is closed in one piece and opened again, with its language, in the next. A cut is
made, in order of preference, between paragraphs, before code, between lines, between words, or
between letters. No cut falls within a letter (a grapheme of Unicode's UAX 29, by the library
`regex`), an escape, a link or a span of code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

import regex

from interpreter_bot.text import fences

# Unicode's rules do not cover surrogate pairs, which must not be cut either.
_GRAPHEME: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]|\X")
# A letter may have any length, and flags are pairs, so finding a boundary needs a whole run, which
# takes quadratic time if it is not bounded.
_MAX_LOOK_BACK: Final = 64

LOOK_AHEAD_CHARACTERS: Final = 2000
"""How many characters after a break must be known."""
MAX_FENCE_CHARACTERS: Final = 44
"""The most characters of a fence with its indent, without the language."""

# Sequences whose halves would mean something else.
_UNBREAKABLE: Final = re.compile(
    r"\\.|&\#?\w{1,31};|!?\[[^\[\]\n]{0,200}\]\([^()\s]{1,1000}\)|<[^<>\n]{1,200}>"
    r"|(?<!`)(`{1,3})(?!`)[^`\n]{1,200}(?<!`)\1(?!`)|\*\*[^*\n]{1,200}\*\*|https?://\S{1,1000}"
)
_FENCE_LOOK_AHEAD: Final = 32
_SPACES: Final = re.compile(r"\s+")
_MAX_WORDS_TRIED: Final = 16
_MAX_LETTERS_TRIED: Final = 64
# A word is broken if the piece would otherwise be filled to less than this share.
_MIN_LINE_SHARE: Final = 0.3

MIN_CHARACTERS: Final = 400
"""A limit lower than this could not hold a fence that is closed and opened again."""

_LINE_PATTERN: Final = re.compile(r"[^\n]*\n|[^\n]+")
_ZERO_WIDTH_SPACE: Final = "\u200b"
# Kinds of cuts, the best first, and the share of a piece that has to be filled before each.
_PARAGRAPH, _BLOCK, _LINE = range(3)
_MIN_SHARES: Final = (0.5, 0.2, 0.3)


def grapheme_floor(text: str, index: int) -> int:
    """Return the last letter boundary up to `index`; `index` itself if none is near."""
    if index >= len(text):
        return index
    start = max(index - _MAX_LOOK_BACK, 0)
    *_, last_start = (match.start() for match in _GRAPHEME.finditer(text[start : index + 1]))
    return start + last_start if last_start else index


def find_break(line: str, limit: int, *, is_code: bool) -> int:
    """Return the index at which to break a line, at most `limit`.

    Args:
        line: the rest of a line, longer than `limit`.
        limit: how many characters fit, at least one.
        is_code: the line is code, without Markdown.
    """
    spans = [] if is_code else [match.span() for match in _UNBREAKABLE.finditer(line)]
    for index in _break_indexes(line, limit):
        is_outside_spans = not any(start < index < end for start, end in spans)
        if is_outside_spans and not fences.may_open_fence(line[index : index + _FENCE_LOOK_AHEAD]):
            return index
    return grapheme_floor(line, limit)


def _break_indexes(line: str, limit: int) -> Iterator[int]:
    """Yield indexes at which to break, the best first: between words, then between letters."""
    min_index = int(limit * _MIN_LINE_SHARE)
    word_ends = [match.end() for match in _SPACES.finditer(line[:limit]) if match.end() > min_index]
    if line[limit : limit + 1].isspace():
        word_ends.append(limit)
    yield from reversed(word_ends[-_MAX_WORDS_TRIED:])
    index = limit
    for _ in range(_MAX_LETTERS_TRIED):
        index = grapheme_floor(line, index)
        if index <= 0:
            return
        yield index
        index -= 1


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """One message.

    Attributes:
        opening: opens code again that an earlier piece began, or keeps a broken line from looking
            like a fence; not in the original text.
        body: part of the original text. The bodies of all pieces, joined, are the whole text.
        closing: closes code that continues in the next piece; not in the original text.
    """

    opening: str
    body: str
    closing: str

    @property
    def text(self) -> str:
        """Return the text to send."""
        return f"{self.opening}{self.body}{self.closing}"


def split_messages(text: str, max_characters: int) -> tuple[str, ...]:
    """Split text into messages without empty lines around them; blank messages are omitted.

    Raises:
        ValueError: `max_characters` is below `MIN_CHARACTERS`.
    """
    all_pieces = split_exactly(text, max_characters)
    return tuple(piece.text.strip("\n") for piece in all_pieces if piece.body.strip())


def split_exactly(text: str, max_characters: int) -> tuple[Piece, ...]:
    """Split text into pieces whose bodies, joined, are the text.

    Args:
        text: sanitized Markdown. If its code is not closed, the last piece closes it.
        max_characters: of each piece, counted as Python and Discord do.

    Raises:
        ValueError: `max_characters` is below `MIN_CHARACTERS`.
    """
    if max_characters < MIN_CHARACTERS:
        raise ValueError(f"a piece needs {MIN_CHARACTERS} units at least")
    return tuple(_Cutter(text, max_characters).cut())


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """The end of a line in the text, and the code that is open before and after it."""

    end: int
    fence_before: fences.Fence | None
    fence_after: fences.Fence | None
    is_blank: bool

    @property
    def is_fence(self) -> bool:
        """Whether it opens or closes code."""
        return self.fence_before is not self.fence_after


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    index: int
    fence: fences.Fence | None


class _Cutter:
    def __init__(self, text: str, max_characters: int) -> None:
        self._text = text
        self._max_characters = max_characters
        self._lines = list(_parse_lines(text))

    def cut(self) -> Iterator[Piece]:
        start, line_index = 0, 0
        fence: fences.Fence | None = None
        while start < len(self._text):
            opening = self._make_opening(start, line_index, fence)
            cut = self._choose_cut(start, line_index, self._max_characters - len(opening))
            body = self._text[start : cut.index]
            yield Piece(opening, body, _make_closing(body, cut.fence))
            start, fence = cut.index, cut.fence
            while line_index < len(self._lines) and self._lines[line_index].end <= start:
                line_index += 1

    def _make_opening(self, start: int, line_index: int, fence: fences.Fence | None) -> str:
        opening = fence.opening if fence else ""
        line = self._lines[line_index]
        is_broken = start > self._line_start(line_index) or not self._fits_alone(line_index)
        if (
            is_broken
            and not line.is_fence
            and fences.may_open_fence(self._text[start : start + 32])
        ):
            return opening + _ZERO_WIDTH_SPACE
        return opening

    def _choose_cut(self, start: int, line_index: int, room: int) -> _Cut:
        """Choose the end of the piece that begins at `start`, in the line `line_index`."""
        cuts: dict[int, tuple[_Cut, int]] = {}
        position, used_size, last_cut = start, 0, None
        for index in range(line_index, len(self._lines)):
            line = self._lines[index]
            line_size = self._measure(position, line, room - used_size)
            if used_size + line_size > room:
                return (
                    _find_best_cut(cuts, room)
                    or (
                        last_cut
                        if last_cut and (line.is_fence or self._fits_alone(index))
                        else None
                    )
                    or self._break_line(start, position, line, room - used_size)
                    or last_cut
                    or _Cut(start + 1, line.fence_before)
                )
            used_size += line.end - position
            position = line.end
            last_cut = _Cut(position, line.fence_after)
            if (kind := self._find_cut_kind(index)) is not None:
                cuts[kind] = (last_cut, used_size)
        return _Cut(position, self._lines[-1].fence_after)

    def _measure(self, start: int, line: _Line, limit: int) -> int:
        """Measure the rest of a line with the closing of the code around it."""
        size = line.end - start
        if size > limit:
            return size
        return size + len(_make_closing(self._text[start : line.end], line.fence_after))

    def _fits_alone(self, index: int) -> bool:
        """Return whether a line fits into a piece of its own."""
        line = self._lines[index]
        opening = line.fence_before.opening if line.fence_before else ""
        room = self._max_characters - len(opening)
        return self._measure(self._line_start(index), line, room) <= room

    def _line_start(self, index: int) -> int:
        return self._lines[index - 1].end if index else 0

    def _find_cut_kind(self, index: int) -> int | None:
        """Return the kind of a cut after a line; None for a cut of last resort."""
        line = self._lines[index]
        next_line = self._lines[index + 1] if index + 1 < len(self._lines) else None
        if line.fence_after is not None:
            # The piece, or the next one, would show an empty code block.
            closes_next = next_line is not None and next_line.is_fence
            return None if line.is_fence or closes_next else _LINE
        if line.is_blank or line.is_fence or next_line is None or next_line.is_blank:
            return _PARAGRAPH
        return _BLOCK if next_line.is_fence else _LINE

    def _break_line(self, start: int, position: int, line: _Line, room: int) -> _Cut | None:
        """Break a line that is too long for any piece; None if it should begin a new piece."""
        if (
            position > start
            and not line.is_fence
            and fences.may_open_fence(self._text[position : position + 32])
        ):
            return None
        fence = line.fence_after if line.is_fence else line.fence_before
        # The line ends where it is broken, and code is closed on a line of its own.
        closing = len("\n" + fence.closing) if fence else 0
        line_end = self._text[position : min(line.end, position + room + LOOK_AHEAD_CHARACTERS)]
        limit = min(len(line_end), max(room - closing, 0))
        if limit < 1 or (line.is_fence and limit <= MAX_FENCE_CHARACTERS):
            return None
        if line.is_fence:
            return _Cut(position + limit, fence)
        return _Cut(position + find_break(line_end, limit, is_code=fence is not None), fence)


def _parse_lines(text: str) -> Iterator[_Line]:
    end = 0
    for before, line, after in fences.track_fences(_LINE_PATTERN.findall(text)):
        end += len(line)
        yield _Line(end, before, after, not line.strip())


def _find_best_cut(cuts: dict[int, tuple[_Cut, int]], room: int) -> _Cut | None:
    for kind, min_share in enumerate(_MIN_SHARES):
        if kind in cuts and cuts[kind][1] >= min_share * room:
            return cuts[kind][0]
    return None


def _make_closing(body: str, fence: fences.Fence | None) -> str:
    if fence is None:
        return ""
    return fence.closing if body.endswith("\n") else f"\n{fence.closing}"
