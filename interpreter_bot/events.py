"""What happens in a turn, and what it asks people, as typed events.

The model adapters and the agent emit some, the session's environment the others; a recorder stores
them, platforms show them. They come from the event loop, in order; those of a turn end with
`TurnEnded`. A cell is one execution; cells are counted from 0 within the turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeAlias

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
    """A cell made or changed a file."""

    cell: int
    artifact: values.Artifact


@dataclasses.dataclass(frozen=True, slots=True)
class NoticeShown:
    """A sentence of the bot about the turn or the session.

    Attributes:
        cell: that it is about; None for the latest.
    """

    text: str
    cell: int | None = None


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
    """

    status: values.TurnStatus
    text: str = ""
    sentence: str = ""
    seconds: float = 0.0
    turn_id: int = 0
    queries: tuple[code_activity.AskedQuery, ...] = ()
    goes_on: bool = False


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
    | UsageChanged
    | TurnEnded
)

RecordedEvent: TypeAlias = TurnEvent | StoredDisplayShown
"""An event of a turn that is recorded, or shown by its record."""

Emit: TypeAlias = Callable[[TurnEvent], None]
"""Receives an event; must not block. What it raises ends the turn: the reader is gone."""


def discard(event: TurnEvent) -> None:
    """Receive an event that nobody is shown."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion:
    """Running code called `input()` or `getpass`, or the bot asks whether to install packages.

    Attributes:
        is_password: the answer is not to be shown.
        choices: the answers that there are; none means any.
    """

    cell: int
    prompt: str
    is_password: bool = False
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """A person is asked whether this may run. The answer is what may run, perhaps edited.

    Attributes:
        cell: that it would be.
        code: all that would run.
        choices: what can be answered beside yes and no, such as `FOR_SESSION`.
        is_personal: it acts with an account of the person who asked, so nobody else may answer.
    """

    cell: int
    code: str
    choices: tuple[str, ...] = ()
    is_personal: bool = False


Question: TypeAlias = InputQuestion | ApprovalQuestion

FOR_SESSION: Final = "session"
"""The answer that allows something again and again, as long as the session's Python lives."""
