"""A live kernel: it executes one piece of code at a time, to one of seven endings.

Finished means the kernel's reply *and* its idle status, both for this request. Three other things
may come first: the kernel dies, time runs out, or the execution is stopped. Stopping is an
interrupt, which keeps variables, and a kill where code does not react to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import code_activity, errors, session_variables, settings, values
from interpreter_bot.kernels import (
    execution_streams,
    outputs,
    variable_names,
)
from interpreter_bot.kernels.provisioning import provisioners
from interpreter_bot.kernels.wire import clients, sockets
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

_LAST_OUTPUT_SECONDS: Final = 0.05
_INTERRUPTS_SECONDS: Final = 1.0
# What is read of an execution, in relation to what is shown: the same display may be updated.
_READ_SHARE: Final = 4
_LARGE_DISPLAYS: Final = 20
# Variables that take long to save are saved for a twentieth of the time.
_SAVING_PART: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Intervention:
    ending: values.Ending
    reason: str
    is_deadly: bool = False


class Kernel:
    """A live kernel. One execution at a time; further ones wait in order.

    Attributes:
        id: unique among all kernels ever.
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
        self._connection = connection
        self._limits = limits
        self._grace_seconds = interrupt_grace_seconds
        self._lock = asyncio.Lock()
        self._stepping_in: asyncio.Future[_Intervention] | None = None
        self._condemned: _Intervention | None = None
        self._listener: execution_streams.ExecutionStream | None = None
        self._is_interrupted = False
        self._died_of = run_words.crash(None)
        self.last_used = time.monotonic()
        self.namespace = variable_names.VariableNames()
        """Names that code has defined in it, as of the last reply."""
        self.is_frozen = False
        """Whether all its processes are stopped, until the next execution."""
        self.runs = 0
        """How many pieces of code were begun that may have changed variables."""
        self.executions = 0
        """The same, with the bot's own code."""
        self.runs_when_tried = 0
        """Value of `runs` when saving was last tried."""
        self.runs_when_saved = 0
        """Value of `runs` when the saved variables were saved; 0 if by an earlier kernel."""
        self._saving_seconds = (0.0, 0.0)
        self._saving_ended = 0.0
        self.is_savable = True
        """Whether its variables may replace those that were saved."""
        self.generations: set[int] = set()
        """Numbers of the snapshots that it began with and wrote; 0 stands for none."""
        self.restored: session_variables.SavedVariables | None = None
        """The variables of an earlier kernel that it began with."""
        self.restore_notice = ""
        """Sentence for people before the first output: which variables were not restored."""
        self.announcement = ""
        """Sentence for people before the first output: why the former kernel is gone."""
        self._unsaved: str | None = None
        self.install: execution_streams.Install | None = None
        """Installs packages into it; None where nothing can be installed."""
        self.on_installation: Callable[[code_activity.InstalledLayer], None] | None = None
        """Is told at once what the code of now had installed."""

    @property
    def is_alive(self) -> bool:
        """Whether code can still run in it."""
        return not self.provisioner.ended.is_set()

    @property
    def loss_reason(self) -> str:
        """Why the kernel ended, as the end of a sentence; empty if unknown."""
        return self._condemned.reason if self._condemned else self._died_of

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
        is_own: bool = False,
        is_silent: bool = False,
    ) -> values.Finished:
        """Run code and return how it ended; never raises for what the code does.

        Args:
            code: Python, with IPython's additions.
            show: called with each output as it appears.
            ask: called when the code asks for input; without it `input()` raises in the code.
            seconds: wall time; default is the limit of the settings.
            is_own: it is the bot's own and changes no variable: the session is as idle as before.
            is_silent: it shows nothing, and runs before the kernel has its workspace.
        """
        stepping_in: asyncio.Future[_Intervention] = asyncio.get_running_loop().create_future()
        if self._stepping_in is None:
            # A stop counts from now on, also while the kernel is frozen or thawed.
            self._stepping_in = stepping_in
        try:
            async with self._lock:
                self._stepping_in = stepping_in
                if not is_own:
                    self.last_used = time.monotonic()
                self.runs += not is_own
                self.executions += 1
                if self._unsaved and not is_own:
                    show(values.Notice(self._unsaved))
                    self._unsaved = ""
                if self.is_frozen:
                    self.is_frozen = False
                    await self.provisioner.thaw()
                return await self._execute(
                    code, show, ask, seconds, is_own=is_own, is_silent=is_silent
                )
        finally:
            if self._stepping_in is stepping_in:
                self._stepping_in = None
            if not is_own:
                self.last_used = time.monotonic()

    def note_saving(self, begun: float) -> None:
        """Remember how long saving variables took, which began at such a monotonic time."""
        self._saving_ended = time.monotonic()
        self._saving_seconds = (self._saving_seconds[1], self._saving_ended - begun)

    def is_saved_quickly(self, seconds: float) -> bool:
        """Return whether saving variables takes no longer than that, or a small share of time."""
        # The shorter of two, as one may include a pause of the bot or the machine.
        shortest = min(self._saving_seconds)
        # A busy session is never idle, so a slow save is due again after a multiple of its time.
        return shortest <= max(seconds, (time.monotonic() - self._saving_ended) / _SAVING_PART)

    def note_saved(self, *, is_disk_full: bool) -> None:
        """Note whether the disk had room for its variables; people hear once that it has none."""
        if not is_disk_full:
            self._unsaved = None
        elif self._unsaved is None:
            self._unsaved = run_words.DISK_FULL_FOR_VARIABLES

    async def ask(self, request: values.InputRequested) -> str:
        """Ask whoever runs the code of now, whose time stands still meanwhile.

        Raises:
            BotError: nobody can be asked, or nobody answered.
        """
        if self._listener is None:
            raise errors.KernelError
        return await self._listener.put(request)

    async def _execute(
        self,
        code: str,
        show: execution_streams.Show,
        ask: execution_streams.Ask | None,
        seconds: float | None,
        *,
        is_own: bool,
        is_silent: bool,
    ) -> values.Finished:
        if not self.is_alive:
            return values.Finished(values.Ending.REFUSED, 0.0, self.loss_reason, kernel_lost=True)
        started = time.monotonic()
        oom_kills = self.provisioner.usage().oom_kills()

        def show_but_interrupts(output: values.Output) -> None:
            # How it ended is told in a sentence; the traceback is no error of the code.
            if not (self._is_interrupted and _is_interrupt(output)):
                show(output)

        self._is_interrupted = False
        listener = execution_streams.ExecutionStream(
            self._connection,
            outputs.OutputReader(self._limits),
            show=show_but_interrupts,
            ask=ask,
            install=self.install,
            most_bytes=_READ_SHARE * _shown_bytes(self._limits),
            input_seconds=self._limits.input_seconds,
            kill=self.kill_with_reason,
            give_up=functools.partial(self.interrupt_with_reason, values.Ending.STOPPED),
        )
        self._listener = listener
        try:
            over = listener.start(code, is_counted=not is_own, is_silent=is_silent)
            limit = self._limits.execution_seconds if seconds is None else seconds
            stepped_in = await self._await_end(over, listener, started + limit, limit)
            if self.provisioner.ended.is_set() or not over.done() or over.exception() is not None:
                return await self._finish_dead(listener, stepped_in, oom_kills, started)
            if self.provisioner.usage().oom_kills() > oom_kills:
                show(values.Notice(run_words.partly_out_of_memory(self._limits.memory_bytes)))
            self.namespace = listener.namespace or self.namespace
            return _finished(listener.status, stepped_in, time.monotonic() - started)
        finally:
            self._listener = None
            await listener.close()
            self._connection.drop_unfinished()
            if listener.has_lost_output and self.is_alive:
                # If that fails, the next execution notices and reports it.
                with contextlib.suppress(sockets.LostSocket):
                    await self._connection.renew_output()

    async def _await_end(
        self,
        over: asyncio.Task[None],
        listener: execution_streams.ExecutionStream,
        deadline: float,
        limit: float,
    ) -> _Intervention | None:
        """Wait for the end; interrupt or kill where it does not come by itself."""
        death = asyncio.create_task(self.provisioner.ended.wait(), name="kernel's death")
        try:
            while True:
                left = deadline + listener.seconds_asking - time.monotonic()
                waiting: set[asyncio.Future[Any]] = {over, death, self._stepping_in or death}
                timeout = None if listener.is_asking else max(left, 0)
                if listener.is_asking:
                    waiting.add(listener.answered)
                done, _ = await asyncio.wait(
                    waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if over in done or death in done:
                    return self._condemned
                if self._stepping_in in done and self._stepping_in is not None:
                    return await self._step_in(self._stepping_in.result(), over, death)
                if left <= 0 and not listener.is_asking:
                    reason = run_words.stopped_after(limit)
                    late = _Intervention(values.Ending.TIMED_OUT, reason)
                    return await self._step_in(late, over, death)
        except asyncio.CancelledError:
            # The caller was cancelled, but code must not run on unsupervised.
            abandoned = _Intervention(values.Ending.STOPPED, run_words.ABANDONED)
            await self._step_in(abandoned, over, death)
            raise
        finally:
            death.cancel()

    async def _step_in(
        self,
        intervention: _Intervention,
        over: asyncio.Task[None],
        death: asyncio.Task[bool],
    ) -> _Intervention:
        """Interrupt until the code reacts or its grace is over; then, or at once, kill."""
        self._is_interrupted = True
        give_up = time.monotonic() + self._grace_seconds
        while not intervention.is_deadly and (left := give_up - time.monotonic()) > 0:
            await self.provisioner.send_signal(signal.SIGINT)
            pause = min(left, _INTERRUPTS_SECONDS)
            done, _ = await asyncio.wait(
                {over, death}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return intervention
        await self.provisioner.kill()
        await self.provisioner.ended.wait()
        return intervention

    async def _finish_dead(
        self,
        listener: execution_streams.ExecutionStream,
        stepped_in: _Intervention | None,
        oom_kills: int,
        started: float,
    ) -> values.Finished:
        """Show what the dead kernel had still sent, and return why it ended."""
        await listener.read_rest(_LAST_OUTPUT_SECONDS)
        seconds = time.monotonic() - started
        if stepped_in is not None:
            self._died_of = stepped_in.reason or run_words.UNRESPONSIVE
            reason = f"{self._died_of} {run_words.LOST}"
            return values.Finished(stepped_in.ending, seconds, reason, kernel_lost=True)
        status = await self.provisioner.wait_status()
        if self.provisioner.usage().oom_kills() > oom_kills:
            reason = run_words.out_of_memory(self._limits.memory_bytes)
            ending = values.Ending.OUT_OF_MEMORY
        else:
            reason, ending = run_words.crash(status), values.Ending.CRASHED
        self._died_of = reason
        _log.info("a kernel died: %s", reason)
        reason = f"{reason} {run_words.LOST}"
        return values.Finished(ending, seconds, reason, kernel_lost=True)

    async def freeze(self) -> None:
        """Stop all its processes until the next execution, unless code is running in it."""
        if not self.is_busy and not self.is_frozen and self.is_alive:
            async with self._lock:
                self.is_frozen = True
                await self.provisioner.freeze()

    async def stop(self, reason: str = "Stopped.") -> None:
        """Interrupt the running execution; variables survive if the code lets it."""
        self.interrupt_with_reason(values.Ending.STOPPED, reason)

    def interrupt_with_reason(self, ending: values.Ending, reason: str) -> None:
        """Interrupt the running execution, if there is one, with the bot's own reason."""
        if self._stepping_in is not None and not self._stepping_in.done():
            self._stepping_in.set_result(_Intervention(ending, reason))

    def kill_with_reason(self, ending: values.Ending, reason: str) -> None:
        """Kill the kernel now, whether idle or busy."""
        if self._condemned is None and self.is_alive:
            self._condemned = _Intervention(ending, reason, is_deadly=True)
            if self._stepping_in is not None and not self._stepping_in.done():
                self._stepping_in.set_result(self._condemned)
            else:
                self._killing = asyncio.create_task(
                    self.provisioner.kill(), name="condemned kernel"
                )


def _is_interrupt(output: values.Output) -> bool:
    return isinstance(output, values.Error) and output.name == "KeyboardInterrupt"


def _shown_bytes(limits: settings.Limits) -> int:
    # Many displays, or large ones: most pictures have a hundredth of what one may have.
    displays = min(limits.displays, _LARGE_DISPLAYS)
    return limits.output_bytes + displays * limits.display_bytes


def _finished(status: str, stepped_in: _Intervention | None, seconds: float) -> values.Finished:
    if stepped_in is not None:
        return values.Finished(stepped_in.ending, seconds, stepped_in.reason)
    endings = {"ok": values.Ending.OK, "error": values.Ending.ERROR}
    reason = "" if status in endings else run_words.NOT_RUN
    return values.Finished(endings.get(status, values.Ending.REFUSED), seconds, reason)


def refused(error: errors.BotError) -> values.Finished:
    """Describe an execution that never ran, and why."""
    return values.Finished(values.Ending.REFUSED, 0.0, str(error))
