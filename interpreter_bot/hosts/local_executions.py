"""Executions in kernels of this process: run by ids, and kept for those who follow them later."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import weakref
from typing import Final

from interpreter_bot import code_activity, settings, values
from interpreter_bot.hosts import execution_questions, ports
from interpreter_bot.kernels import live_kernels

# Of one execution; beyond it only those hear everything who listen while it runs.
_MOST_KEPT_BYTES: Final = 8 * settings.MIB
_MOST_ENDED: Final = 100
_LEFT_OUT: Final = "Some of the output was left out: it was more than is kept."


class Execution:
    """One execution, from being asked for until it is acknowledged. Begins at once."""

    def __init__(
        self,
        kernel: live_kernels.Kernel,
        code: str,
        *,
        order: asyncio.Lock,
        can_ask: bool,
        seconds: float | None,
        is_own: bool = False,
    ) -> None:
        self._kernel = kernel
        self._code = code
        self._order = order
        self._seconds = seconds
        self._is_own = is_own
        self._questions = execution_questions.Questions()
        self._ask = self._questions.ask if can_ask else None
        self._is_running = False
        self._stopped: str | None = None
        self._count = 0
        self._kept: collections.deque[tuple[ports.Event, int]] = collections.deque()
        self._kept_bytes = 0
        self._installed: list[code_activity.InstalledLayer] = []
        self._shows: list[ports.Show] = []
        self.running = asyncio.create_task(self._run(), name="execution by id")

    async def follow(
        self, after: int, show: ports.Show, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        """Follow it to its end; see `ports.Hosts.follow`."""
        first = self._count - len(self._kept) + 1
        if after + 1 < first:
            show(values.Notice(_LEFT_OUT), first - 1)
        for number, (output, _) in enumerate(tuple(self._kept), first):
            if number > after:
                show(output, number)
        self._shows.append(show)
        answering = contextlib.nullcontext() if ask is None else self._questions.calling(ask)
        try:
            with answering:
                # Followers come and go; it runs on.
                return await asyncio.shield(self.running)
        finally:
            self._shows.remove(show)

    async def stop(self, reason: str) -> None:
        """Interrupt it, or keep it from beginning."""
        if self._stopped is None:
            self._stopped = reason
        if self._is_running:
            await self._kernel.stop(reason)

    async def _run(self) -> ports.ExecutionEnd:
        kernel = self._kernel
        async with self._order:
            before = await _cpu_seconds(kernel)
            if self._stopped is not None:
                finished = values.Finished(values.Ending.STOPPED, 0.0, self._stopped)
                return self._end(finished, 0.0)
            self._is_running = True
            kernel.on_installation = self._note_installed
            try:
                finished = await kernel.execute(
                    self._code,
                    show=self._show,
                    ask=self._ask,
                    seconds=self._seconds,
                    is_own=self._is_own,
                )
            finally:
                self._is_running = False
                kernel.on_installation = None
            used = await _cpu_seconds(kernel) - before
            return self._end(finished, max(used, 0.0))

    def _end(self, finished: values.Finished, cpu_seconds: float) -> ports.ExecutionEnd:
        kernel = self._kernel
        space = kernel.namespace
        reason = "" if kernel.is_alive else kernel.loss_reason
        return ports.ExecutionEnd(
            *(finished, cpu_seconds, space.names, space.more, reason, kernel.runs),
            tuple(self._installed),
        )

    def _note_installed(self, layer: code_activity.InstalledLayer) -> None:
        self._installed.append(layer)
        self._show(layer)

    def _show(self, output: ports.Event) -> None:
        self._count += 1
        size = _size_bytes(output)
        self._kept.append((output, size))
        self._kept_bytes += size
        while self._kept_bytes > _MOST_KEPT_BYTES:
            self._kept_bytes -= self._kept.popleft()[1]
        for show in tuple(self._shows):
            show(output, self._count)


async def _cpu_seconds(kernel: live_kernels.Kernel) -> float:
    """Read the processor time of a kernel's session so far."""
    usage = kernel.provisioner.usage()
    if not usage.is_counted:
        # Without a control group, it is read of each process.
        return await asyncio.to_thread(usage.cpu_seconds)
    return usage.cpu_seconds()


def _size_bytes(output: ports.Event) -> int:
    """Return about what an event holds in memory."""
    if isinstance(output, code_activity.InstalledLayer):
        return len(output.packages)
    held = len(output.plain)
    match output:
        case values.Image():
            held += len(output.data) + len(output.preview)
        case values.Html():
            held += len(output.html) + len(output.preview)
        case values.Table():
            held += sum(len(cell) for row in output.rows for cell in row)
        case values.Latex():
            held += len(output.latex) + len(output.preview)
        case values.Json():
            held += len(output.json)
    return held


class Executions:
    """All executions of one host that were not acknowledged, by id."""

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}
        self._orders: weakref.WeakKeyDictionary[live_kernels.Kernel, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )

    def begin(
        self,
        execution_id: str,
        kernel: live_kernels.Kernel,
        code: str,
        *,
        can_ask: bool,
        seconds: float | None,
        is_own: bool = False,
    ) -> Execution:
        """Begin an execution, or return the one of that id."""
        if (known := self._executions.get(execution_id)) is not None:
            return known
        ended = [key for key, one in self._executions.items() if one.running.done()]
        for key in ended[: max(len(ended) - _MOST_ENDED, 0)]:
            del self._executions[key]
        order = self._orders.setdefault(kernel, asyncio.Lock())
        execution = Execution(
            kernel, code, order=order, can_ask=can_ask, seconds=seconds, is_own=is_own
        )
        self._executions[execution_id] = execution
        return execution

    def find(self, execution_id: str) -> Execution | None:
        """Return an execution; None if it is not kept."""
        return self._executions.get(execution_id)

    def forget(self, execution_id: str) -> None:
        """Keep no more what an execution showed, once it has ended."""
        execution = self._executions.get(execution_id)
        if execution is not None:
            execution.running.add_done_callback(lambda _: self._executions.pop(execution_id, None))

    async def close(self) -> None:
        """End all that run, with the host."""
        running = {execution.running for execution in self._executions.values()}
        # All at once: each has seconds of grace to end.
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
