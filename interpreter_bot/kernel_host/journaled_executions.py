"""Executions of a host process: each runs to its end, and its journal takes what it shows.

They are asked for, followed and acknowledged by bots that come and go. What a host that died has
left of an execution is followed like any other, up to the sentence that it was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Final

from interpreter_bot import errors, schedules, values
from interpreter_bot.hosts import execution_questions, host_messages, ports
from interpreter_bot.kernel_host import journal_directories
from interpreter_bot.kernels import execution_journals, kernel_loss_reasons

_log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
# A host that ends closes its connections, and a moment later its journals.
_ENDING_SECONDS: Final = 5.0
_MOST_BEGUN: Final = 100_000
_HOST_DIED: Final = f"The process that kept the Python kernel ended. {kernel_loss_reasons.LOST}"
_DEFECT: Final = "Something went wrong that nobody foresaw; what, is in the log."


class JournaledExecutions:
    """All executions of a host process, by id. Use `open`.

    Attributes:
        is_draining: the host is about to end: what others leave is for the next one.
    """

    def __init__(
        self,
        host: ports.Hosts,
        journals: execution_journals.Journals,
        directory: journal_directories.OwnDirectory,
        *,
        input_seconds: float,
    ) -> None:
        self._host = host
        self._journals = journals
        self._directory = directory
        self._input_seconds = input_seconds
        self._running: dict[str, execution_questions.Questions] = {}
        self.is_draining = False
        self._taking_over = asyncio.Lock()
        # Longer than their journals: what was begun is not begun again for want of one.
        self._begun: dict[str, None] = {}
        self._executing: set[asyncio.Task[None]] = set()
        self._forgetting: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        host: ports.Hosts,
        directory: pathlib.Path,
        bounds: execution_journals.Bounds | None = None,
        *,
        input_seconds: float = 600.0,
    ) -> AsyncIterator[JournaledExecutions]:
        """Open the journals; at the end all that still runs must be over.

        Args:
            host: in this process, whose kernels run the code.
            directory: of the journals of all hosts; those of dead ones are taken over.
            bounds: theirs, where they are not the usual ones.
            input_seconds: how long an answer is waited for while a bot is there.
        """
        bounds = bounds or execution_journals.Bounds()
        with await asyncio.to_thread(journal_directories.OwnDirectory, directory) as own:
            async with execution_journals.Journals.open(own.path, bounds) as journals:
                opened = cls(host, journals, own, input_seconds=input_seconds)
                opened._end_lost()
                sweeping = schedules.PeriodicJob("sweep journals", _SWEEP_SECONDS, journals.sweep)
                try:
                    async with schedules.run_periodically(sweeping):
                        yield opened
                finally:
                    await opened._close()

    def _end_lost(self) -> None:
        """End those whose host has died."""
        for journal in self._journals:
            if journal.ended_at is None and journal.id not in self._running:
                journal.append(host_messages.pack(_lost(_age_seconds(journal.about))), is_end=True)

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def begin(
        self,
        execution_id: str,
        kernel: ports.Kernel,
        code: str,
        *,
        can_ask: bool,
        seconds: float | None,
        is_own: bool = False,
    ) -> None:
        """Begin an execution; where there is one of that id, it is that one.

        Raises:
            ValueError: the id cannot be used.
        """
        if self.is_known(execution_id):
            return
        about = host_messages.document({"kernel": kernel.id, "began": time.time()})
        journal = self._journals.begin(execution_id, about)
        self._begun[execution_id] = None
        if len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        asked = self._running[execution_id] = execution_questions.Questions(self._input_seconds)
        ask = asked.ask if can_ask else None
        running = self._run(journal, kernel, code, ask=ask, seconds=seconds, is_own=is_own)
        _spawn(running, f"execution {execution_id}", self._executing)

    async def _run(
        self,
        journal: execution_journals.Journal,
        kernel: ports.Kernel,
        code: str,
        *,
        ask: ports.Ask | None,
        seconds: float | None,
        is_own: bool,
    ) -> None:
        def show(output: ports.Event, _: int) -> None:
            journal.append(host_messages.pack(output))

        began, end = time.monotonic(), None
        try:
            end = await kernel.execute(
                code,
                execution_id=journal.id,
                show=show,
                ask=ask,
                seconds=seconds,
                is_own=is_own,
            )
        except Exception:
            # The last net: followers wait for an end, and nobody else would hear of this.
            _log.exception("an execution failed")
            finished = values.Finished(values.Ending.REFUSED, 0.0, _DEFECT)
            end = ports.ExecutionEnd(finished)
        finally:
            if end is None:
                # Cancelled: the process is to end at once.
                end = _lost(time.monotonic() - began)
            journal.append(host_messages.pack(end), is_end=True)
            self._host.acknowledge(journal.id)
            del self._running[journal.id]

    async def find(self, execution_id: str) -> execution_journals.Journal:
        """Return the journal of an execution, also of one whose host ended just now.

        Raises:
            ExecutionMissingError: there is none.
        """
        give_up = time.monotonic() + _ENDING_SECONDS
        while (journal := self._journals.find(execution_id)) is None:
            is_complete = True
            if not self.is_draining:
                async with self._taking_over:
                    taken, is_complete = await asyncio.to_thread(self._directory.take_over)
                    # Nothing else: what is acknowledged meanwhile is being removed.
                    await self._journals.recover(taken)
                    self._end_lost()
            journal = self._journals.find(execution_id)
            if journal is None and (is_complete or time.monotonic() > give_up):
                raise errors.ExecutionMissingError
            await asyncio.sleep(0 if journal else _POLL_SECONDS)
        return journal

    def is_known(self, execution_id: str) -> bool:
        """Whether there is or was an execution of that id; what it showed may be forgotten."""
        return execution_id in self._begun or self._journals.find(execution_id) is not None

    def asked(self, execution_id: str) -> execution_questions.Questions | None:
        """Return what an execution asks, as long as it runs."""
        return self._running.get(execution_id)

    def acknowledge(self, execution_id: str) -> None:
        """Forget an execution soon, if it is over: all that it showed was recorded."""
        if execution_id not in self._running:
            removing = self._journals.remove(execution_id)
            _spawn(removing, f"forgetting execution {execution_id}", self._forgetting)

    async def _close(self) -> None:
        for task in self._executing:
            task.cancel()
        # What was acknowledged is not left to the next host.
        if ending := self._executing | self._forgetting:
            await asyncio.wait(ending)


def _spawn(work: Coroutine[object, None, None], name: str, tasks: set[asyncio.Task[None]]) -> None:
    """Do work in a task, which is among `tasks` until it is done."""

    def over(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", name, exc_info=error)

    tasks.add(task := asyncio.create_task(work, name=name))
    task.add_done_callback(over)


def _age_seconds(about: bytes) -> float:
    """Return how long ago an execution began whose host died, by what its journal is about."""
    try:
        return max(time.time() - float(json.loads(about)["began"]), 0.0)
    except (ValueError, KeyError, TypeError):
        return 0.0


def _lost(seconds: float) -> ports.ExecutionEnd:
    """Return the end of an execution whose host died, or was told to end at once."""
    finished = values.Finished(values.Ending.CRASHED, seconds, _HOST_DIED, kernel_lost=True)
    return ports.ExecutionEnd(finished, loss_reason=_HOST_DIED)
