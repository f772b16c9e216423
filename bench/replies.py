"""A reply that notes what came and when."""

from __future__ import annotations

import time
from collections.abc import Sequence

from interpreter_bot import errors, values
from interpreter_bot.sessions import ports


class Reply:
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
        self.end: ports.End | None = None

    def _sign(self) -> None:
        if not self.first_milliseconds:
            self.first_milliseconds = (time.perf_counter() - self._made) * 1000

    def queued(self, ahead: int) -> None:
        self._sign()

    def started(self) -> None:
        self._sign()

    def step(self, number: int) -> None:
        self._sign()

    def progress(self, text: str, share: float | None) -> None:
        self._sign()

    def text(self, delta: str) -> None:
        self._sign()

    def writing(self, delta: str) -> None:
        self._sign()

    def code(self, cell: int, code: str) -> None:
        self._code_began = time.perf_counter()

    def output(self, cell: int, output: values.Output) -> None:
        self.shown.append(output)

    def finished(self, cell: int, finished: values.Finished) -> None:
        self.code_milliseconds += (time.perf_counter() - self._code_began) * 1000

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        raise errors.BotError("Nobody answers.")

    async def approve(self, cell: int, code: str, *, choices: Sequence[str] = ()) -> str | None:
        return code

    def announcement(self, cell: int, text: str) -> None:
        self._sign()

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        return None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        pass

    def usage(self, spent: values.Usage) -> None:
        pass

    def ended(self, end: ports.End) -> None:
        self.whole_milliseconds = (time.perf_counter() - self._made) * 1000
        self.end = end
