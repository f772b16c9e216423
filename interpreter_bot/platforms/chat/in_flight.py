"""Requests in flight: each is answered in a task with an owner, and can be cancelled."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import cachetools

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.chat import answer, drafts, markup, sync, transport
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import question_words, run_words

_log = logging.getLogger(__name__)

_MAX_KNOWN: Final = 1000
_MAX_PAST: Final = 20
_FAULT: Final = events.TurnEnded(status=values.TurnStatus.FAILED, sentence=run_words.FAULT)

FindPlace: TypeAlias = Callable[[], Awaitable[transport.Location]]


@dataclasses.dataclass(eq=False, slots=True)
class Entry:
    """A request, from the message or interaction that it comes from to the end of its answer.

    Attributes:
        id: of the request.
        person: who asked, by id.
        at: where it is answered, as far as that is known yet.
        is_started: the sessions have it.
        is_cancelled: it was cancelled before they had it, so it never starts.
        is_over: set when it has ended and all of its answer stands.
    """

    id: str
    person: str
    at: transport.Location
    is_started: bool = False
    is_cancelled: bool = False
    is_over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class RequestsInFlight:
    """The requests of a network.

    Attributes:
        network: shows their answers.
        marks: its Markdown.
        settings: what the operator chose for those settings that people can choose, too.
    """

    def __init__(
        self,
        service: session_service.SessionService,
        network: transport.Transport,
        marks: markup.Markup,
        settings: Mapping[str, object],
        *,
        pace_seconds: float,
    ) -> None:
        self._service = service
        self._pace_seconds = pace_seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: list[Entry] = []
        self._known = cachetools.LRUCache[tuple[str, str, str], Entry](_MAX_KNOWN)
        self.network = network
        self.marks = marks
        self.settings = settings

    async def chosen_by(self, key: values.SessionKey, person: str) -> preferences.Preferences:
        """Return the preferences in effect for a person in a session."""
        scope = values.Scope(key.platform, key.workspace, key.channel, person)
        return preferences.effective(await self._service.queries.choices(scope), self.settings)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task of its own; its exceptions are logged and end nothing else."""
        task = asyncio.create_task(_log_errors(work, name), name=name)
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

    def open(self, request_id: str, person: str, at: transport.Location) -> Entry:
        """Expect a request; from now on it can be cancelled."""
        entry = self._known[_place(at.session, request_id)] = Entry(request_id, person, at)
        self._running.append(entry)
        return entry

    def prepare(
        self,
        request: requests.Request,
        at: transport.Location,
        find_place: FindPlace,
        *,
        shows_code: bool,
        is_edit: bool,
    ) -> Callable[[], Awaitable[None]]:
        """Expect the request of a message; return what has it answered.

        Args:
            request: of the message.
            at: where the message stands.
            find_place: returns where it is answered; suspends only while a thread is opened, as
                requests get their places in the lane in order.
            shows_code: the answer shows the code that ran.
            is_edit: the answer takes the place of the one to its former words.
        """
        old = self.find(at.session, request.id) if is_edit else None
        entry = self.open(request.id, request.person.id, at)
        return functools.partial(
            self._carry_out, entry, request, find_place, old, shows_code=shows_code, is_edit=is_edit
        )

    async def _carry_out(
        self,
        entry: Entry,
        request: requests.Request,
        find_place: FindPlace,
        old: Entry | None,
        *,
        shows_code: bool,
        is_edit: bool,
    ) -> None:
        try:
            if old is not None and old.is_started:
                entry.at = old.at
            else:
                if old is not None:
                    await self._supersede(old)
                entry.at = await find_place()
            request = dataclasses.replace(request, key=entry.at.session)
            if is_edit:
                if await self._is_unchanged(request):
                    if old is not None:
                        self._known[_place(old.at.session, old.id)] = old
                    return
                if old is not None:
                    await self._supersede(old)
                request = dataclasses.replace(request, edits=request.id)
            await self.answer(entry, request, shows_code=shows_code)
        finally:
            self._close(entry)

    async def _is_unchanged(self, request: requests.Request) -> bool:
        """Return whether a message has the words that were answered: networks edit some, too."""
        past_turns = await self._service.queries.history(request.key, limit=_MAX_PAST)
        return any(
            (turn.request_id, turn.request) == (request.id, request.text) for turn in past_turns
        )

    def find(self, key: values.SessionKey, request_id: str) -> Entry | None:
        """Return a request of a session or of its channel, running or ended, if it is known."""
        return self._known.get(_place(key, request_id))

    def running(self, matches: Callable[[Entry], bool]) -> list[Entry]:
        """Return the matching requests that have not ended."""
        return [entry for entry in self._running if matches(entry)]

    def is_running(self, request_id: str) -> bool:
        """Return whether a request has not ended."""
        return bool(self.running(lambda entry: entry.id == request_id))

    async def stop(self, matches: Callable[[Entry], bool], person: str = "") -> bool:
        """Cancel the matching requests of a person; everybody's if none is named.

        Returns:
            Whether there was any to end: it is withdrawn if it waits, stopped if it runs.

        Raises:
            BotError: others asked for all of them.
        """
        entries = self.running(matches)
        own = [entry for entry in entries if person in ("", entry.person)]
        if entries and not own:
            raise errors.BotError(question_words.NOT_YOURS)
        return any([await self._cancel(entry) for entry in own])

    async def _supersede(self, entry: Entry) -> None:
        """Cancel a request, and wait until its answer stands, as another will take its place."""
        if not entry.is_over.is_set():
            await self._cancel(entry)
            await entry.is_over.wait()

    async def _cancel(self, entry: Entry) -> bool:
        if entry.is_started:
            return await self._service.cancel(entry.at.session, entry.id)
        entry.is_cancelled = True
        return True

    def _close(self, entry: Entry) -> None:
        """Record that nothing more comes of a request."""
        if not entry.is_over.is_set():
            self._running.remove(entry)
            entry.is_over.set()

    async def answer(
        self, entry: Entry, request: requests.Request, *, shows_code: bool = False
    ) -> None:
        """Run a request to its end, and show it; it has its place in the lane at once."""
        try:
            if not entry.is_cancelled:
                entry.is_started = True
                await self._show(entry.at, request, shows_code=shows_code)
        except Exception:
            # What shows answers is what fell.
            _log.exception("an answer could not be shown")
        finally:
            self._close(entry)

    async def _show(
        self, at: transport.Location, request: requests.Request, *, shows_code: bool
    ) -> None:
        plan = answer.AnswerPlan(
            request_id=request.id,
            at=at,
            style=drafts.AnswerStyle(
                owner=request.person.id,
                is_code=request.is_code,
                shows_code=shows_code,
                limit_seconds=self._service.queries.limits.execution_seconds,
            ),
            pace=lambda: self._pace_seconds,
            is_visitable=self._service.visits.is_on,
            is_replayed=bool(request.goes_on_with),
        )
        cancel = functools.partial(self._service.cancel, at.session, request.id)
        deliveries = self._service.deliveries
        async with answer.open_answer(
            self.network, self.marks, plan, deliveries, cancel=cancel
        ) as reply:
            try:
                await self._service.handle(request, reply)
            except Exception:
                _log.exception("a request fell")
                reply.emit(_FAULT)

    async def refuse(
        self, at: transport.Location, person: str, sentence: str, *, is_private: bool
    ) -> None:
        """Tell a person why nothing comes of what they wrote; privately, if that is possible."""
        if not is_private:
            sentence = f"⚠️ {self.marks.escape(sentence)}"
        if not (is_private and await self.network.whisper(at, person, sentence)):
            await sync.post_once(self.network, at, sentence)

    async def say(self, at: transport.Location, sentence: str) -> None:
        """Say something in a place that is no answer."""
        await sync.post_once(self.network, at, self.marks.small_print(f"🔹 {sentence}"))

    async def go_on(self, request: requests.Request) -> None:
        """Show how a request goes on that a bot began which is gone, in the same messages."""
        person, at = request.person.id, self.network.locate(request.key)
        chosen = await self.chosen_by(request.key, person)
        # If models exist, a person's code came by a command, which does not show the code.
        shows_code = bool(self._service.queries.models) if request.is_code else chosen.show_code
        entry = self.open(request.id, person, at)
        await self.answer(entry, request, shows_code=shows_code)


def _place(key: values.SessionKey, request_id: str) -> tuple[str, str, str]:
    # The thread may be opened only after the request came.
    return key.workspace, key.channel, request_id


async def _log_errors(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except Exception:
        # The last net: an error of one request ends no other.
        _log.exception("%s ended in an error", name)
