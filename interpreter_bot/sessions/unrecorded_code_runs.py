"""Run code for the command `exec`, without turn, lane or store."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterable, Callable, Iterable, Sequence

from interpreter_bot import code_activity, errors, events, settings, values
from interpreter_bot.hosts import cancellable_executions
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import artifact_collection, ports, questions
from interpreter_bot.wording import file_words, run_words, session_words

_log = logging.getLogger(__name__)


class UnrecordedCodeRun:
    """The cells of one session, run one after the other."""

    def __init__(
        self,
        hosts: host_ports.Hosts,
        key: str,
        *,
        limits: settings.Limits,
        reply: ports.Reply,
        all_questions: questions.Questions,
        on_installation: Callable[[str, code_activity.InstalledLayer], None],
    ) -> None:
        """Prepare a run.

        Args:
            limits: of attachments, code and files.
            all_questions: waits for answers to the code's questions.
            on_installation: called with a kernel's id and the installed layer.
        """
        self._hosts = hosts
        self._key = key
        self._limits = limits
        self._reply = reply
        self._questions = all_questions
        self._on_installation = on_installation
        self._execution_id = ""
        self._announced_kernel = ""
        self._task: asyncio.Task[values.Finished] | None = None
        self._reply_error: Exception | None = None

    async def attach(self, attachments: Iterable[tuple[str, AsyncIterable[bytes]]]) -> None:
        """Put files into the workspace.

        Args:
            attachments: names and contents. A name that is taken or unusable is changed, with a
                notice.

        Raises:
            WorkspaceError: a file is refused.
        """
        workspace = await self._hosts.workspace(self._key)
        for name, chunks in attachments:
            info = await workspace.put(name, chunks)
            if info.name != name:
                notice = file_words.renamed(info.name)
                self._reply.emit(events.NoticeShown(notice, 0))

    async def run(self, cells: Sequence[str]) -> bool:
        """Run all cells, even after a failure; return whether all ended without an error."""
        async with self._hosts.lease(self._key) as lease:
            return await self._run_all(lease, cells)

    async def _run_all(self, lease: host_ports.Lease, cells: Sequence[str]) -> bool:
        are_all_ok = True
        for number, code in enumerate(cells):
            try:
                finished = await self._run_cell(lease, number, code)
            except errors.BotError as error:
                _log.info("cell %d was refused", number, exc_info=error)
                finished = values.Finished(values.Ending.REFUSED, 0.0, str(error))
            except BaseException:
                # Every cell gets its end, however the run ends.
                self._end_cells(range(number, len(cells)))
                raise
            self._questions.withdraw(0)
            self._reply.emit(events.CodeFinished(number, finished))
            are_all_ok = are_all_ok and finished.ending is values.Ending.OK
        return are_all_ok

    async def stop(self) -> None:
        """Stop the running cell; later cells still run."""
        if self._execution_id:
            await self._hosts.stop(self._execution_id, run_words.RUN_CUT_SHORT)

    def _end_cells(self, numbers: Sequence[int]) -> None:
        """Report the running cell as stopped, and the remaining ones as refused."""
        ending = values.Ending.STOPPED
        for number in numbers:
            finished = values.Finished(ending, 0.0, run_words.CELL_CUT_SHORT)
            self._reply.emit(events.CodeFinished(number, finished))
            ending = values.Ending.REFUSED

    async def _run_cell(self, lease: host_ports.Lease, number: int, code: str) -> values.Finished:
        """Run one cell.

        Raises:
            BotError: the cell was not run.
        """
        if self._hosts.sandbox_level is values.SandboxLevel.NONE:
            self._reply.emit(events.NoticeShown(run_words.UNSANDBOXED_WARNING, number))
        workspace = await self._hosts.workspace(self._key)
        kernel = await lease.kernel()
        if kernel.loss_notice and kernel.id != self._announced_kernel:
            self._announced_kernel = kernel.id
            self._reply.emit(events.NoticeShown(kernel.loss_notice, number))
        # After the kernel was taken, as its start changes the owner of files.
        mark = await workspace.mark_files()
        finished = await self._execute(kernel, number, code)
        collector = artifact_collection.ArtifactCollector(
            workspace, emit=self._reply.emit, spool=self._reply.spool, limits=self._limits
        )
        await collector.collect(number, mark)
        return finished

    async def _execute(self, kernel: host_ports.Kernel, number: int, code: str) -> values.Finished:
        def show(output: values.Output) -> None:
            # The kernel's listener cannot handle an exception, so this one ends the run instead.
            if self._reply_error is None:
                try:
                    self._reply.emit(events.OutputShown(number, output))
                except Exception as error:
                    self._cancel_after_reply_error(error)

        async def ask(request: values.InputRequested) -> str:
            if request.tool_request:
                return ports.NO_TOOLS  # Tool calls must be recorded.
            if request.subject == "packages":
                return values.YES  # The person wrote the code.
            try:
                question = self._make_question(request, number)
                answer = await self._questions.ask(question, emit=self._reply.emit)
            except errors.BotError:
                raise
            except Exception as error:
                self._cancel_after_reply_error(error)
                raise errors.BotError(session_words.OUTPUT_UNWATCHED) from error
            match answer:
                case events.Unanswered(reason=reason):
                    raise errors.BotError(reason)
                case events.Approved(scope=scope):
                    return scope or values.YES
                case events.Declined():
                    return values.NO
                case events.TextAnswer(text=text):
                    return text

        self._execution_id = cancellable_executions.new_id()
        execution = cancellable_executions.run(
            self._hosts,
            kernel,
            code,
            show=show,
            ask=ask,
            execution_id=self._execution_id,
            on_installation=functools.partial(self._on_installation, kernel.id),
        )
        self._task = asyncio.create_task(execution, name=f"cell {number}")
        try:
            finished = await self._task
        except asyncio.CancelledError:
            if self._reply_error is None:
                raise
        finally:
            self._execution_id = ""
        if self._reply_error is not None:
            raise self._reply_error
        return finished

    def _make_question(self, request: values.InputRequested, cell: int) -> events.Question:
        question_id = questions.question_id(0, cell, f"{request.number}", request.prompt)
        session = values.parse_key(self._key)
        if not request.subject:
            return events.InputQuestion(
                id=question_id,
                session=session,
                person="",
                cell=cell,
                prompt=request.prompt,
                is_password=request.is_password,
            )
        return events.ApprovalQuestion(
            id=question_id,
            session=session,
            person="",
            cell=cell,
            subject=request.subject,
            code=request.prompt,
            choices=(values.FOR_SESSION,) if request.grant else (),
        )

    def _cancel_after_reply_error(self, error: Exception) -> None:
        self._reply_error = error
        if self._task is not None:
            self._task.cancel()
