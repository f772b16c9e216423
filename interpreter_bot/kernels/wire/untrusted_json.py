"""JSON documents of a hostile kernel: counted before they are parsed. Pure.

Python's parser holds the interpreter for a whole document, and a value of two bytes takes sixty
when parsed. So the values are counted first, which is a few searches, and too many are refused.
The longest document that passes takes some 50 ms.
"""

from __future__ import annotations

import json
from typing import Final

# A table of the largest shown size has 20,000 cells.
_MAX_VALUES: Final = 30_000
# Two a text, of which a member of an object has two. Cutting at many more would take memory.
_MAX_QUOTES: Final = 4 * _MAX_VALUES
_MAX_ESCAPES: Final = 2_000_000
# Nothing shown has longer numbers, and time grows with the square of their digits.
_MAX_DIGITS: Final = 64


class IntricateError(ValueError):
    """A document holds too many values, or too long ones, to be parsed."""


def load(document: bytes | bytearray) -> object:
    """Parse a document; returns what `json.loads` would.

    Raises:
        IntricateError: that would take too long.
        ValueError: it is no JSON in UTF-8.
        RecursionError: it is too deep.
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
    """Count what begins a value; also inside texts, if there are any."""
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
