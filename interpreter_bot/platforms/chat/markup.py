"""A network's Markdown: how foreign text is made harmless in it, and how the bot writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A line, or a code block, of a text.

    Attributes:
        text: harmless, in the network's Markdown.
        is_line: it is a line of words; otherwise a code block.
        may_grow: more of it may come.
    """

    text: str
    is_line: bool = False
    may_grow: bool = False


class Markup(Protocol):
    """Writes a network's Markdown, and escapes markup in the text it is given."""

    def blocks(self, text: str, /, *, is_whole: bool = True) -> Iterator[Block]:
        """Iterate over the blocks of a model's Markdown; without `is_whole` more of it may come.

        A block that may not grow does not change, whatever comes after it.
        """

    def escape(self, text: str, /) -> str:
        """Return foreign words as part of a line, without any markup of theirs."""

    def inline_code(self, text: str, /) -> str:
        """Return text as code within a line, cut if it is long."""

    def code(self, text: str, /, language: str = "") -> str:
        """Return a code block that its text cannot leave; empty if there is nothing to show."""

    def small_print(self, text: str, /) -> str:
        """Return a line of the bot, itself in markup, in small print."""

    def time_since(self, moment: float, /) -> str:
        """Return text that says how long ago a wall-clock time was."""

    def file_name(self, name: str, /) -> str:
        """Spell a file's name so that the network leaves it unchanged."""

    def mention(self, person: str, /) -> str:
        """Return a mention of a person; it notifies them if the message is allowed to."""
