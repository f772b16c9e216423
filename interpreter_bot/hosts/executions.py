"""Executions of a host: each runs to its end, even if nobody follows, and writes a journal.

Clients begin, follow, stop and acknowledge executions by id. If a host dies, the next one adds an
end to the journal of each unfinished execution, with a sentence that says so.

Running code asks its questions of all followers that can answer; the first answer counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import pathlib
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

import cachetools

from interpreter_bot import code_activity, errors, schedules, values
from interpreter_bot.hosts import messages, ports
from interpreter_bot.kernels import execution_journals, live_kernels
from interpreter_bot.wording import host_words, run_words

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
# A host that ends closes its connections before its journals, so clients may look too early.
_MAX_ENDING_SECONDS: Final = 5.0
_MAX_KNOWN_IDS: Final = 100_000

SendEvent = Callable[[int, bytes], Awaitable[None]]
"""Sends an event: its number, and its bytes, which `messages.pack` encoded."""


class Questioner(Protocol):
    """A follower of an execution who may answer the code's questions."""

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask for an answer to the question with this number."""

    def withdraw(self, number: int) -> None:
        """Withdraw the question, because it is answered or no longer asked."""


class Questions:
    """The questions of one execution, one after the other."""

    def __init__(self, input_seconds: float = math.inf) -> None:
        """Wait at most `input_seconds` for an answer, not counting time without a follower."""
        self._input_seconds = input_seconds
        self._questioners: list[Questioner] = []
        self._questioners_changed = asyncio.Event()
        self._number = 0
        self._request: values.InputRequested | None = None
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, request: values.InputRequested) -> str:
        """Ask all present and later followers, and return the first answer.

        Raises:
            BotError: no answer came in time, or the first one was a refusal.
        """
        self._number += 1
        request = self._request = dataclasses.replace(request, number=self._number)
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
        seconds_left = self._input_seconds
        while not answer.done() and seconds_left > 0:
            self._questioners_changed.clear()
            # The time limit runs only while somebody can answer.
            timeout = seconds_left if self._questioners and seconds_left < math.inf else None
            started_at = time.monotonic()
            change_task = asyncio.create_task(
                self._questioners_changed.wait(), name="change of questioners"
            )
            futures: set[asyncio.Future[Any]] = {answer, change_task}
            try:
                await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change_task.cancel()
            if timeout is not None:
                seconds_left -= time.monotonic() - started_at
        if not answer.done():
            raise errors.UnansweredError
        return answer.result()

    def answer(self, number: int, answer: str | errors.BotError) -> None:
        """Accept an answer or a refusal; ignore one that comes too late."""
        if number != self._number or self._answer is None or self._answer.done():
            return
        if isinstance(answer, str):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)

    @contextlib.contextmanager
    def subscribed(self, questioner: Questioner) -> Iterator[None]:
        """Ask this follower, too, while the context is open."""
        self._questioners.append(questioner)
        self._questioners_changed.set()
        try:
            if self._request is not None:
                questioner.ask(self._number, self._request)
            yield
        finally:
            self._questioners.remove(questioner)
            if self._request is not None:
                questioner.withdraw(self._number)
            self._questioners_changed.set()


class CallbackQuestioner:
    """Answers each question with what a callback returns; implements `Questioner`."""

    def __init__(self, questions: Questions, ask: ports.Ask) -> None:
        self._questions = questions
        self._ask = ask
        self._call_task: asyncio.Task[None] | None = None

    def ask(self, number: int, request: values.InputRequested) -> None:
        self._call_task = asyncio.create_task(self._call(number, request), name="answer to code")

    async def _call(self, number: int, request: values.InputRequested) -> None:
        try:
            self._questions.answer(number, await self._ask(request))
        except errors.BotError as error:
            self._questions.answer(number, error)

    def withdraw(self, number: int) -> None:
        if self._call_task is not None:
            self._call_task.cancel()


class _OrderedQuestioner:
    """Delays questions until the events before them were sent; implements `Questioner`."""

    def __init__(
        self,
        questioner: Questioner,
        journal: execution_journals.Journal,
        last_sent: int,
    ) -> None:
        """Ask nothing yet; the last sent event has the number `last_sent`."""
        self._questioner = questioner
        self._journal = journal
        self._last_sent = last_sent
        self._delayed_question: tuple[int, int, values.InputRequested] | None = None

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask once all present events of the journal were sent."""
        self._delayed_question = self._journal.last_number, number, request
        self.note_sent(self._last_sent)

    def note_sent(self, number: int) -> None:
        """Note the number of an event that was sent, and ask a question that waited for it."""
        self._last_sent = number
        if self._delayed_question is not None and number >= self._delayed_question[0]:
            _, question, request = self._delayed_question
            self._delayed_question = None
            self._questioner.ask(question, request)

    def withdraw(self, number: int) -> None:
        self._delayed_question = None
        self._questioner.withdraw(number)


class _Execution:
    """An execution that runs, or waits for its kernel."""

    def __init__(self, kernel: live_kernels.Kernel, questions: Questions) -> None:
        self.kernel = kernel
        self.questions = questions
        self.is_running = False
        self.stop_reason: str | None = None
        self.task: asyncio.Task[None] | None = None


class Executions:
    """All executions of one host, by id; in memory, or on disk with `open`.

    Attributes:
        is_draining: whether the host is about to end; then it takes over no journals of dead hosts.
    """

    def __init__(
        self,
        journals: execution_journals.Journals | None = None,
        *,
        input_seconds: float = math.inf,
    ) -> None:
        self.is_draining = False
        self._journals = journals or execution_journals.Journals()
        self._input_seconds = input_seconds
        self._running_executions: dict[str, _Execution] = {}
        self._kernel_locks: weakref.WeakKeyDictionary[live_kernels.Kernel, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )
        self._orphan_lock = asyncio.Lock()
        # Ids are kept longer than journals, so that no execution begins twice.
        self._known_ids: cachetools.LRUCache[str, bool] = cachetools.LRUCache(_MAX_KNOWN_IDS)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        directory: pathlib.Path,
        *,
        input_seconds: float = math.inf,
    ) -> AsyncIterator[Executions]:
        """Open the journals of a directory, and end the executions of hosts that died.

        Raises:
            OSError: the directory cannot be used.
        """
        async with execution_journals.Journals.open(directory) as journals:
            executions = cls(journals, input_seconds=input_seconds)
            await executions._end_orphans()
            sweeping = schedules.PeriodicJob(
                "sweep journals", _SWEEP_INTERVAL_SECONDS, journals.sweep
            )
            try:
                async with schedules.run_periodically(sweeping):
                    yield executions
            finally:
                await executions.close()

    async def _end_orphans(self) -> bool:
        """Add ends to journals of dead hosts; return whether no other host is alive."""
        is_only_host = await self._journals.take_over()
        for journal in self._journals:
            if journal.ended_at is None and journal.id not in self._running_executions:
                end = _lost_end(max(time.time() - journal.began_at, 0.0))
                journal.append(messages.pack(end), is_end=True)
        return is_only_host

    def __len__(self) -> int:
        """Return the number of running executions."""
        return len(self._running_executions)

    def begin(
        self,
        execution_id: str,
        kernel: live_kernels.Kernel,
        code: str,
        *,
        can_ask: bool,
        seconds: float | None,
        is_bot_code: bool = False,
    ) -> None:
        """Begin an execution, unless one of this id was begun before.

        Raises:
            ValueError: the id is invalid.
        """
        if self.is_known(execution_id):
            return
        journal = self._journals.begin(execution_id)
        self._known_ids[execution_id] = True
        questions = Questions(self._input_seconds)
        execution = self._running_executions[execution_id] = _Execution(kernel, questions)
        ask = questions.ask if can_ask else None
        running = self._run(
            execution, journal, code, ask=ask, seconds=seconds, is_bot_code=is_bot_code
        )
        execution.task = asyncio.create_task(running, name=f"execution {execution_id}")

    async def _run(
        self,
        execution: _Execution,
        journal: execution_journals.Journal,
        code: str,
        *,
        ask: ports.Ask | None,
        seconds: float | None,
        is_bot_code: bool,
    ) -> None:
        """Run code once its kernel is free, and append its end to the journal."""
        started_at, end = time.monotonic(), None
        lock = self._kernel_locks.setdefault(execution.kernel, asyncio.Lock())
        try:
            async with lock:
                end = await _run_in_kernel(
                    execution, journal, code, ask=ask, seconds=seconds, is_bot_code=is_bot_code
                )
        except Exception:
            # Catch everything, because followers wait for an end.
            _log.exception("an execution failed")
            end = ports.ExecutionEnd(
                values.Finished(values.Ending.REFUSED, 0.0, run_words.BOT_FAULT)
            )
        finally:
            if end is None:
                # This task was cancelled, because the process ends at once.
                end = _lost_end(time.monotonic() - started_at)
            journal.append(messages.pack(end), is_end=True)
            del self._running_executions[journal.id]

    async def find(self, execution_id: str) -> execution_journals.Journal:
        """Return the journal of an execution, even if its host has just ended.

        Raises:
            ExecutionMissingError: there is no journal.
        """
        deadline = time.monotonic() + _MAX_ENDING_SECONDS
        while (journal := self._journals.find(execution_id)) is None:
            is_only_host = True
            if not self.is_draining:
                async with self._orphan_lock:
                    is_only_host = await self._end_orphans()
            journal = self._journals.find(execution_id)
            if journal is None and (is_only_host or time.monotonic() > deadline):
                raise errors.ExecutionMissingError
            await asyncio.sleep(0 if journal else _POLL_SECONDS)
        return journal

    def is_known(self, execution_id: str) -> bool:
        """Return whether an execution of this id was begun; its events may be forgotten."""
        return execution_id in self._known_ids or self._journals.find(execution_id) is not None

    def questions(self, execution_id: str) -> Questions | None:
        """Return the questions of a running execution; None for others."""
        execution = self._running_executions.get(execution_id)
        return None if execution is None else execution.questions

    async def follow(
        self,
        execution_id: str,
        *,
        after: int,
        send: SendEvent,
        questioner: Questioner | None,
    ) -> None:
        """Send the events after a number as they come, the end last; needs no lease.

        A question is asked after the events before it were sent.

        Raises:
            ExecutionMissingError: it never began, was acknowledged, or is too old.
        """
        journal = await self.find(execution_id)
        questions = self.questions(execution_id)
        with contextlib.ExitStack() as stack:
            ordered = None
            if questioner is not None and questions is not None:
                ordered = _OrderedQuestioner(questioner, journal, after)
                stack.enter_context(questions.subscribed(ordered))
            last_sent = 0
            async for entry in journal.follow(after):
                if entry.dropped_count:
                    notice = values.Notice(host_words.outputs_missing(entry.dropped_count))
                    await send(entry.number - 1, messages.pack(notice))
                # This waits for a slow client; later events stay in the journal.
                await send(entry.number, entry.record)
                last_sent = entry.number
                if ordered is not None:
                    ordered.note_sent(last_sent)
        if last_sent < journal.last_number:
            await _send_end(journal, after, send)

    async def stop(self, execution_id: str, reason: str = "") -> None:
        """Interrupt an execution, or prevent its start."""
        execution = self._running_executions.get(execution_id)
        if execution is None:
            return
        if execution.stop_reason is None:
            execution.stop_reason = reason
        if execution.is_running:
            await execution.kernel.stop(reason)

    def acknowledge(self, execution_id: str) -> None:
        """Forget an execution that has ended."""
        if execution_id not in self._running_executions:
            self._journals.remove(execution_id)

    async def close(self) -> None:
        """End all running executions."""
        tasks = {
            execution.task
            for execution in self._running_executions.values()
            if execution.task is not None
        }
        # Cancel all at once, because each may take seconds to end.
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _run_in_kernel(
    execution: _Execution,
    journal: execution_journals.Journal,
    code: str,
    *,
    ask: ports.Ask | None,
    seconds: float | None,
    is_bot_code: bool,
) -> ports.ExecutionEnd:
    """Run code in an idle kernel, and describe its end."""
    kernel = execution.kernel
    layers: list[code_activity.InstalledLayer] = []

    def show(event: ports.Event) -> None:
        journal.append(messages.pack(event))

    def on_installation(layer: code_activity.InstalledLayer) -> None:
        layers.append(layer)
        show(layer)

    cpu_before = await _cpu_seconds(kernel)
    if execution.stop_reason is not None:
        finished = values.Finished(values.Ending.STOPPED, 0.0, execution.stop_reason)
        cpu_seconds = 0.0
    else:
        execution.is_running = True
        kernel.on_installation = on_installation
        try:
            finished = await kernel.execute(
                code, show=show, ask=ask, seconds=seconds, is_bot_code=is_bot_code
            )
        finally:
            execution.is_running = False
            kernel.on_installation = None
        cpu_seconds = max(await _cpu_seconds(kernel) - cpu_before, 0.0)
    return ports.ExecutionEnd(
        finished,
        cpu_seconds,
        kernel.namespace.names,
        kernel.namespace.unlisted_count,
        loss_reason="" if kernel.is_alive else kernel.loss_reason,
        run_count=kernel.run_count,
        installed_layers=tuple(layers),
    )


async def _cpu_seconds(kernel: live_kernels.Kernel) -> float:
    """Return the processor time that a kernel's session has used."""
    meter = kernel.provisioner.meter()
    if not meter.is_counted:
        # Without a control group, this reads /proc, which blocks.
        return await asyncio.to_thread(meter.cpu_seconds)
    return meter.cpu_seconds()


async def _send_end(journal: execution_journals.Journal, after: int, send: SendEvent) -> None:
    """Send the end with a higher number than all events that were sent before.

    A client may have received events that were lost in a crash of the host. The next host may give
    the end the number of such an event, so the client would skip the end as a repetition.

    Raises:
        ExecutionMissingError: the end is not in the journal any more.
    """
    ends = [entry.record async for entry in journal.follow(journal.last_number - 1)]
    if not ends:
        raise errors.ExecutionMissingError
    await send(max(after, journal.last_number) + 1, ends[-1])


def _lost_end(seconds: float) -> ports.ExecutionEnd:
    """Return the end of an execution whose host died or had to end at once."""
    finished = values.Finished(
        values.Ending.CRASHED, seconds, host_words.HOST_ENDED, kernel_lost=True
    )
    return ports.ExecutionEnd(finished, loss_reason=host_words.HOST_ENDED)
