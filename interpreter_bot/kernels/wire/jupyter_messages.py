"""Jupyter messages on the wire (protocol 5.3): signed when sent, checked when received.

The signature only proves that the sender is inside the sandbox, and user code is: anything read
here may be forged, so every field is checked for its type and size.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import hmac
import json
import os
from collections.abc import Generator, Sequence
from typing import Final, TypeVar, cast

from interpreter_bot import errors, settings
from interpreter_bot.kernels.wire import untrusted_json, zmtp

_Done = TypeVar("_Done")
_DELIMITER: Final = b"<IDS|MSG>"
_PARTS: Final = 5
_ID_CHARACTERS: Final = 256
_VERSION: Final = "5.3"
# Real headers have less than 1 KiB; dropping a foreign message costs no more than this.
_MOST_HEADER_BYTES: Final = 64 * 1024
_SIGNED_BYTES: Final = settings.MIB


class MalformedMessage(errors.KernelError):
    """The Python process sent something that is no message."""


class ForeignMessage(MalformedMessage):
    """The Python process sent something that is about another execution."""


class IntricateMessage(MalformedMessage):
    """The Python process sent a message that holds too many values, or too long ones."""


class OversizedMessage(MalformedMessage):
    """The Python process sent a message that is too large to be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Message of a kernel.

    Attributes:
        msg_id: its own id.
        msg_type: such as "stream"; may be any text.
        parent_id: the request it claims to be about, or empty.
        content: a JSON object of any shape.
        metadata: likewise.
        size_bytes: of all its parts.
    """

    msg_id: str
    msg_type: str
    parent_id: str
    content: dict[str, object]
    metadata: dict[str, object]
    size_bytes: int = dataclasses.field(default=0, compare=False)


def at_once(steps: Generator[None, None, _Done]) -> _Done:
    """Take all steps without a pause; returns what they lead to."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("_Done", done.value)


class Signer:
    """Packer and unpacker of signed messages of one connection."""

    def __init__(self, key: bytes) -> None:
        """`key` is the HMAC key that both ends know."""
        self._mac = hmac.new(key, digestmod=hashlib.sha256)
        self._session = os.urandom(8).hex()

    def _sign(self, parts: Sequence[zmtp.Part]) -> Generator[None, None, bytes]:
        mac = self._mac.copy()
        for part in parts:
            for start in range(0, len(part), _SIGNED_BYTES):
                if start:
                    yield
                mac.update(memoryview(part)[start : start + _SIGNED_BYTES])
        return mac.hexdigest().encode()

    def pack(
        self, msg_type: str, content: dict[str, object], *, parent_id: str = ""
    ) -> tuple[str, list[bytes]]:
        """Build the frames of a message; returns its id and them."""
        # Not a counter: replies to later requests could be forged beforehand.
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
        # Lone surrogates are legal in a Python str but not in UTF-8; escapes carry them.
        parts = [json.dumps(part).encode("ascii") for part in (header, parent, {}, content)]
        return msg_id, [_DELIMITER, at_once(self._sign(parts)), *parts]

    def unpack(
        self,
        frames: Sequence[zmtp.Part],
        *,
        about: str = "",
        most_bytes: int = zmtp.MOST_BYTES,
    ) -> Generator[None, None, Message]:
        """Check and parse a message; yields between steps, where it takes more than one.

        Buffers that follow it are ignored.

        Args:
            frames: of one message.
            about: the expected request; messages about others are not parsed.
            most_bytes: of all frames together.

        Raises:
            ForeignMessage: it is about another request.
            IntricateMessage: it holds more values, or longer ones, than are parsed.
            MalformedMessage: it is invalid, not signed with this key, or too large.
        """
        if sum(map(len, frames)) > most_bytes:
            raise MalformedMessage
        try:
            start = frames.index(_DELIMITER) + 1
        except ValueError as error:
            raise MalformedMessage from error
        signed = frames[start : start + _PARTS]
        if len(signed) != _PARTS:
            raise MalformedMessage
        signature, *parts = signed
        if any(len(part) > _MOST_HEADER_BYTES for part in parts[:-1]):
            raise MalformedMessage
        # Before the signature, which takes longer and proves less.
        parent = yield from _load(parts[1])
        if about and parent.get("msg_id") != about:
            raise ForeignMessage
        if not hmac.compare_digest(signature, (yield from self._sign(parts))):
            raise MalformedMessage
        header = yield from _load(parts[0])
        metadata = yield from _load(parts[2])
        content = yield from _load(parts[3])
        return Message(
            msg_id=_identifier(header, "msg_id"),
            msg_type=_identifier(header, "msg_type"),
            parent_id=_identifier(parent, "msg_id") if parent else "",
            content=content,
            metadata=metadata,
            size_bytes=sum(map(len, parts)),
        )


def _load(part: zmtp.Part) -> Generator[None, None, dict[str, object]]:
    try:
        loaded = yield from untrusted_json.load(part)
    except untrusted_json.IntricateError as error:
        raise IntricateMessage from error
    except (ValueError, RecursionError) as error:
        raise MalformedMessage from error
    if not isinstance(loaded, dict):
        raise MalformedMessage
    return loaded


def _identifier(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > _ID_CHARACTERS:
        raise MalformedMessage
    if not value.isascii() or not value.isprintable():
        # It may be written to a log.
        raise MalformedMessage
    return value
