"""Split Markdown into messages, each within its limit and readable on its own. Pure.

Code that is cut is closed in the one piece and opened again, with its language, in the next. A
cut falls, in this order, between paragraphs, before code, between lines, between words, between
letters; never within a letter (the graphemes of Unicode's UAX 29, from the library `regex`), and
not within an escape, a link or a span of code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

import regex

from interpreter_bot.text import fences

# Two surrogates may be the rest of one letter, too, which Unicode does not cover.
_LETTER: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]|\X")
# One letter may be of any length, and flags are pairs, for which the whole run has to be read; this
# takes quadratic time, so runs are bounded.
_MAX_LOOK_BACK: Final = 64

LOOK_AHEAD_CHARACTERS: Final = 2000
"""How many characters after a break must be known."""
MAX_FENCE_CHARACTERS: Final = 44
"""Of a fence with its indent, without the language."""

# Sequences whose halves would mean something else.
_UNBREAKABLE: Final = re.compile(
    r"\\.|&\#?\w{1,31};|!?\[[^\[\]\n]{0,200}\]\([^()\s]{1,1000}\)|<[^<>\n]{1,200}>"
    r"|(?<!`)(`{1,3})(?!`)[^`\n]{1,200}(?<!`)\1(?!`)|\*\*[^*\n]{1,200}\*\*|https?://\S{1,1000}"
)
_FENCE_LOOK_AHEAD: Final = 32
_SPACES: Final = re.compile(r"\s+")
_MAX_WORDS_TRIED: Final = 16
_MAX_LETTERS_TRIED: Final = 64
# A word is broken if the piece would otherwise be filled less than this share.
_MIN_LINE_SHARE: Final = 0.3

MIN_CHARACTERS: Final = 400
"""A limit lower than this could not hold a fence that is closed and opened again."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_NO_FENCE: Final = "\u200b"
# Kinds of cuts, the best first, each with the smallest share of a piece that it may leave filled.
_PARAGRAPH, _BLOCK, _LINE = range(3)
_MIN_SHARES: Final = (0.5, 0.2, 0.3)


def grapheme_floor(text: str, index: int) -> int:
    """Return the last letter boundary up to `index`; `index` itself if none is near."""
    if index >= len(text):
        return index
    start = max(index - _MAX_LOOK_BACK, 0)
    *_, last = (match.start() for match in _LETTER.finditer(text[start : index + 1]))
    return start + last if last else index


def break_before(line: str, limit: int, *, is_code: bool) -> int:
    """Return the index at which to break a line, at most `limit`.

    Args:
        line: the rest of a line, longer than `limit`.
        limit: how many characters fit, at least one.
        is_code: it holds no Markdown.
    """
    spans = [] if is_code else [match.span() for match in _UNBREAKABLE.finditer(line)]
    for index in _break_indexes(line, limit):
        is_outside_spans = not any(start < index < end for start, end in spans)
        if is_outside_spans and not fences.may_open_fence(line[index : index + _FENCE_LOOK_AHEAD]):
            return index
    return grapheme_floor(line, limit)


def _break_indexes(line: str, limit: int) -> Iterator[int]:
    """Iterate over indexes, the best first: between words, then between letters."""
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


def split(text: str, max_characters: int) -> tuple[str, ...]:
    """Split text into messages without empty lines around them; blank ones are left out.

    Raises:
        ValueError: `max_characters` is below `LEAST_CHARACTERS`.
    """
    all_pieces = pieces(text, max_characters)
    return tuple(piece.text.strip("\n") for piece in all_pieces if piece.body.strip())


def pieces(text: str, max_characters: int) -> tuple[Piece, ...]:
    """Split text exactly: nothing is lost or changed.

    Args:
        text: Markdown, harmless. Code that is never closed in it is closed in its last piece.
        max_characters: of each piece; Python's characters, as Discord counts too.

    Raises:
        ValueError: `max_characters` is below `LEAST_CHARACTERS`.
    """
    if max_characters < MIN_CHARACTERS:
        raise ValueError(f"a piece needs {MIN_CHARACTERS} units at least")
    return tuple(_Cutter(text, max_characters).cut())


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """The end of a line in the text, and the code that is open before and after it."""

    end: int
    before: fences.Fence | None
    after: fences.Fence | None
    is_blank: bool

    @property
    def is_fence(self) -> bool:
        """Whether it opens or closes code."""
        return self.before is not self.after


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    index: int
    fence: fences.Fence | None


class _Cutter:
    def __init__(self, text: str, max_characters: int) -> None:
        self._text = text
        self._max_characters = max_characters
        self._lines = list(_lines(text))

    def cut(self) -> Iterator[Piece]:
        start, line_index = 0, 0
        fence: fences.Fence | None = None
        while start < len(self._text):
            opening = self._opening(start, line_index, fence)
            cut = self._choose_cut(start, line_index, self._max_characters - len(opening))
            body = self._text[start : cut.index]
            yield Piece(opening, body, _closing(body, cut.fence))
            start, fence = cut.index, cut.fence
            while line_index < len(self._lines) and self._lines[line_index].end <= start:
                line_index += 1

    def _opening(self, start: int, line_index: int, fence: fences.Fence | None) -> str:
        opening = fence.opening if fence else ""
        line = self._lines[line_index]
        is_broken = start > self._line_start(line_index) or not self._fits_alone(line_index)
        if (
            is_broken
            and not line.is_fence
            and fences.may_open_fence(self._text[start : start + 32])
        ):
            return opening + _NO_FENCE
        return opening

    def _choose_cut(self, start: int, line_index: int, room: int) -> _Cut:
        """Choose the end of the piece that begins at `start`, in the line `line_index`."""
        cuts: dict[int, tuple[_Cut, int]] = {}
        position, size_so_far, last = start, 0, None
        for index in range(line_index, len(self._lines)):
            line = self._lines[index]
            line_size = self._size(position, line, room - size_so_far)
            if size_so_far + line_size > room:
                return (
                    _best_cut(cuts, room)
                    or (last if last and (line.is_fence or self._fits_alone(index)) else None)
                    or self._break_line(start, position, line, room - size_so_far)
                    or last
                    or _Cut(start + 1, line.before)
                )
            size_so_far += line.end - position
            position = line.end
            last = _Cut(position, line.after)
            if (kind := self._cut_kind(index)) is not None:
                cuts[kind] = (last, size_so_far)
        return _Cut(position, self._lines[-1].after)

    def _size(self, start: int, line: _Line, limit: int) -> int:
        """Measure the rest of a line with the closing of the code around it."""
        size = line.end - start
        if size > limit:
            return size
        return size + len(_closing(self._text[start : line.end], line.after))

    def _fits_alone(self, index: int) -> bool:
        """Return whether a line fits into a piece of its own."""
        line = self._lines[index]
        opening = line.before.opening if line.before else ""
        room = self._max_characters - len(opening)
        return self._size(self._line_start(index), line, room) <= room

    def _line_start(self, index: int) -> int:
        return self._lines[index - 1].end if index else 0

    def _cut_kind(self, index: int) -> int | None:
        """Return the kind of a cut after a line; None for a cut of last resort."""
        line = self._lines[index]
        following = self._lines[index + 1] if index + 1 < len(self._lines) else None
        if line.after is not None:
            # The piece, or the next one, would show an empty code block.
            closes_next = following is not None and following.is_fence
            return None if line.is_fence or closes_next else _LINE
        if line.is_blank or line.is_fence or following is None or following.is_blank:
            return _PARAGRAPH
        return _BLOCK if following.is_fence else _LINE

    def _break_line(self, start: int, position: int, line: _Line, room: int) -> _Cut | None:
        """Break a line that is too long for any piece; None if it should begin a new piece."""
        if (
            position > start
            and not line.is_fence
            and fences.may_open_fence(self._text[position : position + 32])
        ):
            return None
        fence = line.after if line.is_fence else line.before
        # The line ends where it is broken, and code is closed on a line of its own.
        closing = len("\n" + fence.closing) if fence else 0
        line_end = self._text[position : min(line.end, position + room + LOOK_AHEAD_CHARACTERS)]
        limit = min(len(line_end), max(room - closing, 0))
        if limit < 1 or (line.is_fence and limit <= MAX_FENCE_CHARACTERS):
            return None
        if line.is_fence:
            return _Cut(position + limit, fence)
        return _Cut(position + break_before(line_end, limit, is_code=fence is not None), fence)


def _lines(text: str) -> Iterator[_Line]:
    end = 0
    for before, line, after in fences.track_fences(_LINES.findall(text)):
        end += len(line)
        yield _Line(end, before, after, not line.strip())


def _best_cut(cuts: dict[int, tuple[_Cut, int]], room: int) -> _Cut | None:
    for kind, min_share in enumerate(_MIN_SHARES):
        if kind in cuts and cuts[kind][1] >= min_share * room:
            return cuts[kind][0]
    return None


def _closing(body: str, fence: fences.Fence | None) -> str:
    if fence is None:
        return ""
    return fence.closing if body.endswith("\n") else f"\n{fence.closing}"
