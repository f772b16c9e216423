"""A reply that notes what came and when."""

from __future__ import annotations

import time

from interpreter_bot import events, values
from interpreter_bot.sessions import ports


class Reply(ports.Reply):
    """Shows nobody anything.

    Attributes:
        first_milliseconds: from its making to the first sign of life.
        code_milliseconds: how long code ran, in all.
        whole_milliseconds: from its making to the end.
        shown: what code showed.
        end: the end.
    """

    def __init__(self) -> None:
        self._made = time.perf_counter()
        self._code_began = 0.0
        self.first_milliseconds = 0.0
        self.code_milliseconds = 0.0
        self.whole_milliseconds = 0.0
        self.shown: list[values.Output] = []
        self.end: events.TurnEnded | None = None

    def _sign(self) -> None:
        if not self.first_milliseconds:
            self.first_milliseconds = (time.perf_counter() - self._made) * 1000

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.CodeStarted():
                self._code_began = time.perf_counter()
            case events.OutputShown(output=output):
                self.shown.append(output)
            case events.CodeFinished():
                self.code_milliseconds += (time.perf_counter() - self._code_began) * 1000
            case events.FileMade() | events.UsageChanged():
                pass
            case events.TurnEnded():
                self.whole_milliseconds = (time.perf_counter() - self._made) * 1000
                self.end = event
            case _:
                self._sign()
