"""What the agent expects of others: a workbench, somebody who watches, a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from interpreter_bot import values
from interpreter_bot.agent import budgets, chat_messages

Show: TypeAlias = Callable[[values.Output], None]
"""Takes an output at the moment it appears."""


Approve: TypeAlias = Callable[[str], Awaitable[str]]
"""Gives the code that may run in place of what it is given: as it is, or as a person changed it.

A `BotError` says that none may.
"""


class Environment(Protocol):
    """Where code runs and files lie: one session's kernel and workspace.

    A `BotError` that a method raises is told to the model in its own words, and the turn goes on;
    but for a `StoreError`, which ends it: no model can do anything about that.
    """

    async def run(self, code: str, *, show: Show) -> values.Finished:
        """Run code and say how it ended.

        Cancelled when the person stops the turn or its time is over: interrupt the code, and
        return only when it no longer runs.
        """

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the workspace."""

    async def scaled(self, contents: Sequence[bytes]) -> Sequence[chat_messages.Picture | None]:
        """Make pictures as small as a model may be shown them; None where it cannot be done.

        They are decoded where the code runs: whatever they are, it is as harmless as code.
        """

    async def read_file(self, name: str, *, start: int, most_bytes: int) -> bytes:
        """Return part of a file, from byte `start`."""


class TurnObserver(Protocol):
    """Sees a turn happen. Called from the event loop, in order; must not block.

    What a method raises ends the turn and is passed on.
    """

    def step(self, number: int) -> None:
        """The model is asked for the `number`th time, from 1."""

    def text(self, delta: str) -> None:
        """The model writes to the person."""

    def writing(self, delta: str) -> None:
        """The model writes code; it may still turn out not to be run."""

    def code(self, code: str) -> None:
        """This code runs now."""

    def output(self, output: values.Output) -> None:
        """The running code shows something."""

    def finished(self, finished: values.Finished) -> None:
        """The code has ended; comes once for every `code` unless the turn is stopped."""

    def usage(self, spent: budgets.Spent) -> None:
        """So much the turn has cost until now."""

    def notice(self, sentence: str) -> None:
        """Something about the turn itself, such as that the model is waited for."""

    def progress(self, text: str, share: float | None) -> None:
        """How far something is that the turn waits for.

        It takes the place of what this method said before, and is worth nothing later.

        Args:
            text: what is waited for; empty once it is there, or given up.
            share: how much of it is done, from 0 to 1; None where nobody can tell.
        """


class ReplyListener(Protocol):
    """Takes what a model says while it says it."""

    def text(self, delta: str) -> None:
        """Words for the person."""

    def code(self, delta: str) -> None:
        """Code that is to be run once it is complete."""

    def notice(self, sentence: str) -> None:
        """Something about the model, such as that it is waited for."""

    def progress(self, text: str, share: float | None) -> None:
        """How far the model is on its way to be there; see `Watcher.progress`."""


class Llm(Protocol):
    """A language model behind any protocol."""

    async def reply(
        self, prompt: chat_messages.Prompt, *, listener: ReplyListener
    ) -> chat_messages.Reply:
        """Answer. Cancelling closes the stream from the server at once.

        Raises:
            ModelError: see `model_errors`; of these, `CutError` after part of the answer was heard.
        """
