"""Writing down a turn while it happens, so that a bot that is killed leaves behind what was.

Words and outputs come faster than a database writes. They are gathered, what belongs together is
joined, and all of it is written now and then; code is written before it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import finishing
from interpreter_bot.store import databases, records

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.5
_Kind: Final = records.PartKind


class Recorder:
    """Records the parts of one turn. Use `open`.

    A database that fails in the middle of a turn is logged and does not end the turn: what was
    not written is tried again with what comes next.
    """

    def __init__(self, database: databases.Database, turn_id: int) -> None:
        self.turn_id = turn_id
        self._database = database
        self._pending: list[records.NewPart] = []
        self._writing = asyncio.Lock()
        self._step = 0
        self._execution_id: int | None = None
        self._ended: list[tuple[int, values.Finished]] = []
        self._is_urgent = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, database: databases.Database, turn_id: int) -> AsyncIterator[Recorder]:
        """Record until the context is left; all of it is written then, even if cancelled."""
        recorder = cls(database, turn_id)
        writing = asyncio.create_task(recorder._write_on(), name=f"record turn {turn_id}")
        try:
            yield recorder
        finally:
            writing.cancel()
            await asyncio.wait({writing})
            await finishing.to_the_end(recorder.flush())

    def step(self, number: int) -> None:
        """What follows belongs to this model call."""
        self._step = number

    def text(self, delta: str) -> None:
        """The model wrote to the person."""
        last = self._pending[-1] if self._pending else None
        if last is not None and last.kind is _Kind.TEXT and last.step == self._step:
            self._pending[-1] = dataclasses.replace(last, text=last.text + delta)
        else:
            self._add(_Kind.TEXT, text=delta)

    def notice(self, sentence: str) -> None:
        """The person was told a sentence of ours."""
        self._add(_Kind.NOTICE, text=sentence)

    def output(self, output: values.Output) -> None:
        """Code showed something."""
        last = self._pending[-1].output if self._pending else None
        if (
            isinstance(output, values.Text)
            and isinstance(last, values.Text)
            and last.stream == output.stream
        ):
            joined = values.Text(output.stream, last.text + output.text)
            self._pending[-1] = dataclasses.replace(self._pending[-1], output=joined)
        else:
            self._add(_Kind.OUTPUT, output=output)

    def memory(self, detail: Mapping[str, Any]) -> None:
        """What a model is to know of this turn later."""
        self._add(_Kind.MEMORY, detail=detail)

    async def begin(self, code: str) -> None:
        """Code is about to run; this is written down first.

        Raises:
            StoreError: it cannot be.
        """
        self._execution_id = await self._database.executions.start(self.turn_id, code)
        self._add(_Kind.CODE, text=code)
        # What came before it is written while it runs.
        self._is_urgent.set()

    def end(self, finished: values.Finished) -> None:
        """The code has ended."""
        if self._execution_id is not None:
            self._ended.append((self._execution_id, finished))
        self._execution_id = None
        self._is_urgent.set()

    async def flush(self) -> None:
        """Write what is not written yet."""
        async with self._writing:
            parts, self._pending = self._pending, []
            ended, self._ended = self._ended, []
            try:
                await self._database.parts.add(self.turn_id, *parts)
                parts = []
                for execution_id, finished in ended:
                    await self._database.executions.finish(execution_id, finished)
            except errors.StoreError:
                _log.exception("part of turn %d could not be recorded", self.turn_id)
                self._pending = parts + self._pending
                self._ended = ended + self._ended

    def _add(self, kind: records.PartKind, **fields: Any) -> None:
        part = records.NewPart(
            kind=kind, step=self._step, execution_id=self._execution_id, **fields
        )
        self._pending.append(part)

    async def _write_on(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._is_urgent.wait()
            self._is_urgent.clear()
            # A write that is cut off at the end of the turn would lose what it had taken.
            await asyncio.shield(self.flush())
