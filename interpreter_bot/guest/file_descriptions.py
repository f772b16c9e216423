"""Descriptions of files that people send, for models: a file's real kind, and its beginning.

Values are shown as in the file, not as a library reads them. Each file is read in a child
process (`bounded_children`).
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import bounded_children, delimited_text, file_kinds, table_files

_MAX_SECONDS = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_NAMED_COLUMNS = 60
_MAX_SHOWN_ROWS = 3
_MAX_SHOWN_COLUMNS = 20
_MAX_SHOWN_SHEETS = 5
_MAX_SHEET_ROWS = 200
_MAX_LINE_CHARACTERS = 300
_MAX_CELL_CHARACTERS = 200
_TEXT_EXTENSIONS = frozenset(
    (
        *("txt", "dat", "json", "jsonl", "ndjson", "md", "py"),
        *("xml", "html", "htm", "yaml", "yml", "log"),
    )
)
# Imported before the fork, because an import in the child could wait for a lock for ever.
_LIBRARIES = ("charset_normalizer", "python_calamine", "PIL.Image", "pyarrow.parquet")
_TABLE_EXTENSIONS = frozenset(("csv", "tsv", "tab", "xls", "xlsx", "xlsm", "xlsb", "ods"))
_MAX_TEXT_CHARACTERS = 1000
_UNREADABLE = "It cannot be read here: it may be damaged, or need too much memory or time."


def describe(path: str) -> str:
    """Describe a file and its content; empty if nothing is known."""
    for library in _LIBRARIES:
        # An operator's own environment may lack some.
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    answer = bounded_children.run(
        lambda: _describe_or_refuse(path).encode("utf-8", "replace")[:_MAX_ANSWER_BYTES],
        seconds=_MAX_SECONDS,
        max_bytes=_MAX_ANSWER_BYTES,
    )
    return answer.decode("utf-8", "replace") if answer else _UNREADABLE


def _extension(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _describe_or_refuse(path: str) -> str:
    try:
        return _describe(path)
    except ImportError as error:
        return f"It cannot be read here: {error.name} is not installed."


def _describe(path: str) -> str:
    """Return a description; a space if there is none, because an empty answer means a failure."""
    name, extension = os.path.basename(path), _extension(path)
    if not os.path.getsize(path):
        return " "
    kind, sentence = file_kinds.find_kind(path)
    describers: dict[str, Callable[[], str]] = {
        "picture": lambda: _describe_picture(path),
        "workbook": lambda: _describe_workbook(path, name),
        "zip": lambda: _describe_archive(path),
        "html": lambda: f"{sentence}\n{_describe_beginning(path)}",
    }
    if kind in describers:
        return describers[kind]()
    if kind == "text" and extension in _TABLE_EXTENSIONS:
        return _describe_delimited_text(path, name)
    if kind == "text":
        return _describe_beginning(path) if extension in _TEXT_EXTENSIONS else " "
    if extension in ("parquet", "pq"):
        return _describe_parquet(path, name)
    return sentence


def _describe_picture(path: str) -> str:
    pictures: Any = importlib.import_module("PIL.Image")
    with pictures.open(path) as image:
        return f"A picture of {image.width}x{image.height} pixels, mode {image.mode}."


def _describe_archive(path: str) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    more_note = f", and {len(names) - 50} more" if len(names) > 50 else ""
    return f"It holds: {', '.join(names[:50])}{more_note}"


def _describe_beginning(path: str) -> str:
    encoding = delimited_text.find_encoding(path)
    with open(path, encoding=encoding.name, errors="replace") as file:
        text = file.read(_MAX_TEXT_CHARACTERS)
    encoding_note = "" if encoding.is_certain else f", in {encoding.name}, which is a guess"
    return f"Its beginning{encoding_note}:\n{text}"


def _describe_delimited_text(path: str, name: str) -> str:
    layout = delimited_text.find_layout(path)
    warning = (
        "" if _extension(path) in ("csv", "tsv", "tab") else "It is a text with a table of lines. "
    )
    rows = str(len(layout.rows)) if layout.is_complete else f"about {_count_lines(path):,}"
    columns = [f"{column.name} ({column.kind})" for column in layout.columns]
    sample_note = "" if layout.is_complete else f", by the first {len(layout.rows):,} rows"
    parts = [f"{warning}{rows} rows. Columns{sample_note}: {_join_names(columns)}", *layout.notes()]
    if layout.notes():
        first_lines = "\n".join(line[:_MAX_LINE_CHARACTERS] for line in layout.lines)
        parts.append(f"The first lines of the file, as they are:\n{first_lines}")
    else:
        header = [column.name for column in layout.columns]
        parts.append(_preview_rows(header, layout.rows))
    parts.append(f"Read it with {_pandas_call('read_csv', name, layout.pandas_options())}")
    return "\n".join(parts)


def _describe_workbook(path: str, name: str) -> str:
    sheets, read_rows = table_files.open_workbook(path)
    parts = [] if len(sheets) < 2 else [f"It has {len(sheets)} sheets."]
    for sheet in sheets[:_MAX_SHOWN_SHEETS]:
        table = table_files.read_sheet(read_rows, sheet, _MAX_SHEET_ROWS)
        count = f"{'at least ' if table.is_cut else ''}{len(table.rows)}"
        preamble_note = (
            f" {table.preamble_row_count} above the table." if table.preamble_row_count else ""
        )
        rows = [[_format_value(value) for value in row] for row in table.rows]
        parts.append(
            f"Sheet {sheet!r}: {count} rows.{preamble_note} Columns: {_join_names(table.names)}\n"
            f"{_preview_rows(table.names, rows)}"
        )
    options = {"engine": "calamine", **({"sheet_name": None} if len(sheets) > 1 else {})}
    parts.append(f"Read it with {_pandas_call('read_excel', name, options)}")
    return "\n".join(parts)


def _describe_parquet(path: str, name: str) -> str:
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path, pre_buffer=False)
    schema = file.schema_arrow
    columns = [f"{field.name} ({field.type})" for field in schema]
    first_batch = next(file.iter_batches(batch_size=_MAX_SHOWN_ROWS, use_threads=False), None)
    rows = (
        [[_format_value(value) for value in row.values()] for row in first_batch.to_pylist()]
        if first_batch
        else []
    )
    return "\n".join(
        (
            f"{file.metadata.num_rows} rows. Columns: {_join_names(columns)}",
            _preview_rows(schema.names, rows),
            f"Read it with {_pandas_call('read_parquet', name, {})}",
        )
    )


def _preview_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (names, *rows[:_MAX_SHOWN_ROWS]):
        writer.writerow([value[:_MAX_CELL_CHARACTERS] for value in row[:_MAX_SHOWN_COLUMNS]])
    return f"First rows, as they are in the file:\n{text.getvalue().strip()}"


def _format_value(value: Any) -> str:
    return "" if value is None else str(value)


def _join_names(names: Sequence[str]) -> str:
    suffix = (
        f", and {len(names) - _MAX_NAMED_COLUMNS} more" if len(names) > _MAX_NAMED_COLUMNS else ""
    )
    return ", ".join(names[:_MAX_NAMED_COLUMNS]) + suffix


def _pandas_call(function: str, name: str, options: dict[str, Any]) -> str:
    arguments = "".join(f", {key}={_python_literal(value)}" for key, value in options.items())
    return f"pandas.{function}({name!r}{arguments})"


def _python_literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: str' for key in value)}}}"
    return repr(value)


def _count_lines(path: str) -> int:
    """Count the lines after the first."""
    line_count, last_chunk = 0, b""
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            line_count += chunk.count(b"\n")
            last_chunk = chunk
    return line_count - last_chunk.endswith(b"\n")


def print_descriptions(paths: Iterable[str], separator: str) -> None:
    """Print a description of each file, after the separator and its number."""
    for number, path in enumerate(paths):
        try:
            text = describe(path)
        except (ImportError, OSError) as error:
            text = f"It could not be read: {error}"
        print(f"{separator}{number}\n{text.replace(separator, '')}")
