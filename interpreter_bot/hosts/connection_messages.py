"""Messages of the connection between a bot and a host, beside events, which are binary.

A bot numbers what lasts: leases, kernels that start, executions that are followed (`call`). It
repeats them after each reconnection, so a host can receive all of them twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import session_variables, values
from interpreter_bot.hosts import host_messages, ports


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """Lease a session's kernel; with `is_ephemeral`, forget the session when the lease ends."""

    call: int
    key: str
    person: str
    epoch: int
    is_ephemeral: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StartKernel:
    """Return the kernel of a lease, after starting one if needed."""

    call: int
    lease: int


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Code to be run in the kernel of a lease; see `ports.Kernel.execute`."""

    lease: int
    kernel_id: str
    code: str
    seconds: float | None
    is_own: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Follow:
    """Send the events of an execution after a number; begin it first, if there is code."""

    call: int
    execution_id: str
    after: int
    can_ask: bool
    code: Code | None


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel:
    """End a lease, or send no more about a kernel or an execution."""

    call: int


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question of code with a text or an error."""

    execution_id: str
    question: int
    text: str | None
    error: host_messages.ErrorFields | None


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledge:
    """Forget an execution, whose output is recorded."""

    execution_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Listen:
    """Report lost kernels from now on, or no more."""

    is_listening: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LossNoted:
    """Report a lost kernel no more."""

    number: int


ToHost: TypeAlias = (
    Lease | StartKernel | Follow | Cancel | Answer | Acknowledge | Listen | LossNoted
)


@dataclasses.dataclass(frozen=True, slots=True)
class KernelStarted:
    """Answer to `StartKernel`.

    Attributes:
        call: number of the answered call; other fields are those of `ports.Kernel`.
    """

    call: int
    id: str
    announcement: str
    runs: int
    restored: session_variables.SavedVariables | None
    restore_notice: str


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """What the start of a kernel waits for."""

    call: int
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A call failed."""

    call: int
    error: host_messages.ErrorFields


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question of the code that is followed; without a request it is withdrawn."""

    call: int
    question: int
    request: values.InputRequested | None


@dataclasses.dataclass(frozen=True, slots=True)
class KernelLost:
    """A kernel ended though no person asked; repeated until it is noted."""

    number: int
    loss: ports.KernelLoss


@dataclasses.dataclass(frozen=True, slots=True)
class Draining:
    """The host starts no more kernels."""


Reply: TypeAlias = KernelStarted | Waiting | Failed | Question
"""What answers a call."""

ToBot: TypeAlias = Reply | KernelLost | Draining

_TO_HOST: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (Lease, StartKernel, Follow, Cancel, Answer, Acknowledge, Listen, LossNoted)
}
_TO_BOT: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind for kind in (KernelStarted, Waiting, Failed, Question, KernelLost, Draining)
}


def encode(message: ToHost | ToBot) -> str:
    """Write a message."""
    document = {"type": type(message).__name__, "fields": message}
    return host_messages.document(document).decode("ascii")


def to_host(data: str) -> ToHost:
    """Read a message of a bot.

    Raises:
        MalformedError: it is none.
    """
    message: ToHost = _read(_TO_HOST, data)
    return message


def to_bot(data: str) -> ToBot:
    """Read a message of a host.

    Raises:
        MalformedError: it is none.
    """
    message: ToBot = _read(_TO_BOT, data)
    return message


def _read(kinds: Mapping[str, type[Any]], data: str) -> Any:  # noqa: ANN401 - one of the kinds
    try:
        document = json.loads(data)
        return host_messages.read(kinds[document["type"]], document["fields"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise host_messages.MalformedError("this is no message") from error
