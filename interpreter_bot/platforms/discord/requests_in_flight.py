"""Requests in flight: run as tasks with an owner, each with its reply."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import errors, events, settings, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.chat import answer, drafts, sync, transport
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    markdown,
    rate_limits,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import question_words, run_words

_MAX: Final = 1000
_FALLEN: Final = events.TurnEnded(status=values.TurnStatus.FAILED, sentence=run_words.FAULT)

_log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, slots=True)
class RequestOfMessage:
    """A message that became a request.

    Attributes:
        message: as it was answered last.
        heard: when it was received first, on the monotonic clock.
        run: its request; None while its thread is being opened.
        is_deleted: it is deleted.
    """

    message: discord.Message
    heard: float
    run: InFlight | None = None
    is_deleted: bool = False


class RequestsByMessage:
    """The latest requests, by message id."""

    def __init__(self) -> None:
        self._known = cachetools.LRUCache[int, RequestOfMessage](_MAX)

    def remember(self, message: discord.Message) -> RequestOfMessage:
        """Record a message that becomes a request."""
        recent = self._known[message.id] = RequestOfMessage(message, time.monotonic())
        return recent

    def find(self, message_id: int) -> RequestOfMessage | None:
        """Return the request of a message, if it is known."""
        return self._known.get(message_id)

    def forget(self, message_id: int) -> RequestOfMessage | None:
        """Forget a deleted message; return its request."""
        recent = self._known.pop(message_id, None)
        if recent is not None:
            recent.is_deleted = True
        return recent


@dataclasses.dataclass(eq=False)
class InFlight:
    """One request in flight.

    Attributes:
        answer: what shows it, once it does.
        is_over: set when it has ended and all of it stands.
    """

    request: requests.Request
    place: channels_and_threads.Place
    at: transport.Location
    answer: answer.Answer | None = None
    is_over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class RequestsInFlight:
    """Runs requests.

    Attributes:
        limits: of the client.
        settings: those that people can choose, and what the operator chose for each.
    """

    def __init__(
        self,
        service: session_service.SessionService,
        config: settings.Discord,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._service = service
        self._client: discord.Client | None = None
        self._config = config
        self.settings: Mapping[str, object] = {
            preferences.APPROVAL: config.approval,
            preferences.MODEL: "",
            preferences.THREADS: config.threads,
            preferences.FOLLOW_THREADS: config.follow_threads,
            preferences.SHOW_CODE: False,
        }
        self._tasks = tasks
        self.limits = rate_limits.RateLimits()
        self._running: set[asyncio.Task[None]] = set()
        self._runs: dict[str, InFlight] = {}

    def connect(self, client: discord.Client) -> None:
        """Show answers through a client from now on."""
        self._client = client

    async def chosen_by(
        self, place: channels_and_threads.Place, person: requests.Person
    ) -> preferences.Preferences:
        """Return the preferences in effect for a person in a place."""
        chosen = await self._service.queries.choices(place.scope(person.id))
        return preferences.effective(chosen, self.settings)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a task; its exceptions end with it."""
        task = self._tasks.create_task(_net(work, name), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def drained(self) -> None:
        """Wait until no task runs."""
        while self._running:
            await asyncio.wait(self._running)

    def cancel_all(self) -> None:
        """Cancel the tasks that still run."""
        for task in self._running:
            task.cancel()

    def is_running(self, request_id: str) -> bool:
        """Return whether a request is in flight."""
        return request_id in self._runs

    async def cancel(self, request_id: str) -> bool:
        """Cancel a request; says whether it was there to end."""
        run = self._runs.get(request_id)
        return run is not None and await self._service.cancel(run.place.key, run.request.id)

    async def cancel_in(
        self, place: channels_and_threads.Place, person: int | None
    ) -> tuple[bool, list[int]]:
        """Cancel the requests in a place, of one person or of all.

        Returns:
            Whether there were any, and the threads of the channel in which there are some.

        Raises:
            BotError: others asked for all of them.
        """
        channel = place.channel_id
        runs = [
            (request_id, run.place)
            for request_id, run in self._runs.items()
            if person is None or run.request.person.id == str(person)
        ]
        ids = [request_id for request_id, where in runs if where.channel_id == channel]
        if any([await self.cancel(request_id) for request_id in ids]):
            return True, []
        if person is None and await self._service.stop(place.key):
            # It came by another way, as from the page.
            return True, []
        if not ids and any(run.place.channel_id == channel for run in self._runs.values()):
            raise errors.BotError(question_words.NOT_YOURS)
        threads = {where.channel_id for _, where in runs if where.key.channel == str(channel)}
        return False, sorted(threads - {channel})

    async def carry_out(
        self,
        run: InFlight,
        chosen: preferences.Preferences,
        *,
        shows_code: bool = False,
        instead_of: InFlight | None = None,
    ) -> None:
        """Run a request to its end, and show it."""
        request = dataclasses.replace(run.request, is_shown_again=bool(run.request.goes_on_with))
        client = self._client
        if client is None:
            raise RuntimeError("a request came before the client")
        network = discord_transport.DiscordTransport(client, self.limits)
        plan = answer.AnswerPlan(
            request_id=request.id,
            at=run.at,
            style=drafts.AnswerStyle(
                owner=request.person.id,
                is_code=request.is_code,
                shows_code=shows_code or (chosen.show_code and not request.is_code),
                limit_seconds=self._service.queries.limits.execution_seconds,
            ),
            pace_seconds=self._config.edit_seconds,
            is_visitable=self._service.visits.is_on,
            is_replayed=request.is_shown_again,
            slots=instead_of.answer.slots if instead_of and instead_of.answer else None,
        )
        cancel = functools.partial(self._service.cancel, run.place.key, request.id)
        try:
            deliveries = self._service.deliveries
            async with answer.open_answer(
                network, markdown, plan, deliveries, cancel=cancel
            ) as reply:
                run.answer = reply
                self._runs[request.id] = run
                try:
                    await self._service.handle(request, reply)
                except Exception:
                    _log.exception("a request fell")
                    reply.emit(_FALLEN)
        except Exception:
            # What shows answers is what fell.
            _log.exception("an answer could not be shown")
            await sync.post_once(network, run.at, f"⚠️ {run_words.FAULT}")
        finally:
            if self._runs.get(request.id) is run:
                del self._runs[request.id]
            run.is_over.set()


def request_in(
    place: channels_and_threads.Place,
    person: requests.Person,
    text: str,
    chosen: preferences.Preferences,
    **others: Any,
) -> requests.Request:
    """Make a request of what a person wants in a place."""
    return requests.Request(
        key=place.key,
        person=person,
        text=text,
        model=chosen.model,
        **others,
    )


async def _net(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except Exception:
        # The last net: an error of one request ends no other.
        _log.exception("%s ended in an error", name)
