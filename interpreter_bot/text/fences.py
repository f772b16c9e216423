"""Code fences of Markdown: recognise them, and wrap text so that it cannot close its own. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

Style: TypeAlias = Literal["longer", "broken"]
"""How text is kept from closing its fence: the fence is longer than any run of backticks in the
text, as Markdown allows; or, if a platform knows only three backticks, invisible spaces break the
runs in the text.
"""

_BACKTICK_RUN: Final = re.compile("`+")
_FENCE_LIKE_RUN: Final = re.compile("`{3,}")
_INVISIBLE_SPACE: Final = "\u200b"
_MAX_MARKS: Final = 32
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+.#-]{1,20}")
# A longer run is not taken for a fence, as no fence could close or repeat it. If more backticks
# follow in the line, it is a code span.
_OPENING: Final = re.compile(
    r"(?P<indent>[ \t]{0,12})"
    r"(?:(?P<ticks>`{3,32}+)[^`\r\n]*|(?P<waves>~{3,32}+)(?!~)[^\r\n]*)\r?\n?"
)
_CLOSING: Final = re.compile(r"[ \t]{0,12}(?P<marks>`{3,}|~{3,})[ \t]*\r?\n?")
_POSSIBLE_OPENING: Final = re.compile(r"[ \t]*(?:```|~~~)")


@dataclasses.dataclass(frozen=True, slots=True)
class Fence:
    """An open fence.

    Attributes:
        indent: white space before it, as within a list.
        marks: its backticks or tildes.
        language: the language that it names, or empty.
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
        """Return the line that closes the fence, without a line end."""
        return f"{self.indent}{self.marks}"


def parse_opening(line: str) -> Fence | None:
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


def track_fences(
    lines: Iterable[str], fence: Fence | None = None
) -> Iterator[tuple[Fence | None, str, Fence | None]]:
    """Yield for each line the fence that is open before it, the line, and the fence open after it.

    `fence` is open before the first line.
    """
    for line in lines:
        previous = fence
        if previous is None:
            fence = parse_opening(line)
        elif closes(line, previous):
            fence = None
        yield previous, line, fence


def may_open_fence(text: str) -> bool:
    """Return whether an incomplete line may turn out to open a fence."""
    return _POSSIBLE_OPENING.match(text) is not None


def wrap_block(text: str, *, language: str = "", style: Style = "longer") -> str:
    """Wrap text as a code block; empty if there is nothing to wrap.

    A `language` with unusual characters is left out. Line ends become line feeds.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    if not text.strip():
        return ""
    marks = "`" * max(3, _longest_run(text) + 1)
    if style == "broken" or len(marks) > _MAX_MARKS:
        marks, text = "```", _break_runs(text)
    safe_language = language if _LANGUAGE.fullmatch(language) else ""
    return f"{marks}{safe_language}\n{text}\n{marks}"


def wrap_inline(text: str, *, style: Style = "longer") -> str:
    """Wrap text as code within a line; empty if there is nothing to wrap."""
    text = " ".join(text.split())
    if not text:
        return ""
    if style == "broken":
        # Such platforms cannot show a backtick in a code span.
        return f"`{text.replace('`', 'ˋ')}`"  # noqa: RUF001
    marks = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{pad}{text}{pad}{marks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICK_RUN.findall(text)), default=0)


def _break_runs(text: str) -> str:
    """Separate backticks by invisible spaces in each run of three or more."""
    return _FENCE_LIKE_RUN.sub(lambda run: _INVISIBLE_SPACE.join(run[0]), text)
