"""Requests in flight, from the first sign to the end of the answer, each in a task."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    live_answers,
    message_posting,
    replies,
    thread_history,
    turn_drawing,
    unfinished_answers,
)
from interpreter_bot.sessions import event_claims, requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import question_words, run_words

_log = logging.getLogger(__name__)

TITLE_CHARACTERS: Final = 80
_SEPARATOR: Final = "/"
_LAST_WORDS_SECONDS: Final = 5.0

Reply: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows a sentence to the person who did something."""


@dataclasses.dataclass(eq=False, slots=True)
class InFlight:
    """A request from the first sign of life to the last word of its answer.

    Attributes:
        key: its session, as far as it is known yet.
        request_id: unique in its channel.
        live: shows the answer, beginning with the sign of life.
        is_cancelled: it was taken back, perhaps before it was handed on.
        is_handed_on: the service has it.
    """

    key: values.SessionKey
    request_id: str
    live: live_answers.LiveMessage
    is_cancelled: bool = False
    is_handed_on: bool = False


class RequestsInFlight:
    """All requests of this process, a task each, which belong to this object; `drain` waits for
    them."""

    def __init__(self, shared: handler_dependencies.HandlerDependencies) -> None:
        self._services = shared
        self._service = shared.service
        self._tasks: set[asyncio.Task[None]] = set()
        self._entries: dict[tuple[str, str, str], InFlight] = {}
        self.is_closing = False

    def spawn(
        self, work: Coroutine[Any, Any, None], name: str, *, reply: Reply | None = None
    ) -> None:
        """Run work in a task of its own; its exceptions are logged and end nothing else.

        Args:
            reply: shows the person the sentence of an error.
        """
        if self.is_closing:
            work.close()
            return
        task = asyncio.create_task(self._netted(work, name, reply), name=f"slack {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _netted(
        self, work: Coroutine[Any, Any, None], name: str, reply: Reply | None
    ) -> None:
        try:
            try:
                await work
            except api_errors.GoneError:
                raise
            except Exception as error:
                if reply is None:
                    raise
                is_ours = isinstance(error, errors.BotError)
                _log.log(logging.INFO if is_ours else logging.ERROR, "refused", exc_info=error)
                await reply(run_words.error_sentence(error))
        except errors.BotError as error:
            _log.warning("%s: %s", name, error)
        except Exception:
            # The last net of one event: the bot goes on with the others.
            _log.exception("%s failed", name)

    async def closing_unfinished(
        self, place: message_posting.Place, work: Coroutine[Any, Any, None]
    ) -> None:
        """Do the work of a button; one that came to nothing may be that of a bot that is gone.

        Raises:
            BotError: of the work.
        """
        try:
            await work
        except errors.BotError:
            team, channel = place.workspace.team, place.channel
            await self.close_unfinished(values.SessionKey("slack", team, channel, place.thread))
            raise

    async def drain(self, seconds: float) -> None:
        """Wait for running requests; then cancel them."""
        self.is_closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(
        self,
        key: values.SessionKey,
        place: message_posting.Place,
        request_id: str,
        *,
        title: str = "",
        heading: str = "",
        is_again: bool = False,
    ) -> InFlight:
        """Show the first sign of an answer, which can be cancelled from now on.

        Args:
            key: the session, as far as it is known yet.
            place: where it is shown.
            request_id: of the request that is to be answered.
            title: of a session that begins with it.
            heading: above the answer to raw code.
            is_again: a bot that is gone may have shown part of it, which is gone on with.

        Raises:
            SlackError: Slack refuses it.
        """
        uses_channel_kernel = not place.thread and not key.thread
        live = live_answers.LiveMessage(
            self._services,
            place,
            stop_key=stop_value(key, request_id),
            request_id=request_id,
            heading=heading,
            payload={"kernel": thread_history.CHANNELS_OWN} if uses_channel_kernel else None,
            crowd=functools.partial(self._crowd, key.workspace),
        )
        entry = self._entries[_id(key, request_id)] = InFlight(key, request_id, live)
        try:
            unfinished = None
            if is_again:
                unfinished = await unfinished_answers.find(self._services.api, place, request_id)
            await live.begin(title, unfinished=unfinished)
        except BaseException:
            self._close(entry)
            raise
        return entry

    async def open_code(
        self,
        place: message_posting.Place,
        request: requests.Request,
        *,
        is_again: bool = False,
    ) -> Callable[[], Awaitable[None]]:
        """See `open`: the same for a request of code; return what has it answered."""
        heading = turn_drawing.heading(request.person.name, request.text)
        entry = await self.open(request.key, place, request.id, heading=heading, is_again=is_again)
        return functools.partial(self.answer, entry, request)

    async def refuse(self, entry: InFlight, error: Exception) -> None:
        """Show why a request is not answered, though there was a first sign.

        Raises:
            SlackError: Slack refuses it.
        """
        self._close(entry)
        if not isinstance(error, errors.BotError):
            _log.error("a request could not be made", exc_info=error)
        await entry.live.refuse(run_words.error_sentence(error))

    async def answer(self, entry: InFlight, request: requests.Request) -> None:
        """Run a request that was opened; it gets its place in the lane at once."""
        entry.key = request.key
        entry.live.stop_key = stop_value(request.key, request.id)
        try:
            await self._answer(entry, request)
        finally:
            self._close(entry)
        place = entry.live.place
        if not place.thread:
            self._services.threads.remember(
                place.workspace.team, place.channel, entry.live.thread, uses_channel_kernel=True
            )

    async def go_on(self, request: requests.Request) -> None:
        """Show how a request goes on that a bot began which is gone, in the same messages."""
        key, user = request.key, request.person.id
        workspace = await self._services.workspaces.get(key.workspace)
        thread = key.thread or await self._thread_of(workspace, key.channel, request.id)
        place = message_posting.Place(workspace, key.channel, thread=thread, asked="", user=user)
        heading = ""
        if request.is_code:
            profile = await self._services.permissions.profile(workspace, user)
            heading = turn_drawing.heading(profile.name, request.text)
        entry = await self.open(key, place, request.id, heading=heading, is_again=True)
        with contextlib.suppress(event_claims.LeftToNextBotError):
            # Its turn is found by the next bot.
            await self.answer(entry, request)

    async def _thread_of(
        self, workspace: installations.InstalledWorkspace, channel: str, request_id: str
    ) -> str:
        """Return the thread of a message that used the channel's own kernel; empty for none."""
        message_ts = request_id.partition("-")[0]
        if not unfinished_answers.is_timestamp(message_ts):
            return ""
        try:
            answer = await self._services.api.call(
                workspace, "conversations.replies", channel=channel, ts=message_ts, limit=1
            )
        except api_errors.SlackError as error:
            _log.info("the thread of a request is not known: %s", error)
            return ""
        messages = answer.get("messages") or [{}]
        return str(messages[0].get("thread_ts") or message_ts)

    async def _answer(self, entry: InFlight, request: requests.Request) -> None:
        reply = replies.SlackReply(
            self._services,
            entry.live,
            session=stop_key(request.key),
            is_code=request.is_code,
            cancel=functools.partial(self._service.cancel, request.key, request.id),
        )
        pump = asyncio.create_task(reply.pump(), name="slack pump")
        try:
            if entry.is_cancelled:
                reply.emit(events.TurnEnded(status=values.TurnStatus.STOPPED))
            else:
                entry.is_handed_on = True
                await self._service.handle(request, reply)
            await pump
        except Exception:
            # The last net of a request; what shows answers may be what fell.
            _log.exception("a request fell")
            fault = run_words.FAULT
            reply.emit(events.TurnEnded(status=values.TurnStatus.FAILED, sentence=fault))
            if pump.done() and pump.exception() is not None:
                with contextlib.suppress(api_errors.SlackError):
                    await entry.live.refuse(fault)
        finally:
            # Also on shutdown: the end is still shown, if that is quick.
            await asyncio.wait([pump], timeout=_LAST_WORDS_SECONDS)
            pump.cancel()
        if reply.is_left:
            raise event_claims.LeftToNextBotError

    async def close_unfinished(self, key: values.SessionKey) -> None:
        """Close what bots that are gone left in a session's thread, or in its channel."""
        try:
            workspace = await self._services.workspaces.get(key.workspace)
            place = message_posting.Place(
                workspace, key.channel, thread=key.thread, asked="", user=""
            )
            await unfinished_answers.close_all(self._services.api, place, self._is_running)
        except api_errors.SlackError as error:
            _log.info("unfinished answers cannot be looked for: %s", error)

    def _is_running(self, request_id: str) -> bool:
        """Return whether a request is being answered."""
        return any(entry.request_id == request_id for entry in self._entries.values())

    def _crowd(self, team: str) -> int:
        return sum(entry.key.workspace == team for entry in self._entries.values())

    def _close(self, entry: InFlight) -> None:
        """Expect a request no longer."""
        self._entries.pop(_id(entry.key, entry.request_id), None)

    async def stop(self, person: str = "", **which: str) -> bool:
        """Stop requests that a person asked for, or all of them for nobody in particular.

        Args:
            person: who asked; empty for whoever did.
            which: see `_entries_of`.

        Returns:
            Whether there was any to end: it is withdrawn if it waits, stopped if it runs.

        Raises:
            BotError: others asked for all of them.
        """
        entries = self._entries_of(which)
        own = [entry for entry in entries if person in ("", entry.live.place.user)]
        if entries and not own:
            raise errors.BotError(question_words.NOT_YOURS)
        return await self._cancel(own)

    async def stop_session(self, key: values.SessionKey, person: str = "") -> bool:
        """Stop what runs in a session; see `stop`."""
        which = {"team": key.workspace, "channel": key.channel, "session": key.thread}
        if await self.stop(person, **which):
            return True
        # What came by another way, as from the page, is for admins to stop.
        return not person and await self._service.stop(key)

    async def cancel_message(self, team: str, channel: str, ts: str) -> None:
        """Cancel all requests of a message, in any wording."""
        await self.stop(team=team, channel=channel, ts=ts)

    async def cancel_workspace(self, team: str) -> None:
        """Cancel all requests of a workspace the bot was removed from."""
        await self.stop(team=team)

    async def _cancel(self, entries: Sequence[InFlight]) -> bool:
        """Cancel requests; says whether any was there to end."""
        is_ended = False
        for entry in entries:
            # If it does not even wait yet, it never begins.
            entry.is_cancelled = True
            was_there = await self._service.cancel(entry.key, entry.request_id)
            is_ended = was_there or not entry.is_handed_on or is_ended
        return is_ended

    def _entries_of(self, which: Mapping[str, str]) -> list[InFlight]:
        """Return the requests of a team: of a channel, a session, a message, in a thread, or one
        by its id, as far as that is said."""
        return [
            entry
            for entry in self._entries.values()
            if which.items()
            <= {
                "team": entry.key.workspace,
                "channel": entry.key.channel,
                "request": entry.request_id,
                "ts": entry.request_id.partition("-")[0],
                "root": entry.live.thread,
                "session": entry.key.thread,
            }.items()
        ]


def _id(key: values.SessionKey, request_id: str) -> tuple[str, str, str]:
    # The session of a thread may not have been known when a button was made.
    return key.workspace, key.channel, request_id


def title_of(request: requests.Request) -> str:
    """Return the title of a session that begins with this request."""
    return "" if request.is_code else quantities.one_line(request.text, TITLE_CHARACTERS)


def stop_key(key: values.SessionKey) -> str:
    """Encode a session's key for a button."""
    return _SEPARATOR.join((key.workspace, key.channel, key.thread))


def stop_value(key: values.SessionKey, request_id: str) -> str:
    """Encode a request for a button."""
    return f"{stop_key(key)}{_SEPARATOR}{request_id}"


def request_of(text: str) -> tuple[values.SessionKey | None, str]:
    """Decode a request from a button."""
    key, _, request_id = text.rpartition(_SEPARATOR)
    return key_of(key), request_id


def key_of(text: str) -> values.SessionKey | None:
    """Decode a session's key from a button."""
    parts = text.split(_SEPARATOR)
    return values.SessionKey("slack", *parts) if len(parts) == 3 else None
