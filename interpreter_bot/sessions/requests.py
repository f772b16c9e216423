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
        zone: IANA name of their time zone, where the platform knows it.
    """

    id: str
    name: str = ""
    zone: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a person sent.

    Attributes:
        name: as they call it; anything at all.
        open: gives the bytes, in pieces; called at most once. A `BotError` it raises is the
            sentence that says why the file could not be had.
        size_bytes: as the platform says, if it does; a larger one is refused unopened.
    """

    name: str
    open: Callable[[], AsyncIterable[bytes]]
    size_bytes: int | None = None


def attachment(name: str, data: bytes) -> Attachment:
    """Return a file whose content is at hand."""

    async def content() -> AsyncIterator[bytes]:
        yield data

    return Attachment(name, content, size_bytes=len(data))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecentMessage:
    """A message said before a request, in the same thread or channel.

    Attributes:
        speaker: the writer's name; chosen by them, never trusted.
        text: their words.
        id: as a request of it has it, so that the model is not told of it twice.
        files: names of files that came along.
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
        person: who sent it.
        text: their words, without the mention; or code, see `is_code`.
        attachments: what came along, in order.
        files: names of files of the workspace that were put there for this message.
        is_code: `text` is Python to be run as it is, without a model.
        id: the platform's id of the message; for the record.
        recent: messages before it that the model has not seen, oldest first: of the thread, or of
            the channel for a mention outside of threads. The newest are kept if they are many.
        context: what else was said around it that the model should know. Not instructions.
        model: title of the model to be asked; empty means the session's own choice.
        is_edit: it is an edited version of a message that had the same id.
        goes_on_with: id of the turn that this request began in a bot that is gone; 0 for a new one.
            The reply gets all that is recorded of it first.
        elapsed_seconds: since that turn began.
        approval: whether a person is asked before code runs, by the platform's settings; what
            people chose is added to it, see `approval_policy`.
        is_attended: somebody can be asked; else a question is declined at once.
        may_steer: a turn of the same person that runs may take it up, instead of its own turn.
        is_job: its turn follows code that goes on in the background; with `goes_on_with`.
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
    goes_on_with: int = 0
    elapsed_seconds: float = 0.0
    approval: Approval = "never"
    is_attended: bool = True
    may_steer: bool = False
    is_job: bool = False
    notice: str = ""
    schedule_run_id: int | None = None

    @property
    def is_scheduled(self) -> bool:
        """Whether a schedule made it, and no message."""
        return self.schedule_run_id is not None

    @property
    def scope(self) -> values.Scope:
        """The scope of choices that count for it."""
        return self.key.scope(self.person.id)

    @property
    def person_key(self) -> str:
        """The person who asked, unique over all platforms."""
        return str((self.key.platform, self.key.workspace, self.person.id))
