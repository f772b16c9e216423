"""Protocols that the agent needs implemented: an environment, a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages

Show: TypeAlias = Callable[[values.Output], None]
"""Takes an output at the moment it appears."""


class NotApprovedError(errors.BotError):
    """This code was not run: it was not allowed."""

    def __init__(self, sentence: str, *, model_note: chat_messages.Note) -> None:
        super().__init__(sentence)
        self.model_note = model_note
        """The text for the model; the sentence is for people."""


Approve: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns the code that may run in place of the proposed code: the same, or changed by a person.

A `NotApprovedError` says that none may run.
"""


ProposeNote: TypeAlias = Callable[[str], Awaitable[str]]
"""Asks a person whether a text is to be remembered; returns what came of it, for the model."""


class Environment(Protocol):
    """Where code runs and files are: one session's kernel and workspace.

    If a method raises a `BotError`, its sentence goes to the model, and the turn goes on. A
    `StoreError` ends the turn.
    """

    async def run(self, code: str, *, show: Show, seconds: float | None = None) -> values.Finished:
        """Run code and return how it ended; its start, outputs and end are emitted by this.

        With more `seconds` than usual it may go on in the background (`Ending.BACKGROUND`).

        Cancelled when the person stops the turn or its time is over: interrupt the code, and
        return only when it no longer runs.
        """

    async def ask_person(self, question: str, choices: tuple[str, ...]) -> str:
        """Ask the person, and return their answer."""

    async def propose_schedule(self, text: str) -> str:
        """Propose a schedule to the person, written as people do; return what came of it."""

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the files of the workspace."""

    async def scale_pictures(
        self, contents: Sequence[bytes]
    ) -> Sequence[chat_messages.Picture | None]:
        """Scale pictures to the size that a model is sent; None if that fails.

        They are decoded in the sandbox, as they may be hostile.
        """

    async def view(self, name: str) -> chat_messages.Picture | None:
        """Return a file as a picture, scaled; None if it is no picture, or too large."""

    async def read_file(self, name: str, *, start: int, max_bytes: int) -> bytes:
        """Return part of a file, from byte `start`."""


class ToolIndex(Protocol):
    """The functions of other systems that code can call, if they are too many for the prompt."""

    def find(self, words: str) -> str:
        """List the functions that fit some words best."""

    def describe(self, name: str) -> str:
        """Return what a function takes and does, or that there is none of that name."""


class Llm(Protocol):
    """A language model behind any protocol."""

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply. Cancelling closes the stream from the server at once.

        Raises:
            ModelError: see `model_errors`; of these, `CutError` after part was received.
        """
