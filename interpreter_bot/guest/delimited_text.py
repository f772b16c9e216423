"""Tables as lines of text: their encoding, their delimiter, and the start of the table.

Properties that a file does not state are guesses, and reported as such.
"""

from __future__ import annotations

import codecs
import collections
import csv
import dataclasses
import importlib
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

_SAMPLE_BYTES = 256 * 1024
_DETECTOR_BYTES = 64 * 1024
_MAX_CHECKED_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1 << 20
_SAMPLE_ROWS = 2000
_MAX_FIELD_CHARACTERS = 1_000_000
_MAX_PREAMBLE_LINES = 30
_DELIMITERS = ",;\t|"
_DELIMITER_LINE = re.compile(r"\ufeff?\"?sep=([^\r\n])\"?\r?\n?\Z", re.IGNORECASE)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The most frequent of several encodings that differ in a few letters.
_WESTERN_ENCODING = "cp1252"
# Encodings in use; most others that the detector knows are obsolete and fit nearly any text.
_ENCODINGS = [
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874"),
    *("cp932", "euc_jp", "iso2022_jp", "cp949", "gb18030", "big5", "koi8_r", "cp866", "cp850"),
    *("iso8859_2", "mac_roman"),
]
_MAX_CHAOS_DIFFERENCE = 0.05
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_COMMA_NUMBER = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+\Z")
_DATE = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{4})(?!\w)")
_MAX_INTEGER = 2**63 - 1
_MAX_EXACT_FLOAT = 2**53
# Words that pandas reads as missing values.
_MISSING_WORDS = frozenset(
    ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "<NA>", "#N/A")
)


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The encoding of a text.

    Attributes:
        name: of Python's codec.
        is_certain: whether the file states the encoding, or no other is possible.
        alternatives: names of other possible encodings, the likeliest first.
    """

    name: str
    is_certain: bool = True
    alternatives: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """One column, judged by its values in the first rows.

    Attributes:
        name: its heading.
        kind: "integer", "number", "text" or "empty".
        is_lossy: whether reading its values as numbers would change them.
        has_decimal_commas: whether its numbers have decimal commas.
        has_thousands_points: whether its numbers have points between thousands.
        has_decimal_points: whether its numbers have decimal points.
        has_missing_words: whether it has words that pandas reads as missing values, such as NA.
    """

    name: str
    kind: str
    is_lossy: bool = False
    has_decimal_commas: bool = False
    has_thousands_points: bool = False
    has_decimal_points: bool = False
    has_missing_words: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of a file with a table.

    Attributes:
        encoding: of the text.
        delimiter: between values.
        has_delimiter_line: whether the first line names the delimiter.
        preamble: lines above the table, including blank ones.
        columns: of the table.
        has_header: whether the first row has headings.
        rows: the first rows below the headings.
        lines: the first lines of the file, unchanged.
        ragged_line_numbers: from 1, of lines with more or fewer values than the headings.
        width: the largest number of values in a line.
        is_complete: whether `rows` has all rows of the file.
    """

    encoding: Encoding
    delimiter: str
    has_delimiter_line: bool
    preamble: tuple[str, ...]
    columns: tuple[Column, ...]
    has_header: bool
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    ragged_line_numbers: tuple[int, ...]
    width: int
    is_complete: bool

    @property
    def skipped_line_count(self) -> int:
        """Number of lines above the table."""
        return len(self.preamble) + self.has_delimiter_line

    @property
    def uses_decimal_commas(self) -> bool:
        """Whether numbers have decimal commas."""
        return self.delimiter != "," and any(column.has_decimal_commas for column in self.columns)

    @property
    def value_options(self) -> dict[str, Any]:
        """Arguments of pandas for reading the values, without `dtype`."""
        options: dict[str, Any] = {}
        if self.uses_decimal_commas:
            options["decimal"] = ","
        if self._uses_thousands_points:
            options["thousands"] = "."
        kinds_with_missing_words = {
            column.kind for column in self.columns if column.has_missing_words
        }
        if kinds_with_missing_words == {"text"}:
            options |= {"keep_default_na": False, "na_values": [""]}
        return options

    @property
    def _uses_thousands_points(self) -> bool:
        has_thousands_points = any(column.has_thousands_points for column in self.columns)
        return has_thousands_points and not any(
            column.has_decimal_points for column in self.columns
        )

    @property
    def text_column_numbers(self) -> list[int]:
        """Positions of the columns whose values must be read as text."""
        return [
            index
            for index, column in enumerate(self.columns)
            if column.is_lossy
            or (column.has_thousands_points and not self._uses_thousands_points)
            # pandas would take dates for numbers with points between thousands.
            or (column.kind == "text" and self._uses_thousands_points)
        ]

    @property
    def names(self) -> list[str]:
        """Names of all columns, including columns without headings."""
        missing_names = (f"Unnamed: {index}" for index in range(len(self.columns), self.width))
        return make_unique([*(column.name for column in self.columns), *missing_names])

    def pandas_options(self) -> dict[str, Any]:
        """Return arguments of pandas for reading the file without loss."""
        options: dict[str, Any] = {}
        if self.delimiter != ",":
            options["sep"] = self.delimiter
        if self.encoding.name != "utf-8":
            options["encoding"] = self.encoding.name
        options |= self.value_options
        if self.skipped_line_count:
            options["skiprows"] = self.skipped_line_count
        if not self.has_header:
            options["header"] = None
        elif self.width > len(self.columns):
            # Otherwise pandas stops at the first line that has more values.
            options |= {"header": 0, "names": self.names}
        text_types: dict[Any, type] = {
            self.columns[index].name if self.has_header else index: str
            for index in self.text_column_numbers
        }
        if text_types:
            options["dtype"] = text_types
        return options

    def notes(self) -> list[str]:
        """Return sentences about guesses, and about deviations from a plain table."""
        notes = []
        if not self.encoding.is_certain:
            alternatives = ""
            if self.encoding.alternatives:
                alternatives = f", it may be {' or '.join(self.encoding.alternatives)}"
            notes.append(
                "The file does not say its encoding: "
                f"{self.encoding.name} is a guess{alternatives}. "
                "If letters look wrong, it is another one."
            )
        if self.preamble:
            count = len(self.preamble)
            lines = "1 line stands" if count == 1 else f"{count} lines stand"
            notes.append(f"{lines} above the table.")
        if not self.has_header:
            notes.append("It seems to have no row of headings.")
        if self.ragged_line_numbers:
            line_numbers = ", ".join(map(str, self.ragged_line_numbers[:5]))
            more_note = (
                f" and {len(self.ragged_line_numbers) - 5} more"
                if len(self.ragged_line_numbers) > 5
                else ""
            )
            notes.append(
                f"There are {len(self.columns)} columns, but more or fewer values in "
                f"line{'s' if len(self.ragged_line_numbers) > 1 else ''} {line_numbers}{more_note}."
            )
        return notes


def find_encoding(path: str) -> Encoding:
    """Find the encoding of a file: by its byte order mark, by trying UTF-8, or by a detector."""
    with open(path, "rb") as file:
        head = file.read(_SAMPLE_BYTES)
        for byte_order_mark, name in _BYTE_ORDER_MARKS:
            if head.startswith(byte_order_mark):
                return Encoding(name)
        if (wide_encoding := find_wide_encoding(head)) is not None:
            return wide_encoding
        decoder = codecs.getincrementaldecoder("utf-8")()
        chunk, size = head, len(head)
        try:
            while chunk:
                decoder.decode(chunk)
                chunk = file.read(_READ_BYTES) if size < _MAX_CHECKED_BYTES else b""
                size += len(chunk)
            if size < _MAX_CHECKED_BYTES:
                decoder.decode(b"", True)
        except UnicodeDecodeError:
            return _detect_encoding(_sample_around_error(head, chunk))
    return Encoding("utf-8")


def find_wide_encoding(head: bytes) -> Encoding | None:
    """Return UTF-16 if every second byte is mostly zero; else None."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) < 0.3 * len(head) / 2 or min(even, odd) > 0.05 * len(head) / 2:
        return None
    return Encoding("utf-16-le" if odd > even else "utf-16-be", is_certain=False)


def _sample_around_error(head: bytes, chunk: bytes) -> bytes:
    """Return whole lines from a file's beginning, and from the chunk that is not UTF-8."""
    sample = head[:_DETECTOR_BYTES]
    if len(head) > len(sample):
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    non_ascii = re.search(rb"[^\x00-\x7f]", chunk)
    if chunk is head or non_ascii is None:
        return sample
    begin = chunk.rfind(b"\n", 0, non_ascii.start()) + 1
    end = chunk.find(b"\n", non_ascii.end() + _DETECTOR_BYTES)
    return sample + chunk[begin : end if end > 0 else begin + _DETECTOR_BYTES]


def _detect_encoding(sample: bytes) -> Encoding:
    try:
        detector: Any = importlib.import_module("charset_normalizer")
    except ImportError:
        return Encoding(_WESTERN_ENCODING, is_certain=False)
    matches = list(detector.from_bytes(sample, cp_isolation=_ENCODINGS))
    if not matches:
        return Encoding(_WESTERN_ENCODING, is_certain=False)
    close_matches = [
        match for match in matches if match.chaos - matches[0].chaos <= _MAX_CHAOS_DIFFERENCE
    ]
    # Among equally good matches, prefer the western encoding.
    close_matches.sort(key=lambda match: _WESTERN_ENCODING not in match.could_be_from_charset)
    names = [
        _WESTERN_ENCODING
        if _WESTERN_ENCODING in match.could_be_from_charset
        else str(match.encoding)
        for match in close_matches
    ]
    return Encoding(names[0], is_certain=False, alternatives=tuple(names[1:3]))


def find_layout(path: str) -> Layout:
    """Find the layout of a file.

    Raises:
        ValueError: the file is not a table of lines.
    """
    encoding = find_encoding(path)
    with open(path, encoding=encoding.name, errors="replace", newline="") as file:
        text = file.read(_SAMPLE_BYTES)
        is_complete = not file.read(1)
    if not is_complete:
        text = text[: text.rfind("\n") + 1]
        if not text:
            raise ValueError("The first line of this file is too long for a table.")
    lines = list(io.StringIO(text, newline=""))
    delimiter_line = _DELIMITER_LINE.match(lines[0]) if lines else None
    body = lines[1:] if delimiter_line else lines
    delimiters = delimiter_line[1] if delimiter_line else _delimiters_for(path)
    candidates = [(delimiter, _parse_rows(body, delimiter)) for delimiter in delimiters]
    delimiter, rows = max(candidates, key=lambda candidate: _measure_regularity(candidate[1]))
    rows = _drop_remarks(rows, body)
    header_index, width = locate_table([row for _, row in rows])
    header_rows = rows[header_index : header_index + 1]
    data_rows = rows[header_index + 1 :]
    has_header = not header_rows or not _is_data_row(
        header_rows[0][1], data_rows[0][1] if data_rows else []
    )
    if not has_header:
        data_rows = rows[header_index:]
    names = (
        header_rows[0][1] if header_rows and has_header else [str(index) for index in range(width)]
    )
    header_line_number = header_rows[0][0] if header_rows else 1
    line_offset = 1 if delimiter_line else 0
    return Layout(
        encoding,
        delimiter,
        delimiter_line is not None,
        tuple(line.rstrip("\r\n") for line in body[: header_line_number - 1]),
        tuple(_describe_columns(make_unique(names), [row for _, row in data_rows])),
        has_header,
        tuple(tuple(row) for _, row in data_rows),
        tuple(line.rstrip("\r\n") for line in lines[:8]),
        tuple(line + line_offset for line, row in data_rows if len(row) != width),
        max((len(row) for _, row in data_rows), default=width),
        is_complete,
    )


def read_rows(path: str, layout: Layout, max_rows: int) -> tuple[list[list[str]], str]:
    """Read the rows below the headings, all of the same length.

    Returns:
        At most `max_rows` rows, and a sentence that says why there are no more; empty at the end of
        the file.
    """
    rows: list[list[str]] = []
    with open(path, encoding=layout.encoding.name, errors="replace", newline="") as file:
        for _ in range(layout.skipped_line_count):
            file.readline()
        reader = _create_reader(file, layout.delimiter)
        try:
            if layout.has_header:
                next((row for row in reader if row), None)
            for row in reader:
                if len(rows) >= max_rows:
                    return rows, "Only the beginning of this file is shown."
                if row:
                    rows.append(row)
        except csv.Error:
            line_number = reader.line_num + layout.skipped_line_count
            return (
                rows,
                f"Line {line_number} of this file cannot be read: the table ends before it.",
            )
    return rows, ""


def locate_table(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the index of a table's first row, and its number of columns.

    Rows above the table are assumed to have fewer values than its headings.
    """
    lengths = collections.Counter(len(row) for row in rows[:_SAMPLE_ROWS])
    table_lengths = {length: count for length, count in lengths.items() if length > 1}
    if not table_lengths:
        return 0, max(lengths, default=0)
    width = max(table_lengths, key=lambda length: (table_lengths[length], length))
    header = next((index for index, row in enumerate(rows) if len(row) == width), 0)
    if header > _MAX_PREAMBLE_LINES:
        return 0, len(rows[0])
    # A wider row above has the headings; then most rows lack values of the last columns.
    for index in range(header):
        if len(rows[index]) > width:
            return index, len(rows[index])
    return header, width


def make_unique(names: Sequence[str]) -> list[str]:
    """Return unique, non-empty column names, as pandas creates them."""
    unique_names: list[str] = []
    used_names: set[str] = set()
    for index, name in enumerate(names):
        base = (name.strip() and name) or f"Unnamed: {index}"
        numbered_names = (f"{base}.{number}" for number in itertools.count(1))
        name = (
            base
            if base not in used_names
            else next(candidate for candidate in numbered_names if candidate not in used_names)
        )
        used_names.add(name)
        unique_names.append(name)
    return unique_names


def _delimiters_for(path: str) -> str:
    return f"\t{_DELIMITERS}" if path.lower().endswith((".tsv", ".tab")) else _DELIMITERS


def _create_reader(lines: Any, delimiter: str) -> Any:
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    return csv.reader(lines, delimiter=delimiter)


def _parse_rows(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Return non-blank rows, each with the number of its first line, from 1."""
    rows, line_number = [], 1
    reader = _create_reader(iter(lines), delimiter)
    try:
        for row in reader:
            if row:
                rows.append((line_number, row))
            line_number = reader.line_num + 1
    except csv.Error:
        # Keep the rows before the error.
        pass
    return rows


def _drop_remarks(
    rows: list[tuple[int, list[str]]], lines: Sequence[str]
) -> list[tuple[int, list[str]]]:
    """Drop leading rows that are comments, or titles before a blank line."""
    # A single `#id` is a heading.
    while len(rows) > 1 and (
        rows[0][1][0].startswith(("# ", "##"))
        or (rows[0][1][0].startswith("#") and rows[1][1][0].startswith("#"))
    ):
        rows = rows[1:]
    counts_before_blank = (
        row_count
        for row_count, (line_number, row) in enumerate(rows[:_MAX_PREAMBLE_LINES], 1)
        if line_number < len(lines)
        and not lines[line_number].strip()
        and not any("\n" in cell for cell in row)
    )
    title_count = next(counts_before_blank, 0)
    _, width = locate_table([row for _, row in rows[title_count:]])
    # Rows that are as wide as the table belong to it.
    are_titles = any(len(row) != width for _, row in rows[:title_count])
    return rows[title_count:] if are_titles and 2 * title_count < len(rows) else rows


def _measure_regularity(rows: Sequence[tuple[int, list[str]]]) -> tuple[float, int]:
    """Return the share of rows as wide as the table, and the width, to compare delimiters."""
    if not rows:
        return 0.0, 0
    _, width = locate_table([row for _, row in rows])
    if width < 2:
        return 0.0, 0
    return sum(len(row) == width for _, row in rows) / len(rows), width


def _is_data_row(row: Sequence[str], next_row: Sequence[str]) -> bool:
    """Return whether a row cannot be headings: all are numbers, or it and the next have dates."""
    values = [value.strip() for value in row]
    if any(values) and all(_NUMBER.match(value) or not value for value in values):
        return True
    return bool(_DATE.match(values[0]) and next_row and _DATE.match(next_row[0].strip()))


def _describe_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Column]:
    for index, name in enumerate(names):
        values = [row[index].strip() if index < len(row) else "" for row in rows]
        yield _describe_column(name, values)


def _describe_column(name: str, values: Sequence[str]) -> Column:
    present_values = [value for value in values if value not in _MISSING_WORDS]
    has_missing_words = any(value in _MISSING_WORDS for value in values if value)
    if not present_values:
        return Column(
            name, "text" if has_missing_words else "empty", has_missing_words=has_missing_words
        )
    if all(map(_INTEGER.match, present_values)):
        digits = [value.lstrip("+-") for value in present_values]
        # Postal codes and telephone numbers are no numbers.
        has_codes = any(len(value) > 1 and value.startswith("0") for value in digits)
        has_codes = has_codes or any(value.startswith("+") for value in present_values)
        largest = max(int(value) if len(value) < 40 else 10**40 for value in digits)
        # If values are missing, pandas reads whole numbers as floats.
        is_rounded = largest > _MAX_EXACT_FLOAT and len(present_values) < len(values)
        is_lossy = has_codes or is_rounded or largest > _MAX_INTEGER
        return Column(
            name, "text" if has_codes else "integer", is_lossy, has_missing_words=has_missing_words
        )
    if all(map(_NUMBER.match, present_values)):
        return Column(name, "number", has_decimal_points=True, has_missing_words=has_missing_words)
    if all(_COMMA_NUMBER.match(value) or _INTEGER.match(value) for value in present_values):
        has_thousands_points = any("." in value for value in present_values)
        return Column(
            name,
            "number",
            has_decimal_commas=True,
            has_thousands_points=has_thousands_points,
            has_missing_words=has_missing_words,
        )
    return Column(name, "text", has_missing_words=has_missing_words)
