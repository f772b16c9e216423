"""The reply of one run of code: it gathers what the run shows, until the client is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import ports
from interpreter_bot.text import output_screens, quantities, safe_text

_TAIL_CHARACTERS: Final = 1000
_LINE_CHARACTERS: Final = 200
_NOBODY: Final = "Nobody is there to answer input(): put the value into the code."
_QUEUED: Final = "Waiting behind {count}."


@ports.silent_after_end
class RunReply:
    """The reply of one run.

    Attributes:
        screen: what it shows.
        notes: sentences about the session.
        artifacts: files that it made or changed.
        ending: how the code ended; None if it did not begin.
        end: of the turn.
    """

    def __init__(self) -> None:
        self.screen = output_screens.Screen()
        self.notes: list[str] = []
        self.artifacts: list[values.Artifact] = []
        self.ending: values.Finished | None = None
        self.end: ports.End | None = None
        self._waiting = ""
        self._tail = ""

    @property
    def latest(self) -> str:
        """What it does now, in a line: what it printed last, or what it waits for."""
        if self._waiting:
            return self._waiting
        lines = safe_text.harmless(self._tail.replace("\r", "\n")).split("\n")
        return quantities.one_line(
            next((line for line in reversed(lines) if line.strip()), ""), _LINE_CHARACTERS
        )

    def queued(self, ahead: int) -> None:
        """Note how many runs come before."""
        self._waiting = _QUEUED.format(count=quantities.count(ahead, "request"))

    def started(self) -> None:
        """Wait no longer."""
        self._waiting = ""

    def progress(self, text: str, share: float | None) -> None:
        """Note what is waited for."""
        self._waiting = text

    def announcement(self, cell: int, text: str) -> None:
        """Keep a sentence about the session."""
        self.notes.append(text)

    def output(self, cell: int, output: values.Output) -> None:
        """Keep an output."""
        self.screen.show(output)
        if isinstance(output, values.Text):
            self._tail = (self._tail + safe_text.clean(output.text))[-_TAIL_CHARACTERS:]

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Refuse: no person is there.

        Raises:
            BotError: always.
        """
        raise errors.BotError(_NOBODY)

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Keep how the code ended."""
        self.ending = finished

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        """Return no writer: the client reads files from the workspace when it wants them."""
        return None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Keep the name of a file."""
        self.artifacts.append(artifact)

    def ended(self, end: ports.End) -> None:
        """Keep the end."""
        self.end = end

    async def approve(
        self, cell: int, code: str, *, choices: Sequence[str] = (), is_personal: bool = False
    ) -> str | None:
        """Refuse: only a model's code would be asked about, and there is none here."""
        return None

    async def tell_privately(self, text: str) -> bool:
        """Refuse: no person is there."""
        return False

    def code(self, cell: int, code: str) -> None:
        """Ignore what is run: the client knows it."""

    def step(self, number: int) -> None:
        """Ignore: no model is asked."""

    def text(self, delta: str) -> None:
        """Ignore: no model writes."""

    def writing(self, delta: str) -> None:
        """Ignore: no model writes."""

    def usage(self, spent: values.Usage) -> None:
        """Ignore: no model is paid."""
