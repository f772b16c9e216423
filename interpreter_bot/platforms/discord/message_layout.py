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


Part: TypeAlias = str | Upload | Break


class _Layout:
    def __init__(self) -> None:
        self.drafts: list[MessageDraft] = []
        self._words: list[str] = []
        self._uploads: list[Upload] = []
        self._pings = False

    def add(self, part: Part) -> None:
        if isinstance(part, Break):
            self.close()
            self._pings = part.pings
        elif isinstance(part, Upload):
            self._attach(part)
        elif part.strip():
            if self._uploads:
                self.close()
            self._words.append(part)

    def _attach(self, upload: Upload) -> None:
        together = sum(known.size_bytes for known in self._uploads) + upload.size_bytes
        is_full = len(self._uploads) >= MOST_FILES or together > MOST_TOGETHER_BYTES
        if self._uploads and is_full:
            self.close()
        self._uploads.append(upload)

    def close(self) -> None:
        if not self._words and not self._uploads:
            return
        pieces = message_splitting.split("\n".join(self._words), MOST_CHARACTERS) or ("",)
        for piece in pieces[:-1]:
            self.drafts.append(MessageDraft(piece, pings=self._pings))
            self._pings = False
        self.drafts.append(MessageDraft(pieces[-1], tuple(self._uploads), pings=self._pings))
        self._words, self._uploads, self._pings = [], [], False


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
