"""Messages between a bot and a host: their types, and how they are encoded as bytes and JSON; pure.

Leases, starts of kernels, and followed executions are calls. A bot numbers its calls, and repeats
them after each reconnection, so a host may receive each call twice.

An event is encoded as the length of a header, the header as JSON, and then its long or binary
fields, which are outside the JSON so that a picture is neither escaped nor copied twice. Decoding
checks every value against its type, because the peer is not trusted.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
import typing
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import pydantic

from interpreter_bot import code_activity, errors, session_variables, settings, values
from interpreter_bot.hosts import ports
from interpreter_bot.wording import host_words

Event: TypeAlias = ports.Event | ports.ExecutionEnd
"""Events of an execution: outputs, installed layers, and at last its end."""

PROTOCOL_VERSION: Final = 18
"""Version of the protocol, which must be the same in a bot and a host."""

MAX_EVENT_BYTES: Final = 48 * settings.MIB
"""Longest encoded event; a notice replaces a longer one."""

_FRAME_HEADER: Final = struct.Struct("<IQ")
MAX_FRAME_BYTES: Final = MAX_EVENT_BYTES + _FRAME_HEADER.size
"""Longest frame; see `pack_frame`."""

_MAX_TEXT_BYTES: Final = 15 * settings.MIB
_MAX_HEADER_BYTES: Final = 4 * settings.MIB
_HEADER_LENGTH: Final = struct.Struct("<I")
_MAX_INLINE_CHARACTERS: Final = 256
_MAX_SENTENCE_CHARACTERS: Final = 2000
_EVENT_TYPES: Final[Mapping[str, type[Any]]] = {
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
_BINARY_FIELDS: Final = {
    kind: frozenset(field.name for field in dataclasses.fields(kind) if field.type == "bytes")
    for kind in _EVENT_TYPES.values()
}
_EVENT_NAMES: Final = {kind: name for name, kind in _EVENT_TYPES.items()}
_ERROR_TYPES: Final[Mapping[str, type[errors.BotError]]] = {
    kind.__name__: kind
    for kind in (
        errors.BotError,
        errors.SandboxError,
        errors.KernelError,
        errors.KernelStartError,
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


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """Lease a session's kernel; with `is_ephemeral`, delete the session when the lease ends."""

    call_number: int
    key: str
    person: str
    epoch: int
    is_ephemeral: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StartKernel:
    """Return the kernel of a lease, after starting one if needed."""

    call_number: int
    lease_number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Code to be run in the kernel of a lease; see `ports.Kernel.execute`."""

    lease_number: int
    kernel_id: str
    code: str
    seconds: float | None
    is_bot_code: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Follow:
    """Send the events of an execution after a number; begin it first, if there is code."""

    call_number: int
    execution_id: str
    after: int
    can_ask: bool
    code: Code | None


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel:
    """End a lease, or send no more about a kernel or an execution."""

    call_number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question of code with a text or an error."""

    execution_id: str
    question_number: int
    text: str | None
    error: ErrorFields | None


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledge:
    """Forget an execution, whose output is recorded."""

    execution_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReportLosses:
    """Begin or stop reporting lost kernels."""

    is_on: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LossAcknowledged:
    """Stop repeating the report of a lost kernel."""

    number: int


ToHost: TypeAlias = (
    Lease | StartKernel | Follow | Cancel | Answer | Acknowledge | ReportLosses | LossAcknowledged
)


@dataclasses.dataclass(frozen=True, slots=True)
class KernelStarted:
    """Answer to the call `StartKernel`, with the fields of `ports.Kernel`."""

    call_number: int
    id: str
    loss_notice: str
    run_count: int
    restored_variables: session_variables.SavedVariables | None
    restore_notice: str


@dataclasses.dataclass(frozen=True, slots=True)
class StartWaits:
    """A sentence that says what the start of a kernel waits for."""

    call_number: int
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class CallFailed:
    """A call failed."""

    call_number: int
    error: ErrorFields


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question of followed code; if `request` is None, the question is withdrawn."""

    call_number: int
    question_number: int
    request: values.InputRequested | None


@dataclasses.dataclass(frozen=True, slots=True)
class KernelLost:
    """A kernel ended though no person asked for it; repeated until it is acknowledged."""

    number: int
    loss: ports.KernelLoss


@dataclasses.dataclass(frozen=True, slots=True)
class Draining:
    """The host starts no more kernels."""


Reply: TypeAlias = KernelStarted | StartWaits | CallFailed | Question
"""Messages about a call."""

ToBot: TypeAlias = Reply | KernelLost | Draining


@dataclasses.dataclass(frozen=True, slots=True)
class DoorsOpened:
    """The bot has leased a kernel's doors, at these ports; the first message of their link."""

    ports: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class DoorConnection:
    """Code connected to a door of `kernel_doors`; the bot should fetch the named stream."""

    door: Literal[0, 1]
    stream_name: str


ToDoors: TypeAlias = DoorsOpened | DoorConnection
"""Messages of a host over the link of a kernel's doors."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostReady:
    """A host process serves bots from now on."""

    pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostFailed:
    """A host process could not start, and ends."""

    error: ErrorFields


ToStarter: TypeAlias = HostReady | HostFailed
"""The one line that a host process prints for the process that started it."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostStatus:
    """Status of a host.

    Attributes:
        id: of its process, new after each start.
        data_id: of its data directory, the same after each start.
        data_copy_id: differs between copies of a data directory, which have the same `data_id`.
        protocol_version: see `PROTOCOL_VERSION`.
        release: of the program.
        pid: of its process.
        fingerprint: see `host_processes.fingerprint`.
        private_paths: paths that code in its kernels may not see.
        sandbox_level: of its kernels.
        has_doors: whether the bot can listen where code of its kernels connects.
        keeps_variables: whether variables of idle sessions are saved.
        packages: importable packages with their versions.
        is_draining: whether it takes no new sessions and ends.
        is_lingering: whether it ends by itself when no bot uses it.
        has_store: whether machines share a store, through which its sessions can move.
        free_bytes: free memory for sessions.
        memory_bytes: memory of the host and its sessions together.
        bots: number of connected bots, without commands.
        kernels: number of live kernels.
        executions: number of running executions.
    """

    id: str
    data_id: str
    data_copy_id: str
    protocol_version: int
    release: str
    pid: int
    fingerprint: str
    private_paths: tuple[str, ...]
    sandbox_level: values.SandboxLevel
    has_doors: bool
    keeps_variables: bool
    packages: dict[str, str]
    is_draining: bool
    is_lingering: bool
    has_store: bool
    free_bytes: int
    memory_bytes: int
    bots: int
    kernels: int
    executions: int


def encode(message: ToHost | ToBot | ToDoors | ToStarter) -> str:
    return encode_json({"type": type(message).__name__, "fields": message}).decode("ascii")


def decode(union: Any, data: str | bytes) -> Any:  # noqa: ANN401 - one of its types
    """Decode a message whose type is in a union, such as `ToHost`.

    Raises:
        MalformedError: it is not such a message.
    """
    try:
        message = json.loads(data)
        return from_json(_types_by_name(union)[message["type"]], message["fields"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedError("this is not a message") from error


@functools.cache
def _types_by_name(union: Any) -> Mapping[str, type[Any]]:  # noqa: ANN401 - a union of types
    return {kind.__name__: kind for kind in typing.get_args(union)}


def pack(event: Event) -> bytes:
    """Encode an event; see the docstring of this module."""
    fields = _fields(event)
    parts: list[bytes] = []
    part_sizes: dict[str, int] = {}
    for name, value in list(fields.items()):
        if isinstance(value, bytes):
            parts.append(value)
        elif isinstance(value, str) and len(value) > _MAX_INLINE_CHARACTERS:
            parts.append(value.encode("utf-8", "surrogatepass"))
        else:
            continue
        del fields[name]
        part_sizes[name] = len(parts[-1])
    header = encode_json(
        {"type": _EVENT_NAMES[type(event)], "part_sizes": part_sizes, "fields": fields}
    )
    size_bytes = _HEADER_LENGTH.size + len(header) + sum(map(len, parts))
    if len(header) > _MAX_HEADER_BYTES or size_bytes > MAX_EVENT_BYTES:
        return pack(values.Notice(host_words.OUTPUT_TOO_LARGE))
    return b"".join([_HEADER_LENGTH.pack(len(header)), header, *parts])


def unpack(data: bytes) -> Event:
    """Decode an event.

    Raises:
        MalformedError: the bytes are not a valid event.
    """
    try:
        (length,) = _HEADER_LENGTH.unpack_from(data)
        header = json.loads(data[_HEADER_LENGTH.size : _HEADER_LENGTH.size + length])
        kind = _EVENT_TYPES[header["type"]]
        fields: dict[str, Any] = header["fields"]
        position = _HEADER_LENGTH.size + length
        for name, size in header["part_sizes"].items():
            if not 0 <= size <= len(data) - position:
                raise ValueError("a part is missing")
            fields[name] = _read_part(kind, name, data[position : position + size])
            position += size
        if position != len(data):
            raise ValueError("there is more than the header says")
        event: Event = from_json(kind, fields)
    # Wrong length, invalid JSON, or another shape.
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise MalformedError("an event cannot be read") from error
    return event


def pack_frame(call_number: int, event_number: int, event: bytes) -> bytes:
    """Return a binary message with an encoded event of a call."""
    return _FRAME_HEADER.pack(call_number, event_number) + event


def unpack_frame(data: bytes) -> tuple[int, int, bytes]:
    """Return call number, event number, and encoded event of a binary message.

    Raises:
        MalformedError: it is too short.
    """
    try:
        call_number, event_number = _FRAME_HEADER.unpack_from(data)
    except struct.error as error:
        raise MalformedError("this is not an event") from error
    return call_number, event_number, data[_FRAME_HEADER.size :]


def _read_part(kind: type[Any], name: str, data: bytes) -> bytes | str:
    return data if name in _BINARY_FIELDS[kind] else data.decode("utf-8", "surrogatepass")


def is_too_long(text: str) -> bool:
    """Return whether a host would disconnect if it got this code or answer in a message."""
    return len(encode_json(text)) > _MAX_TEXT_BYTES


def encode_json(value: object) -> bytes:
    """Encode a value as ASCII JSON."""
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
        raise TypeError(f"{kind} is not a dataclass")
    return tuple(field.name for field in dataclasses.fields(kind))


_ENCODER: Final = json.JSONEncoder(default=_encodable, separators=(",", ":"))


def from_json(kind: type[T], fields: object) -> T:
    """Turn decoded JSON into a value of a type.

    Raises:
        MalformedError: the JSON has another shape.
    """
    try:
        value: T = _adapter(cast(Any, kind)).validate_python(fields)
    except pydantic.ValidationError as error:
        # The message leaves the fields out: they may be a whole picture.
        raise MalformedError(f"this is not a {kind}") from error
    return value


_adapter = functools.cache(pydantic.TypeAdapter)


def error_fields(error: errors.BotError) -> ErrorFields:
    names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERROR_TYPES)
    return ErrorFields(next(names), str(error)[:_MAX_SENTENCE_CHARACTERS])


def to_error(fields: ErrorFields) -> errors.BotError:
    kind = _ERROR_TYPES.get(fields.kind, errors.BotError)
    return kind(fields.sentence[:_MAX_SENTENCE_CHARACTERS])
