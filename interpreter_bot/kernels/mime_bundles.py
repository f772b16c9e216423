"""Choice of the form of a display to show: the richest valid one in its MIME bundle. Pure."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Final, TypeGuard

from interpreter_bot import values
from interpreter_bot.text import safe_text

_TABLE_HANDLE_PATTERN: Final = re.compile(r"t[0-9]{1,12}")
TABLE_MIME: Final = "application/vnd.interpreter-bot.table+json"
PREVIEW_MIME: Final = "application/vnd.interpreter-bot.preview+png"
"""A PNG of the richest form, for platforms that cannot show the form."""
TITLE_MIME: Final = "application/vnd.interpreter-bot.title"
_MAX_TITLE_CHARACTERS: Final = 200
_MAX_PREVIEW_CHARACTERS: Final = 4_000_000
_MAX_TEXT_CHARACTERS: Final = 100_000
# Indented JSON is much longer: a million nested lists would take gigabytes.
_MAX_JSON_CHARACTERS: Final = 1_000_000
_MAX_COLUMNS: Final = 100
_MAX_ROWS: Final = 200
_MAX_CELL_CHARACTERS: Final = 500
_MAX_COUNT: Final = 10**15
_SVG_TAG_CHARACTERS: Final = 4096


class DisplayTooLargeError(ValueError):
    """The richest form exceeds the limit."""

    def __init__(self, kind: str, size: str) -> None:
        """`kind` is a word for people, `size` a number with its unit."""
        super().__init__(f"{kind}: {size}")
        self.kind = kind
        self.size = size


def choose_form(
    data: dict[str, object],
    *,
    max_bytes: int,
    display_id: str | None = None,
    is_update: bool = False,
) -> values.DisplayOutput:
    """Build an output from a display's forms by MIME type; an empty result if none can be shown.

    `max_bytes` bounds the chosen form, as encoded.

    Raises:
        DisplayTooLargeError: the richest form is larger.
    """
    for mime, kind, read in _FORMS:
        if mime not in data:
            continue
        form = data[mime]
        if (size_bytes := _size_bytes(form, max_bytes)) > max_bytes:
            raise DisplayTooLargeError(kind, f"{size_bytes:,} bytes")
        if (output := read(form)) is not None:
            text = output.plain or plain_text(data)
            output = dataclasses.replace(
                output, plain=text, display_id=display_id, is_update=is_update
            )
            return _add_preview_and_title(output, data)
    return values.Result(plain=plain_text(data), display_id=display_id, is_update=is_update)


def _add_preview_and_title(
    output: values.DisplayOutput, data: dict[str, object]
) -> values.DisplayOutput:
    """Add a preview to forms that some platforms cannot show, and a title if there is one."""
    title = " ".join(
        safe_text.truncate(_join_lines(data.get(TITLE_MIME)), _MAX_TITLE_CHARACTERS).split()
    )
    if isinstance(output, values.Html):
        return dataclasses.replace(output, title=title, preview=_read_preview(data))
    if isinstance(output, values.Image) and title and output.plain.startswith("<Figure"):
        output = dataclasses.replace(output, plain=f"Figure: {title}")
    if isinstance(output, values.Image) and output.mime == "image/svg+xml":
        return dataclasses.replace(output, preview=_read_preview(data))
    if isinstance(output, values.Latex):
        return dataclasses.replace(output, preview=_read_preview(data))
    return output


def _read_preview(data: dict[str, object]) -> bytes:
    form = _join_lines(data.get(PREVIEW_MIME))
    if not form or len(form) > _MAX_PREVIEW_CHARACTERS:
        return b""
    image = _read_png(form)
    return b"" if image is None else image.data


def plain_text(data: dict[str, object]) -> str:
    """Return the plain text form of a display, harmless and bounded."""
    return safe_text.elide_middle(_join_lines(data.get("text/plain")), _MAX_TEXT_CHARACTERS)


def _join_lines(form: object) -> str:
    """Return a form as text; notebooks may give a list of lines."""
    if isinstance(form, str):
        return form
    return "".join(form) if _is_text_list(form) else ""


def _encode(form: object) -> bytes:
    return safe_text.replace_surrogates(_join_lines(form)).encode()


def _size_bytes(form: object, max_bytes: int) -> int:
    """Return the size of a text form in bytes; other forms are measured by their readers."""
    text = _join_lines(form)
    if len(text) > max_bytes:
        return len(text)
    return len(text.encode("utf-8", "replace"))


def _make_raster_reader(mime: str, *magic: bytes) -> Callable[[object], values.Image | None]:
    """Build a reader of base64 data that begins with one of `magic`."""

    def read(form: object) -> values.Image | None:
        try:
            base64_data = _join_lines(form).encode("ascii").translate(None, b" \t\r\n")
            data = base64.b64decode(base64_data, validate=True)
        except ValueError:
            return None
        return values.Image(mime=mime, data=data) if data.startswith(magic) else None

    return read


_read_png: Final = _make_raster_reader("image/png", b"\x89PNG\r\n\x1a\n")


def _read_webp(form: object) -> values.Image | None:
    image = _make_raster_reader("image/webp", b"RIFF")(form)
    return image if image is not None and image.data[8:12] == b"WEBP" else None


def _read_svg(form: object) -> values.Image | None:
    if "<svg" not in _join_lines(form)[:_SVG_TAG_CHARACTERS]:
        return None
    return values.Image(mime="image/svg+xml", data=_encode(form))


def _read_html(form: object) -> values.Html | None:
    text = _join_lines(form)
    is_blank = not text or text.isspace()
    return None if is_blank else values.Html(html=_encode(text))


def _read_latex(form: object) -> values.Latex | None:
    text = _join_lines(form)
    # A formula cannot be shortened: it would be invalid.
    if len(text) > _MAX_TEXT_CHARACTERS or not text.strip():
        return None
    return values.Latex(latex=safe_text.clean(text))


def _refuse_long(form: object) -> None:
    raise DisplayTooLargeError("JSON", f"over {_MAX_JSON_CHARACTERS:,} characters")


def _read_json(form: object) -> values.Json | None:
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=_refuse_long)
    pieces: list[str] = []
    length = 0
    try:
        for piece in encoder.iterencode(form):
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_JSON_CHARACTERS:
                _refuse_long(form)
    except RecursionError:
        return None
    return values.Json(json=safe_text.clean("".join(pieces)))


def _read_markdown(form: object) -> values.Result | None:
    text = safe_text.elide_middle(_join_lines(form), _MAX_TEXT_CHARACTERS)
    return values.Result(plain=text, is_markdown=True) if text.strip() else None


def _read_table(form: object) -> values.Table | None:
    if not isinstance(form, dict):
        return None
    columns, rows = form.get("columns"), form.get("rows")
    row_count, column_count = (
        _read_count(form.get("row_count")),
        _read_count(form.get("column_count")),
    )
    index_count, handle = _read_count(form.get("index_count")), form.get("handle")
    if row_count is None or column_count is None or index_count is None:
        return None
    if not _is_text_list(columns) or not isinstance(rows, list) or index_count > len(columns):
        return None
    shown_rows = rows[:_MAX_ROWS]
    if not all(_is_text_list(row) and len(row) == len(columns) for row in shown_rows):
        return None
    return values.Table(
        columns=_clip_cells(columns),
        rows=tuple(map(_clip_cells, shown_rows)),
        row_count=max(row_count, len(rows)),
        column_count=max(column_count, len(columns) - index_count),
        index_count=min(index_count, _MAX_COLUMNS),
        handle=handle
        if isinstance(handle, str) and _TABLE_HANDLE_PATTERN.fullmatch(handle)
        else "",
    )


def _read_count(number: object) -> int | None:
    # A bool is an int, too.
    is_count = type(number) is int and 0 <= number <= _MAX_COUNT
    return number if is_count and isinstance(number, int) else None


def _is_text_list(form: object) -> TypeGuard[list[str]]:
    return isinstance(form, list) and all(isinstance(cell, str) for cell in form)


def _clip_cells(cells: list[str]) -> tuple[str, ...]:
    return tuple(safe_text.truncate(cell, _MAX_CELL_CHARACTERS) for cell in cells[:_MAX_COLUMNS])


_FORMS: Final[tuple[tuple[str, str, Callable[[object], values.DisplayOutput | None]], ...]] = (
    ("image/png", "PNG image", _read_png),
    ("image/jpeg", "JPEG image", _make_raster_reader("image/jpeg", b"\xff\xd8\xff")),
    ("image/gif", "GIF image", _make_raster_reader("image/gif", b"GIF87a", b"GIF89a")),
    ("image/webp", "WebP image", _read_webp),
    ("image/svg+xml", "SVG image", _read_svg),
    (TABLE_MIME, "table", _read_table),
    ("text/html", "HTML", _read_html),
    ("text/latex", "formula", _read_latex),
    ("application/json", "JSON", _read_json),
    ("text/markdown", "Markdown", _read_markdown),
)
"""Forms that can be shown, richest first: MIME type, word for people, reader."""
