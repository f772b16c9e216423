"""Jupyter messages on the wire (protocol 5.3): signed when sent, checked when received.

The signature only proves that the sender is in the sandbox, as user code is. Any message may be
forged, so the type and size of every field are checked.

Python's JSON parser blocks all threads until a document is parsed, and turns a value of two bytes
into sixty bytes of memory. So values are counted first, with a few searches, and documents with too
many are refused. The slowest accepted document takes some 50 ms.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.kernels.wire import zmtp

_DELIMITER: Final = b"<IDS|MSG>"
_SIGNED_PART_COUNT: Final = 5
_MAX_ID_CHARACTERS: Final = 256
_VERSION: Final = "5.3"
# Real headers have less than 1 KiB; parsing a foreign message's header costs no more than this.
_MAX_HEADER_BYTES: Final = 64 * 1024
# The largest table that is shown has 20,000 cells.
_MAX_VALUES: Final = 30_000
# A string has two quotes, and a member of an object has up to two strings. Documents with more
# quotes are refused, as splitting them takes memory.
_MAX_QUOTES: Final = 4 * _MAX_VALUES
_MAX_ESCAPES: Final = 2_000_000
# Displays have no longer numbers; parsing takes time that is quadratic in the digits.
_MAX_DIGITS: Final = 64


class MalformedMessage(errors.KernelError):
    """The Python process sent something that is not a message."""


class ForeignMessage(MalformedMessage):
    """The Python process sent a message about another execution."""


class IntricateMessage(MalformedMessage):
    """The Python process sent a message with too many values, or too long ones."""


class OversizedMessage(MalformedMessage):
    """The Python process sent a message that is too large to be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Message of a kernel.

    Attributes:
        msg_id: its own id.
        msg_type: such as "stream"; may be any text.
        content: a JSON object of any shape.
        size_bytes: size of all its parts.
    """

    msg_id: str
    msg_type: str
    content: dict[str, object]
    size_bytes: int = dataclasses.field(default=0, compare=False)


class Signer:
    """Packer and unpacker of signed messages of one connection."""

    def __init__(self, key: bytes) -> None:
        """`key` is the HMAC key that both ends know."""
        self._mac = hmac.new(key, digestmod=hashlib.sha256)
        self._session = os.urandom(8).hex()

    def sign(self, parts: Sequence[zmtp.Part]) -> bytes:
        """Return the signature of a message's four parts."""
        mac = self._mac.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def pack(
        self, msg_type: str, content: dict[str, object], *, parent_id: str = ""
    ) -> tuple[str, list[bytes]]:
        """Build a message; return its id and its frames."""
        # Random: code could forge replies to later requests with predictable ids.
        msg_id = os.urandom(16).hex()
        header = {
            "msg_id": msg_id,
            "msg_type": msg_type,
            "session": self._session,
            "username": "interpreter-bot",
            "date": datetime.datetime.now(datetime.UTC).isoformat(),
            "version": _VERSION,
        }
        parent = {"msg_id": parent_id} if parent_id else {}
        # Use ASCII with escapes: lone surrogates are legal in a Python str, but not in UTF-8.
        parts = [json.dumps(part).encode("ascii") for part in (header, parent, {}, content)]
        return msg_id, [_DELIMITER, self.sign(parts), *parts]

    def unpack(self, frames: Sequence[zmtp.Part], *, expected_parent: str = "") -> Message:
        """Check and parse the frames of a message; trailing buffers are ignored.

        Raises:
            ForeignMessage: its parent is not the request `expected_parent`.
            IntricateMessage: it has too many values, or too long ones.
            MalformedMessage: it is invalid, or not signed with this key.
        """
        try:
            start = frames.index(_DELIMITER) + 1
        except ValueError as error:
            raise MalformedMessage from error
        signed_parts = frames[start : start + _SIGNED_PART_COUNT]
        if len(signed_parts) != _SIGNED_PART_COUNT:
            raise MalformedMessage
        signature, *parts = signed_parts
        if any(len(part) > _MAX_HEADER_BYTES for part in parts[:-1]):
            raise MalformedMessage
        # Check the parent first: the signature takes longer to check, and proves less.
        parent = _parse_object(parts[1])
        if expected_parent and parent.get("msg_id") != expected_parent:
            raise ForeignMessage
        if not hmac.compare_digest(signature, self.sign(parts)):
            raise MalformedMessage
        header = _parse_object(parts[0])
        content = _parse_object(parts[3])
        return Message(
            msg_id=_read_identifier(header, "msg_id"),
            msg_type=_read_identifier(header, "msg_type"),
            content=content,
            size_bytes=sum(map(len, parts)),
        )


def _parse_object(part: zmtp.Part) -> dict[str, object]:
    value = parse_json(part)
    if not isinstance(value, dict):
        raise MalformedMessage
    return value


def _read_identifier(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > _MAX_ID_CHARACTERS:
        raise MalformedMessage
    if not value.isascii() or not value.isprintable():
        # Identifiers may be written to a log.
        raise MalformedMessage
    return value


def parse_json(document: bytes | bytearray) -> object:
    """Parse a document like `json.loads`.

    Raises:
        IntricateMessage: parsing would take too long.
        MalformedMessage: it is not JSON in UTF-8, or nested too deeply.
    """
    if document.count(b"\\") > _MAX_ESCAPES or _has_too_many_values(document):
        raise IntricateMessage
    try:
        # Decode here: json could mistake bytes for UTF-16 or UTF-32.
        return _DECODER.decode(str(document, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage from error


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
        raise IntricateMessage
    return int(digits)


def _read_float(digits: str) -> float:
    if len(digits) > _MAX_DIGITS:
        raise IntricateMessage
    return float(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_read_int, parse_float=_read_float)
