"""Files of the workspace as tables, for people who look into them without a line of code.

Only as much is read as a kernel can bear beside its variables, and it is read once as long as the
file stays what it is. Nothing of it comes into the variables.
"""

from __future__ import annotations

import collections
import importlib
import os
import zipfile
from typing import Any

from . import dataframe_displays

_MOST_ROWS = 100_000
_MOST_CELLS = 3_000_000
_MOST_SHEET_ROWS = 20_000
# Rows of a sheet are read one by one, but its texts all at once.
_MOST_UNPACKED_BYTES = 100_000_000
_MOST_SHEETS = 50
_KEPT = 2
_SEPARATORS = ",;\t|"
_HEAD_BYTES = 65_536

_opened: collections.OrderedDict[tuple[Any, ...], tuple[Any, bool, list[str]]] = (
    collections.OrderedDict()
)


def open_file(path: str, sheet: str) -> dict[str, Any]:
    """Read a file as a table; return its handle, whether that is not all, and sheets there are.

    Args:
        path: of a file of CSV, TSV, Parquet or a workbook, by its ending.
        sheet: which of a workbook; empty for the first.

    Raises:
        Exception: whatever the library says that reads it.
    """
    status = os.stat(path)
    key = (path, sheet, status.st_mtime_ns, status.st_size)
    if key not in _opened:
        _opened[key] = _read(path, sheet)
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)
    table, is_cut, sheets = _opened[key]
    return {"handle": dataframe_displays.handle_of(table), "is_cut": is_cut, "sheets": sheets}


def _read(path: str, sheet: str) -> tuple[Any, bool, list[str]]:
    if path.lower().endswith(".parquet"):
        return (*_parquet(path), [])
    if path.lower().endswith((".xlsx", ".xlsm")):
        return _workbook(path, sheet)
    return (*_lines(path), [])


def _parquet(path: str) -> tuple[Any, bool]:
    arrow: Any = importlib.import_module("pyarrow")
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
    left = most = _most_rows(len(file.schema_arrow))
    batches = []
    for batch in file.iter_batches(batch_size=most):
        batches.append(batch.slice(0, left))
        left -= batch.num_rows
        if left <= 0:
            break
    table = arrow.Table.from_batches(batches, schema=file.schema_arrow)
    return table, file.metadata.num_rows > most


def _workbook(path: str, sheet: str) -> tuple[Any, bool, list[str]]:
    with zipfile.ZipFile(path) as packed:
        if sum(one.file_size for one in packed.infolist()) > _MOST_UNPACKED_BYTES:
            raise ValueError("the workbook is too large for that. Let the code read it.")
    pandas: Any = importlib.import_module("pandas")
    with pandas.ExcelFile(path, engine="openpyxl") as book:
        sheets = [str(one) for one in book.sheet_names][:_MOST_SHEETS]
        table = book.parse(sheet or 0, nrows=_MOST_SHEET_ROWS + 1)
    return table.iloc[:_MOST_SHEET_ROWS], len(table) > _MOST_SHEET_ROWS, sheets


def _lines(path: str) -> tuple[Any, bool]:
    pandas: Any = importlib.import_module("pandas")
    with open(path, "rb") as opened:
        first = opened.read(_HEAD_BYTES).decode("utf-8", "replace").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    most = _most_rows(first.count(separator) + 1)
    table = pandas.read_csv(
        path,
        sep=separator,
        nrows=most + 1,
        compression=None,
        encoding="utf-8-sig",
        encoding_errors="replace",
        on_bad_lines="skip",
    )
    return table.iloc[:most], len(table) > most


def _most_rows(columns: int) -> int:
    return max(min(_MOST_ROWS, _MOST_CELLS // max(columns, 1)), 1)
