"""Tables, and their rows as records: read-only, complete, and without a connection.

Times are UTC with their zone. An `id` is only valid in one database. A change of a table needs a
migration; a test compares both.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm

from interpreter_bot import values
from interpreter_bot.store import columns

# SQLite assigns ids only if the type is exactly INTEGER.
_Id = Annotated[
    int, orm.mapped_column(sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True)
]
_Key = Annotated[str, orm.mapped_column(columns.Name, primary_key=True)]
_Prose = Annotated[str, orm.mapped_column(columns.Prose)]
_Digest = Annotated[str, orm.mapped_column(sa.String(64))]
_SessionId = Annotated[
    int,
    orm.mapped_column(sa.BigInteger, sa.ForeignKey("sessions.id", ondelete="CASCADE"), index=True),
]
_TurnId = Annotated[
    int, orm.mapped_column(sa.BigInteger, sa.ForeignKey("turns.id", ondelete="CASCADE"), index=True)
]
_Document: TypeAlias = Mapping[str, Any]


# Otherwise SQLite reuses the ids of deleted rows, and a turn that is still running would continue
# in another person's conversation.
_TABLE_OPTIONS: Final[Any] = {"sqlite_autoincrement": True}


class Record(orm.MappedAsDataclass, orm.DeclarativeBase, kw_only=True, unsafe_hash=True):
    """Row of a table. It has all columns, and its attributes cannot be changed."""

    metadata = sa.MetaData(
        # A constraint without a name cannot be altered by a migration.
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    __table_args__ = _TABLE_OPTIONS
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it once.
        str: columns.Name,
        int: sa.BigInteger,
        float: sa.Double,
        datetime.datetime: columns.Moment,
        enum.StrEnum: sa.Enum(
            enum.StrEnum,
            native_enum=False,
            length=16,
            values_callable=lambda kinds: [kind.value for kind in kinds],
        ),
        tuple[str, ...]: columns.Texts,
        _Document: columns.Document,
    }

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            raise dataclasses.FrozenInstanceError(name)
        super().__setattr__(name, value)


class Scoped(orm.MappedAsDataclass, kw_only=True, unsafe_hash=True):
    """Columns of a record that belongs to a scope."""

    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    channel: orm.Mapped[str]
    person: orm.Mapped[str]
    thread: orm.Mapped[str]

    @property
    def scope(self) -> values.Scope:
        """Its scope."""
        return values.Scope(self.platform, self.workspace, self.channel, self.person, self.thread)


class Session(Record):
    """One conversation.

    Attributes:
        title: for lists; empty until it is set.
        model: the chosen model; None means the default.
        kernel: hints for finding the kernel or explaining its loss, as stored.
        files: sentences about its files: "warned" if they will be deleted soon, "gone" if they were
            deleted; and "at", the time of the sentence (ISO 8601). Empty if there is none.
        mark: "pinned" or "archived" in lists; empty for most.
        branch_of: id of the root session of its tree of branches; None if it is the root.
        used: when the session was last opened, or got a request.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        sa.UniqueConstraint("platform", "workspace", "channel", "thread"),
        sa.Index(None, "platform", "workspace", "used"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    channel: orm.Mapped[str]
    thread: orm.Mapped[str]
    title: orm.Mapped[_Prose]
    model: orm.Mapped[str | None]
    kernel: orm.Mapped[_Document] = orm.mapped_column(insert_default=dict)
    files: orm.Mapped[Mapping[str, str]] = orm.mapped_column(columns.Document, insert_default=dict)
    mark: orm.Mapped[str] = orm.mapped_column(sa.String(16), insert_default="")
    branch_of: orm.Mapped[int | None] = orm.mapped_column(index=True)
    created: orm.Mapped[datetime.datetime]
    used: orm.Mapped[datetime.datetime]

    @property
    def key(self) -> values.SessionKey:
        """Its key."""
        return values.SessionKey(self.platform, self.workspace, self.channel, self.thread)

    @property
    def root_id(self) -> int:
        """The id of the root session of its tree of branches."""
        return self.branch_of or self.id

    @property
    def file_notice(self) -> str:
        """The sentence about its files that applies now: a warning ends when they are used."""
        warned = "" if self.used_after_file_notice else self.files.get("warned", "")
        return self.files.get("gone") or warned

    @property
    def used_after_file_notice(self) -> bool:
        """Whether it was used after the sentence about its files was written."""
        noticed_at = self.files.get("at")
        return noticed_at is not None and datetime.datetime.fromisoformat(noticed_at) < self.used


class Turn(Record):
    """One request and its result.

    Attributes:
        request: the person's words.
        attachments: names of the files that came along.
        schedule_run_id: of the run of a schedule that made its request; None for a message.
        answer: the final text, or the sentence that says why it failed; empty while it runs.
        owner: the active bot that runs it.
        progress: while it runs, what another bot needs to continue it; None if none can.
        original: id of the turn that was copied into a branch as this one; None for most.
        instead_of: for the first new turn of a branch, the id of the original turn that it
            replaces; None for others.
        ended: None while it runs.
    """

    # The first migration makes an index of its words: on SQLite by triggers, which go with the
    # table if a migration copies it.
    __tablename__ = "turns"
    # Orphans are looked for at every start.
    __table_args__ = (sa.Index(None, "status", "owner"), _TABLE_OPTIONS)

    id: orm.Mapped[_Id]
    session_id: orm.Mapped[_SessionId]
    request_id: orm.Mapped[str] = orm.mapped_column(index=True)
    # Runs are deleted before their turns: no foreign key.
    schedule_run_id: orm.Mapped[int | None] = orm.mapped_column(index=True)
    person: orm.Mapped[str]
    request: orm.Mapped[_Prose]
    attachments: orm.Mapped[tuple[str, ...]]
    status: orm.Mapped[values.TurnStatus]
    answer: orm.Mapped[_Prose]
    owner: orm.Mapped[str]
    progress: orm.Mapped[_Document | None]
    # Ids of turns that may be deleted: no foreign keys.
    original: orm.Mapped[int | None]
    instead_of: orm.Mapped[int | None]
    started: orm.Mapped[datetime.datetime]
    ended: orm.Mapped[datetime.datetime | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Alternatives:
    """A turn and its alternatives in other branches.

    Attributes:
        turn_id: the id of the turn.
        index: the position of the turn among its alternatives.
        keys: the session of each alternative, including the turn itself.
    """

    turn_id: int
    index: int
    keys: tuple[values.SessionKey, ...]


class Execution(Record):
    """One piece of code that was run.

    Attributes:
        hosted_id: its id at the host; empty if it has none.
        last_output_number: number of its last recorded output.
        ending: None while it runs, and if the bot died before its end.
    """

    __tablename__ = "executions"

    id: orm.Mapped[_Id]
    turn_id: orm.Mapped[_TurnId]
    code: orm.Mapped[_Prose]
    hosted_id: orm.Mapped[str]
    last_output_number: orm.Mapped[int] = orm.mapped_column(insert_default=0)
    ending: orm.Mapped[values.Ending | None]
    seconds: orm.Mapped[float]
    reason: orm.Mapped[_Prose]
    kernel_lost: orm.Mapped[bool]
    started: orm.Mapped[datetime.datetime]


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
    """Queries of code to data connections, in `detail`."""
    QUESTION = "question"
    """A question to a person, and its outcome, in `detail`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A part to add to a turn.

    Attributes:
        step: number of the model call it belongs to.
        output: for kinds OUTPUT and MEMORY, and for no other.
        detail: for MEMORY, the data to rebuild the transcript from; for QUERIES, the queries; for
            QUESTION, the question and its answer.
        execution_id: for CODE and OUTPUT that have an execution.
    """

    kind: PartKind
    step: int = 0
    text: str = ""
    output: values.Output | None = None
    detail: Mapping[str, Any] | None = None
    execution_id: int | None = None


class Part(Record):
    """Part of a turn; see `NewPart`. Parts come in the order in which they happened.

    Attributes:
        sha256: of the blob that the output refers to, so that unreferenced blobs can be found.
    """

    __tablename__ = "parts"

    id: orm.Mapped[_Id]
    turn_id: orm.Mapped[_TurnId]
    step: orm.Mapped[int]
    kind: orm.Mapped[PartKind]
    text: orm.Mapped[_Prose]
    output: orm.Mapped[values.StoredOutput | None] = orm.mapped_column(columns.Output)
    sha256: orm.Mapped[_Digest | None] = orm.mapped_column(index=True)
    detail: orm.Mapped[_Document]
    execution_id: orm.Mapped[int | None] = orm.mapped_column(
        sa.BigInteger, sa.ForeignKey("executions.id", ondelete="SET NULL"), index=True
    )
    created: orm.Mapped[datetime.datetime]


class Artifact(Record):
    """File that the code of a turn made; its bytes are in the workspace, while that exists."""

    __tablename__ = "artifacts"

    id: orm.Mapped[_Id]
    turn_id: orm.Mapped[_TurnId]
    name: orm.Mapped[_Prose]
    size_bytes: orm.Mapped[int]
    sha256: orm.Mapped[_Digest]
    created: orm.Mapped[datetime.datetime]


class Question(Record):
    """The latest question of a running turn to people."""

    __tablename__ = "questions"

    id: orm.Mapped[_Id]
    turn_id: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, sa.ForeignKey("turns.id", ondelete="CASCADE"), unique=True
    )
    name: orm.Mapped[str]
    question: orm.Mapped[_Document]
    answer: orm.Mapped[_Document | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A permission for code of a session to do something repeatedly while its kernel lives.

    Attributes:
        person: the person who gave it; it applies only to code of their own turns.
        subject: its kind; see `events.Subject`.
        name: shown in lists.
        digest: identifies exactly what was allowed.
    """

    person: str
    subject: str
    name: str
    digest: str


class KernelGrant(Record):
    """A `Grant` to a session while it has this kernel."""

    __tablename__ = "grants"

    id: orm.Mapped[_Id]
    session_id: orm.Mapped[_SessionId]
    kernel_id: orm.Mapped[str]
    person: orm.Mapped[str]
    subject: orm.Mapped[str]
    name: orm.Mapped[str]
    digest: orm.Mapped[_Digest]


class Usage(Record):
    """Usage of a model and of the processor by a turn.

    It is kept when the conversation is deleted.
    """

    __tablename__ = "usage"
    __table_args__ = (sa.Index(None, "platform", "workspace", "person", "day"), _TABLE_OPTIONS)

    id: orm.Mapped[_Id]
    turn_id: orm.Mapped[int | None] = orm.mapped_column(
        sa.BigInteger, sa.ForeignKey("turns.id", ondelete="SET NULL"), index=True
    )
    session_id: orm.Mapped[int | None] = orm.mapped_column(
        sa.BigInteger, sa.ForeignKey("sessions.id", ondelete="SET NULL"), index=True
    )
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    person: orm.Mapped[str]
    day: orm.Mapped[datetime.date]
    model: orm.Mapped[str]
    input_tokens: orm.Mapped[int]
    output_tokens: orm.Mapped[int]
    money_micros: orm.Mapped[int]
    cpu_seconds: orm.Mapped[float]


class Placement(Record):
    """The host that has a session.

    Attributes:
        session_digest: digest of the session's key, which may be too long for an index.
    """

    __tablename__ = "placements"

    id: orm.Mapped[_Id]
    session_digest: orm.Mapped[_Digest] = orm.mapped_column(unique=True)
    host: orm.Mapped[str]
    epoch: orm.Mapped[int]
    is_announced: orm.Mapped[bool]
    placed: orm.Mapped[datetime.datetime]


class FleetHost(Record):
    """The latest report of a host of a cluster."""

    __tablename__ = "hosts"

    id: orm.Mapped[_Id]
    address: orm.Mapped[str] = orm.mapped_column(unique=True)
    data_id: orm.Mapped[str]
    free_bytes: orm.Mapped[int]
    memory_bytes: orm.Mapped[int]
    is_draining: orm.Mapped[bool]
    seen: orm.Mapped[datetime.datetime]


class Choice(Scoped, Record):
    """A value that somebody chose for a scope.

    Attributes:
        author: name of the person who chose it; empty if unknown.
    """

    __tablename__ = "choices"
    __table_args__ = (
        sa.UniqueConstraint("name", "platform", "workspace", "channel", "person", "thread"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    name: orm.Mapped[str]
    value: orm.Mapped[Any] = orm.mapped_column(columns.Document, nullable=False)
    author: orm.Mapped[str]
    changed: orm.Mapped[datetime.datetime]


class Note(Scoped, Record):
    """A text that people let the bot remember in a scope.

    Attributes:
        confirmed_by: id of the person who confirmed it.
        author: their name.
    """

    __tablename__ = "notes"
    __table_args__ = (
        sa.Index(None, "platform", "workspace", "channel", "person", "thread"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    text: orm.Mapped[_Prose]
    confirmed_by: orm.Mapped[str]
    author: orm.Mapped[str]
    created: orm.Mapped[datetime.datetime]


class ClaimedEvent(Record):
    """A platform's event that a bot claimed.

    Attributes:
        event_id: unique within the platform.
        owner: the bot that claimed it.
        request_id: of the request that it becomes.
        address: key of the session whose people wait for an answer; empty when nobody waits.
        content: what the platform needs to handle it again; None if it cannot.
    """

    __tablename__ = "events"

    platform: orm.Mapped[_Key]
    event_id: orm.Mapped[_Key]
    seen: orm.Mapped[datetime.datetime] = orm.mapped_column(index=True)
    owner: orm.Mapped[str]
    request_id: orm.Mapped[str]
    address: orm.Mapped[_Prose]
    content: orm.Mapped[_Document | None]


class Delivery(Record):
    """A message of an answer.

    It is recorded before it is posted, so that the next bot knows of it if this one is killed.

    Attributes:
        position: within the answer.
        nonce: the key that it is posted with.
        digest: identifies its content.
        first_tried_at: when it was posted first, in wall-clock time.
        message: its id on the platform; empty while it is unknown whether it was posted.
    """

    __tablename__ = "deliveries"

    platform: orm.Mapped[_Key]
    request_id: orm.Mapped[_Key]
    position: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    nonce: orm.Mapped[str]
    digest: orm.Mapped[str]
    first_tried_at: orm.Mapped[float] = orm.mapped_column(index=True)
    message: orm.Mapped[str]


class Activity(Record):
    """An activity of code outside of the sandbox. It is kept when the conversation is deleted.

    Attributes:
        reference: unique within a kind, so that a repeated call is made once.
        content: all fields of the activity.
    """

    __tablename__ = "activities"
    __table_args__ = (
        sa.UniqueConstraint("kind", "reference"),
        sa.Index(None, "kind", "began"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    channel: orm.Mapped[str]
    thread: orm.Mapped[str]
    person: orm.Mapped[str]
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    reference: orm.Mapped[str | None]
    content: orm.Mapped[_Document]
    began: orm.Mapped[datetime.datetime]


class ScheduleKind(enum.StrEnum):
    """What a schedule does when it is due."""

    PROMPT = "prompt"
    """A model is asked in the conversation."""
    REPLAY = "replay"
    """Code runs in a session of its own, which begins anew each time."""
    ALERT = "alert"
    """The same; it is shown only when a condition on the result becomes true."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """Schedule to be added.

    Attributes:
        key: the session in which it was set up, and in which its runs are shown.
        person: its owner; it runs on their behalf.
        times: the times in the words of the person.
        cron: the same times as a crontab expression.
        zone: IANA name of their time zone.
        task: what is done, in the words of the person.
        code: the code to run; empty if a model is asked.
        condition: the expression that decides whether an alert is shown.
        model: the title of the model that is asked.
        due: the next time.
    """

    key: values.SessionKey
    person: str
    kind: ScheduleKind
    times: str
    cron: str
    zone: str
    task: str
    code: str = ""
    condition: str = ""
    model: str = ""
    due: datetime.datetime


class Schedule(Record):
    """Schedule of a person; see `NewSchedule`.

    Attributes:
        due: None while it is paused.
        reason: why it is paused.
        failures: number of consecutive runs that failed.
    """

    __tablename__ = "schedules"
    __table_args__ = (sa.Index(None, "platform", "workspace", "channel"), _TABLE_OPTIONS)

    id: orm.Mapped[_Id]
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    channel: orm.Mapped[str]
    thread: orm.Mapped[str]
    person: orm.Mapped[str]
    kind: orm.Mapped[ScheduleKind]
    times: orm.Mapped[_Prose]
    cron: orm.Mapped[str]
    zone: orm.Mapped[str]
    task: orm.Mapped[_Prose]
    code: orm.Mapped[_Prose]
    condition: orm.Mapped[_Prose]
    model: orm.Mapped[str]
    due: orm.Mapped[datetime.datetime | None] = orm.mapped_column(index=True)
    reason: orm.Mapped[_Prose]
    failures: orm.Mapped[int]
    created: orm.Mapped[datetime.datetime]

    @property
    def key(self) -> values.SessionKey:
        """The key of the session in which it was set up."""
        return values.SessionKey(self.platform, self.workspace, self.channel, self.thread)

    @property
    def runs_key(self) -> values.SessionKey:
        """The key of the session in which it runs."""
        return self.key if self.kind is ScheduleKind.PROMPT else self.key.for_schedule(self.id)


class RunOutcome(enum.StrEnum):
    """How a run of a schedule ended."""

    DONE = "done"
    QUIET = "quiet"
    """There was nothing to report, so nothing is shown."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The bot was restarted in the middle of it."""


class ScheduleRun(Record):
    """Run of a schedule: one for each of its times.

    Attributes:
        outcome: how it ended; None as long as that is unknown.
        sentence: what went wrong.
        holds: whether the condition of an alert is true; None if it is no alert, or unknown.
        ended: when the run was over; None before.
    """

    __tablename__ = "schedule_runs"
    __table_args__ = (sa.UniqueConstraint("schedule_id", "due"), _TABLE_OPTIONS)

    id: orm.Mapped[_Id]
    schedule_id: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, sa.ForeignKey("schedules.id", ondelete="CASCADE"), index=True
    )
    due: orm.Mapped[datetime.datetime]
    outcome: orm.Mapped[RunOutcome | None]
    sentence: orm.Mapped[_Prose]
    holds: orm.Mapped[bool | None]
    ended: orm.Mapped[datetime.datetime | None] = orm.mapped_column(index=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """An account at an MCP server that a person lets the bot use, or is about to.

    Attributes:
        platform: of the person.
        workspace: of the person, if the platform has several.
        person: the id of the person on the platform.
        server: its name in the settings.
    """

    platform: str
    workspace: str
    person: str
    server: str


class EncryptedAccount(Record):
    """An `Account` with its encrypted tokens."""

    __tablename__ = "accounts"
    __table_args__ = (
        sa.UniqueConstraint("platform", "workspace", "person", "server"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    person: orm.Mapped[str]
    server: orm.Mapped[str]
    ciphertext: orm.Mapped[_Prose]
    changed: orm.Mapped[datetime.datetime]


class Login(Record):
    """An unfinished login to an `Account`; a person has at most one at a server.

    Attributes:
        digest: digest of a secret that only the person's browser has.
    """

    __tablename__ = "logins"
    __table_args__ = (
        sa.UniqueConstraint("platform", "workspace", "person", "server"),
        _TABLE_OPTIONS,
    )

    id: orm.Mapped[_Id]
    platform: orm.Mapped[str]
    workspace: orm.Mapped[str]
    person: orm.Mapped[str]
    server: orm.Mapped[str]
    digest: orm.Mapped[_Digest] = orm.mapped_column(unique=True)
    ciphertext: orm.Mapped[_Prose]
    began: orm.Mapped[datetime.datetime]
