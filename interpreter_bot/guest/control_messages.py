"""Messages between the bot, the fork server, the init server, inits and their kernels.

Each is one packet of a SOCK_SEQPACKET Unix socket: JSON, and file descriptors beside it. Processes
next to hostile code write some of them, so a reader checks every value against its type.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import traceback
import types
import typing
from collections.abc import Iterable
from typing import Any

MAX_PACKET_BYTES = 64 * 1024
# A kernel gets listeners, namespaces, and a cgroup.procs file for each hierarchy of cgroups.
_MAX_DESCRIPTORS = 32
_MAX_REASON_CHARACTERS = 1000
_GUEST_DIRECTORY = os.path.dirname(__file__)


class StartError(Exception):
    """A failure that another process reported, whose message is complete."""


class Message:
    """Base of all messages, which are named by their classes."""


@dataclasses.dataclass(frozen=True)
class Configuration(Message):
    """To the fork server: what its kernels have in common.

    Attributes:
        walls: the kind of walls between kernels, a constant of `confinement`.
        is_mapped_outside: whether the bot maps user ids into the server's user namespace.
        first_uid: first user id of sessions without namespaces; 0 if they have the bot's id.
        tools_directory: for programs of all kernels, if there are no namespaces.
        uid: the bot's user id.
        gid: the bot's group id.
        readable_paths: directories of the Python environment.
        hidden_paths: paths below `readable_paths` that kernels must not see.
        packages: names of installed packages.
        missing_groups: by module, the group of libraries that would have it, if not installed.
        workspaces_directory: contains all workspaces.
        layers_directory: of installed packages; empty if none can be installed.
        skills_directory: what all kernels see at /skills.
        visible_cores: number of processors that a kernel sees.
        preload: modules to import before kernels are forked.
        output_bytes: limit of what an execution prints.
        cpu_cores: processor time that a session may use, in processors.
        max_displays: of an execution.
    """

    walls: str
    is_mapped_outside: bool
    first_uid: int
    tools_directory: str
    uid: int
    gid: int
    readable_paths: list[str]
    hidden_paths: list[str]
    packages: list[str]
    missing_groups: dict[str, str]
    workspaces_directory: str
    layers_directory: str
    skills_directory: str
    visible_cores: int
    preload: list[str]
    output_bytes: int
    cpu_cores: float
    max_displays: int


@dataclasses.dataclass(frozen=True)
class KernelParameters:
    """Start parameters of one kernel.

    Attributes:
        uid: user id in the fork server's user namespace, if it has one.
        has_own_id: whether the processes of this user are only this session's.
        channel_count: number of its Jupyter channels.
        home: working directory.
        affinity: processors to run on, if no cgroup limits the processor time.
        doors: ports of its network where the bot may listen.
        temporary_bytes: size of /tmp, and of shared memory.
        proc_files: texts of files in /proc, by name.
        rlimits: soft and hard limit by names of RLIMIT constants without prefix.
    """

    uid: int
    has_own_id: bool
    channel_count: int
    home: str
    affinity: list[int]
    doors: list[int]
    temporary_bytes: int
    proc_files: dict[str, str]
    rlimits: dict[str, list[int]]


@dataclasses.dataclass(frozen=True)
class IdsNeeded(Message):
    """To the bot: the user namespace exists, and user ids must be mapped into it."""


@dataclasses.dataclass(frozen=True)
class IdsMapped(Message):
    """To the fork server: the answer to `IdsNeeded`."""


@dataclasses.dataclass(frozen=True)
class WallsRefused(Message):
    """To the bot: the machine refuses the walls."""

    reason: str


@dataclasses.dataclass(frozen=True)
class ServerReady(Message):
    """To the bot: kernels can be forked.

    Attributes:
        python_version: version of the kernels' Python.
        preload_errors: why modules could not be preloaded, by their names.
        shared_id_reason: why sessions without namespaces have the bot's user id; empty if they
            have their own.
        doors_refusal: why sessions without namespaces cannot have doors; empty if they can.
    """

    python_version: str
    preload_errors: dict[str, str]
    shared_id_reason: str
    doors_refusal: str


@dataclasses.dataclass(frozen=True)
class ForkInit(Message):
    """To the fork server and the init server, with a channel to the bot: fork a kernel's init."""

    id: str
    kernel: KernelParameters


@dataclasses.dataclass(frozen=True)
class CloneTrees(Message):
    """To the fork server: clone directories below the workspaces as mount trees."""

    id: str
    paths: list[str]


@dataclasses.dataclass(frozen=True)
class InitForked(Message):
    """To the bot: the answer to `ForkInit`."""

    id: str


@dataclasses.dataclass(frozen=True)
class TreesCloned(Message):
    """To the bot, with the trees: the answer to `CloneTrees`."""

    id: str


@dataclasses.dataclass(frozen=True)
class RequestRefused(Message):
    """To the bot: a request failed."""

    id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class InitReady(Message):
    """To the bot, with init's pidfd, unbound sockets of the channels, and sockets of the doors."""


@dataclasses.dataclass(frozen=True)
class StartKernel(Message):
    """To init, with the cgroup.procs files to join: start the kernel.

    The key comes directly from the bot, because later kernels inherit the fork server's memory.
    """

    key: str


@dataclasses.dataclass(frozen=True)
class ForkKernel(Message):
    """To the fork server, with a link to init and its pid namespace: fork a kernel."""


@dataclasses.dataclass(frozen=True)
class ConfineKernel(Message):
    """To the kernel's process, with cgroup.procs files, listeners and namespaces: confine it."""

    kernel: KernelParameters
    key: str
    cgroup_file_count: int


@dataclasses.dataclass(frozen=True)
class KernelEntered(Message):
    """To init, with the kernel's pidfd unless init is its parent: it is in the namespaces."""

    pid: int


@dataclasses.dataclass(frozen=True)
class ProcMasked(Message):
    """To the kernel's process: /proc is read-only, go on."""


@dataclasses.dataclass(frozen=True)
class KernelConfined(Message):
    """To init, perhaps with the listener of supervised connections: user code may run."""


@dataclasses.dataclass(frozen=True)
class KernelStarted(Message):
    """To the bot, with the kernel's pidfd and a socket for each channel."""


@dataclasses.dataclass(frozen=True)
class OpenSocket(Message):
    """To init: create a socket in the kernel's network."""


@dataclasses.dataclass(frozen=True)
class SocketOpened(Message):
    """To the bot, with the socket: the answer to `OpenSocket`."""


@dataclasses.dataclass(frozen=True)
class Attach(Message):
    """To init and a waiting kernel, with a session's directories: show them to the kernel."""


@dataclasses.dataclass(frozen=True)
class Attached(Message):
    """To the bot: the answer to `Attach`."""


@dataclasses.dataclass(frozen=True)
class EndSession(Message):
    """To the keeper of a session without namespaces: end all its processes."""


@dataclasses.dataclass(frozen=True)
class KernelEnded(Message):
    """To init and the bot: the kernel's wait status; None if it is unknown."""

    status: int | None


@dataclasses.dataclass(frozen=True)
class StartFailed(Message):
    """To init and the bot: the kernel cannot start."""

    reason: str


@dataclasses.dataclass(frozen=True)
class AcceptConnection(Message):
    """To the keeper, over a door: the bot waits for one connection."""


@dataclasses.dataclass(frozen=True)
class ConnectionAccepted(Message):
    """To the bot, with its end of the connection: the answer to `AcceptConnection`."""


def encode(message: Message) -> bytes:
    content = {"type": type(message).__name__, "fields": message}
    return json.dumps(content, default=vars).encode()


def decode(packet: bytes) -> Message:
    """Read a packet.

    Raises:
        ValueError: it is not a valid message.
    """
    try:
        content = json.loads(packet)
        kind = _KINDS[content["type"]]
        return typing.cast(Message, _parse(kind, content["fields"]))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a message") from error


_KINDS = {kind.__name__: kind for kind in Message.__subclasses__()}
# Evaluated once, before processes are forked that read a message or two each.
_TYPE_HINTS: dict[type, dict[str, Any]] = {
    KernelParameters: typing.get_type_hints(KernelParameters),
    **{kind: typing.get_type_hints(kind) for kind in _KINDS.values()},
}


def _parse(kind: Any, value: Any) -> Any:
    """Check a decoded value against a type, and build the value if it is a dataclass.

    Raises:
        ValueError: it has another type.
        TypeError: it is no object, or its fields are not those of the dataclass.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _TYPE_HINTS[kind]
        return kind(**{name: _parse(hints.get(name), value[name]) for name in value})
    if origin is list and isinstance(value, list):
        return [_parse(parts[0], item) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _parse(parts[1], item) for key, item in value.items()}
    plain_kinds = parts if origin is types.UnionType else (kind,)
    if type(value) in plain_kinds or (kind is float and type(value) is int):
        return value
    raise ValueError(f"not {kind}")


def send(channel: socket.socket, message: Message, descriptors: Iterable[int] = ()) -> None:
    """Send one message with its descriptors (which stay open here)."""
    socket.send_fds(channel, [encode(message)], list(descriptors))


def receive(channel: socket.socket) -> tuple[Message, list[int]] | None:
    """Wait for one message; None if the other end is closed."""
    packet, descriptors, _, _ = socket.recv_fds(channel, MAX_PACKET_BYTES, _MAX_DESCRIPTORS)
    return (decode(packet), descriptors) if packet else None


def describe_failure(error: Exception) -> StartFailed:
    """Describe an error, with the last functions of this package on its way, outermost first."""
    if isinstance(error, StartError):
        reason = str(error)
    else:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        steps = [
            code.co_name for code in codes if os.path.dirname(code.co_filename) == _GUEST_DIRECTORY
        ]
        reason = f"{type(error).__name__}: {error} (in {' → '.join(steps[-3:])})"
    return StartFailed(reason[:_MAX_REASON_CHARACTERS])
