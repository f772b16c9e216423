"""Code fences: wrap foreign text so that it cannot close its fence; recognise fences. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

Style: TypeAlias = Literal["longer", "broken"]
"""How a fence is kept whole: by being longer than any in the text, as Markdown has it; or, where a
platform knows only three backticks, by breaking those in the text with an invisible space.
"""

_TICKS: Final = re.compile("`+")
_RUNS: Final = re.compile("`{3,}")
_BREAK: Final = "\u200b"
_MAX_MARKS: Final = 32
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+.#-]{1,20}")
# Longer ones are not taken for fences: they could be neither closed nor opened again. No backticks
# follow the opening ones, or it is code within a line.
_OPENING: Final = re.compile(
    r"(?P<indent>[ \t]{0,12})"
    r"(?:(?P<ticks>`{3,32}+)[^`\r\n]*|(?P<waves>~{3,32}+)(?!~)[^\r\n]*)\r?\n?"
)
_CLOSING: Final = re.compile(r"[ \t]{0,12}(?P<marks>`{3,}|~{3,})[ \t]*\r?\n?")
_BEGINNING: Final = re.compile(r"[ \t]*(?:```|~~~)")


@dataclasses.dataclass(frozen=True, slots=True)
class Fence:
    """An open fence.

    Attributes:
        indent: what stands before it, as within a list.
        marks: backticks or tildes.
        language: of the code in it, or empty.
    """

    indent: str
    marks: str
    language: str

    @property
    def opening(self) -> str:
        """Return the line that opens the fence again."""
        return f"{self.indent}{self.marks}{self.language}\n"

    @property
    def closing(self) -> str:
        """Return what closes it, at the beginning of a line."""
        return f"{self.indent}{self.marks}"


def opened(line: str) -> Fence | None:
    """Parse a line that may open a fence."""
    match = _OPENING.fullmatch(line)
    if match is None:
        return None
    marks = match["ticks"] or match["waves"]
    language = _LANGUAGE.match(line.strip().removeprefix(marks).strip())
    return Fence(match["indent"], marks, language[0] if language else "")


def closes(line: str, fence: Fence) -> bool:
    """Return whether a line closes a fence."""
    match = _CLOSING.fullmatch(line)
    return match is not None and match["marks"].startswith(fence.marks)


def scanned(
    lines: Iterable[str], fence: Fence | None = None
) -> Iterator[tuple[Fence | None, str, Fence | None]]:
    """Iterate over lines, each between the fence that is open before it and the one after it.

    `fence` is open before the first line.
    """
    for line in lines:
        previous = fence
        if previous is None:
            fence = opened(line)
        elif closes(line, previous):
            fence = None
        yield previous, line, fence


def begins(text: str) -> bool:
    """Return whether text may become a fence, depending on how its line goes on."""
    return _BEGINNING.match(text) is not None


def fenced(text: str, *, language: str = "", style: Style = "longer") -> str:
    """Wrap text as a code block; empty if there is nothing to wrap.

    `language` is left out if it is no name of one. Line ends become line feeds.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    if not text.strip():
        return ""
    marks = "`" * max(3, _longest(text) + 1)
    if style == "broken" or len(marks) > _MAX_MARKS:
        marks, text = "```", _broken(text)
    safe_language = language if _LANGUAGE.fullmatch(language) else ""
    return f"{marks}{safe_language}\n{text}\n{marks}"


def inline(text: str, *, style: Style = "longer") -> str:
    """Wrap text as code within a line; empty if there is nothing to wrap."""
    text = " ".join(text.split())
    if not text:
        return ""
    if style == "broken":
        # There is no way to write a backtick within one.
        return f"`{text.replace('`', 'ˋ')}`"  # noqa: RUF001
    marks = "`" * (_longest(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{pad}{text}{pad}{marks}"


def _longest(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def _broken(text: str) -> str:
    """Separate the backticks where three or more stand together."""
    return _RUNS.sub(lambda run: _BREAK.join(run[0]), text)
