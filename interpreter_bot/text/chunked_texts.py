"""Texts of many megabytes, left in the pieces they came in. Pure.

A copy of such a text is one call, during which no other thread runs: twenty milliseconds for twelve
megabytes, four times that if one of its characters is wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

_MOST_CHARACTERS: Final = 1 << 20


class LongText:
    """Text in pieces; has a length and slices, as `str` does."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """`pieces` are each short enough to be copied in one call."""
        self.pieces = pieces

    def __len__(self) -> int:
        """Count characters."""
        return sum(map(len, self.pieces))

    def __getitem__(self, span: slice) -> str:
        """Copy a part of it, which is better a short one."""
        start, stop, _ = span.indices(len(self))
        taken: list[str] = []
        for piece in self.pieces:
            taken.append(piece[max(start, 0) : max(stop, 0)])
            start -= len(piece)
            stop -= len(piece)
        return "".join(taken)


AnyText: TypeAlias = str | LongText


def joined(pieces: Sequence[str]) -> AnyText:
    """Join a text, unless it is too long."""
    text = LongText(pieces)
    return text if len(text) > _MOST_CHARACTERS else "".join(pieces)


def pieces(text: AnyText) -> Sequence[str]:
    """Return the pieces of a text, of which a short one has one."""
    return (text,) if isinstance(text, str) else text.pieces
