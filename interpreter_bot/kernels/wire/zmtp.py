"""ZMTP 3, the protocol beneath Jupyter's messages, as far as a client of kernels needs it. Pure.

It implements greeting, NULL mechanism and frames of https://rfc.zeromq.org/spec/23. libzmq is not
used, because it collects whole messages of any number of parts, even if nobody waits for them.
Here, sizes are checked before a byte of a body is stored.

The greeting announces version 3.0, so that peers of 3.1 accept subscriptions in the older form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot import settings

MAX_BYTES: Final = 16 * settings.MIB
"""Limit of one message, with all its parts."""
MAX_PARTS: Final = 64
# Larger messages are skipped up to these limits, so that the next can be read.
_MAX_SKIPPED_BYTES: Final = 4 * MAX_BYTES
_MAX_SKIPPED_PARTS: Final = 16 * MAX_PARTS
_MAX_COMMAND_BYTES: Final = 1024
# Limit of commands between two messages; even heartbeats of many hours are far fewer.
_MAX_COMMANDS: Final = 10_000

_MORE_FLAG: Final = 1
_LONG_FLAG: Final = 2
_COMMAND_FLAG: Final = 4
_MAX_SHORT_BYTES: Final = 255
_SHORT_HEADER_BYTES: Final = 2
_LONG_HEADER_BYTES: Final = 9

_GREETING_BYTES: Final = 64
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
_MAJOR_POSITION: Final = 10
_MECHANISM_POSITION: Final = 12
_PEER_TYPES: Final = {
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


def build_opening(kind: str, identity: bytes) -> bytes:
    """Build a client's first bytes: its greeting and its READY.

    Args:
        kind: `DEALER` or `SUB`.
        identity: of this client for a ROUTER; at most 255 bytes, the first not zero.
    """
    greeting = (_SIGNATURE + b"\x03\x00" + _MECHANISM).ljust(_GREETING_BYTES, b"\0")
    properties = _build_property(b"Socket-Type", kind.encode()) + _build_property(
        b"Identity", identity
    )
    return greeting + _build_command(b"READY", properties)


def build_message(parts: Sequence[bytes]) -> bytes:
    """Build the frames of one message, which has at least one part."""
    frames = []
    last_index = len(parts) - 1
    for number, part in enumerate(parts):
        frames += [_build_header(_MORE_FLAG if number < last_index else 0, len(part)), part]
    return b"".join(frames)


def build_subscription(topic: bytes) -> bytes:
    """Build the frame that subscribes to messages that begin with `topic`."""
    return build_message([b"\x01" + topic])


def _build_header(flags: int, size_bytes: int) -> bytes:
    if size_bytes > _MAX_SHORT_BYTES:
        return bytes((flags | _LONG_FLAG,)) + size_bytes.to_bytes(8, "big")
    return bytes((flags, size_bytes))


def _build_command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return _build_header(_COMMAND_FLAG, len(body)) + body


def _build_property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


class Decoder:
    """Incremental decoder of one peer's bytes; stores at most one message.

    Feed it, then call `greet` until it is true, and `next` until it returns None.
    """

    def __init__(self, kind: str) -> None:
        """`kind` is this end's type: `DEALER` or `SUB`."""
        self._peer_types = _PEER_TYPES[kind]
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
        # Only part of a header can be left over, because bodies are moved out as they arrive.
        unread_bytes = self._buffer[self._position :]
        self._buffer = unread_bytes + data if unread_bytes else data
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
            event = self._end_command() if self._flags & _COMMAND_FLAG else self._end_part()
            if event is not None:
                return event
        return None

    def drop_unfinished(self) -> None:
        """Drop the received part of an unfinished message, and skip its rest."""
        self._buffer, self._position = self._buffer[self._position :], 0
        if self._part_count:
            self._is_skipping = True
            self._parts.clear()
            if not self._flags & _COMMAND_FLAG:
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
        available_bytes = len(self._buffer) - self._position
        if available_bytes < _SHORT_HEADER_BYTES:
            return False
        flags, size_bytes = self._buffer[self._position], self._buffer[self._position + 1]
        header_bytes = _SHORT_HEADER_BYTES
        if flags & _LONG_FLAG:
            header_bytes = _LONG_HEADER_BYTES
            if available_bytes < header_bytes:
                return False
            size_bytes = int.from_bytes(
                self._buffer[self._position + 1 : self._position + header_bytes], "big"
            )
        if flags > (_COMMAND_FLAG | _LONG_FLAG) or (flags & _COMMAND_FLAG and flags & _MORE_FLAG):
            raise BrokenProtocolError("reserved flags, or a command in parts")
        self._position += header_bytes
        self._flags = flags
        self._missing_bytes = size_bytes
        self._is_in_frame = True
        self._check_header(size_bytes)
        return True

    def _check_header(self, size_bytes: int) -> None:
        """Check the announced size of a frame before any of it is stored."""
        if self._flags & _COMMAND_FLAG:
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
        if self._flags & _COMMAND_FLAG or not self._is_skipping:
            if not self._body and not self._missing_bytes:
                self._body = self._buffer[start:end]
            else:
                # Append in place: the complete body is not copied again.
                self._body += memoryview(self._buffer)[start:end]
        return not self._missing_bytes

    def _end_part(self) -> list[Part] | None:
        body, self._body = self._body, bytearray()
        if not self._is_skipping:
            self._parts.append(body)
        if self._flags & _MORE_FLAG:
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
            if _parse_properties(data).get(b"socket-type") not in self._peer_types:
                raise BrokenProtocolError("a socket of another kind")
            self._is_ready = True
        elif name == b"PING":
            # The first two bytes are the time to live; the rest is returned.
            return ZmtpCommand(_build_command(b"PONG", data[2:]))
        return ZmtpCommand()


def _parse_properties(data: bytes) -> dict[bytes, bytes]:
    """Parse the properties of a READY, by names in lower case."""
    properties: dict[bytes, bytes] = {}
    while data:
        name, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        if len(data) < 4:
            raise BrokenProtocolError("properties without values")
        size_bytes = int.from_bytes(data[:4], "big")
        properties[name.lower()], data = data[4 : 4 + size_bytes], data[4 + size_bytes :]
    return properties
