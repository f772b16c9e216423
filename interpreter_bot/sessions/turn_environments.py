"""The environment of one turn: its session's kernel and workspace, for the agent.

Pictures for the model are decoded and scaled down by that kernel; the bot reads only the first
bytes of a file. So a hostile kernel can deceive only its own model.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from interpreter_bot import (
    cancellation,
    code_activity,
    errors,
    events,
    kernel_calls,
    values,
)
from interpreter_bot.agent import chat_messages, picture_selection
from interpreter_bot.agent import ports as agent_ports
from interpreter_bot.hosts import cancellable_executions
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import (
    approvals,
    artifact_collection,
    code_tool_calls,
    ports,
    requests,
    session_dependencies,
    statement_requests,
    turn_stops,
    turn_streams,
    variable_losses,
)
from interpreter_bot.store import records
from interpreter_bot.wording import job_words, run_words, schedule_words, session_words

_log = logging.getLogger(__name__)

_MAX_SCALING_SECONDS: Final = 20.0

_PLAN_FIRST: Final = chat_messages.Note(
    "[Not run. A plan in plain words is wanted before the first code: what it does, and to which "
    "files.]"
)
_CODE_DECLINED: Final = chat_messages.Note(
    "[Not run: the person declined this code. Ask them what they want instead.]"
)


async def find_pictures(names: Sequence[str], workspace: host_ports.Workspace) -> list[str]:
    """Return the names of the files that are pictures, by their content."""
    pictures = []
    for name in names:
        try:
            async with workspace.read(name) as content:
                async for chunk in content:
                    if picture_selection.is_picture(chunk[: picture_selection.HEAD_BYTES]):
                        pictures.append(name)
                    break
        except errors.WorkspaceError as error:
            _log.info("a file could not be looked into", exc_info=error)
    return pictures


class SessionEnvironment:
    """A session's kernel and files for one turn; implements `agent.ports.Environment`.

    Attributes:
        workspace: the files.
        tools: answers the tool requests of code; None if there are no tools.
        approval: whether a person is asked before the model's code runs.
        kernel_id: of the kernel that ran code last; empty if no code ran.
        mark: the workspace's mark from before the first code ran; None if no code ran.
        received_files: files that the person sent after the mark was set, which code did not make.
        resumed: an execution that another bot began, which the next `run` follows.
        is_asking: whether the model's next action waits for a person.
        is_handed_over: whether the latest code became a job, and the model does not know it yet.
    """

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        request: requests.Request,
        stream: turn_streams.TurnStream,
        *,
        lease: host_ports.Lease,
        workspace: host_ports.Workspace,
        variables: variable_losses.KernelVariables,
        approval: requests.Approval,
        all_approvals: approvals.Approvals,
        stop: turn_stops.StopSignal,
        turn_id: int,
        deadline: float,
        propose: Callable[[str], Awaitable[str]] | None,
        hand_over: Callable[[SessionEnvironment], Awaitable[None]],
    ) -> None:
        """Make the environment; no kernel is taken yet.

        Args:
            all_approvals: asks people.
            turn_id: of the turn, which also names the checkpoint before its first code.
            deadline: of the turn, by `time.monotonic`.
            propose: asks the person about a schedule; None if there can be none.
            hand_over: moves the running code to a turn of its own.
        """
        self.workspace = workspace
        self.approval = approval
        self.tools = code_tool_calls.make_tool_requests(
            services, request, stream, variables, all_approvals
        )
        self.kernel_id = ""
        self.mark: str | None = None
        self.received_files: set[values.FileInfo] = set()
        self.resumed: records.Execution | None = None
        self.is_asking = False
        self.is_handed_over = False
        self._key_text = values.format_key(request.key)
        self._statements = None
        if services.connections is not None:
            self._statements = statement_requests.StatementRequests(
                services.connections, self._key_text, all_approvals
            )
        self._services = services
        self._request = request
        self._hosts = services.hosts
        self._jobs = services.jobs
        self._limits = services.config.limits
        self._lease = lease
        self._stream = stream
        self._variables = variables
        self._approvals = all_approvals
        self._stop = stop
        self._turn_id = turn_id
        self._deadline = deadline
        self._propose = propose
        self._hand_over = hand_over
        self._was_asked_for_plan = False
        self._cpu_seconds = 0.0

    async def approve(self, code: str) -> str:
        """Ask a person whether the model's code may run, if the request demands it.

        Returns:
            The code that may run, perhaps edited.

        Raises:
            NotApprovedError: the code may not run.
        """
        if self.resumed is not None:
            # A person may have edited the code before it ran.
            return self.resumed.code
        if self.is_handed_over:
            return code
        if self.approval == "never" or (self.approval == "plan" and self._stream.cell >= 0):
            return code
        is_plan = self.approval == "plan" and (self._stream.has_words or self.is_asking)
        if self.approval == "plan" and not (is_plan or self._was_asked_for_plan):
            # A plan is demanded once; if the model writes none, its code needs approval instead.
            self._was_asked_for_plan = True
            raise agent_ports.NotApprovedError(session_words.PLAN_FIRST, model_note=_PLAN_FIRST)
        async with self._waiting_for_person():
            answer = await self._approvals.obtain("plan" if is_plan else "code", code)
        if answer is None:
            raise agent_ports.NotApprovedError(
                session_words.CODE_DECLINED, model_note=_CODE_DECLINED
            )
        return code if answer.edited is None else answer.edited

    async def ask_person(self, question: str, choices: tuple[str, ...]) -> str:
        """Pass a question of the model to the person; they have as long as for an `input()`.

        Raises:
            BotError: there is no answer.
        """
        async with self._waiting_for_person(self._limits.input_seconds):
            return await self._stream.ask_for_model(question, choices)

    async def ask_about_note(self, note: str) -> events.Approved | None:
        """Ask a person whether to remember something; None if they declined.

        Raises:
            BotError: nobody answered for as long as `input()` waits.
        """
        async with self._waiting_for_person(self._limits.input_seconds):
            return await self._approvals.obtain("note", note)

    @contextlib.asynccontextmanager
    async def _waiting_for_person(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Let the next bot ask again if this one ends meanwhile.

        Raises:
            UnansweredError: the time is up.
        """
        self.is_asking = True
        try:
            await self._stream.keep_progress()
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise errors.UnansweredError from error
        finally:
            self.is_asking = False

    @property
    def can_propose_schedules(self) -> bool:
        """Whether a schedule can be proposed to the person."""
        return self._propose is not None

    async def propose_schedule(self, text: str) -> str:
        """Propose a schedule to the person; return the outcome.

        Raises:
            BotError: the schedule is not understood, or not possible.
        """
        if self._propose is None:
            raise errors.BotError(schedule_words.SCHEDULES_OFF)
        self.is_asking = True
        try:
            # The last code has to be recorded, as the schedule may run it again.
            await self._stream.keep_progress()
            return await self._propose(text)
        finally:
            self.is_asking = False

    async def run(
        self, code: str, *, show: Callable[[values.Output], None], seconds: float | None = None
    ) -> values.Finished:
        """Run code in the session's kernel; with more `seconds` than usual, it may become a job.

        Raises:
            BotError: the code was not run; the sentence says why.
        """
        if self.is_handed_over:
            # The former bot handed the code over, and died before it told the model.
            self.is_handed_over = False
            return values.Finished(values.Ending.BACKGROUND, 0.0)
        execution, self.resumed = self.resumed, None
        if execution is None:
            await self._jobs.require_none(self._request.key)
        max_seconds = min(seconds or 0.0, self._jobs.max_seconds(self._request.key))
        if max_seconds <= self._limits.execution_seconds or not self._hosts.outlives_bot:
            return await self._execute_or_follow(code, execution, show)
        with self._jobs.counting(
            self._request.key, self._request.person_key, is_new=execution is None
        ):
            return await self._execute_or_follow(code, execution, show, max_seconds)

    async def _execute_or_follow(
        self,
        code: str,
        execution: records.Execution | None,
        show: Callable[[values.Output], None],
        max_seconds: float | None = None,
    ) -> values.Finished:
        """Run code, or follow its `execution`; with `max_seconds`, it may become a job."""
        if execution is not None:
            return await self._follow(execution, show, is_long=max_seconds is not None)
        if max_seconds is not None and self.mark is not None:
            # Files of earlier code are collected now, as this code may run for a long time.
            await self.collect()
            self.mark = await self.workspace.mark_files()
        kernel = await self.kernel()
        loss_notice = self._variables.take_notice(kernel.id, saved=kernel.restored_variables)
        if self._hosts.sandbox_level is values.SandboxLevel.NONE:
            self._stream.emit(events.NoticeShown(run_words.UNSANDBOXED_WARNING))
        if self.mark is None:
            # After the kernel was taken, as its start changes the owner of files.
            if not self.kernel_id:
                # If there is a kernel id, the turn's first code became a job, and the checkpoint
                # was made before it.
                await self._hosts.create_checkpoint(self._key_text, f"{self._turn_id}")
            self.mark = await self.workspace.mark_files()
        self.kernel_id = kernel.id
        hosted_id = cancellable_executions.new_id()
        # From here to the execution nothing else is awaited, so that shown code always gets an end.
        await self._stream.start_code(code, hosted_id)
        restore_notice = "" if self._variables.has_run_in(kernel.id) else kernel.restore_notice
        for sentence in (loss_notice.sentence if loss_notice else "", restore_notice):
            if sentence:
                self._show(values.Notice(sentence), 0, show)
        self._variables.note_start(kernel.id, runs=kernel.run_count + 1)
        listener = self._make_listener(show)
        execution_end = kernel.execute(
            code,
            execution_id=hosted_id,
            show=listener,
            ask=self._answer_code_request,
            seconds=max_seconds,
        )
        return await self._wait_for_end(
            execution_end, hosted_id, started_at=None if max_seconds is None else time.time()
        )

    async def _answer_code_request(self, request: values.InputRequested) -> str:
        """Answer a request of running code: for tools, for approval, or for input.

        Installing packages needs approval only if running code does.
        """
        if request.tool_request:
            if self._statements is not None:
                answer = await self._statements.answer(request)
                if answer is not None:
                    return answer
            if self.tools is None:
                return ports.NO_TOOLS
            return await self.tools.answer(request, self.kernel_id)
        if request.subject == "packages" and self.approval == "never":
            return values.YES
        if request.subject:
            return await self._approvals.answer_bot_action(request.subject, request, self.kernel_id)
        return await self._stream.ask(request)

    async def kernel(self) -> host_ports.Kernel:
        """Return the session's kernel, once it has started.

        Raises:
            KernelError: the kernel could not be started.
        """
        return await self._lease.kernel(on_wait=self._show_wait)

    def _show_wait(self, sentence: str) -> None:
        self._stream.emit(events.ProgressChanged(sentence))

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the files of the workspace."""
        return await self.workspace.list()

    async def scale_pictures(
        self, contents: Sequence[bytes]
    ) -> Sequence[chat_messages.Picture | None]:
        """Scale pictures down for the model."""
        return await self._scale(contents=contents)

    async def view(self, name: str) -> chat_messages.Picture | None:
        """Return the picture in a file, scaled down for the model; None if it is no picture.

        Raises:
            WorkspaceError: there is no such file.
        """
        async with self.workspace.read(name):
            pass
        return next(iter(await self.load_pictures([name], 1)), None)

    async def load_pictures(self, names: Sequence[str], limit: int) -> list[chat_messages.Picture]:
        """Return the first `limit` pictures of some files, scaled down for the model."""
        names = (await find_pictures(names, self.workspace))[:limit]
        if not names:
            return []
        pictures = await self._scale(names=names)
        pictures_by_name = zip(names, pictures, strict=True)
        return [
            dataclasses.replace(picture, name=name)
            for name, picture in pictures_by_name
            if picture is not None
        ]

    async def collect(self) -> list[values.Artifact]:
        """Collect the files that code changed in this turn."""
        if self.mark is None or self._stop.is_suspended:
            return []
        collector = artifact_collection.ArtifactCollector(
            self.workspace,
            emit=self._stream.emit,
            spool=self._stream.reply.spool,
            limits=self._limits,
        )
        return await collector.collect(max(self._stream.cell, 0), self.mark, self.received_files)

    async def run_hidden_code(
        self, code: str, *, show: Callable[[values.Output], None], seconds: float
    ) -> values.Finished:
        """Run the bot's own code in the session's kernel, hidden from people.

        The code is refused while a job runs, as it would have to wait until the job ends.
        """
        if self._jobs.find(self._request.key) is not None:
            return values.Finished(values.Ending.REFUSED, 0.0)
        return await cancellable_executions.run(
            self._hosts, await self.kernel(), code, show=show, seconds=seconds
        )

    async def _scale(
        self, *, names: Sequence[str] = (), contents: Sequence[bytes] = ()
    ) -> list[chat_messages.Picture | None]:
        """Scale down the pictures of files, then of `contents`; None for each that fails."""
        pictures: dict[int, chat_messages.Picture] = {}
        count = len(names) + len(contents)

        def show(output: values.Output) -> None:
            if isinstance(output, values.Image) and output.plain in map(str, range(count)):
                picture = picture_selection.accept_scaled_picture(output.mime, output.data)
                if picture is not None:
                    pictures[int(output.plain)] = picture

        code = kernel_calls.show_scaled(
            names,
            [base64.b64encode(content).decode("ascii") for content in contents],
            max_side=picture_selection.MAX_SIDE_PIXELS,
            max_bytes=picture_selection.MAX_BYTES,
        )
        finished = await self.run_hidden_code(code, show=show, seconds=_MAX_SCALING_SECONDS)
        if finished.ending is not values.Ending.OK:
            _log.info("pictures could not be scaled: %s", finished)
        return [pictures.get(number) for number in range(count)]

    async def _follow(
        self,
        execution: records.Execution,
        show: Callable[[values.Output], None],
        *,
        is_long: bool,
    ) -> values.Finished:
        """Follow an execution that another bot began; its earlier outputs are shown again."""
        self._stream.follow_code(execution)
        hosted_id = execution.hosted_id
        execution_end = self._hosts.follow(
            hosted_id, show=self._make_listener(show), ask=self._answer_code_request
        )
        started_at = execution.started.timestamp() if is_long else None
        return await self._wait_for_end(execution_end, hosted_id, started_at=started_at)

    def _make_listener(self, show: Callable[[values.Output], None]) -> host_ports.OnEvent:
        def receive(event: host_ports.Event, number: int) -> None:
            if isinstance(event, code_activity.InstalledLayer):
                # Recorded at once, as the kernel or bot may die before the execution ends.
                self._record_installation(event)
                return
            self._show(event, number, show)

        return receive

    def _record_installation(self, layer: code_activity.InstalledLayer) -> None:
        self._services.on_installation(
            code_activity.Installation(
                self._key_text,
                self.kernel_id,
                self._request.person.id,
                layer.name,
                layer.packages,
            )
        )

    def _show(
        self, output: values.Output, number: int, show: Callable[[values.Output], None]
    ) -> None:
        self._stream.emit(events.OutputShown(self._stream.cell, output, number))
        show(output)

    async def _wait_for_end(
        self,
        execution: Coroutine[Any, Any, host_ports.ExecutionEnd],
        hosted_id: str,
        *,
        started_at: float | None = None,
    ) -> values.Finished:
        """Wait until an execution ends, and record its end.

        If the turn is cancelled, the execution is stopped first, unless the next bot resumes the
        turn. If `started_at` is given, the code becomes a job when the turn's patience ends.
        """
        execution_task = asyncio.create_task(execution, name="execution of a turn")
        patience = None
        if started_at is not None:
            patience = self._jobs.remaining_patience_seconds(
                started_at, self._deadline - time.monotonic()
            )
        try:
            await asyncio.wait({execution_task}, timeout=patience)
            if not execution_task.done():
                background_result = self._move_to_background(
                    execution_task, hosted_id, started_at or 0.0
                )
                return await cancellation.shielded(background_result)
        except asyncio.CancelledError:
            if self._jobs.find(self._request.key) is not None and started_at is not None:
                raise
            self._stop.suspend()
            if self._stop.is_suspended:
                execution_task.cancel()
                await asyncio.wait({execution_task})
                raise
            # An error is not shown, as the turn's end says why it was cancelled.
            with contextlib.suppress(errors.BotError):
                await cancellable_executions.stop_and_wait(self._hosts, execution_task, hosted_id)
            self._record_end(execution_task)
            raise
        return self._record_end(execution_task)

    async def _move_to_background(
        self,
        execution_task: asyncio.Task[host_ports.ExecutionEnd],
        hosted_id: str,
        started_at: float,
    ) -> values.Finished:
        """Make running code a job, and return that it goes on in the background."""
        execution_task.cancel()
        await asyncio.wait({execution_task})
        if not execution_task.cancelled():
            return self._record_end(execution_task)
        self.is_handed_over = True
        try:
            await self._hand_over(self)
        except errors.StoreError:
            await self._hosts.stop(hosted_id)
            raise
        self.is_handed_over, self.mark = False, None
        finished = values.Finished(values.Ending.BACKGROUND, time.time() - started_at)
        self._stream.emit(events.CodeFinished(self._stream.cell, finished))
        self._stream.emit(events.NoticeShown(job_words.JOB_GOES_ON))
        return finished

    def _record_end(self, execution_task: asyncio.Task[host_ports.ExecutionEnd]) -> values.Finished:
        """Record the end of an execution, its variables and its processor time."""
        try:
            end = execution_task.result()
        except errors.BotError as error:
            # Code that was shown as running must end, even if the host cannot say how.
            _log.warning("the end of an execution is unknown", exc_info=error)
            is_missing = isinstance(error, errors.ExecutionMissingError)
            sentence = session_words.CODE_UNKNOWN if is_missing else str(error)
            end = host_ports.ExecutionEnd(values.Finished(values.Ending.REFUSED, 0.0, sentence))
        else:
            self._variables.note_end(self.kernel_id, end)
        self._stream.emit(events.CodeFinished(self._stream.cell, end.finished))
        for layer in end.installed_layers:
            self._record_installation(layer)
        self._cpu_seconds += end.cpu_seconds
        self._stream.note_cpu(self._cpu_seconds)
        return end.finished
