"""Incremental parser for code and calls that a model writes into its text. Pure.

Three shapes are known: a fenced block of Python, a fenced block (or a whole reply) of JSON that
names a tool, and `<tool_call>` tags. Text streams through; what may be one of these is held back
until it is known. Nothing is ever lost: what turns out to be mere text is given as text.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Final, TypeAlias

from interpreter_bot.agent import lenient_json

_PYTHON: Final = frozenset({"python", "py", "python3", "ipython", "ipython3", "run_code"})
_CALLS: Final = frozenset({"json", "tool_call", "tool_code", "tool", "xml", "json5"})
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`{]*)[^`\n]*\n?\Z")
# The longest line that may still become an opening: fence, indent, a language, some words.
_LONGEST_OPENING: Final = 80
_PARTS: Final = re.compile(r"[^\n]*\n|[^\n]+")
_TAGS: Final = {"<tool_call>": "</tool_call>", "<think>": "</think>"}


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """Text for the person."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Writing:
    """A piece of a block of Python that is still being written."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A complete block of Python; `is_closed` is False if the text ended first."""

    code: str
    is_closed: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedText:
    """A call of a tool."""

    name: str
    arguments: str


Piece: TypeAlias = Words | Writing | Block | ParsedText
"""One part of a parsed text."""


class _Place(enum.Enum):
    TEXT = enum.auto()
    PYTHON = enum.auto()
    HELD = enum.auto()
    """In a block that may be a call."""
    OTHER = enum.auto()
    """In a block that is neither code nor a call."""
    TAG = enum.auto()
    WHOLE = enum.auto()
    """The reply began with a brace: it may be one bare call."""


_HOLDING: Final = (_Place.HELD, _Place.TAG, _Place.WHOLE)


class Parser:
    """Parses a reply that comes in pieces of any size.

    Args:
        names: tools that a call may name.
        takes_python: whether blocks of Python are code to run, or mere text.
    """

    def __init__(self, names: frozenset[str], *, takes_python: bool) -> None:
        self._names = names
        self._takes_python = takes_python
        self._place = _Place.TEXT
        self._line = ""
        self._is_passing = False
        self._held: list[str] = []
        self._fence = ""
        self._tag = ""
        self._recent = ""
        self._has_begun = False

    def feed(self, delta: str) -> list[Piece]:
        """Parse the next piece."""
        pieces: list[Piece] = []
        for part in _PARTS.findall(delta):
            self._take(part, pieces)
        return _joined(pieces)

    def finish(self) -> list[Piece]:
        """Parse the end of the text."""
        pieces: list[Piece] = []
        if self._line:
            self._end_line(pieces)
        if self._place is _Place.PYTHON:
            pieces.append(Block("".join(self._held), is_closed=False))
        elif self._place in _HOLDING:
            self._release(pieces)
        self._place, self._held, self._is_passing = _Place.TEXT, [], False
        return _joined(pieces)

    def _take(self, part: str, pieces: list[Piece]) -> None:
        """Parse a line, or a part of one that does not end yet."""
        is_complete = part.endswith("\n")
        if self._place is _Place.TAG:
            self._in_tag(part, pieces)
        elif self._place is _Place.WHOLE:
            self._held.append(part)
        elif self._is_passing:
            self._emit(part, pieces)
            self._is_passing = not is_complete
        else:
            self._line += part
            if is_complete or self._opens_at_once():
                self._end_line(pieces)
            elif not self._may_open():
                self._emit(self._line, pieces)
                self._line, self._is_passing = "", True

    def _opens_at_once(self) -> bool:
        """Say whether the line so far is known to begin a tag or a bare object."""
        line = self._line.lstrip()
        if self._place is not _Place.TEXT:
            return False
        return line.startswith(tuple(_TAGS)) or (line.startswith("{") and not self._has_begun)

    def _may_open(self) -> bool:
        """Say whether the line so far may still become a fence or a tag."""
        line = self._line.lstrip()
        if len(self._line) > _LONGEST_OPENING:
            return False
        if not line:
            return True
        if line[0] in "`~":
            rest = line.lstrip(line[0])
            return not rest or (len(line) - len(rest) >= 3 and "`" not in rest)
        return self._place is _Place.TEXT and any(tag.startswith(line) for tag in _TAGS)

    def _end_line(self, pieces: list[Piece]) -> None:
        line, self._line = self._line, ""
        if self._place is _Place.TEXT:
            self._open(line, pieces)
        else:
            self._in_block(line, pieces)

    def _open(self, line: str, pieces: list[Piece]) -> None:
        stripped = line.lstrip()
        tag = next((tag for tag in _TAGS if stripped.startswith(tag)), "")
        if fence := _FENCE.match(line):
            self._fence = fence[1]
            language = fence[2].lower()
            if language in _PYTHON and self._takes_python:
                self._place, self._held = _Place.PYTHON, []
                self._has_begun = True
                return
            if language in _CALLS:
                self._place, self._held = _Place.HELD, [line]
                return
            self._place = _Place.OTHER
        elif tag:
            self._place, self._tag, self._held, self._recent = _Place.TAG, tag, [], ""
            self._in_tag(line, pieces)
            return
        elif stripped.startswith("{") and not self._has_begun:
            self._place, self._held = _Place.WHOLE, [line]
            return
        self._emit(line, pieces)

    def _in_block(self, line: str, pieces: list[Piece]) -> None:
        end = _FENCE.match(line)
        if not (end and end[1].startswith(self._fence) and not end[2]):
            self._emit(line, pieces)
            return
        place, self._place = self._place, _Place.TEXT
        if place is _Place.PYTHON:
            pieces.append(Block("".join(self._held)))
        elif place is _Place.HELD:
            self._held.append(line)
            self._release(pieces)
        else:
            pieces.append(Words(line))

    def _in_tag(self, part: str, pieces: list[Piece]) -> None:
        # The end may have come in two parts; what was searched before is not searched again, or a
        # model that thinks for long, letter by letter, would block the event loop.
        end = _TAGS[self._tag]
        recent = self._recent + part
        self._held.append(part)
        position = recent.find(end)
        self._recent = recent[1 - len(end) :]
        if position < 0:
            return
        after = recent[position + len(end) :]
        text = "".join(self._held)
        self._held = [text[: len(text) - len(after)]]
        self._place = _Place.TEXT
        self._release(pieces)
        if after.strip():
            self._take(after, pieces)

    def _emit(self, text: str, pieces: list[Piece]) -> None:
        """Append text as the piece that belongs to the current place."""
        if self._place is _Place.PYTHON:
            self._held.append(text)
            pieces.append(Writing(text))
        elif self._place is _Place.HELD:
            self._held.append(text)
        else:
            self._has_begun = self._has_begun or bool(text.strip())
            pieces.append(Words(text))

    def _release(self, pieces: list[Piece]) -> None:
        """Release what was held back: as a call, or else as text."""
        text = "".join(self._held)
        self._held = []
        if self._tag == "<think>" and text.lstrip().startswith("<think>"):
            # A model's thoughts in tags are not shown.
            return
        self._has_begun = True
        call = lenient_json.read_call(text, self._names)
        pieces.append(ParsedText(*call) if call else Words(text))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Join adjacent pieces of the same kind."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, Words) and isinstance(last, Words):
            joined[-1] = Words(last.text + piece.text)
        elif isinstance(piece, Writing) and isinstance(last, Writing):
            joined[-1] = Writing(last.text + piece.text)
        else:
            joined.append(piece)
    return joined
