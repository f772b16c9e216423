"""Taking a request to its answer, and knowing which ones are under way."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import settings, values
from interpreter_bot.platforms.slack import (
    api_errors,
    approvals,
    file_uploads,
    live_messages,
    posted_messages,
    replies,
    thread_history,
    web_api,
)
from interpreter_bot.sessions import ports, requests
from interpreter_bot.text import quantities

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_TITLE_CHARACTERS: Final = 80
_SEPARATOR: Final = "/"
_LAST_WORDS_SECONDS: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class InFlight:
    """A request that is not answered yet, though it may not have begun."""

    key: values.SessionKey
    request_id: str


class RequestsInFlight:
    """All requests of this process, a task each. They belong to this; `drain` sees their end."""

    def __init__(
        self,
        service: conversations.Conversations,
        api: web_api.WebApi,
        known: thread_history.ThreadHistory,
        questions: approvals.Questions,
        config: settings.Slack,
    ) -> None:
        self.conversations: Final = service
        self.questions: Final = questions
        self._api = api
        self._threads = known
        self._options = config
        self._uploads = file_uploads.FileUploads(api)
        self._tasks: set[asyncio.Task[None]] = set()
        self._underway: dict[live_messages.LiveMessage, InFlight] = {}
        self.is_closing = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something in a task of its own; what it raises is logged and ends nothing else."""
        if self.is_closing:
            work.close()
            return
        task = asyncio.create_task(self._netted(work, name), name=f"slack {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _netted(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except api_errors.SlackError as error:
            _log.warning("%s: %s", name, error)
        except Exception:
            # The last net of one event: the bot goes on with the others.
            _log.exception("%s failed", name)

    async def drain(self, seconds: float) -> None:
        """Let what is under way end; then end it."""
        self.is_closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(
        self,
        key: values.SessionKey,
        place: posted_messages.Place,
        request_id: str,
        *,
        title: str = "",
        heading: str = "",
    ) -> live_messages.LiveMessage:
        """Give the first sign of an answer, which can be withdrawn from now on.

        Args:
            key: the conversation, as far as it is known yet.
            place: where it is shown.
            request_id: of the request that is to be answered.
            title: of a session that begins with it.
            heading: above the answer to raw code.

        Raises:
            SlackError: Slack does not take it.
        """
        show = self._show(key, place, request_id, heading=heading)
        self._underway[show] = InFlight(key, request_id)
        try:
            await show.begin(title)
        except BaseException:
            self.forget(show)
            raise
        return show

    async def take(
        self,
        request: requests.Request,
        place: posted_messages.Place,
        show: live_messages.LiveMessage,
    ) -> None:
        """Answer a request of which a sign was given; it has its place in the lane at once."""
        self._underway[show] = InFlight(request.key, request.id)
        try:
            await self._take(request, place, show)
        finally:
            self.forget(show)
        if not place.thread:
            team, root = place.workspace.team, show.thread
            self._threads.remember(team, place.channel, root, is_channels=True)

    async def _take(
        self,
        request: requests.Request,
        place: posted_messages.Place,
        show: live_messages.LiveMessage,
    ) -> None:
        reply = replies.SlackReply(
            show,
            place,
            self.questions,
            self._options,
            session=stop_key(request.key),
            is_code=request.is_code,
            stop=functools.partial(self.withdraw, request.key, request.id),
        )
        pump = asyncio.create_task(reply.pump(), name="slack pump")
        try:
            if show.is_unwanted:
                reply.ended(ports.End(status=ports.Status.STOPPED))
            else:
                await self.conversations.handle(request, reply)
            await pump
        finally:
            # Also when the bot is told to end: what happened is still said, if that is quick.
            await asyncio.wait([pump], timeout=_LAST_WORDS_SECONDS)
            pump.cancel()

    def _show(
        self, key: values.SessionKey, place: posted_messages.Place, request_id: str, *, heading: str
    ) -> live_messages.LiveMessage:
        is_channels = not place.thread and not key.thread
        return live_messages.LiveMessage(
            self._api,
            self._uploads,
            place,
            self._options,
            stop_key=stop_value(key, request_id),
            heading=heading,
            payload={"kernel": thread_history.CHANNELS_OWN} if is_channels else None,
            crowd=functools.partial(self._crowd, key.workspace),
        )

    def _crowd(self, team: str) -> int:
        return sum(in_flight.key.workspace == team for in_flight in self._underway.values())

    def forget(self, show: live_messages.LiveMessage) -> None:
        """Expect a request no longer."""
        self._underway.pop(show, None)

    async def withdraw(self, key: values.SessionKey, request_id: str) -> bool:
        """Take back a request: it waits no longer, or is stopped. False if it is over."""
        found = self._find(key, request_id)
        if found is None:
            return False
        show, known = found
        # Should it not even wait yet, it never begins.
        show.is_unwanted = True
        if await self.conversations.withdraw(known.key, request_id):
            return True
        if show.has_begun:
            return await self.conversations.stop(known.key)
        return True

    def _find(
        self, key: values.SessionKey, request_id: str
    ) -> tuple[live_messages.LiveMessage, InFlight] | None:
        # Whose kernel a thread uses may not have been known when the button was made.
        wanted = (key.workspace, key.channel, request_id)
        for show, known in self._underway.items():
            if (known.key.workspace, known.key.channel, known.request_id) == wanted:
                return show, known
        return None

    async def withdraw_message(self, team: str, channel: str, ts: str) -> None:
        """Take back whatever was asked by a message, however it was worded."""
        for in_flight in list(self._underway.values()):
            is_there = (in_flight.key.workspace, in_flight.key.channel) == (team, channel)
            if is_there and in_flight.request_id.partition("-")[0] == ts:
                await self.withdraw(in_flight.key, in_flight.request_id)

    async def stop_thread(self, key: values.SessionKey, root: str) -> bool:
        """Stop whatever is answered in a thread; what runs in other threads goes on.

        Returns:
            Whether there was anything.
        """
        place = (key.workspace, key.channel)
        found = [
            in_flight
            for show, in_flight in self._underway.items()
            if show.thread == root and (in_flight.key.workspace, in_flight.key.channel) == place
        ]
        for in_flight in found:
            await self.withdraw(in_flight.key, in_flight.request_id)
        return bool(found)

    async def stop_all(self, team: str) -> None:
        """Stop everything of a workspace the bot was removed from."""
        for in_flight in list(self._underway.values()):
            if in_flight.key.workspace == team:
                await self.withdraw(in_flight.key, in_flight.request_id)


def title_of(request: requests.Request) -> str:
    """Make a title for a conversation that begins."""
    return "" if request.is_code else quantities.one_line(request.text, _TITLE_CHARACTERS)


def stop_key(key: values.SessionKey) -> str:
    """Write a conversation into a button."""
    return _SEPARATOR.join((key.workspace, key.channel, key.thread))


def stop_value(key: values.SessionKey, request_id: str) -> str:
    """Write a request into a button."""
    return f"{stop_key(key)}{_SEPARATOR}{request_id}"


def request_of(text: str) -> tuple[values.SessionKey | None, str]:
    """Read a request from a button."""
    key, _, request_id = text.rpartition(_SEPARATOR)
    return key_of(key), request_id


def key_of(text: str) -> values.SessionKey | None:
    """Read a conversation from a button."""
    parts = text.split(_SEPARATOR)
    return values.SessionKey("slack", *parts) if len(parts) == 3 else None
