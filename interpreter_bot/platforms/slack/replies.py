"""The reply of one request: events of the turn become one answer in Slack.

Sessions call in order and never wait; a task, the pump, sends to Slack as fast as that takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable
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
)
from interpreter_bot.sessions import ports
from interpreter_bot.text import output_screens, quantities, safe_text
from interpreter_bot.wording import run_words, session_words, slack_words

_log = logging.getLogger(__name__)


Cancel: TypeAlias = Callable[[], Awaitable[object]]


@dataclasses.dataclass(slots=True)
class _Cell:
    """A running execution."""

    number: int
    code: str
    screen: output_screens.Screen = dataclasses.field(default_factory=output_screens.Screen)


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
        self._questions = shared.questions
        self._is_visitable = shared.service.visits.is_on
        self._config = shared.config
        self._is_code = is_code
        self._limits = shared.service.queries.limits
        self._waiting_for = ""
        self._since = time.monotonic()
        self._last_line = ""
        self._answer = answer_contents.Answer(is_code=is_code)
        self._results = execution_results.ExecutionResults()
        self._cell: _Cell | None = None
        self._made: list[file_uploads.Outgoing] = []
        self._private_notices: list[str] = []
        self._spools: dict[str, file_uploads.UploadSpool] = {}
        self._table: blocks.Block | None = None
        self._wholes: list[tuple[str, str]] = []
        self._spent: values.Usage | None = None
        self._end: events.TurnEnded | None = None
        self._is_rewritten = False
        self._has_run = False
        self._is_code_cut = False
        self._is_suspended = False
        self.is_left = False
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    # What happens ----------------------------------------------------------------------

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.Queued(ahead=ahead):
                self._wait_for(run_words.queued(ahead))
                self._message.is_queued = ahead > 0
            case events.Started():
                self._wait_for("")
            case events.StepStarted():
                if self._answer.words_of_step().strip():
                    self._answer.text("\n\n")
                self._answer.step()
                self._since = time.monotonic()
            case events.ProgressChanged(text=text, share=share):
                self._wait_for(run_words.waiting_sentence(text, share))
            case events.TextAdded(text=text):
                self._answer.text(text)
                self._since = time.monotonic()
                self._changed.set()
            case events.NoticeShown(text=text):
                self._answer.paragraph(f"_{markdown.defused(quantities.one_line(text, 1000))}_")
                self._changed.set()
            case events.PrivateNotice(text=text):
                self._private_notices.append(text)
                self._changed.set()
            case events.CodeStarted(cell=cell, code=code):
                self._begin_cell(cell, code)
            case events.OutputShown(output=output):
                self._show_output(output)
            case events.CodeFinished(cell=cell, finished=finished):
                self._finish_cell(cell, finished)
            case events.FileMade(artifact=artifact):
                self._take_file(artifact)
            case events.UsageChanged(usage=usage):
                self._spent = usage
            case events.TurnEnded():
                self._end_turn(event)

    def _begin_cell(self, cell: int, code: str) -> None:
        self._cell = _Cell(cell, code)
        self._since = time.monotonic()
        if self._config.code == "full" and not self._is_code:
            readable = safe_text.revealed(code)
            self._answer.paragraph(markdown.python(readable.text, readable.warning))
        self._has_run = True
        self._is_code_cut |= not self._shows_all_of(code)
        self._last_line = ""
        self._task(slack_words.RUNNING, "in_progress")

    def _show_output(self, output: values.Output) -> None:
        if self._cell is None:
            return
        self._cell.screen.show(output)
        if isinstance(output, values.Text):
            lines = safe_text.clean(output.text).strip().rpartition("\n")[2].rpartition("\r")[2]
            self._last_line = quantities.one_line(lines, answer_contents.FIELD_CHARACTERS)
            self._changed.set()

    async def ask(self, question: events.Question) -> str | None:
        """Ask in the thread; code that waits for approval suspends the session's status."""
        message = self._message
        thread = await message.settled(self._answer, self._live)
        if isinstance(question, events.InputQuestion):
            return await questions_to_people.ask(
                message.api,
                self._questions,
                message.place,
                thread,
                question,
                request_id=message.request_id,
            )
        await message.status("suspended")
        try:
            return await questions_to_people.approve(
                message.api,
                self._questions,
                message.place,
                thread,
                question,
                request_id=message.request_id,
            )
        finally:
            await message.status("processing")

    def _finish_cell(self, cell: int, finished: values.Finished) -> None:
        running = self._cell or _Cell(cell, "")
        self._cell = None
        self._since = time.monotonic()
        shown = self._results.of_cell(
            cell, running.screen.items, finished, made_files=not self._is_code
        )
        is_ok = finished.ending is values.Ending.OK
        state: answer_contents.State = "complete" if is_ok else "error"
        took = quantities.duration(finished.seconds) if finished.seconds >= 0.05 else ""
        pictures = sum(isinstance(part, answer_contents.Picture) for part in shown.parts)
        drawn = quantities.count(pictures, "picture") if pictures else ""
        self._cell = running
        outcome = " · ".join(filter(None, (took, drawn)))
        self._task(run_words.TITLES[finished.ending], state, output=outcome)
        self._cell = None
        for part in shown.parts:
            match part:
                case str():
                    self._answer.paragraph(part)
                case answer_contents.Printed(text=text):
                    self._answer.printed(text)
                case answer_contents.Picture():
                    self._answer.picture(part)
        self._table = self._table or shown.table
        self._wholes += shown.wholes
        for made in shown.files:
            file = file_uploads.of_bytes(made.name, made.data, made.about, is_image=False)
            self._made.append(file)

    def save(self, name: str) -> ports.FileWriter | None:
        """Return a writer to disk, from where the file is uploaded in the end."""
        spool = self._spools[name] = file_uploads.UploadSpool()
        return spool

    def _take_file(self, artifact: values.Artifact) -> None:
        spool = self._spools.pop(artifact.name, None)
        if spool is None or not spool.is_complete:
            return
        if artifact.is_shown:
            spool.file.close()
        else:
            self._made.append(file_uploads.Outgoing(artifact.name, spool.file))

    def _end_turn(self, end: events.TurnEnded) -> None:
        self.is_left = end.sentence == session_words.CLOSING
        self._is_suspended = self.is_left or end.sentence == session_words.ANSWER_CONTINUES
        if self._is_suspended:
            self._message.note = session_words.ANSWER_CONTINUES
            self._end = end
            self._changed.set()
            self._over.set()
            return
        self._is_rewritten = self._answer.end_step_with(end.text)
        if end.sentence:
            mark = "" if end.status is values.TurnStatus.DONE else "⚠️ "
            self._answer.paragraph(f"\n\n{mark}{markdown.defused(end.sentence)}")
        elif end.status is values.TurnStatus.STOPPED:
            self._answer.paragraph("\n\nStopped.")
        self._end = end
        self._changed.set()
        self._over.set()

    # The pump -----------------------------------------------------------------------------

    async def pump(self) -> None:
        """Send everything to Slack, and return when it is there."""
        try:
            while self._end is None:
                with contextlib.suppress(TimeoutError):
                    # Without news, people see how long they have been waiting.
                    async with asyncio.timeout(run_words.MIN_ELAPSED_SECONDS):
                        await self._changed.wait()
                if self._end is None:
                    self._note_time()
                    self._changed.clear()
                    await self._progress()
            await self._whisper()
            if self._is_suspended:
                await self._message.suspend(self._answer, self._live)
            else:
                await self._finish(self._end)
        except api_errors.GoneError:
            _log.warning("an answer is not shown: the bot is no longer installed there")
        finally:
            for outgoing in self._made:
                outgoing.file.close()
            for spool in self._spools.values():
                spool.file.close()

    def _wait_for(self, what: str) -> None:
        """Show what is waited for, besides code and model; empty for nothing."""
        if not (what and self._waiting_for):
            self._since = time.monotonic()
        self._waiting_for = what
        self._changed.set()

    def _note_time(self) -> None:
        """Show how long has been waited, and for what."""
        seconds = time.monotonic() - self._since
        note = run_words.elapsed(self._waiting_for, seconds)
        limit = self._limits.execution_seconds
        if not note and self._cell is not None:
            running = run_words.elapsed(slack_words.RUNNING, seconds, limit)
            if self._is_code:
                note = running if running != slack_words.RUNNING else ""
            elif self._changed.is_set() or running != slack_words.RUNNING:
                self._task(running, "in_progress", output=self._last_line)
        elif not note and not self._message.is_streaming:
            note = run_words.elapsed(slack_words.THINKING, seconds)
            note = note if note != slack_words.THINKING else ""
        self._message.note = quantities.one_line(note, answer_contents.FIELD_CHARACTERS)

    async def _whisper(self) -> None:
        """Send what only the person may see: an ephemeral message."""
        notices, self._private_notices = self._private_notices, []
        for notice in notices:
            try:
                await message_posting.whisper(self._message.api, self._message.place, notice)
            except api_errors.SlackError:
                _log.exception("a person could not be notified privately")

    async def _progress(self) -> None:
        await self._whisper()
        try:
            await self._message.progress(self._answer, self._live)
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
        self._message.note = ""
        # What is left out is a button away.
        leaves_out = self._config.code == "short" and bool(end.turn_id)
        has_left_out = leaves_out and self._has_run and self._answer.ends_in_words
        below = [block for block in [self._table] if block is not None]
        below += blocks.table_download_buttons(self._session, self._wholes)
        if end.turn_id:
            below += blocks.details(
                self._session,
                end.turn_id,
                has_code=self._is_code_cut or has_left_out,
                has_queries=bool(end.queries),
            )
        spent = None if self._is_code else self._spent
        below.append(
            blocks.note(
                answer_contents.small_print(end, spent, is_fresh=self._message.place.begins_thread)
            )
        )
        if self._is_visitable and end.turn_id:
            below.append(blocks.visit(self._session))
        if not self._is_code and end.status is values.TurnStatus.DONE and end.turn_id:
            below.append(blocks.feedback(str(end.turn_id)))
        if not (self._answer.has_anything or self._made or self._table):
            self._answer.paragraph(f"_{run_words.SILENT}_")
        try:
            await self._message.finish(
                self._answer, below, leaves_out=leaves_out, is_rewritten=self._is_rewritten
            )
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

    async def _apologize(self, error: errors.BotError) -> None:
        """Show that the answer could not be shown, as plainly as possible."""
        with contextlib.suppress(api_errors.SlackError):
            reason = markdown.defused(str(error))
            await self._message.say(slack_words.not_shown(reason))

    def _live(self) -> str:
        """Return what the running code has shown until now."""
        if self._cell is None:
            return ""
        return self._results.of_cell(self._cell.number, self._cell.screen.items, None).text

    def _shows_all_of(self, code: str) -> bool:
        """Say whether the answer shows a cell's code whole, unless it is to show none."""
        if self._is_code:
            return live_answers.is_whole_in_heading(code)
        if self._config.code != "short":
            return True
        shown = _details(code)
        if self._message.is_streaming:
            shown = markdown.streamable_code(shown)
        return shown == code.strip()

    def _task(self, title: str, state: answer_contents.State, *, output: str = "") -> None:
        cell = self._cell
        if cell is None or self._is_code:
            self._changed.set()
            return
        details = _details(cell.code) if self._config.code == "short" else ""
        shown = output[: answer_contents.FIELD_CHARACTERS]
        self._answer.task(answer_contents.Task(f"cell-{cell.number}", title, state, details, shown))
        self._changed.set()


def _details(code: str) -> str:
    """Return the head of code that stands below the line of its task."""
    return answer_contents.shorten(safe_text.revealed(code).text)
