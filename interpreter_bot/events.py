"""Events of a turn, and its questions to people.

Model adapters, the agent and the environment of the session emit them; a recorder stores them, and
platforms show them. They come in order from the event loop; the last one of a turn is `TurnEnded`.
A cell is one execution; cells are counted from 0 within the turn.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import code_activity, values


@dataclasses.dataclass(frozen=True, slots=True)
class Queued:
    """The turn waits behind other requests; it is repeated when their number changes."""

    ahead: int


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """The turn has its lane."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepStarted:
    """The model is called for the `number`th time, from 1; later text belongs to this call."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProgressChanged:
    """The turn waits for something, such as the download of a model. It replaces an earlier event.

    Attributes:
        text: what it waits for; empty when the wait is over.
        share: the part that is done, from 0 to 1; None if it is unknown.
    """

    text: str
    share: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TextAdded:
    """A piece of the model's Markdown."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CodeDrafted:
    """A piece of code that the model writes; it may turn out not to run."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CodeStarted:
    """Code begins to run; it replaces its draft."""

    cell: int
    code: str


@dataclasses.dataclass(frozen=True, slots=True)
class OutputShown:
    """Running code shows something.

    Attributes:
        number: within the execution, from 1; 0 for a notice of the bot among the outputs.
    """

    cell: int
    output: values.Output
    number: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDisplayShown:
    """Code showed a display with its content in the store; it replaces `OutputShown` in records."""

    cell: int
    output: values.StoredDisplay


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFinished:
    """A cell has ended; after it, only its files may follow."""

    cell: int
    finished: values.Finished


@dataclasses.dataclass(frozen=True, slots=True)
class FileMade:
    """A cell made or changed a file.

    Attributes:
        copy: a copy in the spool of the reply, which owns it; None if the reply takes no copies.
    """

    cell: int
    artifact: values.Artifact
    copy: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NoticeShown:
    """A sentence of the bot about the turn or the session.

    Attributes:
        cell: the cell that it is about; None for the latest.
        is_copy_missing: a file could not be copied to the spool of the reply.
    """

    text: str
    cell: int | None = None
    is_copy_missing: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateNotice:
    """A sentence only for the person who asked, perhaps with a link. It is not recorded."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class UsageChanged:
    """The usage of the turn until now."""

    usage: values.Usage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over. It is always the last event, and comes once.

    Attributes:
        status: how it ended.
        text: the final text of the model as Markdown without dead links, which replaces the text of
            the last step; empty for code.
        sentence: for people, if it failed or was stopped; empty otherwise.
        seconds: wall time since `Started`, also in earlier bots.
        turn_id: its id in the store; 0 if it was not recorded.
        queries: of its code to data connections.
        goes_on: it ends only in this bot, and continues in the next one.
        is_quiet: a schedule's turn had nothing to report, so nothing of it is shown.
    """

    status: values.TurnStatus
    text: str = ""
    sentence: str = ""
    seconds: float = 0.0
    turn_id: int = 0
    queries: tuple[code_activity.ShownQuery, ...] = ()
    goes_on: bool = False
    is_quiet: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion:
    """Running code called `input()` or `getpass`, or the model asks.

    Attributes:
        id: digits. The next bot asks with the same id, so that earlier buttons work.
        session: its session.
        person: the person who may answer.
        is_password: the answer is neither shown nor stored.
        is_of_model: the model asks, not code.
        choices: suggested answers; people can write another one.
    """

    id: str
    session: values.SessionKey
    person: str
    cell: int
    prompt: str
    is_password: bool = False
    is_of_model: bool = False
    choices: tuple[str, ...] = ()

    def find_choice(self, text: str) -> str:
        """Return the choice with the text or number of an answer; else the answer itself."""
        answer = text.strip().casefold()
        by_name = [choice for choice in self.choices if choice.casefold() == answer]
        by_number = [
            choice for n, choice in enumerate(self.choices, 1) if answer.rstrip(".") == f"{n}"
        ]
        return next(iter(by_name + by_number), text)


Subject: TypeAlias = Literal[
    "code", "plan", "note", "tool", "statement", "schedule", "packages", "import", "request"
]
"""What a person should approve. A plan is the text of the model before the code, a note is to be
remembered. For the last three see `values.InputRequested`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """A person is asked whether code may run, or may do something.

    Attributes:
        id: see `InputQuestion`.
        session: its session.
        person: the person of the turn.
        cell: the cell of the code.
        code: the code, or the action.
        facts: lines that a person should know.
        choices: scopes of an approval besides once, such as `values.FOR_SESSION`.
        is_personal: it uses an account of the person, so only this person may answer.
    """

    id: str
    session: values.SessionKey
    person: str
    cell: int
    subject: Subject = "code"
    code: str
    facts: str = ""
    choices: tuple[str, ...] = ()
    is_personal: bool = False

    @property
    def can_edit(self) -> bool:
        """Whether a person may approve an edited version."""
        return self.subject not in ("packages", "import", "request")


Question: TypeAlias = InputQuestion | ApprovalQuestion

PICK_PREFIX: Final = "pick"
"""The action of a button for a choice begins so; the index of the choice follows."""


@dataclasses.dataclass(frozen=True, slots=True)
class TextAnswer:
    """The answer of a person to an `InputQuestion`; empty in the event about a password."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Approved:
    """The person approved.

    Attributes:
        scope: one of the choices of the question; empty for once.
        edited: the edited version that was approved; None for the original.
        admin: id of the administrator who approved; empty if the person who was asked did.
    """

    scope: str = ""
    edited: str | None = None
    admin: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Declined:
    """The person did not approve."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unanswered:
    """Nobody can be asked, so the code is stopped, with a reason."""

    reason: str


Answer: TypeAlias = TextAnswer | Approved | Declined | Unanswered


def make_answer(question: Question, text: str | None) -> Answer:
    """Return the answer for the text of a person; None declines.

    For an approval, the text is a scope or an edited version.
    """
    if isinstance(question, InputQuestion):
        return TextAnswer(text or "")
    if text is None:
        return Declined()
    if text in question.choices:
        return Approved(scope=text)
    return Approved(edited=None if text == question.code else text)


def parse_approval(line: str, choices: Sequence[str]) -> Approved | Declined:
    """Parse an answer: a yes, a choice or its first letter; anything else is a no."""
    word = line.strip().lower()
    if word in ("y", "yes"):
        return Approved()
    scope = next((choice for choice in choices if word in (choice, choice[0])), None)
    return Declined() if scope is None else Approved(scope=scope)


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The turn waits for an answer, which is passed to `Questions.answer`."""

    question: Question


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question is answered, perhaps in an earlier bot; with None, it is withdrawn."""

    question: Question
    answer: Answer | None


TurnEvent: TypeAlias = (
    Queued
    | Started
    | StepStarted
    | ProgressChanged
    | TextAdded
    | CodeDrafted
    | CodeStarted
    | OutputShown
    | CodeFinished
    | FileMade
    | NoticeShown
    | PrivateNotice
    | QuestionAsked
    | QuestionClosed
    | UsageChanged
    | TurnEnded
)

RecordedEvent: TypeAlias = TurnEvent | StoredDisplayShown
"""An event that is recorded, or comes from a record."""

Emit: TypeAlias = Callable[[TurnEvent], None]
"""Receives an event without blocking; an exception ends the turn, as its reader is gone."""


def discard(event: TurnEvent) -> None:
    """Ignore an event."""
