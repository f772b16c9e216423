"""Messages between the bot and the processes that ask databases: a kind, a length, the content.

Both directions use the same frames; those of results are passed on to kernels as they are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import struct
from typing import Any, Final

from interpreter_bot import errors

DATA: Final = b"A"
"""A piece of an Arrow stream, or of a file."""
NOTE: Final = b"J"
"""A JSON object: a request, or the end of a result."""

HEAD: Final = struct.Struct(">cI")
MAX_BYTES: Final = 64 * 1024 * 1024
_MAX_NOTE_BYTES: Final = 16 * 1024 * 1024


class BrokenFrameError(errors.BotError):
    """The other side does not speak in frames."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one query may return.

    Attributes:
        rows: of it.
        bytes: of its rows in Arrow's form.
        seconds: that it may take.
    """

    rows: int
    bytes: int
    seconds: float


def pack(kind: bytes, content: bytes) -> bytes:
    """Return a frame."""
    return HEAD.pack(kind, len(content)) + content


def note(content: dict[str, Any]) -> bytes:
    """Return a frame that holds JSON."""
    return pack(NOTE, json.dumps(content).encode())


def send(end: socket.socket, kind: bytes, content: bytes | memoryview) -> None:
    """Send a frame; blocks."""
    head = HEAD.pack(kind, len(content))
    if len(content) < 4096:
        end.sendall(head + bytes(content))
        return
    end.sendall(head)
    end.sendall(content)


def receive(end: socket.socket) -> tuple[bytes, bytes] | None:
    """Return the next frame's kind and content; None at the end; blocks.

    Raises:
        BrokenFrameError: it is too long.
    """
    head = _exactly(end, HEAD.size)
    if head is None:
        return None
    kind, length = HEAD.unpack(head)
    _check(kind, length)
    content = _exactly(end, length)
    return None if content is None else (kind, content)


def _exactly(end: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = end.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Return the next frame's kind and length.

    Raises:
        BrokenFrameError: it is too long.
        EOFError: the other side has gone.
    """
    kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
    _check(kind, length)
    return kind, length


def _check(kind: bytes, length: int) -> None:
    if length > (_MAX_NOTE_BYTES if kind == NOTE else MAX_BYTES):
        raise BrokenFrameError


def read_note(content: bytes) -> dict[str, Any]:
    """Read the content of a note.

    Raises:
        BrokenFrameError: it is no JSON object.
    """
    try:
        note = json.loads(content)
    except ValueError as error:
        raise BrokenFrameError from error
    if not isinstance(note, dict):
        raise BrokenFrameError
    return note
