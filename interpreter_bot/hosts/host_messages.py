"""Encoding of the messages between a host and a bot, as bytes and JSON; pure.

An event is the length of a header, the header as JSON, and then long or binary fields unchanged, so
that a picture is neither escaped nor copied twice. Decoding checks every value against its type, so
a peer cannot produce a value that this program could not have made itself.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

import pydantic

from interpreter_bot import code_activity, errors, settings, values
from interpreter_bot.hosts import ports
from interpreter_bot.wording import host_words

Event: TypeAlias = ports.Event | ports.ExecutionEnd
"""Events of an execution: outputs, installed layers, and at last its end."""

PROTOCOL: Final = 12
"""Version of the protocol; a bot and a host need the same."""


EVENT_BYTES: Final = 48 * settings.MIB
"""Longest encoded event; a notice replaces a longer one."""

_HEADER_BYTES: Final = 4 * settings.MIB
_LENGTH: Final = struct.Struct("<I")
_LONG_CHARACTERS: Final = 256
_MAX_CHARACTERS: Final = 2000
_KINDS: Final[Mapping[str, type[Any]]] = {
    "text": values.Text,
    "error": values.Error,
    "image": values.Image,
    "html": values.Html,
    "table": values.Table,
    "latex": values.Latex,
    "json": values.Json,
    "result": values.Result,
    "clear": values.Clear,
    "notice": values.Notice,
    "installed": code_activity.InstalledLayer,
    "end": ports.ExecutionEnd,
}
_BINARY: Final = {
    kind: frozenset(field.name for field in dataclasses.fields(kind) if field.type == "bytes")
    for kind in _KINDS.values()
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_ERRORS: Final[Mapping[str, type[errors.BotError]]] = {
    kind.__name__: kind
    for kind in (
        errors.BotError,
        errors.SandboxError,
        errors.KernelError,
        errors.KernelStartError,
        errors.KernelLostError,
        errors.PoolFullError,
        errors.SessionExistsError,
        errors.SessionMovedError,
        errors.WorkspaceError,
        errors.FileNameError,
        errors.FileTooLargeError,
        errors.WorkspaceFullError,
        errors.FileMissingError,
        errors.ExecutionMissingError,
        errors.UnansweredError,
    )
}

T = TypeVar("T")


class MalformedError(ValueError):
    """A peer sent something that is not a valid message."""


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorFields:
    """An error on the wire: its class and its sentence."""

    kind: str
    sentence: str


def pack(event: Event) -> bytes:
    """Encode an event."""
    fields = _fields(event)
    parts: list[bytes] = []
    detached: dict[str, int] = {}
    for name, value in list(fields.items()):
        if isinstance(value, bytes):
            parts.append(value)
        elif isinstance(value, str) and len(value) > _LONG_CHARACTERS:
            parts.append(value.encode("utf-8", "surrogatepass"))
        else:
            continue
        del fields[name]
        detached[name] = len(parts[-1])
    header = document({"type": _NAMES[type(event)], "apart": detached, "fields": fields})
    size_bytes = _LENGTH.size + len(header) + sum(map(len, parts))
    if len(header) > _HEADER_BYTES or size_bytes > EVENT_BYTES:
        return pack(values.Notice(host_words.OUTPUT_TOO_LARGE))
    return b"".join([_LENGTH.pack(len(header)), header, *parts])


def unpack(data: bytes) -> Event:
    """Decode an event.

    Raises:
        MalformedError: the bytes are not a valid event.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        kind = _KINDS[header["type"]]
        fields: dict[str, Any] = header["fields"]
        position = _LENGTH.size + length
        for name, size in header["apart"].items():
            if not 0 <= size <= len(data) - position:
                raise ValueError("a part is missing")
            fields[name] = _read_part(kind, name, data[position : position + size])
            position += size
        if position != len(data):
            raise ValueError("there is more than it says")
        event: Event = read(kind, fields)
    # Wrong length, invalid JSON, or another shape.
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise MalformedError("an event cannot be read") from error
    return event


def _read_part(kind: type[Any], name: str, data: bytes) -> bytes | str:
    return data if name in _BINARY[kind] else data.decode("utf-8", "surrogatepass")


def document(value: object) -> bytes:
    """Encode a value as JSON in ASCII."""
    return _ENCODER.encode(value).encode("ascii")


def _encodable(value: object) -> dict[str, Any] | list[Any]:
    """Return a set of keys as a list, and any other value as its fields."""
    return list(value) if isinstance(value, Collection) else _fields(value)


def _fields(value: object) -> dict[str, Any]:
    names = _field_names(cast(Any, type(value)))
    return {name: getattr(value, name) for name in names}


@functools.cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} is no value")
    return tuple(field.name for field in dataclasses.fields(kind))


_ENCODER: Final = json.JSONEncoder(default=_encodable, separators=(",", ":"))


def read(kind: type[T], fields: object) -> T:
    """Turn decoded JSON into a value of a type.

    Raises:
        MalformedError: it has another shape.
    """
    try:
        value: T = _adapter(cast(Any, kind)).validate_python(fields)
    except pydantic.ValidationError as error:
        # The message leaves the fields out: they may be a whole picture.
        raise MalformedError(f"this is no {kind}") from error
    return value


_adapter = functools.cache(pydantic.TypeAdapter)


def error_fields(error: errors.BotError) -> ErrorFields:
    """Encode an error for the peer."""
    names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    return ErrorFields(next(names), str(error)[:_MAX_CHARACTERS])


def error(fields: ErrorFields) -> errors.BotError:
    """Decode an error of the peer."""
    kind = _ERRORS.get(fields.kind, errors.BotError)
    return kind(fields.sentence[:_MAX_CHARACTERS])
