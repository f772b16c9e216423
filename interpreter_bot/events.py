"""What happens in a turn, and what it asks people, as typed events.

The model adapters and the agent emit some, the session's environment the others; a recorder stores
them, platforms show them. They come from the event loop, in order; those of a turn end with
`TurnEnded`. A cell is one execution; cells are counted from 0 within the turn.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import code_activity, values


@dataclasses.dataclass(frozen=True, slots=True)
class Queued:
    """So many requests come first; comes again when that number changes."""

    ahead: int


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """The turn has its lane."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepStarted:
    """The model is called for the `number`th time, from 1; words that follow are new ones."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProgressChanged:
    """The turn waits for something, such as a model that is downloaded. Replaces the previous one.

    Attributes:
        text: what is waited for; empty for nothing, any more.
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
    """This code runs now; it replaces what was drafted of it."""

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
    """Code showed a display whose content lies in the store: in place of `OutputShown` in what is
    recorded, and for who fetches the content."""

    cell: int
    output: values.StoredDisplay


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFinished:
    """A cell has ended; only files may come of it after this."""

    cell: int
    finished: values.Finished


@dataclasses.dataclass(frozen=True, slots=True)
class FileMade:
    """A cell made or changed a file.

    Attributes:
        copy: in the reply's spool, where it belongs to the reply; None if that wants no copies.
    """

    cell: int
    artifact: values.Artifact
    copy: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NoticeShown:
    """A sentence of the bot about the turn or the session.

    Attributes:
        cell: that it is about; None for the latest.
        is_copy_missing: of a file, since it could not be written to the reply's spool.
    """

    text: str
    cell: int | None = None
    is_copy_missing: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateNotice:
    """A sentence for the person who asked and nobody else; it may hold a link. Not recorded."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class UsageChanged:
    """The usage of the turn until now."""

    usage: values.Usage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over. Comes once, and last, on every way out.

    Attributes:
        status: how it ended.
        text: the model's last words, Markdown, in their final form, without dead links. Replaces
            the text of the last step. Empty for code.
        sentence: what went wrong, or that it was stopped, for people; empty if all went well.
        seconds: wall time since the turn had its lane, in former bots too.
        turn_id: its id in the store; 0 if it was not recorded.
        queries: that its code sent to data connections.
        goes_on: it ends here only, and goes on in the next bot.
        is_quiet: a schedule's turn had nothing to report, so nothing of it is shown.
    """

    status: values.TurnStatus
    text: str = ""
    sentence: str = ""
    seconds: float = 0.0
    turn_id: int = 0
    queries: tuple[code_activity.AskedQuery, ...] = ()
    goes_on: bool = False
    is_quiet: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion:
    """Running code called `input()` or `getpass`, or the model asks.

    Attributes:
        id: digits. The next bot asks under the same id, so buttons that were shown still fit.
        session: in which it is asked.
        person: who may answer.
        is_password: the answer is not to be shown, and is stored nowhere.
        is_of_model: the model asks, not code.
        choices: answers to choose from; another one can be written.
    """

    id: str
    session: values.SessionKey
    person: str
    cell: int
    prompt: str
    is_password: bool = False
    is_of_model: bool = False
    choices: tuple[str, ...] = ()

    def chosen(self, text: str) -> str:
        """Return the choice that a text names, by its words or its number; else the text."""
        words = text.strip().casefold()
        named = [choice for choice in self.choices if choice.casefold() == words]
        numbered = [
            choice for n, choice in enumerate(self.choices, 1) if words.rstrip(".") == f"{n}"
        ]
        return next(iter(named + numbered), text)


Subject: TypeAlias = Literal[
    "code", "plan", "note", "tool", "statement", "schedule", "packages", "import", "request"
]
"""What is to be approved; a plan is what the model said, which begins with the code, a note what
is remembered. For the last three see `values.InputRequested`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """A person is asked whether this may run, or be done for code that runs.

    Attributes:
        id: see `InputQuestion`.
        session: in which it is asked.
        person: who asked for what it would be part of.
        cell: that it would be, or belongs to.
        code: all that would run, or be done.
        facts: what a person should know of it, in lines.
        choices: scopes of an approval beside this once, such as `FOR_SESSION`.
        is_personal: it acts with an account of the person, so nobody else may answer.
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
        """Whether something else may be approved in its place."""
        return self.subject not in ("packages", "import", "request")


Question: TypeAlias = InputQuestion | ApprovalQuestion

PICK: Final = "pick"
"""Beginning of the actions of buttons that answer with a choice, whose place follows."""
FOR_SESSION: Final = values.FOR_SESSION
"""The scope that allows something again and again, as long as the session's Python lives."""


@dataclasses.dataclass(frozen=True, slots=True)
class TextAnswer:
    """What a person answers to an `InputQuestion`; empty in the event about a password."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Approved:
    """It may run.

    Attributes:
        scope: one of the question's choices; empty for this once.
        edited: what may run instead; None for what was asked.
    """

    scope: str = ""
    edited: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Declined:
    """It may not run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unanswered:
    """Nobody can be asked; the code is stopped, for this reason."""

    reason: str


Answer: TypeAlias = TextAnswer | Approved | Declined | Unanswered


def answer_of(question: Question, text: str | None) -> Answer:
    """Return the answer of a person who wrote this; None refuses.

    To an approval, a scope or what may run.
    """
    if isinstance(question, InputQuestion):
        return TextAnswer(text or "")
    if text is None:
        return Declined()
    if text in question.choices:
        return Approved(scope=text)
    return Approved(edited=None if text == question.code else text)


def approval_of(line: str, choices: Sequence[str]) -> Approved | Declined:
    """Parse an answer: a yes, a choice or its first letter; anything else is a no."""
    word = line.strip().lower()
    if word in ("y", "yes"):
        return Approved()
    scope = next((choice for choice in choices if word in (choice, choice[0])), None)
    return Declined() if scope is None else Approved(scope=scope)


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The turn waits for an answer, which goes down by `SessionService.answer`."""

    question: Question


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question is answered, perhaps before this bot could ask it; or, by None, withdrawn."""

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
"""An event of a turn that is recorded, or shown by its record."""

Emit: TypeAlias = Callable[[TurnEvent], None]
"""Receives an event; must not block. What it raises ends the turn: the reader is gone."""


def discard(event: TurnEvent) -> None:
    """Receive an event that nobody is shown."""
