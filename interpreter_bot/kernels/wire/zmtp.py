"""ZMTP 3, the protocol beneath Jupyter's messages, as far as a client of kernels needs it. Pure.

Greeting, the NULL mechanism and frames, after https://rfc.zeromq.org/spec/23. libzmq is not used,
because it collects whole messages, of any number of parts, before the application sees them, even
if nobody waits for them. Here, sizes are checked before a byte of the body is stored.

The greeting announces 3.0, so that a peer of 3.1 accepts a subscription in the form that both know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot import settings

MAX_BYTES: Final = 16 * settings.MIB
"""Limit of one message, with all its parts."""
MAX_PARTS: Final = 64
# Larger messages are skipped, so that the next can be read, up to these limits.
_MAX_SKIPPED_BYTES: Final = 4 * MAX_BYTES
_MAX_SKIPPED_PARTS: Final = 16 * MAX_PARTS
_MAX_COMMAND_BYTES: Final = 1024
# Limit between two messages. Heartbeats that were unread for hours are far fewer.
_MAX_COMMANDS: Final = 10_000

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_SHORT_BYTES: Final = 255
_SHORT_HEADER_BYTES: Final = 2
_LONG_HEADER_BYTES: Final = 9

_GREETING_BYTES: Final = 64
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
_MAJOR_POSITION: Final = 10
_MECHANISM_POSITION: Final = 12
_PEERS: Final = {
    "DEALER": frozenset({b"REP", b"DEALER", b"ROUTER"}),
    "SUB": frozenset({b"PUB", b"XPUB"}),
}

Part = bytes | bytearray


class BrokenProtocolError(Exception):
    """Invalid bytes: the connection is unusable."""


class MessageTooLargeError(Exception):
    """A message exceeds its limits and is being skipped; the next can be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZmtpCommand:
    """Command of the peer about the connection; `answer` is the frame to send, for a PING only."""

    answer: bytes = b""


def opening(kind: str, identity: bytes) -> bytes:
    """Build a client's first bytes: its greeting and its READY.

    Args:
        kind: `DEALER` or `SUB`.
        identity: of this client for a ROUTER; at most 255 bytes, the first not zero.
    """
    greeting = (_SIGNATURE + b"\x03\x00" + _MECHANISM).ljust(_GREETING_BYTES, b"\0")
    properties = _property(b"Socket-Type", kind.encode()) + _property(b"Identity", identity)
    return greeting + _command(b"READY", properties)


def message(parts: Sequence[bytes]) -> bytes:
    """Build the frames of one message, which has at least one part."""
    pieces = []
    last = len(parts) - 1
    for number, part in enumerate(parts):
        pieces += [_header(_MORE if number < last else 0, len(part)), part]
    return b"".join(pieces)


def subscription(topic: bytes) -> bytes:
    """Build the frame that subscribes to messages that begin with `topic`."""
    return message([b"\x01" + topic])


def _header(flags: int, size_bytes: int) -> bytes:
    if size_bytes > _SHORT_BYTES:
        return bytes((flags | _LONG,)) + size_bytes.to_bytes(8, "big")
    return bytes((flags, size_bytes))


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return _header(_COMMAND, len(body)) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


class Decoder:
    """Incremental decoder of one peer's bytes; stores at most one message.

    Feed it, then call `greet` until it is true, and `next` until it returns None.
    """

    def __init__(self, kind: str) -> None:
        """`kind` is this end's type: `DEALER` or `SUB`."""
        self._peers = _PEERS[kind]
        self._buffer = b""
        self._position = 0
        self._is_greeted = False
        self._is_ready = False
        self._flags = 0
        self._is_in_frame = False
        self._missing_bytes = 0
        self._body: Part = bytearray()
        self._parts: list[Part] = []
        self._part_count = 0
        self._message_bytes = 0
        self._is_skipping = False
        self._command_count = 0

    def feed(self, data: bytes) -> None:
        # At most a header is unread, because bodies are moved out as they arrive.
        unread = self._buffer[self._position :]
        self._buffer = unread + data if unread else data
        self._position = 0

    def greet(self) -> bool:
        """Read the greeting and READY; return whether both are complete.

        Raises:
            BrokenProtocolError: the peer is incompatible.
        """
        if not self._is_greeted and not self._read_greeting():
            return False
        while not self._is_ready and self._read_frame():
            self._end_command()
        return self._is_ready

    def next(self) -> list[Part] | ZmtpCommand | None:
        """Return a complete message or command; None if more bytes are needed.

        Raises:
            MessageTooLargeError: the current message is being skipped; raised once.
            BrokenProtocolError: the connection is unusable.
        """
        while self._read_frame():
            event = self._end_command() if self._flags & _COMMAND else self._end_part()
            if event is not None:
                return event
        return None

    def drop_unfinished(self) -> None:
        """Drop the received part of an unfinished message, and skip its rest."""
        self._buffer, self._position = self._buffer[self._position :], 0
        if self._part_count:
            self._is_skipping = True
            self._parts.clear()
            if not self._flags & _COMMAND:
                self._body = bytearray()

    def _read_greeting(self) -> bool:
        greeting = self._buffer[:_GREETING_BYTES]
        if greeting[:1] != _SIGNATURE[: len(greeting[:1])]:
            raise BrokenProtocolError("no greeting")
        if len(greeting) < _GREETING_BYTES:
            return False
        if not greeting[len(_SIGNATURE) - 1] & 1 or greeting[_MAJOR_POSITION] < 3:
            raise BrokenProtocolError("a version before 3")
        if (
            greeting[_MECHANISM_POSITION:].removeprefix(_MECHANISM)
            == greeting[_MECHANISM_POSITION:]
        ):
            raise BrokenProtocolError("another mechanism")
        self._position = _GREETING_BYTES
        self._is_greeted = True
        return True

    def _read_frame(self) -> bool:
        if not (self._is_in_frame or self._begin_frame()) or not self._read_body():
            return False
        self._is_in_frame = False
        return True

    def _begin_frame(self) -> bool:
        available = len(self._buffer) - self._position
        if available < _SHORT_HEADER_BYTES:
            return False
        flags, size_bytes = self._buffer[self._position], self._buffer[self._position + 1]
        header_bytes = _SHORT_HEADER_BYTES
        if flags & _LONG:
            header_bytes = _LONG_HEADER_BYTES
            if available < header_bytes:
                return False
            size_bytes = int.from_bytes(
                self._buffer[self._position + 1 : self._position + header_bytes], "big"
            )
        if flags > (_COMMAND | _LONG) or (flags & _COMMAND and flags & _MORE):
            raise BrokenProtocolError("reserved flags, or a command in parts")
        self._position += header_bytes
        self._flags = flags
        self._missing_bytes = size_bytes
        self._is_in_frame = True
        self._check_header(size_bytes)
        return True

    def _check_header(self, size_bytes: int) -> None:
        """Check the announced size of a frame before any of it is stored."""
        if self._flags & _COMMAND:
            self._command_count += 1
            if size_bytes > _MAX_COMMAND_BYTES or self._command_count > _MAX_COMMANDS:
                raise BrokenProtocolError("too many or too large commands")
            return
        if not self._is_ready:
            raise BrokenProtocolError("a message before READY")
        self._part_count += 1
        self._message_bytes += size_bytes
        if self._message_bytes > _MAX_SKIPPED_BYTES or self._part_count > _MAX_SKIPPED_PARTS:
            raise BrokenProtocolError("an endless message")
        is_over = self._message_bytes > MAX_BYTES or self._part_count > MAX_PARTS
        if is_over and not self._is_skipping:
            self._is_skipping = True
            self._parts.clear()
            raise MessageTooLargeError

    def _read_body(self) -> bool:
        """Take the available bytes of the current frame; return whether it is complete."""
        start = self._position
        end = min(start + self._missing_bytes, len(self._buffer))
        self._missing_bytes -= end - start
        self._position = end
        if self._flags & _COMMAND or not self._is_skipping:
            if not self._body and not self._missing_bytes:
                self._body = self._buffer[start:end]
            else:
                # The parts of a body are appended in place, and the result is not copied again.
                self._body += memoryview(self._buffer)[start:end]
        return not self._missing_bytes

    def _end_part(self) -> list[Part] | None:
        body, self._body = self._body, bytearray()
        if not self._is_skipping:
            self._parts.append(body)
        if self._flags & _MORE:
            return None
        was_skipped, self._is_skipping = self._is_skipping, False
        parts, self._parts = self._parts, []
        self._part_count = self._message_bytes = self._command_count = 0
        return None if was_skipped else parts

    def _end_command(self) -> ZmtpCommand:
        body, self._body = bytes(self._body), bytearray()
        name, data = body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""
        if not self._is_ready:
            if name != b"READY":
                raise BrokenProtocolError("no READY")
            if _properties(data).get(b"socket-type") not in self._peers:
                raise BrokenProtocolError("a socket of another kind")
            self._is_ready = True
        elif name == b"PING":
            # The first two bytes are the time to live; the rest is returned.
            return ZmtpCommand(_command(b"PONG", data[2:]))
        return ZmtpCommand()


def _properties(data: bytes) -> dict[bytes, bytes]:
    """Parse the properties of a READY, by names in lower case."""
    properties: dict[bytes, bytes] = {}
    while data:
        name, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        if len(data) < 4:
            raise BrokenProtocolError("properties without values")
        size_bytes = int.from_bytes(data[:4], "big")
        properties[name.lower()], data = data[4 : 4 + size_bytes], data[4 + size_bytes :]
    return properties
