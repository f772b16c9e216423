"""Messages between the bot and worker processes: frames with a kind, a length, and content.

Both directions use the same frames. Frames of results are passed on to kernels unchanged.
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
"""Kind of a frame with a piece of an Arrow stream, or of a file."""

NOTE: Final = b"J"
"""Kind of a frame with a JSON object: a request, or the end of a result."""

HEAD: Final = struct.Struct(">cI")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_MAX_NOTE_BYTES: Final = 16 * 1024 * 1024


class BrokenFrameError(errors.BotError):
    """The other side sent an invalid frame."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one query.

    Attributes:
        rows: maximum number of rows of the result.
        bytes: maximum size of the rows in Arrow's format.
        seconds: maximum duration.
    """

    rows: int
    bytes: int
    seconds: float


def pack_frame(kind: bytes, content: bytes) -> bytes:
    """Return a frame."""
    return HEAD.pack(kind, len(content)) + content


def pack_note(content: dict[str, Any]) -> bytes:
    """Return a frame that holds JSON."""
    return pack_frame(NOTE, json.dumps(content).encode())


def send_frame(endpoint: socket.socket, kind: bytes, content: bytes | memoryview) -> None:
    """Send a frame. Blocks."""
    head = HEAD.pack(kind, len(content))
    if len(content) < 4096:
        endpoint.sendall(head + bytes(content))
        return
    endpoint.sendall(head)
    endpoint.sendall(content)


def receive_frame(endpoint: socket.socket) -> tuple[bytes, bytes] | None:
    """Return kind and content of the next frame; None at the end. Blocks.

    Raises:
        BrokenFrameError: it is too long.
    """
    head = _receive_exactly(endpoint, HEAD.size)
    if head is None:
        return None
    kind, length = HEAD.unpack(head)
    _check_length(kind, length)
    content = _receive_exactly(endpoint, length)
    return None if content is None else (kind, content)


def _receive_exactly(endpoint: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = endpoint.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Return the next frame's kind and length.

    Raises:
        BrokenFrameError: it is too long.
        EOFError: the other side has disconnected.
    """
    kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
    _check_length(kind, length)
    return kind, length


def _check_length(kind: bytes, length: int) -> None:
    if length > (_MAX_NOTE_BYTES if kind == NOTE else MAX_FRAME_BYTES):
        raise BrokenFrameError


def read_note(content: bytes) -> dict[str, Any]:
    """Read the content of a note.

    Raises:
        BrokenFrameError: it is not a JSON object.
    """
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise BrokenFrameError from error
    if not isinstance(fields, dict):
        raise BrokenFrameError
    return fields
