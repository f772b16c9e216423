"""JSON documents of a hostile kernel: values are counted before a document is parsed. Pure.

Python's parser blocks all threads for a whole document, and a value of two bytes takes sixty when
parsed. So values are counted first, with a few searches, and documents with too many are refused.
The slowest accepted document takes some 50 ms.
"""

from __future__ import annotations

import json
from typing import Final

# A table of the largest shown size has 20,000 cells.
_MAX_VALUES: Final = 30_000
# A string has two quotes, and a member of an object has up to two strings. Splitting at many more
# would take memory.
_MAX_QUOTES: Final = 4 * _MAX_VALUES
_MAX_ESCAPES: Final = 2_000_000
# Displays have no longer numbers, and parsing takes time quadratic in their digits.
_MAX_DIGITS: Final = 64


class IntricateError(ValueError):
    """A document has too many values, or too long ones, to be parsed."""


def load(document: bytes | bytearray) -> object:
    """Parse a document like `json.loads`.

    Raises:
        IntricateError: parsing would take too long.
        ValueError: it is not JSON in UTF-8.
        RecursionError: it is nested too deeply.
    """
    if document.count(b"\\") > _MAX_ESCAPES or _has_too_many_values(document):
        raise IntricateError
    # Bytes could be mistaken for UTF-16 or UTF-32.
    return _DECODER.decode(str(document, "utf-8"))


def _has_too_many_values(document: bytes | bytearray) -> bool:
    if _count_separators(document) <= _MAX_VALUES:
        return False
    without_escapes = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    if without_escapes.count(b'"') > _MAX_QUOTES:
        return True
    outside_texts = b"".join(without_escapes.split(b'"')[::2])
    return _count_separators(outside_texts) > _MAX_VALUES


def _count_separators(document: bytes | bytearray) -> int:
    """Count the characters that precede values, even inside strings."""
    return document.count(b",") + document.count(b"[") + document.count(b"{")


def _read_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise IntricateError
    return int(digits)


def _read_float(digits: str) -> float:
    if len(digits) > _MAX_DIGITS:
        raise IntricateError
    return float(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_read_int, parse_float=_read_float)
