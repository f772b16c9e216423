"""Incremental parser for what a model writes into its text beside words. Pure.

Thoughts are left out, code is told from words, and calls are found in the markups of common models.
Text streams through; only what may be something else is held back, and given as text if it is not.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import re
import warnings
from typing import Final, TypeAlias

from interpreter_bot.agent import written_calls

_PYTHON: Final = frozenset({"python", "py", "python3", "ipython", "ipython3"})
# Languages of blocks that may hold a call.
_CALLS: Final = frozenset({"", "json", "xml", "tool_call", "tool_code"})
_FENCE: Final = re.compile(r"([ \t]{0,12})(`{3,}|~{3,})[ \t]*\{?\.?([^\s`{}~]*)\}?[^`\n]*\n?\Z")
# Markdown wants nothing behind the marks, but models put tokens of their own there.
_CLOSING: Final = re.compile(r"[ \t]{0,12}(`{3,}|~{3,})[ \t]*(?:<[^\n]*)?\r?\n?\Z")
_FENCE_BEGUN: Final = re.compile(r"[ \t]*(?:`*|~*|`{3,}[^`]*|~{3,}[^`]*)\Z")
_CLOSING_BEGUN: Final = re.compile(r"\s*[`~]*\s*\Z|\s*[`~]{3,}[ \t]*<")
_LATE_CLOSING: Final = re.compile(r"[ \t]*(`{3,})[ \t]*(?:<[^\n]*)?\s*\Z")
# The longest line that may still become an opening: fence, indent, a language, some words.
_MAX_OPENING_CHARACTERS: Final = 80
_MAX_TAG_CHARACTERS: Final = 100
_MAX_HEADER_CHARACTERS: Final = 300
# Limits on tries: of fences that may stand within a string, and of markers that mark nothing.
_MAX_TRIES: Final = 20
_MAX_MISTAKES: Final = 3

_SPECIAL_CHARACTER: Final = re.compile(r"[\n`<\[]")
_TAG: Final = re.compile(r"</?[\w|\uff5c][^<>\n]{1,98}>|\[/?[A-Z_]{4,20}\]")
_TAG_BEGUN: Final = re.compile(r"(?:<(?:/?[\w|\uff5c][^<>\n]*|/)?|\[/?[A-Z_]*)\Z")
_THINKING: Final = r"(?:\w+:)?(?:think|thinking|thought|reasoning)"
_THOUGHT: Final = re.compile(rf"<{_THINKING}>|\[THINK\]", re.IGNORECASE)
_THOUGHT_END: Final = re.compile(rf"</{_THINKING}>|\[/THINK\]", re.IGNORECASE)
_HARMONY_END: Final = re.compile(r"<\|end\|>|(?=<\|(?:start|channel|call|return)\|>)")
_HEADERS: Final = ("<|channel|>", "<|start|>")
_MESSAGE: Final = "<|message|>"
# Ends of messages that servers leave in the text.
_NOISE: Final = frozenset(
    {"<|end|>", "<|return|>", "<|call|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", _MESSAGE}
)
# As in "between <think> and </think>".
_MAX_MENTION_WORDS: Final = 1
_SURE_MARKERS: Final = ("<|", "<\uff5c", "[TOOL")


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
class ParsedCall:
    """A call of a tool."""

    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadCall:
    """Text that is clearly a call, and cannot be read."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Forget:
    """All words until here were thoughts."""


Piece: TypeAlias = Words | Writing | Block | ParsedCall | UnreadCall | Forget
"""One part of a parsed text."""


class _Place(enum.Enum):
    TEXT = enum.auto()
    PYTHON = enum.auto()
    MAYBE_CALL = enum.auto()
    """In a block that may be a call."""
    OTHER = enum.auto()
    """In a block that is neither code nor a call."""
    THOUGHT = enum.auto()
    HEADER = enum.auto()
    """Between the tokens that begin a message of the harmony markup."""
    CALL = enum.auto()
    """Behind a marker of a call: the rest of the reply belongs to it."""


class Parser:
    """Parses a reply that comes in pieces of any size.

    Args:
        finds_calls: whether calls are looked for, or are mere text.
        takes_python: whether blocks of Python are code to run, or mere text.
        begins_in_thought: whether replies of this model begin with thoughts of which only the end
            is marked. Then nothing is given before that end.

    Attributes:
        begins_in_thought: what this reply has shown of it.
    """

    def __init__(
        self, *, finds_calls: bool, takes_python: bool = False, begins_in_thought: bool = False
    ) -> None:
        self.begins_in_thought = begins_in_thought
        self._finds_calls = finds_calls
        self._takes_python = takes_python
        self._is_waiting = begins_in_thought
        self._pieces: list[Piece] = []
        self._forgotten = ""
        self._place = _Place.TEXT
        self._text = ""
        self._pending: list[str] = []
        self._fence = self._indent = self._language = ""
        self._string_start = -1
        self._tries = self._mistakes = 0
        self._thought_end = _THOUGHT_END
        self._opening = ""
        self._is_line_start = True
        self._ticks = 0
        self._last = ""
        """The last character that was said, but for blanks; empty if nothing was."""
        self._drops_blanks = self._is_doubtful = False

    def feed(self, delta: str) -> list[Piece]:
        """Parse the next piece."""
        self._text += delta
        self._parse(is_end=False)
        return [] if self._is_waiting else self._take()

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """Parse the end of the text; of one that is cut, no call is taken."""
        self._parse(is_end=True)
        while self._place is not _Place.TEXT:
            self._close(is_cut=is_cut)
            self._parse(is_end=True)
        if self._is_waiting and any(map(_has_content, self._pieces)):
            self.begins_in_thought = False
        if self._forgotten.strip() and not self._last and not any(map(_has_content, self._pieces)):
            self._pieces.append(Words(self._forgotten))
        return self.settle()

    def settle(self) -> list[Piece]:
        """Take the text held back as words: the reply does not begin with thoughts."""
        self._is_waiting = False
        return self._take()

    def _take(self) -> list[Piece]:
        """Take the pieces so far, adjacent ones of the same kind as one."""
        joined: list[Piece] = []
        for piece in self._pieces:
            last = joined[-1] if joined else None
            if isinstance(piece, Words) and isinstance(last, Words):
                joined[-1] = Words(last.text + piece.text)
            elif isinstance(piece, Writing) and isinstance(last, Writing):
                joined[-1] = Writing(last.text + piece.text)
            else:
                joined.append(piece)
        self._pieces = []
        return joined

    def _parse(self, *, is_end: bool) -> None:
        has_moved = True
        while self._text and has_moved:
            match self._place:
                case _Place.TEXT:
                    has_moved = self._in_text(is_end=is_end)
                case _Place.THOUGHT:
                    has_moved = self._in_thought()
                case _Place.HEADER:
                    has_moved = self._in_header()
                case _Place.CALL:
                    self._pending.append(self._cut(len(self._text)))
                case _:
                    has_moved = self._in_block(is_end=is_end)

    def _cut(self, length: int) -> str:
        text, self._text = self._text[:length], self._text[length:]
        return text

    # Text

    def _in_text(self, *, is_end: bool) -> bool:
        """Parse up to the next thing that may be more than words; False to wait for more text."""
        if self._is_line_start and self._ticks == 0:
            has_moved = self._at_line_start(is_end=is_end)
            if has_moved is not None:
                return has_moved
        special = _SPECIAL_CHARACTER.search(self._text)
        if special is None or special.start() > 0:
            self._say(self._cut(special.start() if special else len(self._text)))
            return True
        if self._text[0] == "\n":
            self._say(self._cut(1))
            self._is_line_start, self._ticks = True, 0
            return True
        if self._text[0] == "`":
            run = len(self._text) - len(self._text.lstrip("`"))
            if run == len(self._text) and not is_end:
                return False
            self._say(self._cut(run))
            self._ticks = 0 if self._ticks == run else self._ticks or run
            return True
        if not self._ticks and (tag := _TAG.match(self._text)):
            self._take_tag(self._cut(tag.end()))
            return True
        is_begun = _TAG_BEGUN.match(self._text) and len(self._text) < _MAX_TAG_CHARACTERS
        if is_begun and not self._ticks and not is_end:
            return False
        self._say(self._cut(1))
        return True

    def _at_line_start(self, *, is_end: bool) -> bool | None:
        """Parse the beginning of a line; None if it is one of mere words, False to wait."""
        line, line_end, _ = self._text.partition("\n")
        stripped = line.lstrip(" \t\r")
        is_partial = not line_end and not is_end
        if not stripped:
            if is_partial:
                return False
            self._say(self._cut(len(line) + len(line_end)))
            return True
        if not is_partial and (fence := _FENCE.match(line)):
            self._open_fence(fence, self._cut(len(line) + len(line_end)))
            return True
        if is_partial and _may_be_fence(line):
            return False
        if self._finds_calls and self._mistakes < _MAX_MISTAKES:
            is_call = written_calls.begins_call(self._text)
            if is_call:
                self._hold("")
                return True
            if is_call is None and not is_end:
                return False
        self._is_line_start = False
        if indent := len(line) - len(stripped):
            self._say(self._cut(indent))
            return True
        return None

    def _take_tag(self, tag: str) -> None:
        # Within a sentence, the tag itself may be the subject.
        is_doubtful = self._last.isalnum() and not self._is_line_start
        if _THOUGHT.fullmatch(tag) and self._mistakes < _MAX_MISTAKES:
            self._think(tag, _THOUGHT_END, is_doubtful=is_doubtful)
        elif _THOUGHT_END.fullmatch(tag):
            self._forget()
        elif tag in _HEADERS:
            self._place, self._pending = _Place.HEADER, [tag]
        elif (
            self._finds_calls
            and self._mistakes < _MAX_MISTAKES
            and written_calls.is_marker(tag)
            and tag not in _NOISE
        ):
            self._hold(tag, is_doubtful=is_doubtful)
        elif tag not in _NOISE:
            self._say(tag)

    def _hold(self, marker: str, *, is_doubtful: bool = False) -> None:
        """Hold back the text from here on, which may be a call; in a sentence, it may be none."""
        self._place, self._pending, self._opening = _Place.CALL, [marker], marker
        self._is_doubtful = is_doubtful

    def _say(self, text: str) -> None:
        """Give text as words."""
        if self._drops_blanks:
            # Empty lines follow a thought.
            text = text.lstrip()
            self._drops_blanks = not text
        if text.strip():
            self._last = text.rstrip()[-1]
            self._is_line_start = self._is_line_start and text.endswith("\n")
        if text:
            self._pieces.append(Words(text))

    # Thoughts

    def _think(self, tag: str, end: re.Pattern[str], *, is_doubtful: bool = False) -> None:
        """Leave out what follows, up to its end."""
        if not self._last:
            # This model marks the beginnings of its thoughts, too.
            self.begins_in_thought = self._is_waiting = False
        self._place, self._pending, self._opening = _Place.THOUGHT, [], tag
        self._thought_end, self._is_doubtful = end, is_doubtful

    def _in_thought(self) -> bool:
        # Text is searched only once; otherwise a model that thinks for long, letter by
        # letter, would block the event loop.
        end = self._thought_end.search(self._text)
        if end is None:
            # The end may come in two parts.
            tail = max(len(self._text) - _MAX_TAG_CHARACTERS, 0)
            start = max(self._text.rfind("<", tail), self._text.rfind("[", tail))
            self._pending.append(self._cut(start if start >= 0 else len(self._text)))
            return False
        content = "".join(self._pending) + self._cut(end.start())
        self._cut(len(end[0]))
        self._place, self._pending = _Place.TEXT, []
        if self._is_doubtful and len(content.split()) <= _MAX_MENTION_WORDS:
            self._say(f"{self._opening}{content}{end[0]}")
        else:
            self._is_line_start = self._drops_blanks = not self._is_doubtful
        return True

    def _forget(self) -> None:
        """Take all text so far for thoughts of which only the end is marked."""
        if self._is_waiting:
            self._forgotten = "".join(p.text for p in self._pieces if isinstance(p, Words))
            self._pieces = []
        else:
            self._pieces.append(Forget())
        self.begins_in_thought, self._is_waiting = True, False
        self._is_line_start, self._last, self._drops_blanks = True, "", True

    def _in_header(self) -> bool:
        """Parse the header of a message: thoughts, a call, or words."""
        text = "".join(self._pending) + self._cut(len(self._text))
        header, message, rest = text.partition(_MESSAGE)
        if not message and len(text) <= _MAX_HEADER_CHARACTERS:
            self._pending = [text]
            return False
        self._place, self._pending, self._text = _Place.TEXT, [], rest
        self._is_line_start = True
        if not message:
            self._say(text)
        elif "to=" in header:
            self._hold(f"{header}{message}")
        elif "analysis" in header:
            self._think("", _HARMONY_END)
        return True

    # Blocks

    def _open_fence(self, fence: re.Match[str], line: str) -> None:
        self._indent, self._fence, self._language = fence[1], fence[2], fence[3].lower()
        self._is_line_start, self._string_start, self._pending = True, -1, []
        self._opening, self._last = "", "`"
        if self._language in _PYTHON and self._takes_python:
            self._place = _Place.PYTHON
        elif self._finds_calls and self._language in _CALLS:
            self._place, self._pending = _Place.MAYBE_CALL, [line]
        else:
            self._place = _Place.OTHER
            self._pieces.append(Words(line))

    def _in_block(self, *, is_end: bool) -> bool:
        line, line_end, _ = self._text.partition("\n")
        line += line_end
        if self._is_line_start:
            if not line_end and not is_end and _may_be_closing(line):
                return False
            closing = _CLOSING.match(line)
            if closing and closing[1].startswith(self._fence) and self._close_block(line):
                return True
            self._is_line_start = False
            if self._place is _Place.PYTHON:
                # Marks before the fence, as in a list, are not part of the code.
                indent = len(line) - len(line.lstrip(" \t"))
                self._cut(min(indent, len(self._indent)))
                return True
        self._cut(len(line))
        self._is_line_start = bool(line_end)
        if self._place is _Place.OTHER:
            self._pieces.append(Words(line))
            return True
        self._pending.append(line)
        if self._place is _Place.PYTHON and line:
            self._pieces.append(Writing(line))
        return True

    def _close_block(self, line: str) -> bool:
        """Close the block with a fence; False if that stands within a string of the code."""
        text = "".join(self._pending)
        if self._place is _Place.PYTHON:
            if self._tries < _MAX_TRIES and _ends_in_string(text):
                self._tries += 1
                if self._string_start < 0:
                    self._string_start = len(text)
                return False
            self._pieces.append(Block(text))
        elif self._place is _Place.OTHER:
            self._pieces.append(Words(line))
        else:
            self._release(text + line)
        self._cut(len(line))
        self._place, self._pending, self._is_line_start = _Place.TEXT, [], True
        return True

    # The end of a reply

    def _close(self, *, is_cut: bool) -> None:
        """Close whatever is open at the end of the text."""
        place, text = self._place, "".join(self._pending) + self._text
        self._place, self._pending, self._text = _Place.TEXT, [], ""
        match place:
            case _Place.PYTHON if self._string_start >= 0 and _ends_in_string(text):
                self._pieces.append(Block(text[: self._string_start]))
            case _Place.PYTHON:
                closing = _LATE_CLOSING.search(text, max(len(text) - _MAX_TAG_CHARACTERS, 0))
                is_closed = closing is not None and closing[1].startswith(self._fence)
                code = text[: closing.start()] if closing and is_closed else text
                self._pieces.append(Block(code, is_closed=is_closed))
            case _Place.MAYBE_CALL | _Place.CALL:
                if not is_cut or not written_calls.is_intended(text):
                    self._release(text, is_last=place is _Place.CALL)
            case _Place.THOUGHT if not is_cut:
                # Nobody closed it: it is the answer, or thoughts before a call.
                self._mistakes += 1
                self._is_line_start = True
                if self._last and self._opening:
                    self._say(self._opening)
                self._text = text
            case _Place.HEADER:
                self._say(text)

    def _release(self, text: str, *, is_last: bool = False) -> None:
        """Release the text held back: as calls, or else as text."""
        is_sure = self._opening.startswith(_SURE_MARKERS) and not self._is_doubtful
        if calls := written_calls.read(text):
            self._pieces += [ParsedCall(name, arguments) for name, arguments in calls]
        elif is_sure or written_calls.is_intended(text):
            self._pieces.append(UnreadCall(text))
        elif is_last and self._mistakes < _MAX_MISTAKES:
            # Whatever follows the first character is read as if that were none of a marker.
            self._mistakes += 1
            length = len(self._opening) or 1
            self._is_line_start = False
            self._say(text[:length])
            self._text = text[length:]
        else:
            self._pieces.append(Words(text))


def _has_content(piece: Piece) -> bool:
    return not isinstance(piece, Words) or bool(piece.text.strip())


def _may_be_fence(line: str) -> bool:
    """Return whether a line so far may still open a block."""
    return len(line) <= _MAX_OPENING_CHARACTERS and _FENCE_BEGUN.match(line) is not None


def _may_be_closing(line: str) -> bool:
    """Return whether a line so far may still close a block."""
    return len(line) <= _MAX_OPENING_CHARACTERS and _CLOSING_BEGUN.match(line) is not None


def _ends_in_string(code: str) -> bool:
    """Return whether code breaks off within a string of several lines."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return "unterminated triple-quoted" in error.msg
    except (ValueError, MemoryError, RecursionError):
        return False
    return False
