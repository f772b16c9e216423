"""The reply of one run of code: it gathers what the run shows, until the client is answered."""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, events, values
from interpreter_bot.sessions import ports
from interpreter_bot.text import output_screens, quantities, safe_text

_TAIL_CHARACTERS: Final = 1000
_LINE_CHARACTERS: Final = 200
_NOBODY: Final = "Nobody is there to answer input(): put the value into the code."
_QUEUED: Final = "Waiting behind {count}."


class RunReply(ports.Reply):
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
        self.end: events.TurnEnded | None = None
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

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.Queued(ahead=ahead):
                self._waiting = _QUEUED.format(count=quantities.count(ahead, "request"))
            case events.Started():
                self._waiting = ""
            case events.ProgressChanged(text=text):
                self._waiting = text
            case events.NoticeShown(text=text):
                self.notes.append(text)
            case events.OutputShown(output=output):
                self.screen.show(output)
                if isinstance(output, values.Text):
                    self._tail = (self._tail + safe_text.clean(output.text))[-_TAIL_CHARACTERS:]
            case events.CodeFinished(finished=finished):
                self.ending = finished
            case events.FileMade(artifact=artifact):
                self.artifacts.append(artifact)
            case events.TurnEnded():
                self.end = event

    async def ask(self, question: events.Question) -> str | None:
        """Decline: no person is there."""
        if isinstance(question, events.InputQuestion):
            raise errors.BotError(_NOBODY)
        return None

    def save(self, name: str) -> ports.FileWriter | None:
        """Return no writer: the client reads files from the workspace when it wants them."""
        return None
