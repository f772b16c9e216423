"""Protocols that platforms implement: the reply to a request, sinks for outputs and files.

A class of replies is `silent_after_end`.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from interpreter_bot import code_activity, values

UNSANDBOXED: Final = "UNSANDBOXED: this code runs with the bot's own rights on its machine."
"""Sentence with each piece of code, where kernels have no walls."""

NO_TOOLS: Final = '{"servers": {}}'
"""What code is answered that asks for tools where there are none; of a call, it has no result."""


class FileWriter(Protocol):
    """Writes the bytes of one artifact."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`. Called in a thread; OSError ends the copy."""

    def complete(self) -> None:
        """Publish the artifact: all of it was written. OSError says that it cannot."""

    def close(self) -> None:
        """Close the writer; an artifact that was not completed is discarded.

        Always called, and last.
        """


class ArtifactSink(Protocol):
    """Receives the files that cells made."""

    def announcement(self, cell: int, text: str) -> None:
        """Receive a sentence about the session itself, such as that a file was left out."""

    def save(self, cell: int, name: str) -> FileWriter | None:
        """Return the writer for a changed file; None if it is not wanted.

        Raises:
            OSError: it cannot be written; the file is left out, which is announced.
        """

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Receive a file that the cell made or changed; its bytes went to the writer of `save`."""


class OutputSink(ArtifactSink, Protocol):
    """Receives the outputs of cells. Every call comes from the event loop, in order, cell by cell.

    An exception of a method, beyond those named here, means that the reader is gone, such as
    BrokenPipeError: the kernel is killed at once and the exception is passed on.
    """

    def output(self, cell: int, output: values.Output) -> None:
        """Receive an output, at the moment it appears."""

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Answer running code. Cancelled when the code no longer waits.

        Raises:
            BotError: there is no answer; the code is stopped, for this reason.
        """

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Receive how the cell ended. The last call about it, but for its artifacts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a turn.

    Attributes:
        status: how it ended.
        text: the model's last words, Markdown, in their final form, without dead links. Replaces
            what the last step's `text` calls built up. Empty for code.
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


FOR_SESSION: Final = "session"
"""The answer that allows something again and again, as long as the session's Python lives."""


class Reply(OutputSink, Protocol):
    """The reply to one request. Calls come from the event loop, in order; none may block.

    A cell is an execution here: they are counted from 0 within the turn. Words and announcements
    may come between them; artifacts come when the turn is nearly over, about the last cell.
    """

    def queued(self, ahead: int) -> None:
        """The request waits behind `ahead` others; comes again when that number changes."""

    def started(self) -> None:
        """The turn of the request has started."""

    def step(self, number: int) -> None:
        """The model is called for the `number`th time, from 1. Words that follow are new ones."""

    def progress(self, text: str, share: float | None) -> None:
        """The turn waits for something, such as a model that is downloaded.

        It replaces the previous call's, and is not kept.

        Args:
            text: what is waited for, a sentence or two; empty once nothing is, any more.
            share: the part that is done, from 0 to 1; None if it is unknown.
        """

    def text(self, delta: str) -> None:
        """The model writes to the person: a piece of Markdown."""

    def writing(self, delta: str) -> None:
        """The model writes code; it may still turn out not to be run."""

    def code(self, cell: int, code: str) -> None:
        """This code runs now; what `writing` brought of it is complete."""

    async def approve(
        self, cell: int, code: str, *, choices: Sequence[str] = (), is_personal: bool = False
    ) -> str | None:
        """Ask a person whether code may run. Only if the request's `approval` demands it.

        Args:
            cell: that it would be.
            code: that is asked about.
            choices: what can be answered beside yes and no, such as `FOR_SESSION`.
            is_personal: it acts with an account of the person who asked, so nobody else may answer.

        Returns:
            The code to be run, perhaps edited; one of the choices; None to refuse.
        """

    async def tell_privately(self, text: str) -> bool:
        """Show a sentence to the person who asked, and to nobody else; it may hold a link.

        Returns:
            Whether that could be done; if not, nothing was shown.
        """

    def usage(self, spent: values.Usage) -> None:
        """The usage of the turn until now."""

    def ended(self, end: End) -> None:
        """The turn is over. Comes once, and last, on every way out."""


_EVENTS: Final = (
    *("queued", "started", "step", "progress", "text", "writing", "code", "output", "finished"),
    *("announcement", "artifact", "usage", "ended"),
)
_R = TypeVar("_R")


def silent_after_end(kind: type[_R]) -> type[_R]:
    """Let replies of a class ignore every event after `ended`, so that the first end counts.

    A message that is final stays as it is, whatever should go wrong in the turn's last moments.
    """
    over: weakref.WeakSet[Any] = weakref.WeakSet()

    def guarded(method: Callable[..., None], *, is_last: bool) -> Callable[..., None]:
        @functools.wraps(method)
        def unless_over(reply: _R, /, *args: object) -> None:
            if reply in over:
                return
            try:
                method(reply, *args)
            finally:
                if is_last:
                    over.add(reply)

        return unless_over

    for name in _EVENTS:
        setattr(kind, name, guarded(getattr(kind, name), is_last=name == "ended"))
    return kind
