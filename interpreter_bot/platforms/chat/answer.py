"""One answer: the events of a turn become messages that are kept in step."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import pathlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from interpreter_bot import events
from interpreter_bot.platforms.chat import (
    buttons,
    drafts,
    layout,
    markup,
    sync,
    transport,
    uploads,
)
from interpreter_bot.sessions import ports, session_service, turn_log
from interpreter_bot.wording import (
    chat_words,
    file_words,
    job_words,
    run_words,
    session_words,
)

_log = logging.getLogger(__name__)

_MAX_TABLES: Final = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """What is needed to show an answer.

    Attributes:
        request_id: of the request that it answers, which is also what a person stops.
        location: where it is shown.
        pace: returns the seconds between two edits.
        has_page: a button leads to the session on the page.
        is_replayed: the turn's events begin with those that are recorded of it.
        waits_for_end: nothing is shown before the end, unless a person is asked something.
    """

    request_id: str
    location: transport.Location
    style: drafts.AnswerStyle
    pace: Callable[[], float]
    has_page: bool
    is_replayed: bool = False
    waits_for_end: bool = False


class Answer(ports.Reply):
    """The reply to one request in a chat.

    Attributes:
        is_left_to_next_bot: this bot ends before it has begun with the request.
        refusal: why nothing of the answer is shown, if its person could not be told.
    """

    def __init__(
        self,
        network: transport.Transport,
        markdown: markup.Markup,
        plan: AnswerPlan,
        deliveries: session_service.Deliveries,
        spawn: Callable[[Coroutine[Any, Any, object], str], object],
    ) -> None:
        """Prepare an answer of which nothing is shown yet."""
        self._network = network
        self._plan = plan
        self._spawn = spawn
        self._capabilities = network.capabilities(plan.location)
        self._log = turn_log.TurnLog()
        self.uploads: Final = uploads.UploadSpool(
            markdown, max_file_bytes=self._capabilities.max_file_bytes
        )
        self._drawing = drafts.TurnDrawing(
            self._log, plan.style, markdown, self._capabilities, self.uploads.make_upload
        )
        self.is_left_to_next_bot = False
        self.refusal = ""
        self._can_be_shown = asyncio.Event()
        self._is_never_shown = False
        if not (plan.is_replayed or plan.waits_for_end):
            self._can_be_shown.set()
        self._sync = sync.MessageSync(
            network,
            plan.location,
            plan.request_id,
            self._make_drafts,
            self.uploads.refuse,
            deliveries,
            pace=plan.pace,
            refresh_seconds=self._capabilities.refresh_seconds,
            shows_working=not plan.style.is_job,
        )

    @property
    def spool(self) -> pathlib.Path:
        return self.uploads.directory

    @property
    def first_message(self) -> str:
        """Id of its first message; empty until that is posted."""
        return self._sync.first_message

    def show_first_sign(self) -> None:
        """Show that the bot works on it, before anything has happened."""
        self._sync.signal_change()

    async def wait_for_first_sign(self) -> None:
        """Wait until the first messages are posted, or nothing can be shown."""
        await self._sync.has_posted.wait()

    async def show(self, cancel: Callable[[], Awaitable[object]]) -> None:
        """Keep the messages in step until all of the answer is shown; `cancel` ends the turn."""
        try:
            await self._can_be_shown.wait()
            if self._is_never_shown:
                return
            await self._sync.adopt()
            await self._sync.run()
        except transport.LocationClosedError as error:
            await cancel()
            if str(error) and not self._sync.has_posted.is_set():
                owner = self._plan.style.owner
                was_sent = await self._network.whisper(self._plan.location, owner, str(error))
                self.refusal = "" if was_sent else str(error)
        except Exception:
            _log.exception("an answer could not be shown")
            try:
                await self._sync.close(f"⚠️ {run_words.BOT_FAULT}")
            finally:
                await cancel()
        finally:
            self._sync.has_posted.set()
            self.uploads.close()

    async def _make_drafts(self) -> tuple[transport.Draft, ...]:
        """Return the wanted messages; in the end they include the files that code made."""
        parts = [*self._drawing.parts()]
        if self._log.end is not None:
            for file in self._log.files.values():
                if not file.artifact.is_shown:
                    parts.append(await self.uploads.prepare(file))
        if self.uploads.is_forbidden:
            parts.append(file_words.NO_ATTACHMENTS)
        return layout.lay_out(
            parts, self._capabilities, self._make_buttons(), may_grow=self._drawing.is_growing
        )

    def _make_buttons(self) -> tuple[transport.Button, ...]:
        """Return the buttons for the current state."""
        end, owner, session = self._log.end, self._plan.style.owner, self._plan.location.session
        if end is not None and session != session.place:
            # Buttons would act on the session of the thread, not on that of the schedule.
            return ()
        if end is None:
            stop = buttons.make("stop", self._plan.request_id, owner)
            question = self._log.open_question
            if question is None:
                return (stop,)
            hides_code = self._drawing.hides_code
            return (*buttons.make_answer_buttons(question, owner, hides_code=hides_code), stop)
        actions = [*self._drawing.actions(has_page=self._plan.has_page)]
        end_buttons = [buttons.make(action, str(end.turn_id), owner) for action in actions]
        table_numbers = self._drawing.table_numbers[:_MAX_TABLES] if actions else []
        for position, table_number in enumerate(table_numbers, start=1):
            label = chat_words.table_as_csv(position) if len(table_numbers) > 1 else ""
            end_buttons.append(buttons.make("csv", table_number, owner, label))
        return tuple(end_buttons)

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.PrivateNotice(text=text):
                whisper = self._network.whisper(self._plan.location, self._plan.style.owner, text)
                self._spawn(whisper, "private notice")
                return
            case events.QuestionAsked() if self._plan.waits_for_end:
                self._can_be_shown.set()
            case (
                events.TurnEnded(goes_on=True)
                | events.TurnEnded(is_quiet=True)
                | (events.TurnEnded(sentence=session_words.BOT_CLOSING))
            ) if self._plan.waits_for_end and not self._can_be_shown.is_set():
                self._is_never_shown = True
                self._finish()
                return
            case events.NoticeShown(text=session_words.KEPT_RUNNING | job_words.JOB_WENT_ON) if (
                not self._plan.waits_for_end
            ):
                # All recorded events were repeated, so the posted messages lose nothing now.
                self._can_be_shown.set()
            case events.TurnEnded(goes_on=True, sentence=sentence):
                # The answer looks unfinished, as the next bot goes on in its messages.
                event = events.ProgressChanged(sentence)
                self._finish()
            case events.TurnEnded(sentence=session_words.BOT_CLOSING):
                self.is_left_to_next_bot = True
                event = events.ProgressChanged(session_words.ANSWER_CONTINUES)
                self._finish()
            case events.TurnEnded():
                self._finish()
        self._log.apply(event)
        is_urgent = isinstance(event, events.QuestionAsked | events.QuestionClosed)
        self._sync.signal_change(is_urgent=is_urgent)

    def _finish(self) -> None:
        self._can_be_shown.set()
        self._sync.signal_last_change()
