"""What the store gives out: frozen, complete, and without any tie to a database.

Times are UTC with their zone. An `id` means nothing outside of one database.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

from interpreter_bot import values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation.

    Attributes:
        title: for lists; empty until somebody sets it.
        model: the chosen model; None means the default.
        kernel: whatever helps to find or say what became of the kernel, as it was put.
        used: when the session was last opened or asked something.
    """

    id: int
    key: values.SessionKey
    title: str
    model: str | None
    kernel: Mapping[str, Any]
    created: datetime.datetime
    used: datetime.datetime


class TurnStatus(enum.StrEnum):
    """Where a turn stands."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Somebody stopped it."""
    FAILED = "failed"
    """It ended in a sentence about what went wrong."""
    INTERRUPTED = "interrupted"
    """The bot died, or went away, in the middle of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request and what became of it.

    Attributes:
        request: the person's words.
        attachments: names of the files that came along.
        answer: the final text, or the sentence that it failed with; empty while it runs.
        owner: the instance of the bot that runs it.
        ended: None while it runs.
    """

    id: int
    session_id: int
    request_id: str
    person: str
    request: str
    attachments: tuple[str, ...]
    status: TurnStatus
    answer: str
    owner: str
    started: datetime.datetime
    ended: datetime.datetime | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredDisplay(values.Display):
    """A display whose content lies in a file: every image, all HTML. See `blobs.Blobs`.

    Attributes:
        mime: text/html, or one of those of `values.Image`.
        sha256: what to ask `KeptFiles` for; lower-case hex digest of the content.
    """

    mime: str
    sha256: str
    size_bytes: int


StoredOutput: TypeAlias = (
    values.Text
    | values.Error
    | values.Table
    | values.Latex
    | values.Json
    | values.Result
    | values.Clear
    | values.Notice
    | StoredDisplay
)
"""An output as it comes back."""


class PartKind(enum.StrEnum):
    """What a part of a turn is."""

    TEXT = "text"
    """What the model said."""
    CODE = "code"
    """Code that the model (or a person) had run."""
    OUTPUT = "output"
    """What the code showed."""
    NOTICE = "notice"
    """A sentence of ours."""
    MEMORY = "memory"
    """What a model is to know of the turn later, in `detail`; or a picture that it is to see again,
    in `output`. Nothing that people see."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A part to be added to a turn.

    Attributes:
        step: number of the model call it belongs to.
        output: for kinds OUTPUT and MEMORY, and for no other.
        detail: for MEMORY, what rebuilding the transcript takes.
        execution_id: for CODE and OUTPUT, where there is one.
    """

    kind: PartKind
    step: int = 0
    text: str = ""
    output: values.Output | None = None
    detail: Mapping[str, Any] | None = None
    execution_id: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a turn; see `NewPart`. Parts come in the order in which they happened."""

    id: int
    turn_id: int
    kind: PartKind
    step: int
    text: str
    output: StoredOutput | None
    detail: Mapping[str, Any]
    execution_id: int | None
    created: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One piece of code that was run.

    Attributes:
        ending: None while it runs, and for ever when the bot died meanwhile.
    """

    id: int
    turn_id: int
    code: str
    ending: values.Ending | None
    seconds: float
    reason: str
    kernel_lost: bool
    started: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that the code of a turn made. Its bytes are in the workspace, as long as that is."""

    id: int
    turn_id: int
    name: str
    size_bytes: int
    sha256: str
    media_type: str
    created: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was used, of one call or in sum.

    Attributes:
        money_micros: millionths of the currency that the price table is in.
        cpu_seconds: of the kernel.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    money_micros: int = 0
    cpu_seconds: float = 0.0
