"""The events of one turn on their way to its recorder and to its reply."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.sessions import ports, turn_recording
from interpreter_bot.store import records


class TurnStream:
    """Records events, then shows them.

    Attributes:
        cell: number of the latest execution, from 0; -1 before the first.
        last: how the latest execution ended; None while it runs, and before the first.
        has_words: whether the model has written to the person.
        is_code_shown: whether the reply already shows the code of the next `follow_code`.
        reply: shows what happens.
    """

    def __init__(self, reply: ports.Reply, recorder: turn_recording.Recorder) -> None:
        self.cell = -1
        self.last: values.Finished | None = None
        self.has_words = False
        self.is_code_shown = False
        self._pictures: set[str] = set()
        self.reply: Final = reply
        self._recorder = recorder

    def emit(self, event: events.TurnEvent) -> None:
        """Record an event and show it; an output that is recorded already is not shown again."""
        match event:
            case events.TextAdded(text=text):
                self.has_words = self.has_words or bool(text.strip())
            case events.OutputShown(output=values.Image(data=data)):
                self._pictures.add(hashlib.sha256(data).hexdigest())
            case events.CodeFinished(finished=finished):
                self.last = finished
            case events.NoticeShown(cell=None, text=text):
                event = events.NoticeShown(text, max(self.cell, 0))
            case events.FileMade(cell=cell, artifact=artifact):
                if artifact.sha256 in self._pictures:
                    artifact = dataclasses.replace(artifact, is_shown=True)
                    event = events.FileMade(cell, artifact)
        if self._recorder.record(event):
            self.reply.emit(event)

    async def start_code(self, code: str, hosted_id: str = "") -> None:
        """Record that code runs now, and show it.

        Args:
            code: what runs.
            hosted_id: by which its host knows it.

        Raises:
            StoreError: it cannot be recorded, so it must not run.
        """
        await self._recorder.run(code, hosted_id)
        self._show_code(code)

    def follow_code(self, execution: records.Execution) -> None:
        """Show code that another bot began."""
        self._recorder.follow(execution)
        self._show_code(execution.code)

    def _show_code(self, code: str) -> None:
        self.cell += 1
        self.last = None
        if not self.is_code_shown:
            self.reply.emit(events.CodeStarted(self.cell, code))
        self.is_code_shown = False

    async def ask(self, request: values.InputRequested) -> str:
        """Ask the person what running code asks."""
        question = events.InputQuestion(
            cell=self.cell,
            prompt=request.prompt,
            is_password=request.is_password,
            choices=request.choices,
        )
        return await self.reply.ask(question) or ""

    async def approve(
        self, code: str, *, choices: tuple[str, ...] = (), is_personal: bool = False
    ) -> str | None:
        """Ask a person whether code may run; see `events.ApprovalQuestion`."""
        return await self.reply.ask(
            events.ApprovalQuestion(
                cell=self.cell + 1, code=code, choices=choices, is_personal=is_personal
            )
        )

    def note_cpu(self, cpu_seconds: float) -> None:
        """Record the processor time of the turn's code until now."""
        self._recorder.note_cpu(cpu_seconds)

    def save(self, name: str) -> ports.FileWriter | None:
        """Return the reply's writer for a file."""
        return self.reply.save(name)
