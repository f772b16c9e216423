"""Description of files, sent to a kernel as source by `turn_inputs` and run there.

Needs the standard library, and of the analysis stack what reads the file in question.
"""

import codecs
import contextlib
import csv
import os
import warnings
import zipfile
from typing import Any

_ROWS = 2000


def describe(names: list[str], mark: str) -> None:
    """Print for each file the mark, its number and what it holds."""
    for number, name in enumerate(names):
        try:
            # The person's own filters stay as they are.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = _description(name)
        except Exception as error:  # Whatever a library says of a stranger's file.
            text = f"It could not be read as what its name says: {type(error).__name__}"
        print(f"{mark}{number}\n{text.replace(mark, '')}")


def _description(name: str) -> str:
    suffix = name.rsplit(".", 1)[-1].lower()
    if suffix in ("csv", "tsv") and os.path.getsize(name):
        return _delimited(name, "\t" if suffix == "tsv" else ",")
    if suffix in ("txt", "dat"):
        return _beginning(name, 1000, _encoding(name))
    if suffix in ("xlsx", "xlsm", "ods", "xls"):
        return _spreadsheet(name)
    if suffix in ("parquet", "pq"):
        import pyarrow.parquet

        file = pyarrow.parquet.ParquetFile(name)
        frame = next(file.iter_batches(batch_size=5)).to_pandas()
        return _frame(frame, str(file.metadata.num_rows), f"pandas.read_parquet({name!r})")
    if suffix in ("json", "jsonl", "ndjson", "md", "py", "xml", "html", "yaml", "yml", "log"):
        return _beginning(name, 800, "utf-8")
    if suffix in ("png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff"):
        import PIL.Image

        with PIL.Image.open(name) as image:
            return f"A picture of {image.width}x{image.height} pixels, mode {image.mode}."
    if suffix == "zip":
        with zipfile.ZipFile(name) as archive:
            return "It holds: " + ", ".join(archive.namelist()[:50])
    return ""


def _beginning(name: str, characters: int, encoding: str) -> str:
    with open(name, encoding=encoding, errors="replace") as file:
        text = file.read(characters)
    return "Its beginning:\n" + text if text else ""


def _encoding(name: str) -> str:
    with open(name, "rb") as file:
        head = file.read(1 << 20)
    try:
        # Where there is more, the last letter may have been cut in two.
        codecs.getincrementaldecoder("utf-8")().decode(head, len(head) < 1 << 20)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _delimited(name: str, separator: str) -> str:
    import pandas

    options = {}
    encoding = _encoding(name)
    with open(name, encoding=encoding, errors="replace") as text:
        head = text.read(65536)
    with contextlib.suppress(csv.Error):  # Else it is as its name says.
        separator = csv.Sniffer().sniff(head, ",;\t|").delimiter
    if separator != ",":
        options["sep"] = separator
    if encoding != "utf-8":
        options["encoding"] = encoding
    frame = pandas.read_csv(name, nrows=_ROWS, **options)
    if separator != ",":
        # Half of the world writes 1,5 for one and a half.
        other = pandas.read_csv(name, nrows=_ROWS, decimal=",", **options)
        if _number_columns(other) > _number_columns(frame):
            frame, options["decimal"] = other, ","
    rows = str(len(frame)) if len(frame) < _ROWS else f"about {_count_lines(name)}"
    arguments = "".join(f", {key}={value!r}" for key, value in options.items())
    return _frame(frame, rows, f"pandas.read_csv({name!r}{arguments})")


def _count_lines(name: str) -> int:
    """Count the lines after the first."""
    lines, last = 0, b""
    with open(name, "rb") as file:
        while chunk := file.read(1 << 20):
            lines += chunk.count(b"\n")
            last = chunk
    return lines - last.endswith(b"\n")


def _spreadsheet(name: str) -> str:
    import pandas

    parts = []
    for sheet, frame in list(pandas.read_excel(name, sheet_name=None, nrows=200).items())[:5]:
        rows = str(len(frame)) if len(frame) < 200 else "at least 200"
        parts.append(f"Sheet {sheet!r}:\n{_frame(frame, rows, '')}")
    return "\n".join(parts)


def _number_columns(frame: Any) -> int:
    return len(frame.select_dtypes("number").columns)


def _frame(frame: Any, rows: str, call: str) -> str:
    columns = [f"{column} ({kind})" for column, kind in frame.dtypes.items()]
    more = f", and {len(columns) - 60} more" if len(columns) > 60 else ""
    lines = [f"{rows} rows. Columns: {', '.join(columns[:60])}{more}"]
    lines.append("First rows:\n" + frame.iloc[:3, :20].to_csv(index=False).strip())
    if call:
        lines.append("Read it with " + call)
    return "\n".join(lines)
