"""Events of one turn, forwarded to its reply and to its recorder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from interpreter_bot import values
from interpreter_bot.sessions import ports
from interpreter_bot.store import records

if TYPE_CHECKING:
    # Whoever runs a line of code without a database imports none.
    from interpreter_bot.sessions import turn_recording


class TurnEvents:
    """Forwards events of the agent (as its `TurnObserver`) to the reply and the recorder.

    Attributes:
        cell: number of the latest execution, from 0; -1 before the first.
        last: how the latest execution ended; None while it runs, and before the first.
        has_words: whether the model has written to the person.
        is_code_shown: whether the reply has the code already that is followed next.
        reply: gets what happens.
    """

    def __init__(self, reply: ports.Reply, recorder: turn_recording.Recorder) -> None:
        self.cell = -1
        self.last: values.Finished | None = None
        self.has_words = False
        self.is_code_shown = False
        self._has_begun = False
        self._is_repeated = False
        self._pictures: set[str] = set()
        self.reply: Final = reply
        self._recorder = recorder

    def started(self) -> None:
        """The turn has started."""
        self.reply.started()

    def step(self, number: int) -> None:
        """The model is called."""
        self._recorder.step(number)
        self.reply.step(number)

    def text(self, delta: str) -> None:
        """The model writes to the person."""
        self.has_words = self.has_words or bool(delta.strip())
        self._recorder.text(delta)
        self.reply.text(delta)

    def writing(self, delta: str) -> None:
        """The model writes code."""
        self.reply.writing(delta)

    def code(self, code: str) -> None:
        """The agent wants code run; the environment reports its real start by `begin`."""
        self._has_begun = False

    async def begin(self, code: str, hosted_id: str = "") -> None:
        """Code runs now.

        Args:
            code: what runs.
            hosted_id: by which its host knows it.

        Raises:
            StoreError: it cannot be recorded, so it must not run.
        """
        await self._recorder.run(code, hosted_id)
        self._begun(code)

    def follow(self, execution: records.Execution) -> None:
        """Code runs, or ran, that another bot began."""
        self._recorder.follow(execution)
        self._begun(execution.code)

    def _begun(self, code: str) -> None:
        self._has_begun = True
        self.cell += 1
        self.last = None
        if not self.is_code_shown:
            self.reply.code(self.cell, code)
        self.is_code_shown = False

    def hear(self, number: int) -> None:
        """The output that comes next has this number in its execution."""
        self._is_repeated = not self._recorder.hear(number)

    def output(self, output: values.Output) -> None:
        """The running code shows an output; what is recorded already is not shown again."""
        if self._is_repeated:
            self._is_repeated = False
            return
        if isinstance(output, values.Image):
            self._pictures.add(hashlib.sha256(output.data).hexdigest())
        self._recorder.output(output)
        self.reply.output(self.cell, output)

    async def ask(self, request: values.InputRequested) -> str:
        """The running code asks the person."""
        return await self.reply.ask(self.cell, request)

    async def approve(
        self, code: str, *, choices: Sequence[str] = (), is_personal: bool = False
    ) -> str | None:
        """Ask the person whether code may run; see `ports.Reply.approve`."""
        return await self.reply.approve(
            self.cell + 1, code, choices=choices, is_personal=is_personal
        )

    async def tell_privately(self, sentence: str) -> bool:
        """Tell the person alone; nobody else hears of it, and it is not recorded."""
        return await self.reply.tell_privately(sentence)

    def end(self, finished: values.Finished) -> None:
        """The running code has ended."""
        self.last = finished
        self._recorder.finished(finished)
        self.reply.finished(self.cell, finished)

    def finished(self, finished: values.Finished) -> None:
        """Ignore the agent's report: the environment has reported the end of all code by `end`."""
        if not self._has_begun and finished.reason:
            self.notice(finished.reason)

    def usage(self, spent: values.Usage) -> None:
        """The usage of the turn until now."""
        self._recorder.spent(spent)
        self.reply.usage(spent)

    def worked(self, cpu_seconds: float) -> None:
        """The processor time of the code until now."""
        self._recorder.worked(cpu_seconds)

    def notice(self, sentence: str) -> None:
        """Send the person a sentence about the turn or the session."""
        self._recorder.notice(sentence)
        self.reply.announcement(max(self.cell, 0), sentence)

    def progress(self, text: str, share: float | None) -> None:
        """Show the person progress; it is not recorded."""
        self.reply.progress(text, share)

    def announcement(self, cell: int, text: str) -> None:
        """Send the person a sentence about a file."""
        self._recorder.notice(text)
        self.reply.announcement(cell, text)

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        """Return the reply's writer for a file."""
        return self.reply.save(cell, name)

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Send a file to the person."""
        self._recorder.artifact(artifact)
        if artifact.sha256 in self._pictures:
            artifact = dataclasses.replace(artifact, is_shown=True)
        self.reply.artifact(cell, artifact)
