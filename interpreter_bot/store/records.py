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
        branch_of: id of the session that its tree of branches began with, if it is not that one.
        used: when the session was last opened or asked something.
    """

    id: int
    key: values.SessionKey
    title: str
    model: str | None
    kernel: Mapping[str, Any]
    files: Mapping[str, str]
    mark: str
    branch_of: int | None
    created: datetime.datetime
    used: datetime.datetime

    @property
    def tree(self) -> int:
        """The id of the session with which its tree of branches began."""
        return self.branch_of or self.id

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
        owner: the active bot that runs it.
        progress: while it runs, what another bot needs to go on with it; None where none can.
        original: id of the turn that it was copied of with a branch; None for most.
        instead_of: id of the original turn that it, the first one of a branch, is an alternative
            to.
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
    original: int | None
    instead_of: int | None
    started: datetime.datetime
    ended: datetime.datetime | None


@dataclasses.dataclass(frozen=True, slots=True)
class Alternatives:
    """What there is in place of a turn, in other branches.

    Attributes:
        turn_id: of the turn.
        at: its place among them.
        keys: of the session to go to for each, the turn's own one included.
    """

    turn_id: int
    at: int
    keys: tuple[values.SessionKey, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedEvent:
    """A platform's event whose bot died before it had begun with it.

    Attributes:
        platform: that sent it.
        event_id: among all of the platform.
        address: of the session whose people wait for an answer.
        content: what the platform needs to take it again; None where that cannot be.
    """

    platform: str
    event_id: str
    address: str
    content: Mapping[str, Any] | None


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
    QUERIES = "queries"
    """What code asked of data connections, in `detail`."""
    QUESTION = "question"
    """What a person was asked, and how that ended, in `detail`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """Part to be added to a turn.

    Attributes:
        step: number of the model call it belongs to.
        output: for kinds OUTPUT and MEMORY, and for no other.
        detail: for MEMORY, the data to rebuild the transcript from; for QUERIES, the queries; for
            QUESTION, the question and its answer.
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
class Grant:
    """What a person lets code of a session do again and again, as long as its kernel lives.

    Attributes:
        person: who allowed it, and for whose code alone it holds.
        subject: its kind; see `events.Subject`.
        name: for lists.
        digest: of all that it was granted for; anything else was not.
    """

    person: str
    subject: str
    name: str
    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """An account at an MCP server that a person let the bot use, or is about to.

    Attributes:
        platform: where the person is known to the bot.
        workspace: of the platform, where it has several.
        person: the platform's id of them.
        server: as the settings call it.
    """

    platform: str
    workspace: str
    person: str
    server: str
