"""Records of the store: frozen, complete, and independent of the database.

Times are UTC with their zone. An `id` means nothing outside of one database.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any

from interpreter_bot import values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation.

    Attributes:
        title: for lists; empty until it is set.
        model: the chosen model; None means the default.
        kernel: hints for finding the kernel or explaining its loss, as stored.
        used: when the session was last opened or asked something.
    """

    id: int
    key: values.SessionKey
    title: str
    model: str | None
    kernel: Mapping[str, Any]
    created: datetime.datetime
    used: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request and its result.

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
    status: values.TurnStatus
    answer: str
    owner: str
    started: datetime.datetime
    ended: datetime.datetime | None


class PartKind(enum.StrEnum):
    """Kind of a turn's part."""

    TEXT = "text"
    """The model's words."""
    CODE = "code"
    """Code that the model (or a person) ran."""
    OUTPUT = "output"
    """Output of the code."""
    NOTICE = "notice"
    """The bot's own sentence."""
    MEMORY = "memory"
    """For the model's later turns: a transcript message in `detail`, or a picture in `output`.
    Never shown to people.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """Part to be added to a turn.

    Attributes:
        step: number of the model call it belongs to.
        output: for kinds OUTPUT and MEMORY, and for no other.
        detail: for MEMORY, the data to rebuild the transcript from.
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
    """Part of a turn; see `NewPart`. Parts come in the order in which they happened."""

    id: int
    turn_id: int
    kind: PartKind
    step: int
    text: str
    output: values.StoredOutput | None
    detail: Mapping[str, Any]
    execution_id: int | None
    created: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One piece of code that was run.

    Attributes:
        ending: None while it runs, and for ever if the bot died before its end.
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
    """File that the code of a turn made. Its bytes are in the workspace, as long as that exists."""

    id: int
    turn_id: int
    name: str
    size_bytes: int
    sha256: str
    media_type: str
    created: datetime.datetime
