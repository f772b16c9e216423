"""Requests in flight: each is answered in a task with an owner, and can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import cachetools

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.chat import answer, claims, drafts, markup, sync, transport
from interpreter_bot.sessions import event_claims, requests, session_service
from interpreter_bot.wording import question_words, run_words

_log = logging.getLogger(__name__)

_MAX_REMEMBERED: Final = 1000
_MAX_PAST_TURNS: Final = 20
_LAST_WORDS_SECONDS: Final = 5.0
_FAULT: Final = events.TurnEnded(status=values.TurnStatus.FAILED, sentence=run_words.BOT_FAULT)
_CUT_SHORT: Final = events.TurnEnded(
    status=values.TurnStatus.STOPPED, sentence=run_words.RUN_CUT_SHORT
)

FindLocation: TypeAlias = Callable[[], Awaitable[transport.Location]]
Refuse: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows a sentence to the person whose work failed."""


@dataclasses.dataclass(eq=False, slots=True)
class Entry:
    """A request, from the message or interaction that it comes from to the end of its answer.

    Attributes:
        id: of the request.
        person: who asked, by id.
        location: where it is answered, as far as that is known yet.
        text: its words, once they are known.
        is_place_final: `location` does not change any more.
        is_started: it was handed to its session.
        is_cancelled: if it was cancelled before it was started, it is never started.
        reply: shows its answer.
        show_task: ends when all of the answer stands.
        is_over: set when it has ended and all of its answer stands.
    """

    id: str
    person: str
    location: transport.Location
    text: str = ""
    is_place_final: bool = False
    is_started: bool = False
    is_cancelled: bool = False
    reply: answer.Answer | None = None
    show_task: asyncio.Task[None] | None = None
    is_over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def thread(self) -> str:
        """The thread of its answer, on networks whose threads are no channels."""
        return self.location.thread or (self.reply.first_message if self.reply is not None else "")


class RequestsInFlight:
    """The requests of a network.

    Attributes:
        network: shows their answers.
        markdown: of the network.
        settings: the operator's values of the settings that people can choose.
    """

    def __init__(
        self,
        service: session_service.SessionService,
        network: transport.Transport,
        markdown: markup.Markup,
        settings: Mapping[str, object],
    ) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()
        self._running_entries: list[Entry] = []
        self._entries_by_key = cachetools.LRUCache[tuple[str, str, str], Entry](_MAX_REMEMBERED)
        self.network = network
        self.markdown = markdown
        self.settings = settings

    async def find_preferences(
        self, key: values.SessionKey, person: str
    ) -> preferences.Preferences:
        """Return the preferences in effect for a person in a session."""
        choices = await self._service.queries.choices(key.scope(person))
        return preferences.find_effective(choices, self.settings)

    def spawn(
        self, work: Coroutine[Any, Any, object], name: str, *, refuse: Refuse | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine in a task of its own; its exceptions are logged and end nothing else.

        Args:
            refuse: is told the sentence of an exception.
        """
        task = asyncio.create_task(_catch_all(work, name, refuse), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, seconds: float) -> None:
        """Wait until no task runs, then cancel those that still do."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            _log.warning("some answers could not be finished")
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Requests -----------------------------------------------------------------------------

    def open_entry(self, request_id: str, person: str, location: transport.Location) -> Entry:
        """Expect a request; from now on it can be cancelled."""
        entry = self._entries_by_key[_entry_key(location.session, request_id)] = Entry(
            request_id, person, location
        )
        self._running_entries.append(entry)
        return entry

    def begin_answer(
        self,
        entry: Entry,
        *,
        is_code: bool,
        shows_code: bool,
        is_replayed: bool = False,
        is_job: bool = False,
        waits_for_end: bool = False,
    ) -> answer.Answer:
        """Show the first sign of an answer, or go on in the messages of a former one.

        Args:
            entry: of a request, which may not be known yet.
            is_replayed: a former bot began with it, whose events come first.
        """
        location = entry.location
        plan = answer.AnswerPlan(
            request_id=entry.id,
            location=location,
            style=drafts.AnswerStyle(
                owner=entry.person,
                is_code=is_code,
                shows_code=shows_code,
                limit_seconds=self._service.queries.limits.execution_seconds,
                heading=location.heading,
                hint=location.hint,
                is_job=is_job,
            ),
            pace=functools.partial(self._pace, location, is_code=is_code),
            has_page=self._service.visits.is_on,
            is_replayed=is_replayed,
            waits_for_end=waits_for_end,
        )
        reply = entry.reply = answer.Answer(
            self.network, self.markdown, plan, self._service.deliveries, self.spawn
        )
        entry.is_place_final = True
        work = reply.show(functools.partial(self._cancel, entry))
        entry.show_task = asyncio.create_task(work, name="an answer")
        if not (is_replayed or waits_for_end):
            reply.show_first_sign()
        return reply

    def _pace(self, location: transport.Location, *, is_code: bool) -> float:
        """Return the seconds between two edits of an answer."""
        workspace = location.session.workspace
        answer_count = sum(
            entry.location.session.workspace == workspace for entry in self._running_entries
        )
        return self.network.pace(location, answer_count, is_code=is_code)

    async def answer(
        self, entry: Entry, request: requests.Request, *, shows_code: bool = False
    ) -> None:
        """Run a request to its end, and show its answer; it enters its lane before any wait.

        Raises:
            BotError: nothing of it can be shown, nor could its person be told why.
            LeftToNextBotError: the bot ends before it has begun with it.
        """
        entry.location = dataclasses.replace(entry.location, session=request.key)
        entry.text = request.text
        reply = entry.reply
        if reply is None and not entry.is_cancelled:
            reply = self.begin_answer(entry, is_code=request.is_code, shows_code=shows_code)
        if reply is None or entry.show_task is None:
            self._close(entry)
            return
        try:
            if entry.is_cancelled:
                reply.emit(_CUT_SHORT)
            else:
                entry.is_started = True
                await self._service.handle(request, reply)
            await entry.show_task
        except Exception:
            # The last net of a request.
            _log.exception("a request failed")
            reply.emit(_FAULT)
        finally:
            # Also on shutdown: the end is still shown, if that is quick.
            await asyncio.wait([entry.show_task], timeout=_LAST_WORDS_SECONDS)
            entry.show_task.cancel()
            self._close(entry)
        if reply.refusal:
            raise errors.BotError(reply.refusal)
        if reply.is_left_to_next_bot:
            raise event_claims.LeftToNextBotError

    async def prepare(
        self,
        request: requests.Request,
        location: transport.Location,
        find_location: FindLocation | None = None,
        *,
        shows_code: bool,
        is_edit: bool,
    ) -> claims.StartRequest | None:
        """Expect the request of a message; return the function that has it answered.

        Args:
            request: of the message.
            location: where the message stands.
            find_location: returns where it is answered, by default there. It may only wait for a
                thread to be opened, as requests get their places in the lane in order.
            shows_code: the answer shows the code that ran.
            is_edit: the answer replaces the one to the message before it was edited. None is
                returned if the words are the same, as networks edit some messages themselves.
        """
        former = self.find_entry(location.session, request.id) if is_edit else None
        if is_edit and await self._is_unchanged(request, former):
            return None
        if former is not None and not former.is_over.is_set():
            await self._cancel(former)
        entry = self.open_entry(request.id, request.person.id, location)
        entry.text = request.text
        request = dataclasses.replace(request, is_edit=is_edit)
        return functools.partial(
            self._carry_out, entry, request, find_location, former, shows_code=shows_code
        )

    async def _is_unchanged(self, request: requests.Request, former: Entry | None) -> bool:
        """Return whether the words of an edited message are those that are or were answered."""
        if former is not None:
            return former.text == request.text
        past_turns = await self._service.queries.history(request.key, limit=_MAX_PAST_TURNS)
        return any(
            (turn.record.request_id, turn.record.request) == (request.id, request.text)
            for turn in past_turns
        )

    async def _carry_out(
        self,
        entry: Entry,
        request: requests.Request,
        find_location: FindLocation | None,
        former: Entry | None,
        *,
        shows_code: bool,
    ) -> None:
        try:
            if former is not None:
                # This answer goes on in the messages of the former one.
                await former.is_over.wait()
                entry.location = dataclasses.replace(former.location, handle=entry.location.handle)
                entry.is_place_final = former.is_place_final
            if find_location is not None and not (entry.is_place_final or entry.is_cancelled):
                entry.location = await find_location()
                entry.is_place_final = True
            request = dataclasses.replace(request, key=entry.location.session)
            await self.answer(entry, request, shows_code=shows_code)
        finally:
            self._close(entry)

    async def refuse_request(self, entry: Entry, error: Exception) -> None:
        """Show why a request is not answered, though there was a first sign."""
        if not isinstance(error, errors.BotError):
            _log.error("a request could not be made", exc_info=error)
        if entry.reply is not None and entry.show_task is not None:
            sentence = run_words.error_sentence(error)
            entry.reply.emit(dataclasses.replace(_FAULT, sentence=sentence))
            await entry.show_task
        self._close(entry)

    async def go_on(self, request: requests.Request) -> None:
        """Show a request of a schedule; or one that a former bot began, in the same messages.

        Raises:
            BotError: it cannot be shown.
        """
        with contextlib.suppress(event_claims.LeftToNextBotError):
            # The next bot finds its turn.
            async with self._service.events.claiming_turn(request):
                await self._go_on(request)

    async def _go_on(self, request: requests.Request) -> None:
        location = await self.network.locate(request)
        author_preferences = await self.find_preferences(request.key, request.person.id)
        # If there are models, people's own code comes by commands, which nobody else can read.
        is_command = request.is_code and not request.is_scheduled
        shows_code = (
            bool(self._service.queries.models) if is_command else author_preferences.show_code
        )
        entry = self.open_entry(request.id, request.person.id, location)
        self.begin_answer(
            entry,
            is_code=request.is_code,
            shows_code=shows_code,
            is_replayed=bool(request.resumed_turn_id),
            is_job=request.is_job,
            waits_for_end=request.is_scheduled,
        )
        await self.answer(entry, request)

    # What runs ----------------------------------------------------------------------------

    def find_entry(self, key: values.SessionKey, request_id: str) -> Entry | None:
        """Return a request of a session or of its channel, running or ended, if it is known."""
        return self._entries_by_key.get(_entry_key(key, request_id))

    def find_running(self, matches: Callable[[Entry], bool]) -> list[Entry]:
        """Return the matching requests that have not ended."""
        return [entry for entry in self._running_entries if matches(entry)]

    async def stop(self, matches: Callable[[Entry], bool], person: str = "") -> bool:
        """Cancel the matching requests of a person; everybody's if none is named.

        Returns:
            Whether there was any; those that wait are withdrawn, those that run are stopped.

        Raises:
            BotError: others asked for all of them.
        """
        entries = self.find_running(matches)
        own_entries = [entry for entry in entries if person in ("", entry.person)]
        if entries and not own_entries:
            raise errors.BotError(question_words.NOT_YOURS)
        return any([await self._cancel(entry) for entry in own_entries])

    async def _cancel(self, entry: Entry) -> bool:
        entry.is_cancelled = True
        if not entry.is_started:
            return True
        return await self._service.cancel(entry.location.session, entry.id)

    def _close(self, entry: Entry) -> None:
        """Record that a request has ended, and its answer is shown."""
        if not entry.is_over.is_set():
            self._running_entries.remove(entry)
            entry.is_over.set()
            # It stays known, but what it showed does not stay in memory.
            entry.reply = entry.show_task = None
            entry.location = dataclasses.replace(entry.location, handle=None)

    # Sentences ----------------------------------------------------------------------------

    async def refuse(
        self, location: transport.Location, person: str, sentence: str, *, is_private: bool
    ) -> None:
        """Tell a person why their message is not answered; in private, if that is possible."""
        if not is_private:
            sentence = f"⚠️ {self.markdown.escape(sentence)}"
        if not (is_private and await self.network.whisper(location, person, sentence)):
            await sync.post_once(self.network, location, sentence)

    async def post_notice(self, location: transport.Location, sentence: str) -> None:
        """Post a sentence that is no answer."""
        await sync.post_once(self.network, location, self.markdown.small_print(f"🔹 {sentence}"))


def _entry_key(key: values.SessionKey, request_id: str) -> tuple[str, str, str]:
    # Without the thread, which may be opened after the request came.
    return key.workspace, key.channel, request_id


async def _catch_all(work: Coroutine[Any, Any, object], name: str, refuse: Refuse | None) -> None:
    try:
        try:
            await work
        except Exception as error:
            if refuse is None:
                raise
            level = logging.INFO if isinstance(error, errors.BotError) else logging.ERROR
            _log.log(level, "%s: refused", name, exc_info=error)
            await refuse(run_words.error_sentence(error))
    except errors.BotError as error:
        _log.warning("%s: %s", name, error)
    except Exception:
        # The last net: an error of one request ends no other.
        _log.exception("%s ended in an error", name)
