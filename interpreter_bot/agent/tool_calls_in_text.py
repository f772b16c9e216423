"""Incremental parser for what a model writes into its text beside words. Pure.

Thoughts are left out, code is told from words, and calls are found in any known markup. Text
streams through; what may be something else is held back until it is known. What turns out to be
mere text is given as text.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import re
import warnings
from typing import Final, TypeAlias

from interpreter_bot.agent import tools, written_calls

_PYTHON: Final = frozenset({"python", "py", "python3", "ipython", "ipython3"})
# Blocks that may hold a call; those of the second set are one.
_MAYBE_CALLS: Final = frozenset({"", "json", "json5", "xml"})
_CALLS: Final = frozenset(
    {"tool_code", "tool_call", "tool_use", "tool", "function_call", "run_code"}
)
_FENCE: Final = re.compile(r"([ \t]{0,12})(`{3,}|~{3,})[ \t]*\{?\.?([^\s`{}~]*)\}?[^`\n]*\n?\Z")
# Markdown wants nothing behind the marks, but models put tokens of their own there.
_CLOSING: Final = re.compile(r"[ \t]{0,12}(`{3,}|~{3,})[ \t]*(?:<[^\n]*)?\r?\n?\Z")
_LATE_CLOSING: Final = re.compile(r"(`{3,})[ \t]*(?:<[^\n]*)?\s*\Z")
# The longest line that may still become an opening: fence, indent, a language, some words.
_MAX_OPENING_CHARACTERS: Final = 80
_MAX_TAG_CHARACTERS: Final = 100
_MAX_HEADER_CHARACTERS: Final = 300
_MAX_DOUBT_CHARACTERS: Final = 400
# Limits on tries: of fences that may stand within a string, and of markers that mark nothing.
_MAX_TRIES: Final = 20
_MAX_MISTAKES: Final = 3

_SPECIAL_CHARACTER: Final = re.compile(r"[\n`<\[◁✿]")
_TAG: Final = re.compile(
    r"<(?=[\w|\uff5c/])[^<>\n]{1,98}>|◁/?think▷|\[/?[A-Z_]{4,20}\]|✿\w{1,20}✿:?"
)
_TAG_BEGUN: Final = re.compile(r"(?:<(?:[\w|\uff5c/][^<>\n]*)?|◁[/\w]*|\[/?[A-Z_]*|✿\w*)\Z")
# Beginnings of lines that are calls without a tag.
_LINE_MARKERS: Final = (
    *("functools[", ">>>run_code", ">>>python", "call:run_code", "Action: "),
    *("functions.", "default_api.", "print(run_code(", "print(default_api."),
    *(f"{name}(" for name in sorted(tools.NAMES)),
)
_THINKING: Final = (
    r"(?:\w+:)?(?:think|thinking|thought|thoughts|reasoning|reflection|scratchpad|analysis)"
)
_THOUGHT: Final = re.compile(
    rf"<({_THINKING})>|\[(THINK)\]|◁(think)▷|<\|(?:begin_of_|START_|begin_)?{_THINKING}\|>",
    re.IGNORECASE,
)
_THOUGHT_END: Final = re.compile(
    rf"</{_THINKING}>|\[/THINK\]|◁/think▷|<\|/{_THINKING}\|>|<\|(?:end_of_|END_|end_){_THINKING}\|>",
    re.IGNORECASE,
)
_HARMONY_END: Final = re.compile(r"<\|end\|>|(?=<\|(?:start|channel|call|return)\|>)")
_HEADERS: Final = ("<|channel|>", "<|start|>")
_MESSAGE: Final = "<|message|>"
# Ends of messages that servers leave in the text.
_NOISE: Final = frozenset(
    {"<|end|>", "<|return|>", "<|call|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"}
    | {"<|endoftext|>", "<end_of_turn>", "<end_code>", "<|message|>", "<|end_of_text|>"}
    | {"<|begin_of_solution|>", "<|end_of_solution|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}
)
# How models begin to think, in lower case; answers that begin so wait until they are known.
_MUSINGS: Final = (
    *("ok", "okay", "alright", "all right", "hmm", "hm", "wait", "let me", "let's", "let us"),
    *("we need", "we are", "we have", "we should", "we can", "we must", "got it", "to answer"),
    *("the user", "the person", "the question", "the task", "the request", "user ", "i need"),
    *("i should", "i have to", "i'm asked", "i am asked", "i'll start", "thinking", "thought"),
    *("好", "嗯", "用户", "我"),
)
# As in "between <think> and </think>".
_MAX_MENTION_WORDS: Final = 1
_SENTENCE_ENDS: Final = frozenset(".!?:;…。！？：)>*_")  # noqa: RUF001


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
            is marked; None if that is not known. Then a reply that begins as thoughts do is held
            back.

    Attributes:
        begins_in_thought: what this reply has shown of it.
    """

    def __init__(
        self,
        *,
        finds_calls: bool,
        takes_python: bool = False,
        begins_in_thought: bool | None = False,
    ) -> None:
        self.begins_in_thought = begins_in_thought
        self._finds_calls = finds_calls
        self._takes_python = takes_python
        self._lead: list[Piece] | None = None if begins_in_thought is False else []
        self._forgotten = ""
        self._place = _Place.TEXT
        self._text = ""
        self._pending: list[str] = []
        self._fence = self._indent = self._language = ""
        self._first_end = -1
        self._tries = self._mistakes = 0
        self._thought_end = _THOUGHT_END
        self._opening = ""
        self._is_line_start = True
        self._ticks = 0
        self._last = ""
        self._has_begun = self._drops_blanks = self._has_marks = False
        self._is_doubtful = False

    def feed(self, delta: str) -> list[Piece]:
        """Parse the next piece."""
        self._text += delta
        return self._hold_lead(self._parse(is_end=False))

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """Parse the end of the text; of one that is cut, no call is taken."""
        pieces = self._parse(is_end=True)
        while self._place is not _Place.TEXT:
            self._close(pieces, is_cut=is_cut)
            pieces += self._parse(is_end=True)
        pieces = self._hold_lead(pieces)
        if self._lead is not None and any(_has_content(piece) for piece in self._lead):
            self.begins_in_thought = False
        pieces = [*self.settle(), *pieces]
        if self._forgotten.strip() and not any(map(_has_content, pieces)) and not self._has_begun:
            pieces.append(Words(self._forgotten))
        self._forgotten = ""
        return _join(pieces)

    def settle(self) -> list[Piece]:
        """Take the text held back as words: the reply does not begin with thoughts."""
        lead, self._lead = self._lead, None
        return _join(lead or [])

    def _hold_lead(self, pieces: list[Piece]) -> list[Piece]:
        """Hold back pieces that may turn out to be thoughts."""
        if self._lead is None:
            return _join(pieces)
        self._lead += pieces
        if self.begins_in_thought is None and not self._may_be_musing():
            return self.settle()
        is_known = any(isinstance(piece, Block | ParsedCall | UnreadCall) for piece in pieces)
        if is_known and self.begins_in_thought is None:
            self.begins_in_thought = False
            return self.settle()
        return []

    def _may_be_musing(self) -> bool:
        """Return whether the text held back begins as thoughts do."""
        words = "".join(piece.text for piece in self._lead or () if isinstance(piece, Words))
        beginning = words[:_MAX_TAG_CHARACTERS].lstrip().lower()
        return any(
            opening.startswith(beginning)
            or (beginning.startswith(opening) and not beginning[len(opening) :][:1].isalpha())
            for opening in _MUSINGS
        )

    def _parse(self, *, is_end: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while self._text:
            match self._place:
                case _Place.TEXT:
                    has_moved = self._in_text(pieces, is_end=is_end)
                case _Place.THOUGHT:
                    has_moved = self._in_thought(pieces)
                case _Place.HEADER:
                    has_moved = self._in_header(pieces)
                case _Place.CALL:
                    self._pending.append(self._text)
                    self._text = ""
                    has_moved = True
                case _:
                    has_moved = self._in_block(pieces, is_end=is_end)
            if not has_moved:
                break
        return pieces

    # Text

    def _in_text(self, pieces: list[Piece], *, is_end: bool) -> bool:
        """Parse up to the next thing that may be more than words; False to wait for more text."""
        if self._is_line_start and self._ticks == 0:
            has_moved = self._at_line_start(pieces, is_end=is_end)
            if has_moved is not None:
                return has_moved
        special = _SPECIAL_CHARACTER.search(self._text)
        if special is None or special.start() > 0:
            self._emit(self._cut(special.start() if special else len(self._text)), pieces)
            return True
        match self._text[0]:
            case "\n":
                self._emit(self._cut(1), pieces)
                self._is_line_start, self._ticks = True, 0
                return True
            case "`":
                run = len(self._text) - len(self._text.lstrip("`"))
                if run == len(self._text) and not is_end:
                    return False
                self._emit(self._cut(run), pieces)
                self._ticks = 0 if self._ticks == run else self._ticks or run
                return True
        tag = _TAG.match(self._text)
        if self._ticks or tag is None:
            is_begun = _TAG_BEGUN.match(self._text) and len(self._text) < _MAX_TAG_CHARACTERS
            if is_begun and not self._ticks and not is_end:
                return False
            self._emit(self._cut(1), pieces)
            return True
        self._take_tag(self._cut(tag.end()), pieces)
        return True

    def _at_line_start(self, pieces: list[Piece], *, is_end: bool) -> bool | None:
        """Parse the beginning of a line; None if it is one of mere words, False to wait."""
        line, line_end, _ = self._text.partition("\n")
        stripped = line.lstrip(" \t\r")
        if not stripped:
            if not line_end and not is_end:
                return False
            self._emit(self._cut(len(line) + len(line_end)), pieces)
            return True
        if line_end and (fence := _FENCE.match(line)):
            self._open_fence(fence, self._cut(len(line) + 1), pieces)
            return True
        if is_end and not line_end and (fence := _FENCE.match(line)):
            self._open_fence(fence, self._cut(len(line)), pieces)
            return True
        if not line_end and not is_end and _may_be_fence(line):
            return False
        if self._finds_calls and self._mistakes < _MAX_MISTAKES:
            if any(stripped.startswith(marker) for marker in _LINE_MARKERS):
                self._hold("")
                return True
            if not line_end and not is_end and any(m.startswith(stripped) for m in _LINE_MARKERS):
                return False
            is_object = stripped[0] in "{[" and not _TAG.match(stripped)
            if is_object and written_calls.may_be_call(self._text[:_MAX_DOUBT_CHARACTERS]):
                if not is_end and len(self._text) < _MAX_DOUBT_CHARACTERS:
                    return False
                self._hold("")
                return True
        self._is_line_start = False
        if indent := len(line) - len(stripped):
            self._emit(self._cut(indent), pieces)
            return True
        return None

    def _cut(self, length: int) -> str:
        text, self._text = self._text[:length], self._text[length:]
        return text

    def _hold(self, marker: str, *, is_doubtful: bool = False) -> None:
        """Hold back the text from here on, which may be a call; in a sentence, it may be none."""
        self._is_doubtful = is_doubtful
        self._place, self._pending, self._opening = _Place.CALL, [marker] if marker else [], marker

    def _take_tag(self, tag: str, pieces: list[Piece]) -> None:
        is_at_start = self._is_line_start or not self._has_begun or self._last in _SENTENCE_ENDS
        if _THOUGHT.fullmatch(tag):
            self._think(tag, _THOUGHT_END, is_doubtful=not is_at_start)
            return
        if _THOUGHT_END.fullmatch(tag):
            self._forget(pieces)
            return
        if tag in _HEADERS:
            self._place, self._pending = _Place.HEADER, [tag]
            return
        if tag in _NOISE:
            return
        if self._finds_calls and self._mistakes < _MAX_MISTAKES and _is_marker(tag):
            self._hold(tag, is_doubtful=not is_at_start)
            return
        self._emit(tag, pieces)

    def _emit(self, text: str, pieces: list[Piece]) -> None:
        """Append text as the piece that belongs to the current place."""
        if self._place is _Place.PYTHON:
            self._pending.append(text)
            pieces.append(Writing(text))
            return
        if self._drops_blanks:
            # Empty lines follow a thought.
            text = text.lstrip()
            self._drops_blanks = not text
        if text.strip():
            self._has_begun, self._last = True, text.rstrip()[-1]
            if not text.endswith("\n"):
                self._is_line_start = False
        if text:
            pieces.append(Words(text))

    # Thoughts

    def _think(self, tag: str, end: re.Pattern[str], *, is_doubtful: bool = False) -> None:
        """Leave out what follows, up to its end.

        Args:
            tag: that began it.
            end: what ends it.
            is_doubtful: it stands within a sentence, so the tag itself may be the subject.
        """
        self._is_doubtful = is_doubtful
        if not self._has_begun and self._lead is not None and not self.begins_in_thought:
            # This model marks the beginnings of its thoughts, too.
            self.begins_in_thought = False
        self._place, self._pending, self._opening = _Place.THOUGHT, [], tag
        self._thought_end = end

    def _in_thought(self, pieces: list[Piece]) -> bool:
        # Text is searched only once; otherwise a model that thinks for long, letter by
        # letter, would block the event loop.
        end = self._thought_end.search(self._text)
        if end is not None:
            content = "".join(self._pending) + self._text[: end.start()]
            self._text = self._text[end.end() :]
            self._place, self._pending, self._thought_end = _Place.TEXT, [], _THOUGHT_END
            if self._is_doubtful and len(content.split()) <= _MAX_MENTION_WORDS:
                self._emit(f"{self._opening}{content}{end[0]}", pieces)
                return True
            self._is_line_start = self._drops_blanks = not self._is_doubtful
            return True
        # The end may come in two parts.
        tail = self._text[-_MAX_TAG_CHARACTERS:]
        start = max(tail.rfind("<"), tail.rfind("["), tail.rfind("◁"))
        length = len(self._text) - (len(tail) - start if start >= 0 else 0)
        self._pending.append(self._cut(length))
        return False

    def _forget(self, pieces: list[Piece]) -> None:
        """Take all text so far for thoughts of which only the end is marked."""
        before = [*(self._lead or ()), *pieces]
        self._forgotten += "".join(piece.text for piece in before if isinstance(piece, Words))
        pieces.clear()
        if self._lead is None:
            pieces.append(Forget())
        self.begins_in_thought, self._lead = True, None
        self._is_line_start, self._has_begun, self._last = True, False, ""
        self._drops_blanks = True

    def _in_header(self, pieces: list[Piece]) -> bool:
        """Parse the header of a message: thoughts, a call, or words."""
        text = "".join(self._pending) + self._text
        header, message, rest = text.partition(_MESSAGE)
        if not message:
            if len(text) > _MAX_HEADER_CHARACTERS:
                self._text, self._pending, self._place = "", [], _Place.TEXT
                self._emit(text, pieces)
                return True
            self._text, self._pending = "", [text]
            return False
        self._place, self._pending, self._text = _Place.TEXT, [], rest
        self._is_line_start = True
        if "to=" in header:
            self._hold(f"{header}{message}")
        elif "analysis" in header:
            self._think("", _HARMONY_END)
        return True

    # Blocks

    def _open_fence(self, fence: re.Match[str], line: str, pieces: list[Piece]) -> None:
        self._indent, self._fence, self._language = fence[1], fence[2], fence[3].lower()
        self._is_line_start, self._first_end, self._pending = True, -1, []
        if self._language in _PYTHON and self._takes_python:
            self._place, self._has_begun = _Place.PYTHON, True
        elif self._finds_calls and self._language in _CALLS | _MAYBE_CALLS:
            self._place, self._pending = _Place.MAYBE_CALL, [line]
        else:
            self._place = _Place.OTHER
            pieces.append(Words(line))
            self._has_begun = True

    def _in_block(self, pieces: list[Piece], *, is_end: bool) -> bool:
        line, line_end, _ = self._text.partition("\n")
        line += line_end
        if self._is_line_start:
            closing = _CLOSING.match(line)
            if not line_end and not is_end and _may_be_closing(line):
                return False
            if closing and closing[1].startswith(self._fence) and self._closes(line, pieces):
                return True
            self._is_line_start = False
            shared = len(line) - len(line.lstrip(" \t"))
            if self._place is _Place.PYTHON:
                # Marks before the fence, as in a list, are not part of the code.
                self._cut(min(shared, len(self._indent)))
                return True
        self._add(self._cut(len(line)), pieces)
        self._is_line_start = bool(line_end)
        self._has_marks = self._has_marks or "`" in line
        if line_end:
            if self._place is _Place.PYTHON and self._has_marks:
                self._close_late(pieces)
            self._has_marks = False
        return True

    def _add(self, text: str, pieces: list[Piece]) -> None:
        """Add text to a block."""
        if self._place is _Place.OTHER:
            pieces.append(Words(text))
            return
        self._pending.append(text)
        if self._place is _Place.PYTHON:
            if text:
                pieces.append(Writing(text))
            return
        beginning = "".join(self._pending[1:])
        if len(beginning) < _MAX_DOUBT_CHARACTERS and not self._may_hold_call(beginning):
            self._place = _Place.OTHER
            pieces.append(Words("".join(self._pending)))
            self._pending, self._has_begun = [], True

    def _may_hold_call(self, beginning: str) -> bool:
        stripped = beginning.lstrip()
        if self._language in _CALLS or not stripped:
            return True
        if stripped[0] in "{[":
            return written_calls.may_be_call(beginning)
        return stripped[0] == "<" and self._language in ("xml", "")

    def _closes(self, line: str, pieces: list[Piece]) -> bool:
        """Close the block with a fence; False if that stands within a string of the code."""
        if self._place is _Place.PYTHON:
            code = "".join(self._pending)
            if self._tries < _MAX_TRIES and _ends_in_string(code):
                self._tries += 1
                if self._first_end < 0:
                    self._first_end = len(code)
                return False
            pieces.append(Block(code))
        elif self._place is _Place.OTHER:
            pieces.append(Words(line))
        else:
            self._release("".join([*self._pending, line]), pieces)
        self._cut(len(line))
        self._place, self._pending, self._is_line_start = _Place.TEXT, [], True
        return True

    def _close_late(self, pieces: list[Piece]) -> None:
        """Close a block whose closing fence stands at the end of a line of code."""
        code = "".join(self._pending)
        end = self._late_end(code)
        if end < 0 or self._tries >= _MAX_TRIES:
            return
        self._tries += 1
        if _is_python(code[:end]):
            pieces.append(Block(code[:end]))
            self._place, self._pending, self._is_line_start = _Place.TEXT, [], True

    def _late_end(self, code: str) -> int:
        """Return the end of code whose last line ends with a fence; -1 if it has none."""
        closing = _LATE_CLOSING.search(code, max(len(code) - _MAX_TAG_CHARACTERS, 0))
        is_end = closing is not None and closing[1].startswith(self._fence)
        return closing.start() if closing is not None and is_end else -1

    def _close(self, pieces: list[Piece], *, is_cut: bool) -> None:
        """Close whatever is open at the end of the text."""
        place, text = self._place, "".join(self._pending) + self._text
        self._place, self._pending, self._text = _Place.TEXT, [], ""
        match place:
            case _Place.PYTHON if self._first_end >= 0 and _ends_in_string(text):
                pieces.append(Block(text[: self._first_end]))
            case _Place.PYTHON:
                end = self._late_end(text)
                pieces.append(Block(text[:end] if end >= 0 else text, is_closed=end >= 0))
            case _Place.MAYBE_CALL | _Place.CALL:
                if not is_cut or not written_calls.is_intended(text):
                    self._release(text, pieces)
            case _Place.THOUGHT if not is_cut:
                self._take_open_thought(text, pieces)
            case _Place.HEADER:
                self._emit(text, pieces)

    def _take_open_thought(self, text: str, pieces: list[Piece]) -> None:
        """Take what follows a tag that nobody closed: the answer, or thoughts before a call."""
        if self._mistakes > _MAX_MISTAKES:
            pieces.append(Words(text))
            return
        inner = Parser(finds_calls=self._finds_calls, takes_python=self._takes_python)
        inner._mistakes = self._mistakes + 1
        inner_pieces = [*inner.feed(text), *inner.finish()]
        if any(isinstance(piece, Block | ParsedCall | UnreadCall) for piece in inner_pieces):
            pieces += [piece for piece in inner_pieces if not isinstance(piece, Words)]
            return
        is_mention = self._has_begun and self._opening
        pieces += [Words(self._opening)] if is_mention else []
        pieces += inner_pieces

    def _release(self, text: str, pieces: list[Piece]) -> None:
        """Release the text held back: as calls, or else as text."""
        if calls := written_calls.read(text):
            pieces += [ParsedCall(name, arguments) for name, arguments in calls]
        elif (
            self._opening.startswith(_STRONG) and not self._is_doubtful
        ) or written_calls.is_intended(text):
            pieces.append(UnreadCall(text))
        elif self._mistakes < _MAX_MISTAKES and self._place is _Place.TEXT:
            # Whatever follows the first character is read as if that were none of a marker.
            self._mistakes += 1
            length = len(self._opening) or 1
            self._is_line_start = False
            self._emit(text[:length], pieces)
            self._text = text[length:] + self._text
        else:
            self._emit_words(text, pieces)

    def _emit_words(self, text: str, pieces: list[Piece]) -> None:
        pieces.append(Words(text))
        self._has_begun = True


_STRONG: Final = ("<|", "<\uff5c", "[TOOL", "✿")


def _is_marker(tag: str) -> bool:
    if tag.startswith("["):
        return tag.startswith("[TOOL")
    if tag.startswith("✿"):
        return tag.startswith("✿FUNCTION")
    return written_calls.is_marker(tag)


def _has_content(piece: Piece) -> bool:
    return not isinstance(piece, Words) or bool(piece.text.strip())


def _may_be_fence(line: str) -> bool:
    """Return whether a line so far may still open a block."""
    if len(line) > _MAX_OPENING_CHARACTERS:
        return False
    stripped = line.lstrip(" \t")
    if not stripped:
        return True
    if stripped[0] not in "`~":
        return False
    rest = stripped.lstrip(stripped[0])
    return not rest or (len(stripped) - len(rest) >= 3 and "`" not in rest)


def _may_be_closing(line: str) -> bool:
    """Return whether a line so far may still close a block."""
    stripped = line.strip()
    if len(line) > _MAX_OPENING_CHARACTERS:
        return False
    rest = stripped.lstrip("`~")
    return not rest or (len(stripped) - len(rest) >= 3 and rest.startswith("<"))


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


def _is_python(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return bool(code.strip())


def _join(pieces: list[Piece]) -> list[Piece]:
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
