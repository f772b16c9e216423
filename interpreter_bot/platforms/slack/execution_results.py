"""Results of an execution: what stands in the answer's text, and what becomes files. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.platforms.rendering import (
    display_items,
    output_selection,
    past_code,
    tables,
)
from interpreter_bot.platforms.slack import answer_contents, blocks, markdown
from interpreter_bot.text import fences, output_screens
from interpreter_bot.wording import run_words

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif"})
_CAPABILITIES: Final = display_items.Capabilities(
    text_characters=2_500, text_lines=30, table_width=100, pictures=_PICTURES, has_tables=True
)
_DRAWN_CHARACTERS: Final = 2_000


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A file made of output that is not shown in a message."""

    name: str
    data: bytes
    about: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """The displayed form of one execution's outputs.

    Attributes:
        parts: Markdown, harmless, and pictures, in order; what code showed as text apart.
        table: a block for the end of the message, of which there may be one.
        files: in order.
        wholes: handle and size of each table of which the kernel may still have all.
    """

    parts: tuple[answer_contents.Piece, ...]
    table: blocks.Block | None
    files: tuple[Made, ...]
    wholes: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """Return all of the Markdown."""
        return answer_contents.markdown(self.parts, with_details=False)


class ExecutionResults:
    """Converts outputs to text and files; one for each answer."""

    def __init__(self) -> None:
        self._chooser = output_selection.OutputSelector(_CAPABILITIES)
        self._cell_of_table: int | None = None

    def of_cell(
        self,
        cell: int,
        standing: Sequence[output_screens.ScreenItem],
        finished: values.Finished | None,
        *,
        made_files: bool = False,
    ) -> Shown:
        """Convert one execution; one that is not finished is shown as it stands."""
        parts: list[str | answer_contents.Printed | answer_contents.Picture] = []
        files: list[Made] = []
        table = None
        wholes: list[tuple[str, str]] = []
        for item in self._chooser.choose(cell, standing):
            match item:
                case display_items.TextItem(text=text):
                    parts.append(answer_contents.Printed(fences.fenced(text)))
                case display_items.CodeItem(text=text, language=language):
                    known = "" if language == "traceback" else language
                    shown = fences.fenced(text, language=known)
                    is_left_out = past_code.is_left_out(item)
                    parts.append(answer_contents.Printed(shown) if is_left_out else shown)
                case display_items.TableItem():
                    wholes += _whole_table(item.table)
                    block = self._block(cell, item) if finished is not None else None
                    if block is not None and table is None:
                        table = block
                        parts.append(_size(item.table))
                    else:
                        parts.append(_drawn_table(item, files, cell, is_last=finished is not None))
                case display_items.PictureItem():
                    parts.append(answer_contents.Picture(item.name, item.data, item.alt))
                case display_items.FileItem():
                    files.append(Made(item.name, item.data, item.about))
                    parts.append(f"_{markdown.defused(item.name)}: {markdown.defused(item.about)}_")
                case display_items.NoteItem(text=text):
                    parts.append(f"_{markdown.defused(text)}_")
                case display_items.PageItem():
                    # Only for platforms that declare HTML.
                    pass
        if finished is not None:
            parts.append(_end(standing, finished, made_files=made_files))
        pieces = [
            answer_contents.Text(part) if isinstance(part, str) else part for part in parts if part
        ]
        return Shown(tuple(pieces), table, tuple(files), tuple(wholes))

    def _block(self, cell: int, item: display_items.TableItem) -> blocks.Block | None:
        """Make the answer's one table block, if this table may be it."""
        if self._cell_of_table not in (None, cell):
            return None
        block = blocks.table(item.table)
        if block is not None:
            self._cell_of_table = cell
        return block


def _whole_table(table: values.Table) -> list[tuple[str, str]]:
    return (
        [(table.handle, f"{table.row_count:,} rows")] if table.handle and not table.is_whole else []
    )


def _size(table: values.Table) -> str:
    """Return the size of a table of which the block is only the head."""
    shown = len(table.rows)
    is_whole = shown >= table.row_count and len(table.columns) >= table.column_count
    return "" if is_whole else f"_The table below: {tables.size(table, shown)}_"


def _drawn_table(
    item: display_items.TableItem, files: list[Made], cell: int, *, is_last: bool
) -> str:
    """Draw a table that is no block; as CSV file what a message does not hold of it."""
    text = item.text
    is_whole = len(text) <= _DRAWN_CHARACTERS and "…" not in text
    if not is_whole:
        text = tables.draw(item.table, 80, max_rows=10)[:_DRAWN_CHARACTERS]
    if not is_whole and is_last:
        count = sum(made.name.startswith("table-") for made in files) + 1
        name = f"table-{cell + 1}-{count}{tables.file_label(item.table)}.csv"
        about = tables.file_size(item.table)
        files.append(Made(name, tables.as_csv(item.table).encode("utf-8", "replace"), about))
    return fences.fenced(text)


def _end(
    standing: Sequence[output_screens.ScreenItem], finished: values.Finished, *, made_files: bool
) -> str:
    has_error = any(isinstance(item.output, values.Error) for item in standing)
    has_shown = bool(standing) or made_files
    said = run_words.ending_sentence(finished, has_shown=has_shown, has_error=has_error)
    return f"_{markdown.defused(said)}_" if said and said != run_words.SILENT else ""
