"""Selects the outputs of an execution that a message shows, and those that become files. Pure.

File names are short, safe and stable: the same output always gets the same name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.platforms.rendering import (
    display_items,
    html_content,
    tables,
)
from interpreter_bot.text import output_screens, safe_text, shortened_output

_MAX_NAME_CHARACTERS: Final = 48
_NOT_IN_NAMES: Final = re.compile(r"[^\w]+")
_TITLE_PREFIX: Final = "Figure: "
_FIGURE: Final = re.compile(r"^<?Figure\b")
# Device names on Windows, where people save what they download.
_RESERVED_NAME: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)", re.I)

_PNG: Final = "image/png"
_PRINTED_TEXT_NUMBER: Final = -1
_VALUE_SHARE_DIVISOR: Final = 4
_MAX_ALT_CHARACTERS: Final = 200


def make_slug(title: str) -> str:
    """Return a title as part of a file name; empty if it has no usable characters."""
    text = unicodedata.normalize("NFKC", title[: 8 * _MAX_NAME_CHARACTERS])
    text = _NOT_IN_NAMES.sub("-", text).strip("-_").lower()[:_MAX_NAME_CHARACTERS].rstrip("-_")
    return "" if _RESERVED_NAME.fullmatch(text) else text


def image_kind(image: values.Image) -> str:
    """Return the kind of a picture, as a word for its file name."""
    if image.mime == "image/gif":
        return "animation"
    if image.mime == "image/svg+xml":
        return "drawing"
    # Only figures drawn at the end of a cell have this plain text; photographs have others.
    return "figure" if _FIGURE.match(image.plain) else "image"


class FileNames:
    """File names of one turn: no two outputs share a name, and an output keeps its name."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._used_names: set[str] = set()

    def name(self, position: tuple[int, int], kind: str, *, title: str = "") -> str:
        """Return the file name of an output, without a suffix.

        Args:
            position: the output's cell and number.
            kind: a word such as "figure"; the first file of that kind is "figure-1".
            title: of the output; used in place of the kind if it has usable characters.
        """
        name = self._names.get(position)
        if name is None:
            word = make_slug(title)
            name = word or f"{kind}-1"
            count = 1
            while name in self._used_names:
                count += 1
                name = f"{word or kind}-{count}"
            self._used_names.add(name)
            self._names[position] = name
        return name


class OutputSelector:
    """Selects outputs for a platform and a turn; a file that is selected again keeps its name."""

    def __init__(self, capabilities: display_items.Capabilities) -> None:
        self._capabilities = capabilities
        self._names = FileNames()

    def choose(
        self, cell: int, items: Sequence[output_screens.ScreenItem]
    ) -> tuple[display_items.Item, ...]:
        """Return the items to show for the screen of a cell.

        If text is too long, its middle is left out, and the last item is a file with all of it.
        """
        return tuple(_Execution(cell, self._capabilities, self._names).choose(items))


class _Execution:
    def __init__(
        self, cell: int, capabilities: display_items.Capabilities, names: FileNames
    ) -> None:
        self._cell = cell
        self._capabilities = capabilities
        self._names = names
        self._characters_left = capabilities.text_characters
        self._lines_left = capabilities.text_lines

    def choose(self, items: Sequence[output_screens.ScreenItem]) -> Iterator[display_items.Item]:
        printed_pieces = [
            shortened_output.PrintedPiece(item.output.stream, item.output.text)
            for item in items
            if isinstance(item.output, values.Text)
        ]
        texts = shortened_output.shorten(
            printed_pieces, max_characters=self._characters_left, max_lines=self._lines_left
        )
        for text in texts:
            self._use_limits(text.rstrip("\n"))
        excerpts = iter(texts)
        for item in items:
            if not isinstance(item.output, values.Text):
                yield from self._select_items(item.number, item.output)
            elif (excerpt := next(excerpts).rstrip("\n")).strip():
                yield display_items.TextItem(excerpt)
        text = "".join(piece.text for piece in printed_pieces)
        if "".join(texts) != text:
            yield self._make_file(
                _PRINTED_TEXT_NUMBER, "output", ".txt", text, "all that was printed"
            )

    def _select_items(
        self, number: int, output: output_screens.VisibleOutput
    ) -> Iterator[display_items.Item]:
        match output:
            case values.Error():
                yield from self._select_traceback(number, output)
            case values.Image():
                yield from self._select_image(number, output)
            case values.Html():
                yield from self._select_html(number, output)
            case values.Table():
                yield from self._select_table(number, output)
            case values.Latex():
                yield from self._select_latex(number, output)
            case values.Json():
                yield from self._select_text(number, output.json, "json")
            case values.Notice():
                yield display_items.NoteItem(safe_text.sanitize(output.text))
            case values.Result():
                yield from self._select_text(number, output.plain, "")
            case values.Text():
                pass

    def _select_text(self, number: int, text: str, language: str) -> Iterator[display_items.Item]:
        text = safe_text.sanitize(text).rstrip("\n")
        # Code is run for its value, so a part of the value is shown even after long printed text.
        lines = max(self._lines_left, self._capabilities.text_lines // _VALUE_SHARE_DIVISOR)
        characters = max(
            self._characters_left, self._capabilities.text_characters // _VALUE_SHARE_DIVISOR
        )
        excerpt = shortened_output.shorten_text(text, max_characters=characters, max_lines=lines)
        self._use_limits(excerpt)
        if excerpt.strip():
            yield (
                display_items.CodeItem(excerpt, language)
                if language
                else display_items.TextItem(excerpt)
            )
        if excerpt != text:
            kind, suffix = ("data", ".json") if language == "json" else ("value", ".txt")
            yield self._make_file(number, kind, suffix, text, "all of it")

    def _select_traceback(self, number: int, error: values.Error) -> Iterator[display_items.Item]:
        text = safe_text.sanitize(error.traceback).rstrip("\n")
        # The last line names the error, so the end of a long traceback is shown.
        lines = text.split("\n")[-self._capabilities.text_lines :]
        tail = "\n".join(lines)
        tail = tail[max(len(tail) - self._capabilities.text_characters, 0) :]
        yield display_items.CodeItem(tail or error.name, "traceback")
        if len(tail) < len(text):
            yield self._make_file(number, "error", ".txt", text, "the whole traceback")

    def _select_image(self, number: int, image: values.Image) -> Iterator[display_items.Item]:
        is_titled = image.plain.startswith(_TITLE_PREFIX)
        title = image.plain.removeprefix(_TITLE_PREFIX) if is_titled else ""
        name = self._assign_name(number, image_kind(image), title=title)
        alt = _make_alt(image.plain, name)
        if image.mime in self._capabilities.pictures:
            yield display_items.PictureItem(name + image.suffix, image.mime, image.data, alt)
            return
        if image.preview and _PNG in self._capabilities.pictures:
            yield display_items.PictureItem(f"{name}.png", _PNG, image.preview, alt)
        yield display_items.FileItem(name + image.suffix, image.data, alt)

    def _select_html(self, number: int, page: values.Html) -> Iterator[display_items.Item]:
        if (player := html_content.extract_media(page.html)) is not None:
            mime, suffix, data = player
            kind = "sound" if mime.startswith("audio/") else "video"
            yield display_items.FileItem(
                self._assign_name(number, kind) + suffix, data, f"a {kind}"
            )
            return
        text = html_content.extract_text(page.html)
        if text is not None and not self._capabilities.has_html:
            yield from self._select_text(number, _find_meaningful_text(page) or text, "")
            return
        title = " ".join(
            safe_text.sanitize(page.title or html_content.find_title(page.html)).split()
        )
        name = self._assign_name(number, "page", title=title)
        if self._capabilities.has_html:
            yield display_items.PageItem(f"{name}.html", page.html, title)
            return
        if page.preview and _PNG in self._capabilities.pictures:
            alt = _make_alt(title, name)
            yield display_items.PictureItem(f"{name}.png", _PNG, page.preview, f"Preview: {alt}")
        elif plain := _find_meaningful_text(page):
            yield from self._select_text(number, plain, "")
        about = "interactive; open it in a browser"
        yield display_items.FileItem(f"{name}.html", page.html, about)

    def _select_table(self, number: int, table: values.Table) -> Iterator[display_items.Item]:
        capabilities = self._capabilities
        text = tables.draw_table(
            table, capabilities.max_table_width, max_rows=capabilities.max_table_rows
        )
        yield display_items.TableItem(table, text)
        is_whole = (
            len(table.rows) <= capabilities.max_table_rows
            and tables.measure_width(table) <= capabilities.max_table_width
        )
        if not is_whole and not capabilities.shows_table(table):
            suffix = f"{tables.file_label(table)}.csv"
            about = tables.describe_file_size(table)
            yield self._make_file(number, "table", suffix, tables.write_csv(table), about)

    def _select_latex(self, number: int, formula: values.Latex) -> Iterator[display_items.Item]:
        if self._capabilities.has_latex:
            yield display_items.CodeItem(safe_text.sanitize(formula.latex), "latex")
        elif formula.preview and _PNG in self._capabilities.pictures:
            name = self._assign_name(number, "formula")
            alt = _make_alt(formula.plain or formula.latex, name)
            yield display_items.PictureItem(f"{name}.png", _PNG, formula.preview, alt)
        elif html_content.is_meaningful(formula.plain):
            yield from self._select_text(number, formula.plain, "")
        else:
            yield from self._select_text(number, formula.latex, "latex")

    def _use_limits(self, text: str) -> None:
        self._characters_left -= len(text)
        self._lines_left -= text.count("\n") + 1

    def _assign_name(self, number: int, kind: str, *, title: str = "") -> str:
        return self._names.name((self._cell, number), kind, title=title)

    def _make_file(
        self, number: int, kind: str, suffix: str, text: str, about: str
    ) -> display_items.FileItem:
        name = self._assign_name(number, kind) + suffix
        return display_items.FileItem(name, text.encode("utf-8", "replace"), about)


def _find_meaningful_text(display: values.Display) -> str:
    return display.plain if html_content.is_meaningful(display.plain) else ""


def _make_alt(text: str, name: str) -> str:
    text = " ".join(safe_text.sanitize(text).split()) if html_content.is_meaningful(text) else ""
    return text[:_MAX_ALT_CHARACTERS] or name.replace("-", " ").capitalize()
