"""The layout of an answer on messages: text, tables, files, buttons. Pure.

Networks show the tables and files of a message below its text. To keep words and pictures in order,
words that come after a picture begin a new message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import message_splitting

_ALMOST_FULL: Final = 0.68
"""Share of a message beyond which a line that does not fit moves to the next one whole."""
_LONG_WORD_CHARACTERS: Final = 200
STATUS_CHARACTERS: Final = 90
"""Characters of a message that are reserved for its status."""


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """The end of a message; `notifies` names the person whom the next one notifies, if any."""

    notifies: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of text, which may be broken between words; with `may_grow`, more may follow in it."""

    text: str
    may_grow: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """What is going on right now, shown at the end of the answer and moving with it."""

    text: str


Part: TypeAlias = str | Line | Status | transport.Upload | values.Table | Break
"""Text as a string stays in one message if it fits into one."""


class _Layout:
    """Fills messages one after the other.

    A part's place depends only on the parts before it. So messages only grow while an answer is
    written: nothing that was read moves.
    """

    def __init__(self, capabilities: transport.Capabilities) -> None:
        self.drafts: list[transport.Draft] = []
        self._capabilities = capabilities
        self._almost_full = int(_ALMOST_FULL * capabilities.max_characters)
        self._words: list[str] = []
        self._characters = 0
        self._status = ""
        self._is_paragraph = False
        self._table: values.Table | None = None
        self._uploads: list[transport.Upload] = []
        self._notifies = ""

    def add(self, part: Part) -> None:
        match part:
            case Break():
                self.close()
                self._notifies = part.notifies
            case transport.Upload():
                self._attach(part)
            case values.Table():
                self._add_table(part)
            case Line():
                self._follow(part)
                if self._is_paragraph and part.text.strip():
                    self._end_paragraph()
                self._write_line(part.text, may_grow=part.may_grow)
            case Status():
                self._follow(part)
                room = self._capabilities.max_characters + STATUS_CHARACTERS - self._characters
                if len(part.text) > room:
                    self.close()
                self._status = part.text
            case str() if part.strip():
                self._follow(part)
                self._end_paragraph()
                self._write(part)
                self._is_paragraph = self._capabilities.has_paragraphs

    def _follow(self, part: str | Line | Status) -> None:
        """Begin a new message for words after a table or files, which are shown below."""
        has_attachments = bool(self._uploads or (self._table and not isinstance(part, Status)))
        if has_attachments and (isinstance(part, str) or part.text.strip()):
            self.close()

    def _end_paragraph(self) -> None:
        """Let what follows begin a paragraph, if the network has any."""
        if self._capabilities.has_paragraphs and self._words and self._words[-1]:
            self._append("")
        self._is_paragraph = False

    def _append(self, text: str) -> None:
        self._words.append(text)
        self._characters += len(text) + 1

    def _write(self, text: str) -> None:
        """Write text that should stay together."""
        if self._characters + len(text) > self._capabilities.max_characters:
            self.close()
        *whole, last = message_splitting.split(text, self._capabilities.max_characters) or ("",)
        for piece in whole:
            self._append(piece)
            self.close()
        self._append(last)

    def _write_line(self, text: str, *, may_grow: bool) -> None:
        text, room = text.rstrip(), self._capabilities.max_characters - self._characters
        if len(text) <= room:
            # Near the end of a message, hold back the last word or the line: it may grow beyond.
            if may_grow and room - len(text) < _LONG_WORD_CHARACTERS:
                text = text[: text.rfind(" ") + 1].rstrip()
            if not (may_grow and self._characters > self._almost_full):
                self._append(text)
        elif self._characters > self._almost_full:
            self.close()
            self._write_line(text, may_grow=may_grow)
        else:
            break_index = message_splitting.break_before(text, room, is_code=False)
            self._append(text[:break_index].rstrip())
            self.close()
            self._write_line(text[break_index:].lstrip(), may_grow=may_grow)

    def _attach(self, upload: transport.Upload) -> None:
        together = sum(known.size_bytes for known in self._uploads) + upload.size_bytes
        is_full = (
            len(self._uploads) >= self._capabilities.max_files
            or together > self._capabilities.max_message_bytes
        )
        if (self._uploads and is_full) or self._is_apart(upload):
            self.close()
        self._uploads.append(upload)

    def _is_apart(self, upload: transport.Upload) -> bool:
        """Return whether a file must begin a message: not after text or files of another kind."""
        if self._capabilities.uploads_by_edit:
            return False
        has_others = any(known.is_picture != upload.is_picture for known in self._uploads)
        return bool(self._words or self._status or self._table) or has_others

    def _add_table(self, table: values.Table) -> None:
        size = sum(len(cell) for row in (table.columns, *table.rows) for cell in row)
        is_full = self._characters + size > self._capabilities.max_characters
        if self._table or self._uploads or self._status or is_full:
            self.close()
        self._table = table

    def close(self) -> None:
        text = "\n".join(self._words).strip("\n").rstrip()
        if text.strip() or self._status or self._uploads or self._table:
            self.drafts.append(
                transport.Draft(
                    text,
                    self._status,
                    tuple(self._uploads),
                    notifies=self._notifies,
                    table=self._table,
                )
            )
            self._notifies = ""
        self._words, self._status, self._uploads, self._characters = [], "", [], 0
        self._table, self._is_paragraph = None, False


def lay_out(
    parts: Iterable[Part],
    capabilities: transport.Capabilities,
    buttons: tuple[transport.Button, ...] = (),
    *,
    may_grow: bool = False,
) -> tuple[transport.Draft, ...]:
    """Lay an answer out on messages; the buttons stand below the last one that can have any.

    Args:
        parts: of the answer.
        capabilities: what messages can have.
        buttons: below it.
        may_grow: words may follow in the last message.
    """
    layout = _Layout(capabilities)
    for part in parts:
        layout.add(part)
    layout.close()
    drafts = layout.drafts
    if drafts and buttons:
        places = [
            n for n, draft in enumerate(drafts) if capabilities.uploads_by_edit or not draft.uploads
        ]
        if not places:
            places = [len(drafts)]
            drafts.append(transport.Draft(""))
        drafts[places[-1]] = dataclasses.replace(drafts[places[-1]], buttons=buttons)
    if drafts and may_grow:
        drafts[-1] = dataclasses.replace(drafts[-1], may_grow=True)
    return tuple(drafts)
