"""Files of the workspace as tables, for people who look into them without a line of code.

A small file may be a large table, and its ending may lie: each is read in a child process, see
`bounded_children`, which returns as much as a kernel can bear beside its variables. It is read once
as long as the file stays what it is. Nothing of it comes into the variables.
"""

from __future__ import annotations

import collections
import functools
import importlib
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

from . import bounded_children, dataframe_displays, table_columns

_MOST_ROWS = 100_000
_MOST_CELLS = 3_000_000
_MOST_SHEET_ROWS = 20_000
_BATCH_ROWS = 10_000
_MOST_SECONDS = 15.0
_MOST_ANSWER_BYTES = 32_000_000
_MOST_LINES_BYTES = 64_000_000
# Rows of a sheet are read one by one, but its texts all at once.
_MOST_UNPACKED_BYTES = 100_000_000
_MOST_SHEETS = 50
_KEPT = 2
_SEPARATORS = ",;\t|"
_TOO_MUCH = "It takes too much memory or time to read this file here. Let the code read it."
_LONG_LINE = "The first line of this file is too long for a table."
_LARGE_BOOK = "The workbook is too large for that. Let the code read it."

_Read = tuple[Any, bool, list[str]]
_opened: collections.OrderedDict[tuple[Any, ...], _Read] = collections.OrderedDict()


def open_file(path: str, sheet: str) -> dict[str, Any]:
    """Read a file as a table; return its handle, whether that is not all, and sheets there are.

    Args:
        path: of a file of CSV, TSV, Parquet or a workbook, by its ending.
        sheet: which of a workbook; empty for the first.

    Raises:
        ValueError: the file is none, or more than can be read here.
    """
    status = os.stat(path)
    key = (path, sheet, status.st_mtime_ns, status.st_size)
    if key not in _opened:
        _opened[key] = _read(path, sheet)
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)
    table, is_cut, sheets = _opened[key]
    return {"handle": dataframe_displays.handle_of(table), "is_cut": is_cut, "sheets": sheets}


def _read(path: str, sheet: str) -> _Read:
    read = _lines
    libraries = ["pandas"]
    if path.lower().endswith(".parquet"):
        read, libraries = _parquet, ["pyarrow.parquet"]
    elif path.lower().endswith((".xlsx", ".xlsm")):
        read, libraries = functools.partial(_workbook, sheet=sheet), ["pandas", "openpyxl"]
    for library in libraries:
        importlib.import_module(library)
    answer = bounded_children.run(
        lambda: _told(read, path), seconds=_MOST_SECONDS, most_bytes=_MOST_ANSWER_BYTES
    )
    told: dict[str, Any] = pickle.loads(answer) if answer else {"problem": _TOO_MUCH}
    if "problem" in told:
        raise ValueError(told["problem"])
    return told["table"], told["is_cut"], told["sheets"]


def _told(read: Callable[[str], _Read], path: str) -> bytes:
    """Return a problem, or what was read; of that no more rows than fit."""
    try:
        table, is_cut, sheets = read(path)
    except MemoryError:
        raise
    except Exception as error:
        # Libraries raise errors of many classes.
        return pickle.dumps({"problem": f"{error}" or type(error).__name__})
    numpy: Any = importlib.import_module("numpy")
    while True:
        data = pickle.dumps({"table": table, "is_cut": is_cut, "sheets": sheets})
        if len(data) <= _MOST_ANSWER_BYTES:
            return data
        # A slice would still hold all.
        table, is_cut = table.take(numpy.arange(len(table) // 2)), True


def _parquet(path: str) -> _Read:
    arrow: Any = importlib.import_module("pyarrow")
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path, pre_buffer=False)
    left = _most_rows(len(file.schema_arrow))
    batches = []
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        batches.append(batch.slice(0, left))
        left -= batch.num_rows
        if left <= 0:
            break
    table = arrow.Table.from_batches(batches, schema=file.schema_arrow)
    for number, kind in enumerate(table.schema.types):
        if not table_columns.is_plain_arrow(kind):
            # Whoever takes it over would run what code has registered for it.
            hidden = arrow.repeat("<extension>", table.num_rows)
            table = table.set_column(number, table.schema.names[number], hidden)
    return table, file.metadata.num_rows > table.num_rows, []


def _workbook(path: str, *, sheet: str) -> _Read:
    with zipfile.ZipFile(path) as packed:
        if sum(one.file_size for one in packed.infolist()) > _MOST_UNPACKED_BYTES:
            raise ValueError(_LARGE_BOOK)
    pandas: Any = importlib.import_module("pandas")
    with pandas.ExcelFile(path, engine="openpyxl") as book:
        sheets = [str(one) for one in book.sheet_names][:_MOST_SHEETS]
        table = book.parse(sheet or 0, nrows=_MOST_SHEET_ROWS + 1)
    return table.iloc[:_MOST_SHEET_ROWS], len(table) > _MOST_SHEET_ROWS, sheets


def _lines(path: str) -> _Read:
    pandas: Any = importlib.import_module("pandas")
    with open(path, "rb") as opened:
        beginning = opened.read(_MOST_LINES_BYTES)
        is_cut = bool(opened.read(1))
    if is_cut:
        # Of the line where it is cut, the rest is missing.
        beginning = beginning[: beginning.rfind(b"\n") + 1]
        if not beginning:
            raise ValueError(_LONG_LINE)
    first = beginning[: beginning.find(b"\n") + 1 or None].decode("utf-8", "replace")
    separator = max(_SEPARATORS, key=first.count)
    most = _most_rows(first.count(separator) + 1)
    table = pandas.read_csv(
        io.BytesIO(beginning),
        sep=separator,
        nrows=most + 1,
        compression=None,
        encoding="utf-8-sig",
        encoding_errors="replace",
        on_bad_lines="skip",
    )
    return table.iloc[:most], is_cut or len(table) > most, []


def _most_rows(columns: int) -> int:
    return max(min(_MOST_ROWS, _MOST_CELLS // max(columns, 1)), 1)
