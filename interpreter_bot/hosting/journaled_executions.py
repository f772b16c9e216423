"""Executions of a host process: each runs to its end, and its journal takes what it shows.

They are asked for, followed and acknowledged by bots that come and go. What a host that died has
left of an execution is followed like any other, up to the sentence that it was lost.

Above 300 lines: one table of executions, from their beginning to what is left of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Protocol

from interpreter_bot import errors, schedules, values
from interpreter_bot.hosting import own_directories
from interpreter_bot.hosts import ports, wire_messages
from interpreter_bot.kernels import execution_journals, kernel_loss_reasons

_log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
# A host that ends closes its connections, and a moment later its journals.
_ENDING_SECONDS: Final = 5.0
_MOST_BEGUN: Final = 100_000
_HOST_DIED: Final = f"The process that kept the Python kernel ended. {kernel_loss_reasons.LOST}"
_UNANSWERED: Final = "The code waited for input, and nobody answered."
_DEFECT: Final = "Something went wrong that nobody foresaw; what, is in the log."


class Questioner(Protocol):
    """Who may answer what code asks: a follower of its execution."""

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask for an answer; `number` names the question."""

    def withdraw(self, number: int) -> None:
        """Take the question back: it is answered, or no longer asked."""


class Execution:
    """An execution of this process, and who listens to it."""

    def __init__(self, input_seconds: float) -> None:
        """Begin.

        Args:
            input_seconds: how long an answer is waited for while anybody could give it.
        """
        self._input_seconds = input_seconds
        self._questioners: list[Questioner] = []
        self._came_or_went = asyncio.Event()
        self._number = 0
        self._request: values.InputRequested | None = None
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, request: values.InputRequested) -> str:
        """Ask all who listen, now and later; the first answer counts.

        Raises:
            BotError: none came; the sentence says so.
        """
        self._number += 1
        self._request = request
        self._answer = asyncio.get_running_loop().create_future()
        try:
            for questioner in tuple(self._questioners):
                questioner.ask(self._number, request)
            return await self._await_answer(self._answer)
        finally:
            self._answer = self._request = None
            for questioner in tuple(self._questioners):
                questioner.withdraw(self._number)

    async def _await_answer(self, answer: asyncio.Future[str]) -> str:
        left = self._input_seconds
        while not answer.done() and left > 0:
            self._came_or_went.clear()
            # While no bot is there, nobody can be asked.
            timeout = left if self._questioners else None
            began = time.monotonic()
            changed = asyncio.create_task(self._came_or_went.wait(), name="listeners")
            either: set[asyncio.Future[Any]] = {answer, changed}
            try:
                await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if timeout is not None:
                left -= time.monotonic() - began
        if not answer.done():
            raise errors.BotError(_UNANSWERED)
        return answer.result()

    def answer(self, number: int, answer: str | errors.BotError) -> None:
        """Take an answer, or a refusal; one that comes too late counts for nothing."""
        if number != self._number or self._answer is None or self._answer.done():
            return
        if isinstance(answer, str):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)

    @contextlib.contextmanager
    def asking(self, questioner: Questioner) -> Iterator[None]:
        """Let somebody answer, as long as the context is open."""
        self._questioners.append(questioner)
        self._came_or_went.set()
        try:
            if self._request is not None:
                questioner.ask(self._number, self._request)
            yield
        finally:
            self._questioners.remove(questioner)
            self._came_or_went.set()


class JournaledExecutions:
    """All executions of a host process, by id. Use `open`.

    Attributes:
        is_draining: the host is about to end: what others leave is for the next one.
    """

    def __init__(
        self,
        host: ports.Hosts,
        journals: execution_journals.Journals,
        directory: own_directories.OwnDirectory,
        *,
        input_seconds: float,
    ) -> None:
        self._host = host
        self._journals = journals
        self._directory = directory
        self._input_seconds = input_seconds
        self._running: dict[str, Execution] = {}
        self.is_draining = False
        self._taking_over = asyncio.Lock()
        # Longer than their journals: what was begun is not begun again for want of one.
        self._begun: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

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
        with await asyncio.to_thread(own_directories.OwnDirectory, directory) as own:
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
                journal.append(wire_messages.pack(_lost(journal.about)), is_end=True)

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
        about = json.dumps({"kernel": kernel.id, "began": time.time()}).encode()
        journal = self._journals.begin(execution_id, about)
        self._begun[execution_id] = None
        if len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        execution = self._running[execution_id] = Execution(self._input_seconds)
        running = self._run(
            *(journal, execution, kernel, code), can_ask=can_ask, seconds=seconds, is_own=is_own
        )
        task = asyncio.create_task(running, name=f"execution {execution_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self,
        journal: execution_journals.Journal,
        execution: Execution,
        kernel: ports.Kernel,
        code: str,
        *,
        can_ask: bool,
        seconds: float | None,
        is_own: bool,
    ) -> None:
        def show(output: values.Output, _: int) -> None:
            journal.append(wire_messages.pack(output))

        # Where nothing else is known: the process is told to end at once, or there is a defect.
        end = _lost(journal.about)
        try:
            end = await kernel.execute(
                code,
                execution_id=journal.id,
                show=show,
                ask=execution.ask if can_ask else None,
                seconds=seconds,
                is_own=is_own,
            )
        except Exception:
            # The last net: followers wait for an end, and nobody else would hear of this.
            _log.exception("an execution failed")
            finished = values.Finished(values.Ending.REFUSED, 0.0, _DEFECT)
            end = ports.ExecutionEnd(finished)
        finally:
            journal.append(wire_messages.pack(end), is_end=True)
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

    def running(self, execution_id: str) -> Execution | None:
        """Return an execution that still runs."""
        return self._running.get(execution_id)

    async def acknowledge(self, execution_id: str) -> None:
        """Forget an execution, if it is over: all that it showed was recorded."""
        if execution_id not in self._running:
            await self._journals.remove(execution_id)

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _lost(about: bytes) -> ports.ExecutionEnd:
    """Return the end of an execution whose host died."""
    try:
        began = float(json.loads(about)["began"])
    except (ValueError, KeyError, TypeError):
        began = time.time()
    seconds = max(time.time() - began, 0.0)
    finished = values.Finished(values.Ending.CRASHED, seconds, _HOST_DIED, kernel_lost=True)
    return ports.ExecutionEnd(finished, loss_reason=_HOST_DIED)
