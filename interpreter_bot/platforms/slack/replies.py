"""The reply of one request: events of the turn become one answer in Slack.

Sessions call in order and never wait; a task, the pump, sends to Slack as fast as that takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    execution_results,
    file_uploads,
    handler_dependencies,
    live_answers,
    markdown,
    message_posting,
    questions_to_people,
    turn_drawing,
)
from interpreter_bot.sessions import ports, turn_log
from interpreter_bot.wording import run_words, session_words, slack_words

_log = logging.getLogger(__name__)


Cancel: TypeAlias = Callable[[], Awaitable[object]]


class SlackReply(ports.Reply):
    """The reply to one request; see `sessions.ports.Reply`.

    Attributes:
        is_left: the bot ends before it has begun with the request, which the next one takes.
    """

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        live: live_answers.LiveMessage,
        *,
        session: str,
        is_code: bool,
        cancel: Cancel,
    ) -> None:
        """Say nothing yet.

        Args:
            session: names the conversation in buttons.
            is_code: the request is raw code.
            cancel: ends the turn.
        """
        self._message = live
        self._session = session
        self._cancel = cancel
        self._service = shared.service
        self._threads = shared.threads
        self._open_questions: dict[str, asyncio.Future[events.Answer | None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._is_visitable = shared.service.visits.is_on
        self._is_code = is_code
        self._log = turn_log.TurnLog()
        self._drawing = turn_drawing.TurnDrawing(
            self._log, shared.config, shared.service.queries.limits, is_code=is_code
        )
        self._made: list[file_uploads.Outgoing] = []
        self._is_suspended = False
        self.is_left = False
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    # What happens ----------------------------------------------------------------------

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.FileMade(artifact=artifact, copy=pathlib.Path() as copy):
                self._take_file(artifact, copy)
            case events.QuestionAsked(question=question):
                # Messages of their own show questions.
                self._ask(question)
                return
            case events.QuestionClosed(question=question, answer=answer):
                self._close_question(question, answer)
                return
            case events.TurnEnded():
                self.is_left = event.sentence == session_words.CLOSING
                self._is_suspended = self.is_left or event.goes_on
                if self._is_suspended:
                    event = events.ProgressChanged(session_words.ANSWER_CONTINUES)
                self._over.set()
        self._log.apply(event)
        self._changed.set()

    def _ask(self, question: events.Question) -> None:
        closed: asyncio.Future[events.Answer | None] = asyncio.get_running_loop().create_future()
        self._open_questions[question.id] = closed
        task = asyncio.create_task(self._show_question(question, closed), name="slack question")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _show_question(
        self, question: events.Question, closed: asyncio.Future[events.Answer | None]
    ) -> None:
        """Ask in the thread, until the question is closed."""
        if closed.done():
            # It is shown again, from the record.
            return
        try:
            await self._put_question(question, closed)
        except Exception as error:
            # The turn would wait for ever.
            _log.exception("a question could not be asked")
            unanswered = events.Unanswered(run_words.error_sentence(error))
            with contextlib.suppress(errors.AnswerRefusedError):
                await self._service.answer(question.id, unanswered, person=question.person)

    async def _put_question(
        self, question: events.Question, closed: asyncio.Future[events.Answer | None]
    ) -> None:
        """Ask; code that waits for approval suspends the session's status."""
        message = self._message
        place = message.place
        await message.progress(self._drawing)
        thread = message.thread
        if not question.session.thread:
            # The answer may be a message there, and in no other thread of the same session.
            self._threads.remember(
                place.workspace.team, place.channel, thread, uses_channel_kernel=True
            )
            self._threads.remember_question(question.id, thread)
        where = message.api, place, thread
        if isinstance(question, events.InputQuestion):
            await questions_to_people.ask(*where, question, closed, request_id=message.request_id)
            return
        await message.status("suspended")
        try:
            await questions_to_people.approve(
                *where, question, closed, request_id=message.request_id
            )
        finally:
            await message.status("processing")

    def _close_question(self, question: events.Question, answer: events.Answer | None) -> None:
        closed = self._open_questions.pop(question.id, None)
        # The pump may have ended before, and taken with it what waits for this.
        if closed is not None and not closed.done():
            closed.set_result(answer)

    @property
    def spool(self) -> pathlib.Path:
        return pathlib.Path(tempfile.gettempdir())

    def _take_file(self, artifact: values.Artifact, copy: pathlib.Path) -> None:
        if not artifact.is_shown:
            self._made.append(file_uploads.Outgoing(artifact.name, copy.open("rb")))
        copy.unlink()

    # The pump -----------------------------------------------------------------------------

    async def pump(self) -> None:
        """Send everything to Slack, and return when it is there."""
        try:
            while not self._over.is_set():
                with contextlib.suppress(TimeoutError):
                    # Without news, people see how long they have been waiting.
                    async with asyncio.timeout(run_words.MIN_ELAPSED_SECONDS):
                        await self._changed.wait()
                if not self._over.is_set():
                    self._changed.clear()
                    await self._progress()
            await self._whisper()
            if self._log.end is None:
                await self._message.suspend(self._drawing)
            else:
                for closed in self._open_questions.values():
                    closed.set_result(None)
                await self._finish(self._log.end)
                if self._asking:
                    await asyncio.wait(self._asking)
        except api_errors.GoneError:
            _log.warning("an answer is not shown: the bot is no longer installed there")
        finally:
            # A question of a turn that goes on stays open.
            for task in self._asking:
                task.cancel()
            for outgoing in self._made:
                outgoing.file.close()

    async def _whisper(self) -> None:
        """Send what only the person may see: an ephemeral message."""
        while self._log.private_notices:
            notice = self._log.private_notices.pop(0)
            try:
                await message_posting.whisper(self._message.api, self._message.place, notice)
            except api_errors.SlackError:
                _log.exception("a person could not be notified privately")

    async def _progress(self) -> None:
        await self._whisper()
        try:
            await self._message.progress(self._drawing, is_queued=bool(self._log.ahead))
            if self._message.messages.is_stopped:
                # Slack reports its own button by an event, too, which may go to another process.
                await self._cancel()
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            # The end is shown all the same, if Slack takes it then.
            _log.info("progress could not be shown", exc_info=error)
        await self._message.pause(self._over)

    async def _finish(self, end: events.TurnEnded) -> None:
        results = self._drawing.finished_results
        files = [
            file_uploads.of_bytes(made.name, made.data, made.about, is_image=False)
            for result in results
            for made in result.files
        ]
        self._made = [*files, *self._made]
        table = next((result.table for result in results if result.table is not None), None)
        if not (self._drawing.has_content or self._made or table):
            silent = events.NoticeShown(run_words.SILENT)
            self._log.parts.append(silent)
        try:
            await self._message.finish(self._drawing, self._below(end, table, results))
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            _log.warning("an answer could not be shown", exc_info=error)
            await self._apologize(error)
        complaints = list(self._message.messages.complaints)
        if self._made:
            batch, self._made = self._made, []
            complaints += await self._message.upload(batch)
        if complaints:
            await self._message.say("\n".join(markdown.defused(c) for c in complaints))

    def _below(
        self,
        end: events.TurnEnded,
        table: blocks.Block | None,
        results: Sequence[execution_results.Shown],
    ) -> list[blocks.Block]:
        """Return what stands under the answer: its table, buttons and small print."""
        drawing, message = self._drawing, self._message
        below = [table] if table is not None else []
        wholes = [whole for result in results for whole in result.wholes]
        below += blocks.table_download_buttons(self._session, wholes)
        if end.turn_id:
            # What is left out is a button away.
            has_left_out = drawing.hides_code and drawing.ends_in_words and bool(results)
            is_cut = drawing.is_code_shortened(is_streamed=message.is_streaming)
            below += blocks.details(
                self._session,
                end.turn_id,
                has_code=is_cut or has_left_out,
                has_queries=bool(end.queries),
            )
        spent = None if self._is_code else self._log.usage
        is_fresh = message.place.begins_thread
        below.append(blocks.note(answer_contents.small_print(end, spent, is_fresh=is_fresh)))
        if self._is_visitable and end.turn_id:
            below.append(blocks.visit(self._session))
        if not self._is_code and end.status is values.TurnStatus.DONE and end.turn_id:
            below.append(blocks.feedback(str(end.turn_id)))
        return below

    async def _apologize(self, error: errors.BotError) -> None:
        """Show that the answer could not be shown, as plainly as possible."""
        with contextlib.suppress(api_errors.SlackError):
            reason = markdown.defused(str(error))
            await self._message.say(slack_words.not_shown(reason))
