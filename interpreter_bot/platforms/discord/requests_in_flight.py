"""Requests in flight: run as tasks with an owner, each with its reply."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import events, settings, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    message_layout,
    message_targets,
    rate_limits,
    replies,
)
from interpreter_bot.sessions import (
    pending_questions,
    requests,
    session_service,
)
from interpreter_bot.wording import run_words

_MOST: Final = 1000
_DIRECT_SECONDS: Final = 20.0
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
        self._known = cachetools.LRUCache[int, RequestOfMessage](_MOST)

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
        adopts: a bot that is gone may have posted messages for it.
        reply: what shows it, once it does.
        is_over: set when it has ended and all of it stands.
    """

    request: requests.Request
    place: channels_and_threads.Place
    target: message_targets.MessageTarget
    adopts: bool = False
    reply: replies.DiscordReply | None = None
    is_over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class RequestsInFlight:
    """Runs requests.

    Attributes:
        questions: pending questions of running code.
        client: through which people are reached, once there is one.
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
        self.client: discord.Client | None = None
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
        self._runs: dict[int, InFlight] = {}
        self.questions = pending_questions.PendingQuestions()

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

    def is_running(self, number: int) -> bool:
        """Say whether a request is in flight, by its number."""
        return number in self._runs

    async def cancel(self, number: int) -> bool:
        """Cancel a request by its number; says whether it was there to end."""
        run = self._runs.get(number)
        return run is not None and await self._service.cancel(run.place.key, run.request.id)

    async def cancel_in(
        self, place: channels_and_threads.Place, person: int | None
    ) -> tuple[bool, list[int]]:
        """Cancel the requests in a place, of one person or of all.

        Returns:
            Whether there were any, and the threads of the channel in which there are some.
        """
        channel = place.channel_id
        runs = [
            (number, run.place)
            for number, run in self._runs.items()
            if person is None or run.request.person.id == str(person)
        ]
        numbers = [number for number, where in runs if where.channel_id == channel]
        if any([await self.cancel(number) for number in numbers]):
            return True, []
        if person is None and await self._service.stop(place.key):
            # It came by another way, as from the page.
            return True, []
        threads = {where.channel_id for _, where in runs if where.key.channel == str(channel)}
        return False, sorted(threads - {channel})

    async def _tell(self, person: int, text: str) -> bool:
        """Send a person a direct message; says whether it arrived."""
        if self.client is None:
            return False
        client = self.client

        async def send() -> None:
            channel = await client.create_dm(discord.Object(person))
            nobody = discord.AllowedMentions.none()
            await channel.send(text, suppress_embeds=True, allowed_mentions=nobody)

        try:
            await self.limits.within(_DIRECT_SECONDS, send())
        except api_errors.ANY as error:
            _log.info("a person could not be told something privately: %r", error)
            return False
        return True

    async def carry_out(
        self,
        run: InFlight,
        chosen: preferences.Preferences,
        *,
        shows_code: bool = False,
        instead_of: InFlight | None = None,
    ) -> None:
        """Run a request to its end, and show it."""
        place = run.place
        request = dataclasses.replace(run.request, is_shown_again=bool(run.request.goes_on_with))
        style = replies.ReplyStyle(
            number=int(request.id),
            owner=int(request.person.id),
            channel_id=place.channel_id,
            is_code=request.is_code,
            shows_code=shows_code or (chosen.show_code and not request.is_code),
            pace_seconds=self._config.edit_seconds,
            file_bytes=place.file_bytes,
            file_parts=self._config.file_parts,
            limit_seconds=self._service.queries.limits.execution_seconds,
            is_visitable=self._service.visits.is_on,
            adopts=run.adopts,
            is_shown_again=request.is_shown_again,
        )
        try:
            async with replies.DiscordReply.open(
                style,
                run.target,
                self.questions,
                on_lost=functools.partial(self._service.cancel, place.key, request.id),
                tell=self._tell,
                limits=self.limits,
                instead_of=instead_of.reply if instead_of is not None else None,
            ) as reply:
                run.reply = reply
                self._runs[style.number] = run
                try:
                    await self._service.handle(request, reply)
                except Exception:
                    _log.exception("a request fell")
                    reply.emit(_FALLEN)
        except Exception:
            # What shows answers is what fell.
            _log.exception("an answer could not be shown")
            draft = message_layout.MessageDraft(f"⚠️ {run_words.FAULT}")
            with contextlib.suppress(message_targets.MovedError, *api_errors.ANY):
                await run.target.send(0, draft, secrets.token_hex(12))
        finally:
            if self._runs.get(style.number) is run:
                del self._runs[style.number]
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
