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

SAMPLE_BYTES = 256 * 1024
_DETECTED_BYTES = 64 * 1024
_CHECKED_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 1 << 20
_SAMPLE_ROWS = 2000
_MAX_FIELD = 1_000_000
_MAX_PREAMBLE = 30
_DELIMITERS = ",;\t|"
_NAMED_DELIMITER = re.compile(r"\ufeff?\"?sep=([^\r\n])\"?\r?\n?\Z", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Of encodings that differ in a few letters, the most frequent one.
_WESTERN = "cp1252"
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
_MAX_EXACT = 2**53
# Words that pandas reads as a missing value.
_MISSING = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "<NA>", "#N/A"))


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The encoding of a text.

    Attributes:
        name: of Python's codec.
        is_certain: whether the file states it, or no other is possible.
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
        has_comma: whether its numbers have decimal commas.
        has_groups: whether its numbers have points between thousands.
        has_point: whether its numbers have decimal points.
        has_words: whether it has words that pandas reads as missing values, such as NA.
    """

    name: str
    kind: str
    is_lossy: bool = False
    has_comma: bool = False
    has_groups: bool = False
    has_point: bool = False
    has_words: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of a file with a table.

    Attributes:
        encoding: of the text.
        delimiter: between values.
        is_delimiter_named: whether the first line names the delimiter.
        preamble: lines above the table, including blank ones.
        columns: of the table.
        has_header: whether the first row has headings.
        rows: the first rows below the headings.
        lines: the first lines of the file, unchanged.
        ragged: numbers, from 1, of lines with more or fewer values than the headings.
        width: the largest number of values in a line.
        is_whole: whether all lines were read.
    """

    encoding: Encoding
    delimiter: str
    is_delimiter_named: bool
    preamble: tuple[str, ...]
    columns: tuple[Column, ...]
    has_header: bool
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    ragged: tuple[int, ...]
    width: int
    is_whole: bool

    @property
    def skipped_lines(self) -> int:
        """Lines above the table."""
        return len(self.preamble) + self.is_delimiter_named

    @property
    def is_decimal_comma(self) -> bool:
        """Whether numbers have decimal commas."""
        return self.delimiter != "," and any(column.has_comma for column in self.columns)

    @property
    def value_options(self) -> dict[str, Any]:
        """Arguments of pandas for reading the values, without `dtype`."""
        options: dict[str, Any] = {}
        if self.is_decimal_comma:
            options["decimal"] = ","
        if self._has_thousands:
            options["thousands"] = "."
        words = {column.kind for column in self.columns if column.has_words}
        if words == {"text"}:
            options |= {"keep_default_na": False, "na_values": [""]}
        return options

    @property
    def _has_thousands(self) -> bool:
        is_grouped = any(column.has_groups for column in self.columns)
        return is_grouped and not any(column.has_point for column in self.columns)

    @property
    def text_columns(self) -> list[int]:
        """Positions of the columns whose values must be read as text."""
        return [
            index
            for index, column in enumerate(self.columns)
            if column.is_lossy
            or (column.has_groups and not self._has_thousands)
            # Dates would be taken for numbers with points between thousands.
            or (column.kind == "text" and self._has_thousands)
        ]

    @property
    def names(self) -> list[str]:
        """Names of all columns, including columns without headings."""
        more = (f"Unnamed: {index}" for index in range(len(self.columns), self.width))
        return unique([*(column.name for column in self.columns), *more])

    def pandas_options(self) -> dict[str, Any]:
        """Return arguments of pandas for reading the file without loss."""
        options: dict[str, Any] = {}
        if self.delimiter != ",":
            options["sep"] = self.delimiter
        if self.encoding.name != "utf-8":
            options["encoding"] = self.encoding.name
        options |= self.value_options
        if self.skipped_lines:
            options["skiprows"] = self.skipped_lines
        if not self.has_header:
            options["header"] = None
        elif self.width > len(self.columns):
            # Otherwise pandas stops at the first line that has more values.
            options |= {"header": 0, "names": self.names}
        texts: dict[Any, type] = {
            self.columns[index].name if self.has_header else index: str
            for index in self.text_columns
        }
        if texts:
            options["dtype"] = texts
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
        if self.ragged:
            line_numbers = ", ".join(map(str, self.ragged[:5]))
            more = f" and {len(self.ragged) - 5} more" if len(self.ragged) > 5 else ""
            notes.append(
                f"There are {len(self.columns)} columns, but more or fewer values in "
                f"line{'s' if len(self.ragged) > 1 else ''} {line_numbers}{more}."
            )
        return notes


def find_encoding(path: str) -> Encoding:
    """Find the encoding of a file: by its byte order mark, as UTF-8, or by a detector."""
    with open(path, "rb") as file:
        head = file.read(SAMPLE_BYTES)
        for byte_order_mark, name in _MARKS:
            if head.startswith(byte_order_mark):
                return Encoding(name)
        if (wide := _wide_encoding(head)) is not None:
            return wide
        decoder = codecs.getincrementaldecoder("utf-8")()
        piece, size = head, len(head)
        try:
            while piece:
                decoder.decode(piece)
                piece = file.read(_PIECE_BYTES) if size < _CHECKED_BYTES else b""
                size += len(piece)
            if size < _CHECKED_BYTES:
                decoder.decode(b"", True)
        except UnicodeDecodeError:
            return _detect(_sample_around_error(head, piece))
    return Encoding("utf-8")


def _wide_encoding(head: bytes) -> Encoding | None:
    """Return the encoding of a text whose every second byte is mostly zero."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) < 0.3 * len(head) / 2 or min(even, odd) > 0.05 * len(head) / 2:
        return None
    return Encoding("utf-16-le" if odd > even else "utf-16-be", is_certain=False)


def _sample_around_error(head: bytes, piece: bytes) -> bytes:
    """Return whole lines from the beginning of a file, and from where it is not UTF-8."""
    sample = head[:_DETECTED_BYTES]
    if len(head) > len(sample):
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    foreign = re.search(rb"[^\x00-\x7f]", piece)
    if piece is head or foreign is None:
        return sample
    begin = piece.rfind(b"\n", 0, foreign.start()) + 1
    end = piece.find(b"\n", foreign.end() + _DETECTED_BYTES)
    return sample + piece[begin : end if end > 0 else begin + _DETECTED_BYTES]


def _detect(sample: bytes) -> Encoding:
    try:
        detector: Any = importlib.import_module("charset_normalizer")
    except ImportError:
        return Encoding(_WESTERN, is_certain=False)
    matches = list(detector.from_bytes(sample, cp_isolation=_ENCODINGS))
    if not matches:
        return Encoding(_WESTERN, is_certain=False)
    close = [match for match in matches if match.chaos - matches[0].chaos <= _MAX_CHAOS_DIFFERENCE]
    # Among equally good matches, prefer the western encoding.
    close.sort(key=lambda match: _WESTERN not in match.could_be_from_charset)
    names = [
        _WESTERN if _WESTERN in match.could_be_from_charset else str(match.encoding)
        for match in close
    ]
    return Encoding(names[0], is_certain=False, alternatives=tuple(names[1:3]))


def find_layout(path: str) -> Layout:
    """Find the layout of a file.

    Raises:
        ValueError: the file is not a table of lines.
    """
    encoding = find_encoding(path)
    with open(path, encoding=encoding.name, errors="replace", newline="") as file:
        text = file.read(SAMPLE_BYTES)
        is_whole = not file.read(1)
    if not is_whole:
        text = text[: text.rfind("\n") + 1]
        if not text:
            raise ValueError("The first line of this file is too long for a table.")
    lines = list(io.StringIO(text, newline=""))
    delimiter_line = _NAMED_DELIMITER.match(lines[0]) if lines else None
    body = lines[1:] if delimiter_line else lines
    delimiters = delimiter_line[1] if delimiter_line else _delimiters_for(path)
    tables = [(delimiter, _parse_rows(body, delimiter)) for delimiter in delimiters]
    delimiter, rows = max(tables, key=lambda table: _regularity(table[1]))
    rows = _drop_remarks(rows, body)
    header, width = locate([row for _, row in rows])
    first = rows[header : header + 1]
    below = rows[header + 1 :]
    has_header = not first or not _is_data(first[0][1], below[0][1] if below else [])
    if not has_header:
        below = rows[header:]
    names = first[0][1] if first and has_header else [str(index) for index in range(width)]
    first_line = first[0][0] if first else 1
    offset = 1 if delimiter_line else 0
    return Layout(
        encoding,
        delimiter,
        delimiter_line is not None,
        tuple(line.rstrip("\r\n") for line in body[: first_line - 1]),
        tuple(_describe_columns(unique(names), [row for _, row in below])),
        has_header,
        tuple(tuple(row) for _, row in below),
        tuple(line.rstrip("\r\n") for line in lines[:8]),
        tuple(line + offset for line, row in below if len(row) != width),
        max((len(row) for _, row in below), default=width),
        is_whole,
    )


def read_rows(path: str, layout: Layout, max_rows: int) -> tuple[list[list[str]], str]:
    """Read the rows below the headings, all of the same length.

    Returns:
        At most `max_rows` rows, and a sentence that says why there are no more; empty at the end of
        the file.
    """
    rows: list[list[str]] = []
    with open(path, encoding=layout.encoding.name, errors="replace", newline="") as file:
        for _ in range(layout.skipped_lines):
            file.readline()
        reader = _reader(file, layout.delimiter)
        try:
            if layout.has_header:
                next((row for row in reader if row), None)
            for row in reader:
                if len(rows) >= max_rows:
                    return rows, "Only the beginning of this file is shown."
                if row:
                    rows.append(row)
        except csv.Error:
            line = reader.line_num + layout.skipped_lines
            return rows, f"Line {line} of this file cannot be read: the table ends before it."
    return rows, ""


def locate(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the index of a table's first row, and its number of columns.

    Rows above the table have fewer values than its headings.
    """
    lengths = collections.Counter(len(row) for row in rows[:_SAMPLE_ROWS])
    wide = {length: count for length, count in lengths.items() if length > 1}
    if not wide:
        return 0, max(lengths, default=0)
    width = max(wide, key=lambda length: (wide[length], length))
    header = next((index for index, row in enumerate(rows) if len(row) == width), 0)
    if header > _MAX_PREAMBLE:
        return 0, len(rows[0])
    # A wider row above has the headings, of which the last columns are mostly empty.
    for index in range(header):
        if len(rows[index]) > width:
            return index, len(rows[index])
    return header, width


def unique(names: Sequence[str]) -> list[str]:
    """Return unique, non-empty column names, as pandas creates them."""
    unique_names: list[str] = []
    used_names: set[str] = set()
    for index, name in enumerate(names):
        base = (name.strip() and name) or f"Unnamed: {index}"
        numbered = (f"{base}.{number}" for number in itertools.count(1))
        name = (
            base
            if base not in used_names
            else next(candidate for candidate in numbered if candidate not in used_names)
        )
        used_names.add(name)
        unique_names.append(name)
    return unique_names


def _delimiters_for(path: str) -> str:
    return f"\t{_DELIMITERS}" if path.lower().endswith((".tsv", ".tab")) else _DELIMITERS


def _reader(lines: Any, delimiter: str) -> Any:
    csv.field_size_limit(_MAX_FIELD)
    return csv.reader(lines, delimiter=delimiter)


def _parse_rows(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the rows of lines with their line numbers, without blank lines."""
    rows, begin = [], 1
    reader = _reader(iter(lines), delimiter)
    try:
        for row in reader:
            if row:
                rows.append((begin, row))
            begin = reader.line_num + 1
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
    blanks = (
        number
        for number, (line, row) in enumerate(rows[:_MAX_PREAMBLE], 1)
        if line < len(lines) and not lines[line].strip() and not any("\n" in cell for cell in row)
    )
    titles = next(blanks, 0)
    _, width = locate([row for _, row in rows[titles:]])
    # Rows that are as wide as the table belong to it.
    are_titles = any(len(row) != width for _, row in rows[:titles])
    return rows[titles:] if are_titles and 2 * titles < len(rows) else rows


def _regularity(rows: Sequence[tuple[int, list[str]]]) -> tuple[float, int]:
    """Return the share of rows with the table's width, and the width, to compare delimiters."""
    if not rows:
        return 0.0, 0
    _, width = locate([row for _, row in rows])
    if width < 2:
        return 0.0, 0
    return sum(len(row) == width for _, row in rows) / len(rows), width


def _is_data(row: Sequence[str], following: Sequence[str]) -> bool:
    """Return whether a row has data: only numbers, or a date in front, as in the next row."""
    values = [value.strip() for value in row]
    if any(values) and all(_NUMBER.match(value) or not value for value in values):
        return True
    return bool(_DATE.match(values[0]) and following and _DATE.match(following[0].strip()))


def _describe_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Column]:
    for index, name in enumerate(names):
        values = [row[index].strip() if index < len(row) else "" for row in rows]
        yield _describe_column(name, values)


def _describe_column(name: str, values: Sequence[str]) -> Column:
    present = [value for value in values if value not in _MISSING]
    has_words = any(value in _MISSING for value in values if value)
    if not present:
        return Column(name, "text" if has_words else "empty", has_words=has_words)
    if all(map(_INTEGER.match, present)):
        digits = [value.lstrip("+-") for value in present]
        # Postal codes and telephone numbers.
        has_zeros = any(len(value) > 1 and value.startswith("0") for value in digits)
        has_zeros = has_zeros or any(value.startswith("+") for value in present)
        largest = max(int(value) if len(value) < 40 else 10**40 for value in digits)
        # If values are missing, pandas reads whole numbers as floats.
        is_rounded = largest > _MAX_EXACT and len(present) < len(values)
        is_lossy = has_zeros or is_rounded or largest > _MAX_INTEGER
        return Column(name, "text" if has_zeros else "integer", is_lossy, has_words=has_words)
    if all(map(_NUMBER.match, present)):
        return Column(name, "number", has_point=True, has_words=has_words)
    if all(_COMMA_NUMBER.match(value) or _INTEGER.match(value) for value in present):
        has_groups = any("." in value for value in present)
        return Column(name, "number", has_comma=True, has_groups=has_groups, has_words=has_words)
    return Column(name, "text", has_words=has_words)
