"""Files of the workspace as tables, which people can view without any code.

A small file may contain a large table, and its name may be wrong. So it is read in a child process
(`bounded_children`), which returns a table of limited size. The table is cached until the file
changes, and is no variable of the session.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import functools
import importlib
import io
import itertools
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

from . import (
    bounded_children,
    dataframe_displays,
    delimited_text,
    file_kinds,
    table_columns,
)

_MAX_ROWS = 100_000
_MAX_CELLS = 3_000_000
_MAX_SHEET_ROWS = 20_000
_BATCH_ROWS = 10_000
_MAX_SECONDS = 15.0
_MAX_ANSWER_BYTES = 32_000_000
# Rows of a sheet are read one by one, but all texts of the workbook at once.
_MAX_UNPACKED_BYTES = 100_000_000
_MAX_SHEETS = 50
_MAX_CACHED_TABLES = 2
_TOO_LARGE = "It takes too much memory or time to read this file here. Let the code read it."
_ROWS_ABOVE = "{count} rows stand above the table."
_NO_TABLE = "There is no table in this file."
_WORKBOOK_TOO_LARGE = "The workbook is too large for that. Let the code read it."

_ReadResult = tuple[Any, bool, list[str], list[str]]
_cache: collections.OrderedDict[tuple[Any, ...], _ReadResult] = collections.OrderedDict()


def open_file(path: str, sheet: str) -> dict[str, Any]:
    """Read a file as a table.

    Args:
        path: of a text file, Parquet file or workbook, with any extension.
        sheet: name of a workbook's sheet; empty for the first.

    Returns:
        The table's handle, whether it is cut, the sheets of a workbook, and sentences on guesses
        and omissions.

    Raises:
        ValueError: the file is no table, or too large to be read here.
    """
    status = os.stat(path)
    key = (path, sheet, status.st_mtime_ns, status.st_size)
    if key not in _cache:
        _cache[key] = _read_in_child(path, sheet)
        while len(_cache) > _MAX_CACHED_TABLES:
            _cache.popitem(last=False)
    table, is_cut, sheets, notes = _cache[key]
    handle = dataframe_displays.ensure_handle(table)
    return {"handle": handle, "is_cut": is_cut, "sheets": sheets, "notes": notes}


def _read_in_child(path: str, sheet: str) -> _ReadResult:
    kind, sentence = file_kinds.find_kind(path)
    reader, libraries = _read_lines, ["pandas", "charset_normalizer"]
    if kind == "workbook":
        reader, libraries = (
            functools.partial(_read_workbook, sheet=sheet),
            ["pandas", "python_calamine"],
        )
    elif path.lower().endswith((".parquet", ".pq")):
        reader, libraries = _read_parquet, ["pyarrow.parquet"]
    elif kind != "text":
        raise ValueError(sentence or _NO_TABLE)
    for library in libraries:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    answer = bounded_children.run(
        lambda: _pickle_answer(reader, path), seconds=_MAX_SECONDS, max_bytes=_MAX_ANSWER_BYTES
    )
    result: dict[str, Any] = pickle.loads(answer) if answer else {"problem": _TOO_LARGE}
    if "problem" in result:
        raise ValueError(result["problem"])
    return result["table"], result["is_cut"], result["sheets"], result["notes"]


def _pickle_answer(reader: Callable[[str], _ReadResult], path: str) -> bytes:
    """Return a problem, or a table with as many rows as fit into an answer."""
    try:
        table, is_cut, sheets, notes = reader(path)
    except MemoryError:
        raise
    except Exception as error:
        # Libraries raise errors of many classes.
        return pickle.dumps({"problem": f"{error}" or type(error).__name__})
    numpy: Any = importlib.import_module("numpy")
    while True:
        data = pickle.dumps({"table": table, "is_cut": is_cut, "sheets": sheets, "notes": notes})
        if len(data) <= _MAX_ANSWER_BYTES:
            return data
        # Not a slice, which would keep all rows in memory.
        table, is_cut = table.take(numpy.arange(len(table) // 2)), True


def _read_parquet(path: str) -> _ReadResult:
    arrow: Any = importlib.import_module("pyarrow")
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path, pre_buffer=False)
    remaining_rows = _limit_rows(len(file.schema_arrow))
    batches = []
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        batches.append(batch.slice(0, remaining_rows))
        remaining_rows -= batch.num_rows
        if remaining_rows <= 0:
            break
    table = arrow.Table.from_batches(batches, schema=file.schema_arrow)
    for number, kind in enumerate(table.schema.types):
        if not table_columns.is_plain_arrow(kind):
            # Converting an extension type would run code that the session has registered.
            placeholder = arrow.repeat("<extension>", table.num_rows)
            table = table.set_column(number, table.schema.names[number], placeholder)
    return table, file.metadata.num_rows > table.num_rows, [], []


def open_workbook(path: str) -> tuple[list[str], Callable[[str, int], list[list[Any]]]]:
    """Open a workbook; return its sheets, and a function that reads a sheet's first rows.

    Raises:
        ValueError: it is too large, or no workbook.
    """
    calamine: Any = importlib.import_module("python_calamine")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED_BYTES:
                raise ValueError(_WORKBOOK_TOO_LARGE)
    book = calamine.CalamineWorkbook.from_path(path)
    sheets = [str(name) for name in book.sheet_names][:_MAX_SHEETS]

    def read_rows(sheet: str, max_rows: int) -> list[list[Any]]:
        rows = book.get_sheet_by_name(sheet).iter_rows()
        return [list(map(_cell_value, row)) for row in itertools.islice(rows, max_rows)]

    return sheets, read_rows


def _cell_value(value: Any) -> Any:
    """Return a cell's value; whole numbers become int, as workbooks store all numbers as float."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return None if value == "" else value


@dataclasses.dataclass(frozen=True)
class SheetTable:
    """The table on a sheet.

    Attributes:
        names: of its columns.
        rows: below the headings, all of the same length.
        preamble_row_count: number of rows above the headings.
        is_cut: whether the sheet has more rows.
    """

    names: list[str]
    rows: list[list[Any]]
    preamble_row_count: int
    is_cut: bool


def read_sheet(
    read_rows: Callable[[str, int], list[list[Any]]], sheet: str, max_rows: int
) -> SheetTable:
    """Read the table of a sheet, with at most `max_rows` rows."""
    rows = read_rows(sheet, max_rows + 1)
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    lengths = [
        max((number for number, text in enumerate(row, 1) if text), default=0) for row in texts
    ]
    filled_row_numbers = [row_number for row_number, length in enumerate(lengths) if length]
    if not filled_row_numbers:
        return SheetTable([], [], 0, is_cut=False)
    header_index, _ = delimited_text.locate_table(
        [texts[row_number][: lengths[row_number]] for row_number in filled_row_numbers]
    )
    header_row = filled_row_numbers[header_index]
    width = max(lengths[header_row:])
    names = [*texts[header_row], *[""] * width][:width]
    data_rows = [[*row[:width], *[None] * (width - len(row))] for row in rows[header_row + 1 :]]
    return SheetTable(
        delimited_text.make_unique(names), data_rows[:max_rows], header_row, len(rows) > max_rows
    )


def _read_workbook(path: str, *, sheet: str) -> _ReadResult:
    pandas: Any = importlib.import_module("pandas")
    sheets, read_rows = open_workbook(path)
    if not sheets:
        raise ValueError(_NO_TABLE)
    table = read_sheet(read_rows, sheet or sheets[0], _MAX_SHEET_ROWS)
    notes = [_ROWS_ABOVE.format(count=table.preamble_row_count)] if table.preamble_row_count else []
    return pandas.DataFrame(table.rows, columns=table.names), table.is_cut, sheets, notes


def _read_lines(path: str) -> _ReadResult:
    pandas: Any = importlib.import_module("pandas")
    layout = delimited_text.find_layout(path)
    names = layout.names
    rows, sentence = delimited_text.read_rows(path, layout, _limit_rows(len(names)))
    width = max([len(names), *map(len, rows)])
    names = delimited_text.make_unique([*names, *[""] * (width - len(names))])
    text = io.StringIO()
    csv.writer(text).writerows([*row, *[""] * (width - len(row))] for row in rows)
    text.seek(0)
    table = pandas.read_csv(
        text,
        header=None,
        names=names,
        dtype={names[number]: str for number in layout.text_column_numbers},
        # Empty lines of a table with one column are rows.
        skip_blank_lines=False,
        **layout.value_options,
    )
    notes = [*layout.notes(), *([sentence] if sentence else [])]
    return table, bool(sentence), [], notes


def _limit_rows(column_count: int) -> int:
    return max(min(_MAX_ROWS, _MAX_CELLS // max(column_count, 1)), 1)
