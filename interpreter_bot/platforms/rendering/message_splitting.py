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
_MAX_LOOKED_BACK: Final = 64

AHEAD: Final = 2000
"""The number of characters that must be known after the break."""
LONGEST_MARKS: Final = 44
"""Characters of a fence with its indent, without what follows them."""

# Sequences whose halves would mean something else.
_WHOLE: Final = re.compile(
    r"\\.|&\#?\w{1,31};|!?\[[^\[\]\n]{0,200}\]\([^()\s]{1,1000}\)|<[^<>\n]{1,200}>"
    r"|(?<!`)(`{1,3})(?!`)[^`\n]{1,200}(?<!`)\1(?!`)|\*\*[^*\n]{1,200}\*\*|https?://\S{1,1000}"
)
_FENCE_CHARACTERS: Final = 32
_SPACES: Final = re.compile(r"\s+")
_WORDS_TRIED: Final = 16
_LETTERS_TRIED: Final = 64
# A word is cut rather than a piece left emptier than this.
_LINE_FULL_ENOUGH: Final = 0.3

LEAST_CHARACTERS: Final = 400
"""A limit lower than this could not hold a fence that is closed and opened again."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_NO_FENCE: Final = "\u200b"
# Kinds of cuts, the best first, each with how full a piece has to be for it to be made.
_PARAGRAPH, _BLOCK, _LINE = range(3)
_FULL_ENOUGH: Final = (0.5, 0.2, 0.3)


def grapheme_floor(text: str, place: int) -> int:
    """Return the last letter boundary not after `place`; `place` itself if none is in reach."""
    if place >= len(text):
        return place
    reach = max(place - _MAX_LOOKED_BACK, 0)
    *_, last = (match.start() for match in _LETTER.finditer(text[reach : place + 1]))
    return reach + last if last else place


def break_before(line: str, limit: int, *, is_code: bool) -> int:
    """Return the place to break a line at, not after its `limit`th character.

    Args:
        line: of which more than `limit` characters follow the last break.
        limit: how many fit, one at least.
        is_code: nothing in it is Markdown.
    """
    spans = [] if is_code else [match.span() for match in _WHOLE.finditer(line)]
    for place in _places(line, limit):
        is_whole = not any(start < place < end for start, end in spans)
        if is_whole and not fences.begins(line[place : place + _FENCE_CHARACTERS]):
            return place
    return grapheme_floor(line, limit)


def _places(line: str, limit: int) -> Iterator[int]:
    """Iterate over places, the best first: between words, then between letters."""
    least = int(limit * _LINE_FULL_ENOUGH)
    ends = [match.end() for match in _SPACES.finditer(line[:limit]) if match.end() > least]
    if line[limit : limit + 1].isspace():
        ends.append(limit)
    yield from reversed(ends[-_WORDS_TRIED:])
    place = limit
    for _ in range(_LETTERS_TRIED):
        place = grapheme_floor(line, place)
        if place <= 0:
            return
        yield place
        place -= 1


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """One message.

    Attributes:
        opening: opens code again that an earlier piece began, or keeps a broken line from being
            taken for a fence; not in the original text.
        body: the original text. The bodies of all pieces, joined, are all of it.
        closing: closes code that a later piece goes on with; not in the original text.
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
    if max_characters < LEAST_CHARACTERS:
        raise ValueError(f"a piece needs {LEAST_CHARACTERS} units at least")
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
    place: int
    fence: fences.Fence | None


class _Cutter:
    def __init__(self, text: str, max_characters: int) -> None:
        self._text = text
        self._max_characters = max_characters
        self._lines = list(_lines(text))

    def cut(self) -> Iterator[Piece]:
        start, number = 0, 0
        fence: fences.Fence | None = None
        while start < len(self._text):
            opening = self._opening(start, number, fence)
            cut = self._next(start, number, self._max_characters - len(opening))
            body = self._text[start : cut.place]
            yield Piece(opening, body, _closing(body, cut.fence))
            start, fence = cut.place, cut.fence
            while number < len(self._lines) and self._lines[number].end <= start:
                number += 1

    def _opening(self, start: int, number: int, fence: fences.Fence | None) -> str:
        opening = fence.opening if fence else ""
        line = self._lines[number]
        is_broken = start > self._begin(number) or not self._fits_alone(number)
        if is_broken and not line.is_fence and fences.begins(self._text[start : start + 32]):
            return opening + _NO_FENCE
        return opening

    def _next(self, start: int, number: int, room: int) -> _Cut:
        """Choose the end of the piece that begins at `start`, in line `number`."""
        cuts: dict[int, tuple[_Cut, int]] = {}
        place, used, last = start, 0, None
        for index in range(number, len(self._lines)):
            line = self._lines[index]
            size = self._units(place, line, room - used)
            if used + size > room:
                return (
                    _prefer(cuts, room)
                    or (last if last and (line.is_fence or self._fits_alone(index)) else None)
                    or self._within(start, place, line, room - used)
                    or last
                    or _Cut(start + 1, line.before)
                )
            used += line.end - place
            place = line.end
            last = _Cut(place, line.after)
            if (kind := self._kind(index)) is not None:
                cuts[kind] = (last, used)
        return _Cut(place, self._lines[-1].after)

    def _units(self, place: int, line: _Line, limit: int) -> int:
        """Measure the rest of a line, and the closing of the code it is in."""
        size = line.end - place
        if size > limit:
            return size
        return size + len(_closing(self._text[place : line.end], line.after))

    def _fits_alone(self, index: int) -> bool:
        """Return whether a line fits into a piece, and so need not be broken."""
        line = self._lines[index]
        opening = line.before.opening if line.before else ""
        room = self._max_characters - len(opening)
        return self._units(self._begin(index), line, room) <= room

    def _begin(self, index: int) -> int:
        return self._lines[index - 1].end if index else 0

    def _kind(self, index: int) -> int | None:
        """Return the kind of a cut after a line; None for one that is only made in need."""
        line = self._lines[index]
        following = self._lines[index + 1] if index + 1 < len(self._lines) else None
        if line.after is not None:
            # The piece, or the next one, would show an empty code block.
            closes_next = following is not None and following.is_fence
            return None if line.is_fence or closes_next else _LINE
        if line.is_blank or line.is_fence or following is None or following.is_blank:
            return _PARAGRAPH
        return _BLOCK if following.is_fence else _LINE

    def _within(self, start: int, place: int, line: _Line, room: int) -> _Cut | None:
        """Break a line that is too long for any piece; None if it should begin a new one."""
        if place > start and not line.is_fence and fences.begins(self._text[place : place + 32]):
            return None
        fence = line.after if line.is_fence else line.before
        # The line ends where it is broken, and code is closed on a line of its own.
        closing = len("\n" + fence.closing) if fence else 0
        line_end = self._text[place : min(line.end, place + room + AHEAD)]
        limit = min(len(line_end), max(room - closing, 0))
        if limit < 1 or (line.is_fence and limit <= LONGEST_MARKS):
            return None
        if line.is_fence:
            return _Cut(place + limit, fence)
        return _Cut(place + break_before(line_end, limit, is_code=fence is not None), fence)


def _lines(text: str) -> Iterator[_Line]:
    end = 0
    for before, line, after in fences.scanned(_LINES.findall(text)):
        end += len(line)
        yield _Line(end, before, after, not line.strip())


def _prefer(cuts: dict[int, tuple[_Cut, int]], room: int) -> _Cut | None:
    for kind, least in enumerate(_FULL_ENOUGH):
        if kind in cuts and cuts[kind][1] >= least * room:
            return cuts[kind][0]
    return None


def _closing(body: str, fence: fences.Fence | None) -> str:
    if fence is None:
        return ""
    return fence.closing if body.endswith("\n") else f"\n{fence.closing}"
