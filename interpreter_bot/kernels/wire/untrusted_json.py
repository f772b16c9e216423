"""JSON documents of a hostile kernel, parsed in steps that do not hold the event loop.

Python's parser takes a document in one call. Where a long document is one long text, as displays
are, the text is taken out of it, decoded piece by piece, and left in pieces where it is too long to
be copied; the rest is parsed in one call, and refused where that would take long. Each generator
here yields between its steps. Pure.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator
from typing import Final

from interpreter_bot import settings
from interpreter_bot.text import chunked_texts

STEP_BYTES: Final = 256 * 1024
"""What a step looks at: one to six milliseconds, with whatever is in it."""
# Parsed, a value of two bytes takes sixty and up to a microsecond; a table of the largest shown
# size has 20,000 cells. Nothing shown has numbers of more digits: time grows with their square.
_MOST_VALUES: Final = 30_000
_MOST_DIGITS: Final = 64
_MOST_QUOTES: Final = 4 * _MOST_VALUES
# Of what is parsed in one call.
_MOST_REST_BYTES: Final = 4 * settings.MIB
_MOST_ESCAPES: Final = 900_000
_SHORT_BYTES: Final = 32 * 1024
# Where a document may be cut: behind six plain characters, so that no escape is open, nor a pair of
# escapes; or before a backslash that is the first of an escape, and of a pair.
_CUT: Final = re.compile(
    rb'(?:[^\\"\x80-\xff]|[\xc0-\xff][\x80-\xbf]++){6}'
    rb"|(?<!\\)(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?=\\)"
)
_CUT_WITHIN_BYTES: Final = 4096
_MOST_TRIES: Final = 16


class IntricateError(ValueError):
    """A document holds too many values, or too long ones, to be parsed."""


def load(document: bytes | bytearray) -> Generator[None, None, object]:
    """Parse a document; returns what `json.loads` would, but for a `LongText` where a text is long.

    Raises:
        IntricateError: that would take too long.
        ValueError: it is no JSON in UTF-8.
        RecursionError: it is too deep.
    """
    if len(document) <= _SHORT_BYTES:
        return _parsed(document)
    mark = os.urandom(16).hex()
    texts: list[list[str]] = []
    rest: list[bytes | bytearray] = []
    value_count = escape_count = 0
    is_inside = is_taken = False
    for piece in pieces(document):
        yield
        escapes_here = piece.count(b"\\")
        if escapes_here > _MOST_ESCAPES:
            raise IntricateError
        bare = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        quote_count = bare.count(b'"')
        if is_inside and not quote_count:
            if not is_taken:
                rest.append(f"{mark}{len(texts):08}".encode())
                texts.append([])
            texts[-1].append(_text(piece))
            is_taken = True
            continue
        rest.append(piece)
        escape_count += escapes_here
        value_count += _value_count(bare, quote_count, is_inside=is_inside)
        if value_count > _MOST_VALUES or escape_count > _MOST_ESCAPES:
            raise IntricateError
        is_inside ^= bool(quote_count % 2)
        is_taken = False
    if sum(map(len, rest)) > _MOST_REST_BYTES:
        raise IntricateError
    yield
    loaded = _parsed(b"".join(rest))
    if texts:
        yield
        return _restored(loaded, mark, texts)
    return loaded


def pieces(document: bytes | bytearray) -> Iterator[bytes | bytearray]:
    """Cut a document, never within an escape or a character."""
    start = 0
    while start < len(document):
        end = len(document)
        for tried in range(
            start + STEP_BYTES, min(end, start + _MOST_TRIES * STEP_BYTES), STEP_BYTES
        ):
            if found := _CUT.search(document, tried, tried + _CUT_WITHIN_BYTES):
                end = found.end()
                break
        yield document[start:end]
        start = end


def _value_count(bare: bytes | bytearray, quote_count: int, *, is_inside: bool) -> int:
    """Count the values that begin in a piece without escapes, and what holds them."""
    if quote_count > _MOST_QUOTES:
        raise IntricateError
    outside = b"".join(bare.split(b'"')[is_inside::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")


def _parsed(document: bytes | bytearray) -> object:
    # Bytes could be mistaken for UTF-16 or UTF-32.
    return _DECODER.decode(str(document, "utf-8"))


def _text(piece: bytes | bytearray) -> str:
    return str(_parsed(b'"' + piece + b'"'))


def _restored(value: object, mark: str, texts: list[list[str]]) -> object:
    """Put the long texts back where they were taken out."""
    if isinstance(value, str):
        before, found, after = value.partition(mark)
        return chunked_texts.joined((before, *texts[int(after[:8])], after[8:])) if found else value
    if isinstance(value, list):
        return [_restored(one, mark, texts) for one in value]
    if isinstance(value, dict):
        return {
            _name(_restored(name, mark, texts)): _restored(one, mark, texts)
            for name, one in value.items()
        }
    return value


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise IntricateError
    return name


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise IntricateError
    return int(digits)


def _broken(digits: str) -> float:
    if len(digits) > _MOST_DIGITS:
        raise IntricateError
    return float(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_broken)
