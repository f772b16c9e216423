"""Incremental parser for thoughts, code and calls in the text that a model writes. Pure.

Thoughts are left out, blocks of code are separated from words, and calls are found in the markups
of common models. Text streams through; only text that may be something else is held back until that
is known.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import re
import warnings
from typing import Final, TypeAlias

from interpreter_bot.agent import written_calls

_PYTHON_LANGUAGES: Final = frozenset({"python", "py", "python3", "ipython", "ipython3"})
# Languages of blocks that may hold a call.
_CALL_LANGUAGES: Final = frozenset({"", "json", "xml", "tool_call", "tool_code"})
# With possessive repeats, which keep the time linear.
_FENCE: Final = re.compile(
    r"([ \t]{0,12})(`{3,}+|~{3,}+)[ \t]*+\{?\.?([^\s`{}~]*+)\}?[^`\n]*+\n?\Z"
)
# In Markdown nothing may follow a closing fence, but models write their special tokens there.
_CLOSING: Final = re.compile(r"[ \t]{0,12}(`{3,}|~{3,})[ \t]*(?:<[^\n]*)?\r?\n?\Z")
_PARTIAL_FENCE: Final = re.compile(r"[ \t]*(?:`*|~*|`{3,}[^`]*|~{3,}[^`]*)\Z")
_PARTIAL_CLOSING: Final = re.compile(r"\s*[`~]*\s*\Z|\s*[`~]{3,}[ \t]*<")
_LATE_CLOSING: Final = re.compile(r"[ \t]*(`{3,})[ \t]*(?:<[^\n]*)?\s*\Z")
# The longest line that may still become an opening: fence, indent, a language, some words.
_MAX_OPENING_CHARACTERS: Final = 80
_MAX_TAG_CHARACTERS: Final = 100
_MAX_HEADER_CHARACTERS: Final = 300
# Limits, so that parsing takes linear time: checks whether a fence is within a string of the code,
# and markers that turned out to mark nothing.
_MAX_STRING_CHECKS: Final = 20
_MAX_FALSE_MARKERS: Final = 3

_SPECIAL_CHARACTER: Final = re.compile(r"[\n`<\[]")
_TAG: Final = re.compile(r"</?[\w|\uff5c][^<>\n]{1,98}>|\[/?[A-Z_]{4,20}\]")
_PARTIAL_TAG: Final = re.compile(r"(?:<(?:/?[\w|\uff5c][^<>\n]*|/)?|\[/?[A-Z_]*)\Z")
_THINKING: Final = r"(?:\w+:)?(?:think|thinking|thought|reasoning)"
_THOUGHT_START: Final = re.compile(rf"<{_THINKING}>|\[THINK\]", re.IGNORECASE)
_THOUGHT_END: Final = re.compile(rf"</{_THINKING}>|\[/THINK\]", re.IGNORECASE)
_HARMONY_END: Final = re.compile(r"<\|end\|>|(?=<\|(?:start|channel|call|return)\|>)")
_HEADER_TOKENS: Final = ("<|channel|>", "<|start|>")
_MESSAGE_MARK: Final = "<|message|>"
# Special tokens that servers leave in the text.
_IGNORED_TOKENS: Final = frozenset(
    {"<|end|>", "<|return|>", "<|call|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", _MESSAGE_MARK}
)
# Text with a tag for thoughts may only mention the tags: "between <think> and </think>".
_MAX_MENTION_WORDS: Final = 1
_SURE_MARKERS: Final = ("<|", "<\uff5c", "[TOOL")


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """Text for the person."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CodeDelta:
    """A piece of a block of Python that is still streaming."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CodeBlock:
    """A complete block of Python; `is_closed` is False if the text ended first."""

    code: str
    is_closed: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call of a tool."""

    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadableCall:
    """Text that is clearly meant as a call, but cannot be read."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ForgetWords:
    """All words before this piece were thoughts."""


Piece: TypeAlias = Words | CodeDelta | CodeBlock | ParsedCall | UnreadableCall | ForgetWords
"""One part of a parsed text."""


class _State(enum.Enum):
    TEXT = enum.auto()
    PYTHON = enum.auto()
    MAYBE_CALL = enum.auto()
    """In a code block that may be a call."""
    OTHER = enum.auto()
    """In a code block that is neither Python nor a call."""
    THOUGHT = enum.auto()
    HEADER = enum.auto()
    """Between the tokens that begin a message of the harmony markup."""
    CALL = enum.auto()
    """After a marker of a call, to which the rest of the reply belongs."""


class Parser:
    """Parses a reply that arrives in pieces of any size.

    Args:
        finds_calls: whether calls are found; otherwise they are words.
        takes_python: whether blocks of Python are code to run; otherwise they are words.
        begins_in_thought: whether replies of this model begin with thoughts of which only the end
            is marked. Then no piece is returned before that end.

    Attributes:
        begins_in_thought: the same for later replies, as far as this reply shows it.
    """

    def __init__(
        self, *, finds_calls: bool, takes_python: bool = False, begins_in_thought: bool = False
    ) -> None:
        self.begins_in_thought = begins_in_thought
        self._finds_calls = finds_calls
        self._takes_python = takes_python
        self._awaits_thought_end = begins_in_thought
        self._pieces: list[Piece] = []
        self._dropped_words = ""
        self._state = _State.TEXT
        self._text = ""
        self._pending: list[str] = []
        self._fence = self._indent = self._language = ""
        self._string_start = -1
        self._string_checks = self._false_markers = 0
        self._thought_end = _THOUGHT_END
        self._opening = ""
        self._is_line_start = True
        self._open_backticks = 0
        self._last_character = ""
        """The last character of the words so far, except white space; empty if there is none."""
        self._drops_blanks = self._may_be_mention = False

    def feed(self, delta: str) -> list[Piece]:
        """Parse the next piece of the reply."""
        self._text += delta
        self._parse(is_end=False)
        return [] if self._awaits_thought_end else self._take_pieces()

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """Parse the end of the reply; an open call of a reply that was cut is dropped."""
        self._parse(is_end=True)
        while self._state is not _State.TEXT:
            self._close_at_end(is_cut=is_cut)
            self._parse(is_end=True)
        if self._awaits_thought_end and any(map(_has_content, self._pieces)):
            self.begins_in_thought = False
        if (
            self._dropped_words.strip()
            and not self._last_character
            and not any(map(_has_content, self._pieces))
        ):
            self._pieces.append(Words(self._dropped_words))
        return self.stop_waiting()

    def stop_waiting(self) -> list[Piece]:
        """Return the pieces held back, as the reply does not begin with thoughts."""
        self._awaits_thought_end = False
        return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        """Return the pieces so far, and join adjacent pieces of the same kind."""
        joined: list[Piece] = []
        for piece in self._pieces:
            last = joined[-1] if joined else None
            if isinstance(piece, Words) and isinstance(last, Words):
                joined[-1] = Words(last.text + piece.text)
            elif isinstance(piece, CodeDelta) and isinstance(last, CodeDelta):
                joined[-1] = CodeDelta(last.text + piece.text)
            else:
                joined.append(piece)
        self._pieces = []
        return joined

    def _parse(self, *, is_end: bool) -> None:
        has_moved = True
        while self._text and has_moved:
            match self._state:
                case _State.TEXT:
                    has_moved = self._parse_text(is_last=is_end)
                case _State.THOUGHT:
                    has_moved = self._parse_thought()
                case _State.HEADER:
                    has_moved = self._parse_header()
                case _State.CALL:
                    self._pending.append(self._consume(len(self._text)))
                case _:
                    has_moved = self._parse_block(is_last=is_end)

    def _consume(self, length: int) -> str:
        text, self._text = self._text[:length], self._text[length:]
        return text

    # Text

    def _parse_text(self, *, is_last: bool) -> bool:
        """Parse words up to the next special character; return False to wait for more text."""
        if self._is_line_start and self._open_backticks == 0:
            has_moved = self._parse_line_start(is_last=is_last)
            if has_moved is not None:
                return has_moved
        special = _SPECIAL_CHARACTER.search(self._text)
        if special is None or special.start() > 0:
            self._add_words(self._consume(special.start() if special else len(self._text)))
            return True
        if self._text[0] == "\n":
            self._add_words(self._consume(1))
            self._is_line_start, self._open_backticks = True, 0
            return True
        if self._text[0] == "`":
            backtick_count = len(self._text) - len(self._text.lstrip("`"))
            if backtick_count == len(self._text) and not is_last:
                return False
            self._add_words(self._consume(backtick_count))
            self._open_backticks = (
                0
                if self._open_backticks == backtick_count
                else self._open_backticks or backtick_count
            )
            return True
        if not self._open_backticks and (tag := _TAG.match(self._text)):
            self._take_tag(self._consume(tag.end()))
            return True
        is_begun = _PARTIAL_TAG.match(self._text) and len(self._text) < _MAX_TAG_CHARACTERS
        if is_begun and not self._open_backticks and not is_last:
            return False
        self._add_words(self._consume(1))
        return True

    def _parse_line_start(self, *, is_last: bool) -> bool | None:
        """Parse the start of a line; return None if only words follow, False to wait for more."""
        line, line_end, _ = self._text.partition("\n")
        stripped = line.lstrip(" \t\r")
        is_partial = not line_end and not is_last
        if not stripped:
            if is_partial:
                return False
            self._add_words(self._consume(len(line) + len(line_end)))
            return True
        if not is_partial and (fence := _FENCE.match(line)):
            self._open_fence(fence, self._consume(len(line) + len(line_end)))
            return True
        if is_partial and _may_be_fence(line):
            return False
        if self._finds_calls and self._false_markers < _MAX_FALSE_MARKERS:
            is_call = written_calls.begins_call(self._text)
            if is_call:
                self._begin_call("")
                return True
            if is_call is None and not is_last:
                return False
        self._is_line_start = False
        if indent := len(line) - len(stripped):
            self._add_words(self._consume(indent))
            return True
        return None

    def _take_tag(self, tag: str) -> None:
        # Within a sentence, the model may only mention the tag.
        may_be_mention = self._last_character.isalnum() and not self._is_line_start
        if _THOUGHT_START.fullmatch(tag) and self._false_markers < _MAX_FALSE_MARKERS:
            self._begin_thought(tag, _THOUGHT_END, may_be_mention=may_be_mention)
        elif _THOUGHT_END.fullmatch(tag):
            self._drop_words()
        elif tag in _HEADER_TOKENS:
            self._state, self._pending = _State.HEADER, [tag]
        elif (
            self._finds_calls
            and self._false_markers < _MAX_FALSE_MARKERS
            and written_calls.is_marker(tag)
            and tag not in _IGNORED_TOKENS
        ):
            self._begin_call(tag, may_be_mention=may_be_mention)
        elif tag not in _IGNORED_TOKENS:
            self._add_words(tag)

    def _begin_call(self, marker: str, *, may_be_mention: bool = False) -> None:
        """Hold back the text from this marker on, which may be a call."""
        self._state, self._pending, self._opening = _State.CALL, [marker], marker
        self._may_be_mention = may_be_mention

    def _add_words(self, text: str) -> None:
        """Add text as words."""
        if self._drops_blanks:
            # Empty lines after a thought belong to it.
            text = text.lstrip()
            self._drops_blanks = not text
        if text.strip():
            self._last_character = text.rstrip()[-1]
            self._is_line_start = self._is_line_start and text.endswith("\n")
        if text:
            self._pieces.append(Words(text))

    # Thoughts

    def _begin_thought(
        self, tag: str, end: re.Pattern[str], *, may_be_mention: bool = False
    ) -> None:
        """Leave out the text up to the end of the thought."""
        if not self._last_character:
            # This model also marks where its thoughts begin.
            self.begins_in_thought = self._awaits_thought_end = False
        self._state, self._pending, self._opening = _State.THOUGHT, [], tag
        self._thought_end, self._may_be_mention = end, may_be_mention

    def _parse_thought(self) -> bool:
        # Text is searched only once. Otherwise a model that thinks for long, in tiny pieces, would
        # block the event loop.
        end = self._thought_end.search(self._text)
        if end is None:
            # The end tag may arrive in two pieces.
            tail = max(len(self._text) - _MAX_TAG_CHARACTERS, 0)
            start = max(self._text.rfind("<", tail), self._text.rfind("[", tail))
            self._pending.append(self._consume(start if start >= 0 else len(self._text)))
            return False
        content = "".join(self._pending) + self._consume(end.start())
        self._consume(len(end[0]))
        self._state, self._pending = _State.TEXT, []
        if self._may_be_mention and len(content.split()) <= _MAX_MENTION_WORDS:
            self._add_words(f"{self._opening}{content}{end[0]}")
        else:
            self._is_line_start = self._drops_blanks = not self._may_be_mention
        return True

    def _drop_words(self) -> None:
        """Treat all text so far as thoughts, as only their end was marked."""
        if self._awaits_thought_end:
            self._dropped_words = "".join(p.text for p in self._pieces if isinstance(p, Words))
            self._pieces = []
        else:
            self._pieces.append(ForgetWords())
        self.begins_in_thought, self._awaits_thought_end = True, False
        self._is_line_start, self._last_character, self._drops_blanks = True, "", True

    def _parse_header(self) -> bool:
        """Parse the header of a message: thoughts, a call, or words."""
        text = "".join(self._pending) + self._consume(len(self._text))
        header, message, rest = text.partition(_MESSAGE_MARK)
        if not message and len(text) <= _MAX_HEADER_CHARACTERS:
            self._pending = [text]
            return False
        self._state, self._pending, self._text = _State.TEXT, [], rest
        self._is_line_start = True
        if not message:
            self._add_words(text)
        elif "to=" in header:
            self._begin_call(f"{header}{message}")
        elif "analysis" in header:
            self._begin_thought("", _HARMONY_END)
        return True

    # Blocks

    def _open_fence(self, fence: re.Match[str], line: str) -> None:
        self._indent, self._fence, self._language = fence[1], fence[2], fence[3].lower()
        self._is_line_start, self._string_start, self._pending = True, -1, []
        self._opening, self._last_character = "", "`"
        if self._language in _PYTHON_LANGUAGES and self._takes_python:
            self._state = _State.PYTHON
        elif self._finds_calls and self._language in _CALL_LANGUAGES:
            self._state, self._pending = _State.MAYBE_CALL, [line]
        else:
            self._state = _State.OTHER
            self._pieces.append(Words(line))

    def _parse_block(self, *, is_last: bool) -> bool:
        line, line_end, _ = self._text.partition("\n")
        line += line_end
        if self._is_line_start:
            if not line_end and not is_last and _may_be_closing(line):
                return False
            closing = _CLOSING.match(line)
            if closing and closing[1].startswith(self._fence) and self._close_block(line):
                return True
            self._is_line_start = False
            if self._state is _State.PYTHON:
                # Marks before the fence, as in a list, are not part of the code.
                indent = len(line) - len(line.lstrip(" \t"))
                self._consume(min(indent, len(self._indent)))
                return True
        self._consume(len(line))
        self._is_line_start = bool(line_end)
        if self._state is _State.OTHER:
            self._pieces.append(Words(line))
            return True
        self._pending.append(line)
        if self._state is _State.PYTHON and line:
            self._pieces.append(CodeDelta(line))
        return True

    def _close_block(self, line: str) -> bool:
        """Close the block at a fence; return False if the fence is within a string of the code."""
        text = "".join(self._pending)
        if self._state is _State.PYTHON:
            if self._string_checks < _MAX_STRING_CHECKS and _ends_in_string(text):
                self._string_checks += 1
                if self._string_start < 0:
                    self._string_start = len(text)
                return False
            self._pieces.append(CodeBlock(text))
        elif self._state is _State.OTHER:
            self._pieces.append(Words(line))
        else:
            self._release_pending(text + line)
        self._consume(len(line))
        self._state, self._pending, self._is_line_start = _State.TEXT, [], True
        return True

    # The end of a reply

    def _close_at_end(self, *, is_cut: bool) -> None:
        """Close a block, thought or call that is open at the end of the reply."""
        state, text = self._state, "".join(self._pending) + self._text
        self._state, self._pending, self._text = _State.TEXT, [], ""
        match state:
            case _State.PYTHON if self._string_start >= 0 and _ends_in_string(text):
                self._pieces.append(CodeBlock(text[: self._string_start]))
            case _State.PYTHON:
                closing = _LATE_CLOSING.search(text, max(len(text) - _MAX_TAG_CHARACTERS, 0))
                is_closed = closing is not None and closing[1].startswith(self._fence)
                code = text[: closing.start()] if closing and is_closed else text
                self._pieces.append(CodeBlock(code, is_closed=is_closed))
            case _State.MAYBE_CALL | _State.CALL:
                if not is_cut or not written_calls.is_intended_call(text):
                    self._release_pending(text, is_last=state is _State.CALL)
            case _State.THOUGHT if not is_cut:
                # The thought was never closed. Its text is parsed again, as it may be the answer
                # or contain a call.
                self._false_markers += 1
                self._is_line_start = True
                if self._last_character and self._opening:
                    self._add_words(self._opening)
                self._text = text
            case _State.HEADER:
                self._add_words(text)

    def _release_pending(self, text: str, *, is_last: bool = False) -> None:
        """Add the text held back: as calls if it can be read, otherwise as words."""
        is_sure = self._opening.startswith(_SURE_MARKERS) and not self._may_be_mention
        if calls := written_calls.read_calls(text):
            self._pieces += [ParsedCall(name, arguments) for name, arguments in calls]
        elif is_sure or written_calls.is_intended_call(text):
            self._pieces.append(UnreadableCall(text))
        elif is_last and self._false_markers < _MAX_FALSE_MARKERS:
            # The marker marks nothing, so the text after it is parsed again.
            self._false_markers += 1
            length = len(self._opening) or 1
            self._is_line_start = False
            self._add_words(text[:length])
            self._text = text[length:]
        else:
            self._pieces.append(Words(text))


def _has_content(piece: Piece) -> bool:
    return not isinstance(piece, Words) or bool(piece.text.strip())


def _may_be_fence(line: str) -> bool:
    """Return whether an incomplete line may still open a block."""
    return len(line) <= _MAX_OPENING_CHARACTERS and _PARTIAL_FENCE.match(line) is not None


def _may_be_closing(line: str) -> bool:
    """Return whether an incomplete line may still close a block."""
    return len(line) <= _MAX_OPENING_CHARACTERS and _PARTIAL_CLOSING.match(line) is not None


def _ends_in_string(code: str) -> bool:
    """Return whether code ends within a triple-quoted string."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return "unterminated triple-quoted" in error.msg
    except (ValueError, MemoryError, RecursionError):
        return False
    return False
