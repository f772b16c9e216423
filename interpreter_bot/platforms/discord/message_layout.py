"""The layout of an answer on messages: text, files, buttons. Pure.

Discord shows the files of a message below its text. To keep words and pictures in order, words
that come after a picture begin a new message.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

from interpreter_bot.platforms.rendering import message_splitting

MOST_CHARACTERS: Final = 1900
"""The most characters of a message: somewhat less than Discord's 2,000."""
_MAX_WITH_STATUS: Final = 1990
_ALMOST_FULL: Final = 1300
"""From here on a line that does not fit begins the next message, instead of being broken."""
_LONG_WORD: Final = 200
MOST_FILES: Final = 10
MOST_TOGETHER_BYTES: Final = 24 * 1024 * 1024
"""The most bytes of all files of one message; a larger request is refused as a whole."""


class Source(Protocol):
    """The source of a file's bytes."""

    def content(self) -> io.BufferedIOBase | pathlib.Path:
        """Return the bytes, from the beginning; a path is opened and closed by the sender."""


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """A file of a message. Two are equal if their ids and versions are.

    Attributes:
        id: names it within the answer.
        version: grows when its content changes.
    """

    id: str
    version: int
    name: str
    size_bytes: int
    source: Source = dataclasses.field(compare=False)
    description: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Button:
    """A button of the bot.

    Attributes:
        verb: what it does.
        number: of the request, turn, question or table that it is about.
        owner: whose it is.
        label: if it needs a better one than its verb's.
    """

    verb: str
    number: int
    owner: int
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MessageDraft:
    """The wanted state of one message. With `pings`, its author may be notified."""

    content: str
    uploads: tuple[Upload, ...] = ()
    buttons: tuple[Button, ...] = ()
    pings: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """What follows begins a new message; with `pings` one that notifies the person who asked."""

    pings: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of words, which may be broken between them; with `is_open` it may grow."""

    text: str
    is_open: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """What goes on right now; it stands at the end, and moves on with it."""

    text: str


Part: TypeAlias = str | Line | Status | Upload | Break
"""Text as a string stays in one message if it fits into one."""


class _Layout:
    """Fills messages one after the other.

    Where a part goes depends on what comes before it alone. So messages only grow while an answer
    is written: nothing that was read moves.
    """

    def __init__(self) -> None:
        self.drafts: list[MessageDraft] = []
        self._words: list[str] = []
        self._characters = 0
        self._uploads: list[Upload] = []
        self._pings = False

    def add(self, part: Part) -> None:
        match part:
            case Break():
                self.close()
                self._pings = part.pings
            case Upload():
                self._attach(part)
            case Line():
                self._follow(part)
                self._write_line(part.text, is_open=part.is_open)
            case Status():
                self._follow(part)
                if self._characters + len(part.text) > _MAX_WITH_STATUS:
                    self.close()
                self._append(part.text)
            case str() if part.strip():
                self._follow(part)
                self._write(part)

    def _follow(self, part: str | Line | Status) -> None:
        """Begin a new message for words after files: Discord shows those below."""
        if self._uploads and (isinstance(part, str) or part.text.strip()):
            self.close()

    def _append(self, text: str) -> None:
        self._words.append(text)
        self._characters += len(text) + 1

    def _write(self, text: str) -> None:
        """Write text that should stay together."""
        if self._characters + len(text) > MOST_CHARACTERS:
            self.close()
        *whole, last = message_splitting.split(text, MOST_CHARACTERS) or ("",)
        for piece in whole:
            self._append(piece)
            self.close()
        self._append(last)

    def _write_line(self, text: str, *, is_open: bool) -> None:
        text, room = text.rstrip(), MOST_CHARACTERS - self._characters
        if len(text) <= room:
            # Near the end of a message it, or its last word, may turn out to belong to the next.
            if is_open and room - len(text) < _LONG_WORD:
                text = text[: text.rfind(" ") + 1].rstrip()
            if not (is_open and self._characters > _ALMOST_FULL):
                self._append(text)
        elif self._characters > _ALMOST_FULL:
            self.close()
            self._write_line(text, is_open=is_open)
        else:
            place = message_splitting.break_before(text, room, is_code=False)
            self._append(text[:place].rstrip())
            self.close()
            self._write_line(text[place:].lstrip(), is_open=is_open)

    def _attach(self, upload: Upload) -> None:
        together = sum(known.size_bytes for known in self._uploads) + upload.size_bytes
        is_full = len(self._uploads) >= MOST_FILES or together > MOST_TOGETHER_BYTES
        if self._uploads and is_full:
            self.close()
        self._uploads.append(upload)

    def close(self) -> None:
        content = "\n".join(self._words).strip("\n").rstrip()
        if content.strip() or self._uploads:
            self.drafts.append(MessageDraft(content, tuple(self._uploads), pings=self._pings))
            self._pings = False
        self._words, self._uploads, self._characters = [], [], 0


def lay_out(parts: Iterable[Part], buttons: tuple[Button, ...] = ()) -> tuple[MessageDraft, ...]:
    """Lay an answer out on messages; the buttons stand below the last one."""
    layout = _Layout()
    for part in parts:
        layout.add(part)
    layout.close()
    drafts = layout.drafts
    if drafts and buttons:
        drafts[-1] = dataclasses.replace(drafts[-1], buttons=buttons)
    return tuple(drafts)
