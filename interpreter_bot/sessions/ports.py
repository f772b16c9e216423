"""What sessions expect of whoever shows their work: the way back up."""

from __future__ import annotations

import dataclasses
import decimal
import enum
from typing import Protocol

from interpreter_bot import values


class FileWriter(Protocol):
    """Takes the bytes of one artifact."""

    def write(self, data: bytes, /) -> object:
        """Take all of `data`. Called in a thread; OSError ends the copy."""

    def complete(self) -> None:
        """Let the artifact appear: all of it was written. OSError says that it cannot."""

    def close(self) -> None:
        """Let go; what was not completed is given up. Always called, and last."""


class ArtifactSink(Protocol):
    """Takes the files that cells made."""

    def announcement(self, cell: int, text: str) -> None:
        """Hear a sentence about the session itself, such as that a file was left out."""

    def save(self, cell: int, name: str) -> FileWriter | None:
        """Say where the bytes of a changed file go; None where they are not wanted.

        Raises:
            OSError: they can go nowhere; the file is left out, which is announced.
        """

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Hear of a file that the cell made or changed; its bytes went to what `save` gave."""


class OutputSink(ArtifactSink, Protocol):
    """Watches cells being run. Every call comes from the event loop, in order, cell by cell.

    What a method raises, beyond what it says here, means that nobody watches any more, such as
    BrokenPipeError: the kernel is killed at once and the exception is passed on.
    """

    def output(self, cell: int, output: values.Output) -> None:
        """See an output, at the moment it appears."""

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Answer running code. Cancelled when the code no longer waits.

        Raises:
            BotError: nobody can answer; the code is stopped, for this reason.
        """

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Hear how the cell ended. The last call about it, but for its artifacts."""


class Status(enum.StrEnum):
    """How a turn ended. Exactly one of these, always."""

    DONE = "done"
    STOPPED = "stopped"
    """Somebody stopped it."""
    FAILED = "failed"
    """It ended in a sentence about what went wrong."""
    INTERRUPTED = "interrupted"
    """The bot was told to end in the middle of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far.

    Attributes:
        steps: model calls.
        input_tokens: read by the model.
        output_tokens: written by it.
        money: in the currency of the price list.
        is_estimated: a server did not count, so we did.
        cached_tokens: those of the read ones that its server still had.
    """

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    money: decimal.Decimal = decimal.Decimal(0)
    is_estimated: bool = False
    cached_tokens: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a turn.

    Attributes:
        status: how it ended.
        text: the model's last words, Markdown, in their final form: links that lead nowhere are
            gone. Takes the place of what the last step's `text` calls built up. Empty for code.
        sentence: what went wrong, or that it was stopped, for people; empty where all went well.
        seconds: wall time since the turn had its lane.
        turn_id: what the store calls it; 0 where it was not recorded.
    """

    status: Status
    text: str = ""
    sentence: str = ""
    seconds: float = 0.0
    turn_id: int = 0


class Reply(OutputSink, Protocol):
    """The way back for one request. Calls come from the event loop, in order; none may block.

    A cell is an execution here: they are counted from 0 within the turn. Words and announcements
    may come between them; artifacts come when the turn is nearly over, about the last cell.
    """

    def queued(self, ahead: int) -> None:
        """The request waits, for so many before it; comes again when that number changes."""

    def started(self) -> None:
        """The request has its turn now."""

    def step(self, number: int) -> None:
        """The model is asked for the `number`th time, from 1. Words that follow are new ones."""

    def progress(self, text: str, share: float | None) -> None:
        """The turn waits for something, such as a model that is downloaded.

        It takes the place of what this method said before, and is not kept.

        Args:
            text: what is waited for, a sentence or two; empty once nothing is, any more.
            share: how much of it is done, from 0 to 1; None where nobody can tell.
        """

    def text(self, delta: str) -> None:
        """The model writes to the person: Markdown, piece by piece."""

    def writing(self, delta: str) -> None:
        """The model writes code; it may still turn out not to be run."""

    def code(self, cell: int, code: str) -> None:
        """This code runs now; what was seen of it by `writing` is complete."""

    async def approve(self, cell: int, code: str) -> str | None:
        """Ask a person whether this may run. Only where the request's `approval` demands it.

        Returns:
            The code to be run, perhaps edited; None to refuse.
        """

    def usage(self, spent: Spent) -> None:
        """So much the turn has cost until now."""

    def ended(self, end: End) -> None:
        """The turn is over. Comes once, and last, whatever happened."""
