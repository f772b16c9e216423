"""Requests from platforms: one message for the bot, frozen."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Final, Literal, TypeAlias

from interpreter_bot import values

MAX_CHARACTERS: Final = 100_000
"""Of a message; longer text belongs in a file."""

Approval: TypeAlias = Literal["never", "plan", "every"]
"""Whether a person is asked before code runs: never, once per turn, before each execution."""


@dataclasses.dataclass(frozen=True, slots=True)
class Person:
    """The person who sent a request.

    Attributes:
        id: the platform's, unique in its workspace; for counting and permissions.
        name: for people and for the model; chosen by the person, never trusted.
        zone: IANA name of their time zone, if the platform knows it.
    """

    id: str
    name: str = ""
    zone: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a person sent.

    Attributes:
        name: chosen by the person, and any text.
        open: returns the content in pieces; called at most once. The sentence of a `BotError` that
            it raises says why the file could not be received.
        size_bytes: as declared by the platform, if it is; a file that is too large is not opened.
    """

    name: str
    open: Callable[[], AsyncIterable[bytes]]
    size_bytes: int | None = None


def attachment(name: str, data: bytes) -> Attachment:
    """Make an attachment of bytes in memory."""

    async def content() -> AsyncIterator[bytes]:
        yield data

    return Attachment(name, content, size_bytes=len(data))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecentMessage:
    """A message before a request, in the same thread or channel.

    Attributes:
        speaker: the writer's name; chosen by them, never trusted.
        text: of the message.
        id: equal to that of the message's request, if it was one, so that it is not repeated.
        files: names of its attachments.
        is_bot: another bot wrote it.
        is_referred: the request replies to it, quotes it or asks about it.
    """

    speaker: str
    text: str
    id: str = ""
    files: tuple[str, ...] = ()
    is_bot: bool = False
    is_referred: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One message for the bot.

    Attributes:
        key: the session it belongs to.
        person: the person who sent it.
        text: the message without the mention of the bot; or code, see `is_code`.
        attachments: its attachments, in order.
        files: names of files of the workspace that were put there for this message.
        is_code: `text` is Python to be run as it is, without a model.
        id: the platform's id of the message; for the record.
        recent: messages before it that the model has not seen, oldest first: of the thread, or of
            the channel for a mention outside of threads. If there are many, the newest are kept.
        context: other text around the message that the model should know. Not instructions.
        model: title of the model to be asked; empty means the session's own choice.
        is_edit: it is an edited version of a message that had the same id.
        resumed_turn_id: of the turn that this request began in a former bot; 0 for a new request.
            The reply first receives all recorded events of that turn.
        elapsed_seconds: time since that turn began.
        approval: whether a person is asked before code runs, by an option of the command in
            the terminal; places and people may be stricter, see `approval_policy`.
        is_attended: somebody can be asked; otherwise questions are declined at once.
        may_steer: the running turn of the same person may answer it, instead of its own turn.
        is_job: its turn follows code in the background; only with `resumed_turn_id`.
        notice: a sentence of the bot that is shown first.
        schedule_run_id: of the run of a schedule that made it; None for a message.
    """

    key: values.SessionKey
    person: Person
    text: str
    attachments: tuple[Attachment, ...] = ()
    files: tuple[str, ...] = ()
    is_code: bool = False
    id: str = ""
    recent: tuple[RecentMessage, ...] = ()
    context: str = ""
    model: str = ""
    is_edit: bool = False
    resumed_turn_id: int = 0
    elapsed_seconds: float = 0.0
    approval: Approval = "never"
    is_attended: bool = True
    may_steer: bool = False
    is_job: bool = False
    notice: str = ""
    schedule_run_id: int | None = None

    @property
    def is_scheduled(self) -> bool:
        """Whether a schedule made it, rather than a message."""
        return self.schedule_run_id is not None

    @property
    def scope(self) -> values.Scope:
        """The scope whose choices apply to it."""
        return self.key.scope(self.person.id)

    @property
    def person_key(self) -> str:
        """The person who asked, unique over all platforms."""
        return str((self.key.platform, self.key.workspace, self.person.id))
