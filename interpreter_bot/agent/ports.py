"""Protocols that the agent needs implemented: an environment, a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages

Show: TypeAlias = Callable[[values.Output], None]
"""Receives each output as it appears."""


class NotApprovedError(errors.BotError):
    """This code was not run, as it was not allowed."""

    def __init__(self, sentence: str, *, model_note: chat_messages.Note) -> None:
        super().__init__(sentence)
        self.model_note = model_note
        """The text for the model; the sentence is for people."""


RequestApproval: TypeAlias = Callable[[str], Awaitable[str]]
"""Asks a person about code; returns the code that may run, which the person may have changed.

Raises `NotApprovedError` if no code may run.
"""


ProposeNote: TypeAlias = Callable[[str], Awaitable[str]]
"""Asks a person whether to remember a text; returns the person's decision, for the model."""


class Environment(Protocol):
    """Where code runs and files are: one session's kernel and workspace.

    If a method raises a `BotError`, its sentence goes to the model, and the turn goes on. A
    `StoreError` ends the turn.
    """

    async def run(self, code: str, *, show: Show, seconds: float | None = None) -> values.Finished:
        """Run code, emit its start, outputs and end as events, and return how it ended.

        With more `seconds` than usual, the code may continue in the background
        (`Ending.BACKGROUND`).

        This is cancelled if the person stops the turn or its time is over. Then it interrupts the
        code, and returns only when the code no longer runs.
        """

    async def ask_person(self, question: str, choices: tuple[str, ...]) -> str:
        """Ask the person, and return their answer."""

    async def propose_schedule(self, text: str) -> str:
        """Propose a schedule, in the syntax of people; return the person's decision."""

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the files of the workspace."""

    async def scale_pictures(
        self, contents: Sequence[bytes]
    ) -> Sequence[chat_messages.Picture | None]:
        """Scale pictures to the size that a model is sent; None for each that cannot be scaled.

        The sandbox decodes them, as they may be hostile.
        """

    async def view(self, name: str) -> chat_messages.Picture | None:
        """Return a file as a picture, scaled; None if it is no picture, or too large."""


class Llm(Protocol):
    """A language model behind any protocol."""

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply. Cancelling closes the stream from the server at once.

        Raises:
            ModelError: see `model_errors`; an `IncompleteReplyError` if a part was received.
        """
