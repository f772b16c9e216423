"""The items that outputs are shown as, and the capabilities of platforms. Frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeAlias

from interpreter_bot import values

RASTER_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can show within its messages; everything else becomes a file.

    Attributes:
        text_characters: limit of the text of one execution; its traceback has the same limit.
        text_lines: limit of its lines; its traceback has the same limit.
        max_table_width: largest width of a drawn table, in letters.
        max_table_rows: largest number of rows of a drawn table.
        pictures: MIME types that are shown as pictures.
        has_html: whether it shows pages, in a frame without rights.
        has_latex: whether it shows formulas.
        shows_table: returns whether it shows a whole table without a file of it.
    """

    text_characters: int
    text_lines: int = 60
    max_table_width: int = 80
    max_table_rows: int = 20
    pictures: frozenset[str] = RASTER_TYPES
    has_html: bool = False
    has_latex: bool = False
    shows_table: Callable[[values.Table], bool] = lambda _: False


@dataclasses.dataclass(frozen=True, slots=True)
class TextItem:
    """Printed text, or the text of a value, to be shown unchanged.

    Attributes:
        text: sanitized, not empty, without its last line end; it may be shortened.
    """

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CodeItem:
    """Text in a language: "json", "latex", or "traceback", whose end is the important part."""

    text: str
    language: str


@dataclasses.dataclass(frozen=True, slots=True)
class TableItem:
    """A table.

    Attributes:
        table: its first rows.
        text: the drawn table, within the platform's width; the last line has its size.
    """

    table: values.Table
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class PictureItem:
    """A picture that the platform shows. `alt` describes it for people who cannot see it."""

    name: str
    mime: str
    data: bytes
    alt: str


@dataclasses.dataclass(frozen=True, slots=True)
class PageItem:
    """A page for a platform that shows HTML. It is hostile: frame it without any rights."""

    name: str
    html: bytes
    title: str


@dataclasses.dataclass(frozen=True, slots=True)
class FileItem:
    """A file to download. `about` describes it in a few words."""

    name: str
    data: bytes
    about: str


@dataclasses.dataclass(frozen=True, slots=True)
class NoteItem:
    """A sentence of the bot."""

    text: str


Item: TypeAlias = TextItem | CodeItem | TableItem | PictureItem | PageItem | FileItem | NoteItem
"""Something to show."""
