"""A reply that records its outputs and times."""

from __future__ import annotations

import time

from interpreter_bot import events, values
from interpreter_bot.sessions import ports


class Reply(ports.Reply):
    """A reply that is shown to nobody.

    Attributes:
        first_milliseconds: time from its creation to the first sign of life.
        code_milliseconds: total running time of the code.
        whole_milliseconds: time from its creation to the turn's end.
        outputs: all outputs of the code.
        end: the turn's last event.
    """

    def __init__(self) -> None:
        self._created_at = time.perf_counter()
        self._code_started_at = 0.0
        self.first_milliseconds = 0.0
        self.code_milliseconds = 0.0
        self.whole_milliseconds = 0.0
        self.outputs: list[values.Output] = []
        self.end: events.TurnEnded | None = None

    def _note_first_sign(self) -> None:
        if not self.first_milliseconds:
            self.first_milliseconds = (time.perf_counter() - self._created_at) * 1000

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.CodeStarted():
                self._code_started_at = time.perf_counter()
            case events.OutputShown(output=output):
                self.outputs.append(output)
            case events.CodeFinished():
                self.code_milliseconds += (time.perf_counter() - self._code_started_at) * 1000
            case events.FileMade() | events.UsageChanged():
                pass
            case events.TurnEnded():
                self.whole_milliseconds = (time.perf_counter() - self._created_at) * 1000
                self.end = event
            case _:
                self._note_first_sign()
