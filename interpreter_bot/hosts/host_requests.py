"""Requests of bots to a host: one class a request, with the type of its answer.

`host_connection.HostConnection.call` sends them; `kernel_host.request_answers` answers them. Files
are streamed by requests of their own.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from interpreter_bot import session_variables, values
from interpreter_bot.hosts import placement_offers, ports

T = TypeVar("T")


class Request(Generic[T]):
    """A request that is answered with a `T`.

    Attributes:
        answer: the type of the answer.
        is_long: the answer waits for disks, kernels or people; others come within seconds.
        is_once: it must not be sent again if the host ends before it has answered.
    """

    answer: ClassVar[Any]
    is_long: ClassVar[bool] = False
    is_once: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Read the type of the answer from the base class."""
        (cls.answer,) = typing.get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Statuses(Request[dict[str, ports.KernelStatus]]):
    """See `ports.Hosts.statuses`."""

    keys: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True)
class Variables(Request[session_variables.HeldVariables]):
    """See `ports.Hosts.variables`."""

    key: str


@dataclasses.dataclass(frozen=True)
class Fork(Request[session_variables.RestoredState]):
    """See `ports.Hosts.fork`; `new_epoch` is that of the new session."""

    is_long = is_once = True
    key: str
    new_key: str
    checkpoint: str
    new_epoch: int


@dataclasses.dataclass(frozen=True)
class NoteCheckpoint(Request[None]):
    """See `ports.Hosts.note_checkpoint`."""

    key: str
    name: str


@dataclasses.dataclass(frozen=True)
class GoBack(Request[session_variables.RestoredState]):
    """See `ports.Hosts.go_back`."""

    is_long = is_once = True
    key: str
    name: str
    is_whole: bool


@dataclasses.dataclass(frozen=True)
class Release(Request[None]):
    """See `ports.Hosts.release`."""

    key: str


@dataclasses.dataclass(frozen=True)
class Forget(Request[None]):
    """See `ports.Hosts.forget`."""

    key: str


@dataclasses.dataclass(frozen=True)
class Stop(Request[None]):
    """See `ports.Hosts.stop`."""

    execution_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class StoredBytes(Request[ports.StoredBytes]):
    """See `ports.Hosts.stored_bytes`."""

    keys: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Save(Request[bool]):
    """Save a session's variables; the answer says whether all is saved."""

    is_long = True
    key: str


@dataclasses.dataclass(frozen=True)
class End(Request[None]):
    """Save a session's variables if nobody uses them, and end its kernel."""

    is_long = True
    key: str
    reason: str


@dataclasses.dataclass(frozen=True)
class SnapshotSizes(Request[dict[str, session_variables.SnapshotSize]]):
    """Measure what is saved of sessions."""

    keys: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Offer(Request[placement_offers.Offer]):
    """Ask what the host offers a session."""

    key: str


@dataclasses.dataclass(frozen=True)
class Arrive(Request[bool]):
    """Restore a session from the store; the answer says whether there was anything of it."""

    is_long = True
    key: str
    epoch: int


@dataclasses.dataclass(frozen=True)
class Archive(Request[bool]):
    """Archive a session now; the answer says whether all of it is archived."""

    is_long = True
    key: str


@dataclasses.dataclass(frozen=True)
class Fence(Request[None]):
    """End a session's kernel here, as the session is on another machine in an epoch."""

    key: str
    epoch: int


@dataclasses.dataclass(frozen=True)
class Drain(Request[None]):
    """Start no more kernels, and end: an urgent end waits for executions, not for kernels."""

    is_urgent: bool


@dataclasses.dataclass(frozen=True)
class ListFiles(Request[tuple[values.FileInfo, ...]]):
    """See `ports.Workspace.list`."""

    key: str


@dataclasses.dataclass(frozen=True)
class KeptFiles(Request[dict[str, int]]):
    """See `ports.Workspace.kept`."""

    key: str
    name: str


@dataclasses.dataclass(frozen=True)
class RenameFile(Request[str]):
    """See `ports.Workspace.rename`."""

    key: str
    name: str
    new_name: str


@dataclasses.dataclass(frozen=True)
class DeleteFile(Request[None]):
    """See `ports.Workspace.delete`."""

    key: str
    name: str


@dataclasses.dataclass(frozen=True)
class MarkFiles(Request[str]):
    """See `ports.Workspace.mark`."""

    key: str


@dataclasses.dataclass(frozen=True)
class ChangedFiles(Request[values.FileChanges]):
    """See `ports.Workspace.changes_since`."""

    key: str
    mark: str


@dataclasses.dataclass(frozen=True)
class Introduce(Request[None]):
    """Run code that tells a kernel of its doors, unless it was told the same by that `mark`."""

    is_long = True
    kernel_id: str
    code: str
    mark: str


@dataclasses.dataclass(frozen=True)
class AskPerson(Request[str]):
    """Ask whoever runs a kernel's code of now; it is dropped when the bot goes."""

    is_long = True
    kernel_id: str
    question: values.InputRequested


@dataclasses.dataclass(frozen=True)
class UnheldDoors(Request[dict[str, str]]):
    """Ask for the kernels whose doors no bot has, with the keys of their sessions."""


@dataclasses.dataclass(frozen=True)
class ShutDoors(Request[None]):
    """Let nothing through a kernel's doors that no bot has."""

    kernel_id: str


REQUESTS: Final[Mapping[str, type[Request[Any]]]] = {
    kind.__name__: kind for kind in Request.__subclasses__()
}
"""All of them, by name."""
