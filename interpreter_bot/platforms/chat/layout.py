"""The layout of an answer on messages: text, tables, files, buttons. Pure.

Networks show the tables and files of a message below its text. To keep words and pictures in order,
words that come after a picture begin a new message.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import message_splitting

_ALMOST_FULL_SHARE: Final = 0.68
"""If more of a message is full, a line that does not fit goes into the next message as a whole."""
_MAX_GROWTH_CHARACTERS: Final = 200
_TABLE_RULE: Final = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")
_MAX_TABLE_HEAD_CHARACTERS: Final = 1_000
STATUS_CHARACTERS: Final = 90
"""Characters of a message that are reserved for its status."""


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """The end of a message; the next one notifies `notified_person`, unless that is empty."""

    notified_person: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line, which may be broken between its words; with `may_grow`, it may get longer."""

    text: str
    may_grow: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """What is going on right now; it is always shown at the end of the answer."""

    text: str


Part: TypeAlias = str | Line | Status | transport.Upload | values.Table | Break
"""A string stays in one message if it fits into one."""


class _Layout:
    """Fills messages one after the other.

    A part's place depends only on the parts before it. So messages only grow while an answer is
    written: nothing that was read moves.
    """

    def __init__(self, capabilities: transport.Capabilities) -> None:
        self.drafts: list[transport.Draft] = []
        self._capabilities = capabilities
        self._almost_full = int(_ALMOST_FULL_SHARE * capabilities.max_characters)
        self._text_pieces: list[str] = []
        self._characters = 0
        self._status = ""
        self._is_paragraph = False
        self._table: values.Table | None = None
        self._uploads: list[transport.Upload] = []
        self._notified_person = ""
        # Of the table in Markdown whose rows are being written: its head and the line below.
        self._table_head: list[str] = []

    def add(self, part: Part) -> None:
        match part:
            case Break():
                self.close()
                self._notified_person = part.notified_person
            case transport.Upload():
                self._attach(part)
            case values.Table():
                self._add_table(part)
            case Line():
                self._begin_message_below(part)
                if self._is_paragraph and part.text.strip():
                    self._end_paragraph()
                self._write_line(part.text, may_grow=part.may_grow)
                self._note_table_head(part.text.rstrip())
            case Status():
                self._begin_message_below(part)
                characters_left = (
                    self._capabilities.max_characters + STATUS_CHARACTERS - self._characters
                )
                if len(part.text) > characters_left:
                    self.close()
                self._status = part.text
            case str() if part.strip():
                self._begin_message_below(part)
                self._end_paragraph()
                self._write(part)
                self._is_paragraph = self._capabilities.has_paragraphs

    def _begin_message_below(self, part: str | Line | Status) -> None:
        """Begin a new message for words after a table or files, which are shown below."""
        has_attachments = bool(self._uploads or (self._table and not isinstance(part, Status)))
        if has_attachments and (isinstance(part, str) or part.text.strip()):
            self.close()

    def _end_paragraph(self) -> None:
        """Let what follows begin a paragraph, if the network has any."""
        if self._capabilities.has_paragraphs and self._text_pieces and self._text_pieces[-1]:
            self._append("")
        self._is_paragraph = False

    def _append(self, text: str) -> None:
        self._text_pieces.append(text)
        self._characters += len(text) + 1

    def _write(self, text: str) -> None:
        """Write text that should stay together."""
        if self._characters + len(text) > self._capabilities.max_characters:
            self.close()
        *full_pieces, last_piece = message_splitting.split_messages(
            text, self._capabilities.max_characters
        ) or ("",)
        for piece in full_pieces:
            self._append(piece)
            self.close()
        self._append(last_piece)

    def _write_line(self, text: str, *, may_grow: bool) -> None:
        text, characters_left = text.rstrip(), self._capabilities.max_characters - self._characters
        if len(text) <= characters_left:
            # Near the end of a message, hold back the last word, or all of the line: with more of
            # it, it may not fit.
            if may_grow and characters_left - len(text) < _MAX_GROWTH_CHARACTERS:
                text = text[: text.rfind(" ") + 1].rstrip()
            if not (may_grow and self._characters > self._almost_full):
                self._append(text)
        elif self._characters > self._almost_full:
            self.close()
            for line in self._table_head:
                self._append(line)
            self._write_line(text, may_grow=may_grow)
        else:
            break_index = message_splitting.find_break(text, characters_left, is_code=False)
            self._append(text[:break_index].rstrip())
            self.close()
            self._write_line(text[break_index:].lstrip(), may_grow=may_grow)

    def _note_table_head(self, line: str) -> None:
        """Note the head of a table: each message that continues the table begins with it."""
        if _TABLE_RULE.fullmatch(line) and len(self._text_pieces) > 1:
            head = self._text_pieces[-2:]
            is_short = sum(map(len, head)) <= _MAX_TABLE_HEAD_CHARACTERS
            self._table_head = head if is_short else []
        elif not line.lstrip().startswith("|"):
            self._table_head = []

    def _attach(self, upload: transport.Upload) -> None:
        total_bytes = (
            sum(upload_above.size_bytes for upload_above in self._uploads) + upload.size_bytes
        )
        is_full = (
            len(self._uploads) >= self._capabilities.max_files
            or total_bytes > self._capabilities.max_message_bytes
        )
        if (self._uploads and is_full) or self._must_begin_message(upload):
            self.close()
        self._uploads.append(upload)

    def _must_begin_message(self, upload: transport.Upload) -> bool:
        """Return whether a file cannot be in the message that is being filled.

        It cannot if that has words, or files of another kind, unless the network mixes them.
        """
        if self._capabilities.can_edit_files:
            return False
        has_others = any(
            upload_above.is_picture != upload.is_picture for upload_above in self._uploads
        )
        return bool(self._text_pieces or self._status or self._table) or has_others

    def _add_table(self, table: values.Table) -> None:
        table_characters = sum(len(cell) for row in (table.columns, *table.rows) for cell in row)
        is_full = self._characters + table_characters > self._capabilities.max_characters
        if self._table or self._uploads or self._status or is_full:
            self.close()
        self._table = table

    def close(self) -> None:
        text = "\n".join(self._text_pieces).strip("\n").rstrip()
        if text.strip() or self._status or self._uploads or self._table:
            self.drafts.append(
                transport.Draft(
                    text,
                    self._status,
                    tuple(self._uploads),
                    notified_person=self._notified_person,
                    table=self._table,
                )
            )
            self._notified_person = ""
        self._text_pieces, self._status, self._uploads, self._characters = [], "", [], 0
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
        buttons: below the answer.
        may_grow: words may follow in the last message.
    """
    layout = _Layout(capabilities)
    for part in parts:
        layout.add(part)
    layout.close()
    drafts = layout.drafts
    if drafts and buttons:
        indexes = [
            index
            for index, draft in enumerate(drafts)
            if capabilities.can_edit_files or not draft.uploads
        ]
        if not indexes:
            indexes = [len(drafts)]
            drafts.append(transport.Draft(""))
        drafts[indexes[-1]] = dataclasses.replace(drafts[indexes[-1]], buttons=buttons)
    if drafts and may_grow:
        drafts[-1] = dataclasses.replace(drafts[-1], may_grow=True)
    return tuple(drafts)
