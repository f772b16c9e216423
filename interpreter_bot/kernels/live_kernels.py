"""A live kernel: it executes one piece of code at a time, to one of seven endings.

An execution has finished once both the kernel's reply and its idle status have arrived.
The kernel's death, the time limit or a stop may come first. A stop interrupts, which keeps
variables; if the code does not react, the kernel is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import code_activity, errors, session_variables, settings, values
from interpreter_bot.kernels import execution_streams, outputs
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.packages import lock_files
from interpreter_bot.kernels.provisioning import provisioners
from interpreter_bot.kernels.wire import clients, sockets
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

_LAST_OUTPUT_SECONDS: Final = 0.05
_INTERRUPT_PAUSE_SECONDS: Final = 1.0
# Read this multiple of the bytes that may be shown, because code may update the same display.
_READ_FACTOR: Final = 4
_MAX_LARGE_DISPLAYS: Final = 20
# After a slow save, the next one waits for this multiple of the time that the save took.
_MIN_SAVE_INTERVAL_FACTOR: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class _StopRequest:
    ending: values.Ending
    reason: str
    is_kill: bool = False


class Kernel:
    """A live kernel. One execution at a time; further ones wait in order.

    Attributes:
        id: unique among all kernels ever.
        provisioner: attaches workspaces, measures what the session uses, and ends the kernel.
        connection: open once the kernel runs.
    """

    def __init__(
        self,
        provisioner: provisioners.ForkProvisioner,
        connection: clients.Client,
        *,
        id: str,
        limits: settings.Limits,
        interrupt_grace_seconds: float,
    ) -> None:
        self.id = id
        self.provisioner = provisioner
        self.connection = connection
        self._limits = limits
        self._grace_seconds = interrupt_grace_seconds
        self._lock = asyncio.Lock()
        self._stop_future: asyncio.Future[_StopRequest] | None = None
        self._kill_request: _StopRequest | None = None
        self._stream: execution_streams.ExecutionStream | None = None
        self._is_interrupted = False
        self._death_reason = run_words.crash_sentence(None)
        self.workspace: workspaces.Workspace | None = None
        """The attached workspace, if any."""
        self.person = ""
        """Key of the person who used the kernel last; see `kernel_capacity`."""
        self.weight = 1.0
        """The session's part of that person's share of processor and disk."""
        self.layers: dict[str, lock_files.Lock] = {}
        """Packages installed for the session: the lock of each layer, by the layer's name."""
        self.last_used = time.monotonic()
        self.namespace = outputs.VariableNames()
        """Names that code has defined, as of the last reply."""
        self.is_frozen = False
        """Whether all its processes are suspended, until the next execution."""
        self.run_count = 0
        """Number of started executions that may have changed variables."""
        self.execution_count = 0
        """Number of all started executions, including the bot's own."""
        self.run_count_at_attempt = 0
        """Value of `run_count` at the last attempt to save."""
        self.run_count_at_save = 0
        """Value of `run_count` at the last successful save; 0 if this kernel has saved nothing."""
        self._last_save_seconds = (0.0, 0.0)
        self._last_save_ended_at = 0.0
        self.is_savable = True
        """Whether its variables may replace the saved ones."""
        self.snapshot_numbers: set[int] = set()
        """Numbers of the snapshots that it restored or wrote; 0 if it began without one."""
        self.restored_variables: session_variables.SavedVariables | None = None
        """The variables that it restored from an earlier kernel."""
        self.restore_notice = ""
        """Sentence for people before the first output: which variables could not be restored."""
        self.loss_notice = ""
        """Sentence for people before the first output: why the former kernel is gone."""
        self._disk_full_notice: str | None = None
        self.install: execution_streams.Install | None = None
        """Installs packages into it; None if nothing can be installed."""
        self.on_installation: Callable[[code_activity.InstalledLayer], None] | None = None
        """Called at once with each layer that the running code installs."""

    @property
    def is_alive(self) -> bool:
        """Whether code can still run in it."""
        return not self.provisioner.ended.is_set()

    @property
    def loss_reason(self) -> str:
        """Why the kernel ended, a sentence for people; empty if unknown."""
        return self._kill_request.reason if self._kill_request else self._death_reason

    @property
    def is_busy(self) -> bool:
        """Whether code is running in it."""
        return self._lock.locked()

    async def execute(
        self,
        code: str,
        *,
        show: execution_streams.Show,
        ask: execution_streams.Ask | None = None,
        seconds: float | None = None,
        is_bot_code: bool = False,
    ) -> values.Finished:
        """Run code and return how it ended; never raises for what the code does.

        Args:
            code: Python, with IPython's additions.
            show: called with each output as it appears.
            ask: called when the code asks for input; without it `input()` raises in the code.
            seconds: limit of wall time; by default that of the settings.
            is_bot_code: the code is the bot's and changes no variable, so the session stays idle.
        """
        stop_future: asyncio.Future[_StopRequest] = asyncio.get_running_loop().create_future()
        if self._stop_future is None:
            # A stop request counts from now on, also while the kernel is being thawed.
            self._stop_future = stop_future
        try:
            async with self._lock:
                self._stop_future = stop_future
                if not is_bot_code:
                    self.last_used = time.monotonic()
                self.run_count += not is_bot_code
                self.execution_count += 1
                if self._disk_full_notice and not is_bot_code:
                    show(values.Notice(self._disk_full_notice))
                    self._disk_full_notice = ""
                if self.is_frozen:
                    self.is_frozen = False
                    await self.provisioner.thaw()
                return await self._execute(code, show, ask, seconds, is_bot_code=is_bot_code)
        finally:
            if self._stop_future is stop_future:
                self._stop_future = None
            if not is_bot_code:
                self.last_used = time.monotonic()

    async def run_bot_code(
        self, code: str, *, seconds: float | None = None
    ) -> tuple[values.Finished, str]:
        """Run code of the bot as `execute` does; return how it ended and its last JSON output."""
        last_json = ""

        def keep_json(output: values.Output) -> None:
            nonlocal last_json
            if isinstance(output, values.Json):
                last_json = output.json

        finished = await self.execute(code, show=keep_json, seconds=seconds, is_bot_code=True)
        return finished, last_json

    def record_save_duration(self, started_at: float) -> None:
        """Record how long a save took that started at monotonic time `started_at`."""
        self._last_save_ended_at = time.monotonic()
        self._last_save_seconds = (
            self._last_save_seconds[1],
            self._last_save_ended_at - started_at,
        )

    def is_saved_quickly(self, seconds: float) -> bool:
        """Return whether saves take at most `seconds` each, or a small share of the time."""
        # Take the shorter of the last two, as one may include a pause of the machine.
        shortest_seconds = min(self._last_save_seconds)
        # A busy session is never idle, so slow saves are also allowed after a long pause.
        return shortest_seconds <= max(
            seconds, (time.monotonic() - self._last_save_ended_at) / _MIN_SAVE_INTERVAL_FACTOR
        )

    def record_disk_space(self, *, is_disk_full: bool) -> None:
        """Record whether the disk had room for a save; if not, people get one notice."""
        if not is_disk_full:
            self._disk_full_notice = None
        elif self._disk_full_notice is None:
            self._disk_full_notice = run_words.DISK_FULL_FOR_VARIABLES

    async def ask(self, request: values.InputRequested) -> str:
        """Ask the person whose code is running; its clock stops until the answer.

        Raises:
            BotError: nobody can be asked, or nobody answered.
        """
        if self._stream is None:
            raise errors.KernelError
        return await self._stream.ask_person(request)

    async def _execute(
        self,
        code: str,
        show: execution_streams.Show,
        ask: execution_streams.Ask | None,
        seconds: float | None,
        *,
        is_bot_code: bool,
    ) -> values.Finished:
        if not self.is_alive:
            return values.Finished(values.Ending.REFUSED, 0.0, self.loss_reason, kernel_lost=True)
        started_at = time.monotonic()
        oom_kills = self.provisioner.meter().oom_kills()

        def show_unless_interrupt(output: values.Output) -> None:
            # The ending is explained in a sentence; this traceback is no error of the code.
            if not (self._is_interrupted and _is_interrupt(output)):
                show(output)

        self._is_interrupted = False
        stream = execution_streams.ExecutionStream(
            self.connection,
            outputs.OutputReader(self._limits),
            show=show_unless_interrupt,
            ask=ask,
            install=self.install,
            max_bytes=_READ_FACTOR * _max_shown_bytes(self._limits),
            input_seconds=self._limits.input_seconds,
            kill=self.kill_with_reason,
            interrupt=functools.partial(self.interrupt_with_reason, values.Ending.STOPPED),
        )
        self._stream = stream
        try:
            execution = stream.start(code, is_counted=not is_bot_code)
            limit_seconds = self._limits.execution_seconds if seconds is None else seconds
            stop = await self._await_end(
                execution, stream, started_at + limit_seconds, limit_seconds
            )
            if (
                self.provisioner.ended.is_set()
                or not execution.done()
                or execution.exception() is not None
            ):
                return await self._finish_dead(stream, stop, oom_kills, started_at)
            if self.provisioner.meter().oom_kills() > oom_kills:
                show(values.Notice(run_words.partly_out_of_memory(self._limits.memory_bytes)))
            self.namespace = stream.namespace or self.namespace
            return _result_of_live_kernel(stream.status, stop, time.monotonic() - started_at)
        finally:
            self._stream = None
            await stream.close()
            self.connection.drop_unfinished()
            if stream.has_lost_output and self.is_alive:
                # If that fails, the next execution notices and reports it.
                with contextlib.suppress(sockets.LostSocket):
                    await self.connection.renew_output()

    async def _await_end(
        self,
        execution: asyncio.Task[None],
        stream: execution_streams.ExecutionStream,
        deadline: float,
        limit_seconds: float,
    ) -> _StopRequest | None:
        """Wait until the execution ends, is stopped, or exceeds its time; return any stop."""
        death_task = asyncio.create_task(self.provisioner.ended.wait(), name="kernel's death")
        try:
            while True:
                seconds_left = deadline + stream.seconds_asking - time.monotonic()
                events: set[asyncio.Future[Any]] = {
                    execution,
                    death_task,
                    self._stop_future or death_task,
                }
                timeout = None if stream.is_asking else max(seconds_left, 0)
                if stream.is_asking:
                    events.add(stream.next_answer)
                completed, _ = await asyncio.wait(
                    events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if execution in completed or death_task in completed:
                    return self._kill_request
                if self._stop_future in completed and self._stop_future is not None:
                    return await self._apply_stop(self._stop_future.result(), execution, death_task)
                if seconds_left <= 0 and not stream.is_asking:
                    reason = run_words.stopped_after(limit_seconds)
                    timeout_stop = _StopRequest(values.Ending.TIMED_OUT, reason)
                    return await self._apply_stop(timeout_stop, execution, death_task)
        except asyncio.CancelledError:
            # The caller was cancelled; code must not run on unsupervised.
            cancellation_stop = _StopRequest(values.Ending.STOPPED, run_words.EXECUTION_ABANDONED)
            await self._apply_stop(cancellation_stop, execution, death_task)
            raise
        finally:
            death_task.cancel()

    async def _apply_stop(
        self,
        stop: _StopRequest,
        execution: asyncio.Task[None],
        death_task: asyncio.Task[bool],
    ) -> _StopRequest:
        """Interrupt until the code reacts; kill after the grace period, or at once if asked to."""
        self._is_interrupted = True
        deadline = time.monotonic() + self._grace_seconds
        while not stop.is_kill and (seconds_left := deadline - time.monotonic()) > 0:
            self.provisioner.interrupt()
            pause = min(seconds_left, _INTERRUPT_PAUSE_SECONDS)
            completed, _ = await asyncio.wait(
                {execution, death_task}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
            if completed:
                return stop
        await self.provisioner.kill()
        await self.provisioner.ended.wait()
        return stop

    async def _finish_dead(
        self,
        stream: execution_streams.ExecutionStream,
        stop: _StopRequest | None,
        oom_kills: int,
        started_at: float,
    ) -> values.Finished:
        """Show the last output of the dead kernel, and return how the execution ended."""
        await stream.read_remaining_output(_LAST_OUTPUT_SECONDS)
        seconds = time.monotonic() - started_at
        if stop is not None:
            self._death_reason = stop.reason or run_words.NOT_STOPPING
            reason = f"{self._death_reason} {run_words.VARIABLES_LOST}"
            return values.Finished(stop.ending, seconds, reason, kernel_lost=True)
        status = await self.provisioner.wait_status()
        if self.provisioner.meter().oom_kills() > oom_kills:
            reason = run_words.out_of_memory(self._limits.memory_bytes)
            ending = values.Ending.OUT_OF_MEMORY
        else:
            reason, ending = run_words.crash_sentence(status), values.Ending.CRASHED
        self._death_reason = reason
        _log.info("a kernel died: %s", reason)
        reason = f"{reason} {run_words.VARIABLES_LOST}"
        return values.Finished(ending, seconds, reason, kernel_lost=True)

    async def freeze(self) -> None:
        """Suspend all processes of an idle kernel until the next execution."""
        if not self.is_busy and not self.is_frozen and self.is_alive:
            async with self._lock:
                self.is_frozen = True
                await self.provisioner.freeze()

    async def stop(self, reason: str = "Stopped.") -> None:
        """Interrupt the running execution; variables survive if the code reacts."""
        self.interrupt_with_reason(values.Ending.STOPPED, reason)

    def interrupt_with_reason(self, ending: values.Ending, reason: str) -> None:
        """Interrupt the running execution, if there is one, for a reason of the bot."""
        if self._stop_future is not None and not self._stop_future.done():
            self._stop_future.set_result(_StopRequest(ending, reason))

    def kill_with_reason(self, ending: values.Ending, reason: str) -> None:
        """Kill the kernel now, whether idle or busy."""
        if self._kill_request is None and self.is_alive:
            self._kill_request = _StopRequest(ending, reason, is_kill=True)
            if self._stop_future is not None and not self._stop_future.done():
                self._stop_future.set_result(self._kill_request)
            else:
                self._kill_task = asyncio.create_task(self.provisioner.kill(), name="kill kernel")


def _is_interrupt(output: values.Output) -> bool:
    return isinstance(output, values.Error) and output.name == "KeyboardInterrupt"


def _max_shown_bytes(limits: settings.Limits) -> int:
    # Most pictures have a hundredth of the allowed size, so only some displays count as large.
    large_display_count = min(limits.displays, _MAX_LARGE_DISPLAYS)
    return limits.output_bytes + large_display_count * outputs.MAX_DISPLAY_BYTES


def _result_of_live_kernel(
    status: str, stop: _StopRequest | None, seconds: float
) -> values.Finished:
    if stop is not None:
        return values.Finished(stop.ending, seconds, stop.reason)
    endings = {"ok": values.Ending.OK, "error": values.Ending.ERROR}
    reason = "" if status in endings else run_words.CODE_NOT_RUN
    return values.Finished(endings.get(status, values.Ending.REFUSED), seconds, reason)
