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
        files: sentences about its files, by what happened: "warned" (they are about to go) or
            "gone", and "at", when it was said (ISO 8601); empty if there is nothing to say.
        mark: "pinned" or "archived" in lists; empty for most.
        used: when the session was last opened or asked something.
    """

    id: int
    key: values.SessionKey
    title: str
    model: str | None
    kernel: Mapping[str, Any]
    files: Mapping[str, str]
    mark: str
    created: datetime.datetime
    used: datetime.datetime

    @property
    def file_notice(self) -> str:
        """The sentence about its files that holds now: any use refutes that they are about to
        go.
        """
        warned = "" if self.used_after_file_notice else self.files.get("warned", "")
        return self.files.get("gone") or warned

    @property
    def used_after_file_notice(self) -> bool:
        """Whether it was used after the sentence about its files was written."""
        at = self.files.get("at")
        return at is not None and datetime.datetime.fromisoformat(at) < self.used


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request and its result.

    Attributes:
        request: the person's words.
        attachments: names of the files that came along.
        answer: the final text, or the sentence that it failed with; empty while it runs.
        owner: the instance of the bot that runs it.
        progress: while it runs, what another bot needs to go on with it; None where none can.
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
    progress: Mapping[str, Any] | None
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
        hosted_id: by which its host knows it; empty if that was not told.
        heard: number of its last output that is recorded.
        ending: None while it runs, and for ever if the bot died before its end.
    """

    id: int
    turn_id: int
    code: str
    hosted_id: str
    heard: int
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        key: of the session.
        person: who asked what the code runs for.
        call_id: by which the code knows it.
        server: whose tool it is.
        tool: its name.
        arguments: JSON, shortened.
        was_approved: a person was asked, and agreed.
        outcome: begun, done, failed or refused.
        reason: why it was refused, or failed.
        sent_bytes: of all arguments.
        received_bytes: of the result.
        seconds: that it took.
    """

    key: values.SessionKey
    person: str
    call_id: str
    server: str
    tool: str
    arguments: str
    was_approved: bool = False
    outcome: str = "begun"
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
