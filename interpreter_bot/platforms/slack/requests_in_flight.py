"""Requests in flight, from the first sign to the end of the answer, each in a task."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.chat import answer, drafts, transport
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    interrupted_answers,
    markdown,
    message_posting,
)
from interpreter_bot.platforms.slack import transport as slack_transport
from interpreter_bot.sessions import event_claims, requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import command_words, question_words, run_words, slack_words

_log = logging.getLogger(__name__)

TITLE_CHARACTERS: Final = 80
_LAST_WORDS_SECONDS: Final = 5.0
_SUPERSEDED_SECONDS: Final = 15.0
_NAME_CHARACTERS: Final = 80
# Slack takes about 100 pieces of streams and 50 edits a minute, of all answers in a workspace:
# with the usual pauses of one second and three, that is 1.7 answers and 2.5.
_STREAMING_SHARE: Final = 0.6
_EDITING_SHARE: Final = 0.4
_TIMESTAMP: Final = re.compile(r"\d{6,}\.\d{6}")

Reply: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows a sentence to the person who did something."""


@dataclasses.dataclass(eq=False, slots=True)
class InFlight:
    """A request from the first sign of life to the last word of its answer.

    Attributes:
        key: its session, as far as it is known yet.
        request_id: unique in its channel.
        place: where it is answered.
        reply: shows the answer, beginning with the sign of life.
        showing: ends when all of the answer stands.
        is_cancelled: it was taken back, perhaps before it was handed on.
        is_handed_on: the service has it.
    """

    key: values.SessionKey
    request_id: str
    place: message_posting.Place
    reply: answer.Answer
    showing: asyncio.Task[None]
    is_cancelled: bool = False
    is_handed_on: bool = False

    @property
    def message(self) -> str:
        """The message that is answered in any wording, or the interaction."""
        return self.request_id.partition("-")[0]

    @property
    def thread(self) -> str:
        """Where the answer stands, once it does."""
        return self.place.thread or self.reply.first_message


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

    async def closing_interrupted(
        self, place: message_posting.Place, work: Coroutine[Any, Any, None]
    ) -> None:
        """Do the work of a button; one that came to nothing may be that of a bot that is gone.

        Raises:
            BotError: of the work.
        """
        try:
            await work
        except errors.BotError:
            await interrupted_answers.close_all(self._services.api, place, self._is_running)
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
        person: requests.Person,
        *,
        title: str = "",
        is_code: bool = False,
        is_replayed: bool = False,
    ) -> InFlight:
        """Show the first sign of an answer, which can be cancelled from now on.

        It goes on in the messages of an answer to the same message, such as that of a bot which is
        gone, or to an earlier wording.

        Args:
            key: the session, as far as it is known yet.
            place: where it is shown.
            request_id: of the request that is to be answered.
            person: who asks.
            title: of a session that begins with it.
            is_code: the request is code.
            is_replayed: a former bot began with it, whose events come first.
        """
        network = slack_transport.SlackTransport(
            self._services, place.workspace, title=title, person=person.id
        )
        at = transport.Location(session=key, channel=place.channel, thread=place.thread)
        scope = values.Scope("slack", key.workspace, key.channel, person.id)
        chosen = await self._services.permissions.preferences(scope)
        has_message = _TIMESTAMP.fullmatch(request_id.partition("-")[0]) is not None
        # Others do not see which code a command runs.
        heading = command_words.run_by(markdown.escape(person.name[:_NAME_CHARACTERS]))
        is_streamed = network.capabilities(at).streams and not is_code
        plan = answer.AnswerPlan(
            request_id=_answer_id(place, request_id),
            at=at,
            style=drafts.AnswerStyle(
                owner=person.id,
                is_code=is_code,
                shows_code=not has_message if is_code else chosen.show_code,
                limit_seconds=self._service.queries.limits.execution_seconds,
                heading=heading if is_code and not has_message else "",
                hint=slack_words.OWN_PYTHON if place.begins_thread else "",
            ),
            pace=functools.partial(self._pace, key.workspace, is_streamed=is_streamed),
            is_visitable=self._service.visits.is_on,
            is_replayed=is_replayed,
            is_claimed=True,
        )
        opened: asyncio.Future[answer.Answer] = asyncio.get_running_loop().create_future()
        showing = asyncio.create_task(
            self._show(network, plan, opened, key, request_id), name="slack answer"
        )
        entry = InFlight(key, request_id, place, await opened, showing)
        self._entries[_id(key, request_id)] = entry
        if not (place.thread or is_replayed):
            # Nothing runs in a channel in which nothing of it can be shown.
            await entry.reply.wait_for_first_sign()
        return entry

    async def _show(
        self,
        network: slack_transport.SlackTransport,
        plan: answer.AnswerPlan,
        opened: asyncio.Future[answer.Answer],
        key: values.SessionKey,
        request_id: str,
    ) -> None:
        """Show an answer until all of it stands."""

        async def cancel() -> None:
            if entry := self._entries.get(_id(key, request_id)):
                await self._cancel([entry])

        try:
            async with answer.open_answer(
                network, markdown, plan, self._service.deliveries, cancel=cancel
            ) as reply:
                if not plan.is_replayed:
                    reply.begin()
                opened.set_result(reply)
        except Exception as error:
            # What shows answers is what fell.
            _log.exception("an answer could not be shown")
            if not opened.done():
                opened.set_exception(error)
                return
            await cancel()

    def _pace(self, team: str, *, is_streamed: bool) -> float:
        """Return the seconds between two edits of an answer: all of a workspace share its rates."""
        crowd = sum(entry.key.workspace == team for entry in self._entries.values())
        timing = self._services.api.timing
        if is_streamed:
            return timing.streaming_seconds * max(1.0, crowd * _STREAMING_SHARE)
        return timing.editing_seconds * max(1.0, crowd * _EDITING_SHARE)

    async def open_code(
        self, place: message_posting.Place, request: requests.Request
    ) -> Callable[[], Awaitable[None]]:
        """See `open`: the same for a request of code; return what has it answered."""
        entry = await self.open(request.key, place, request.id, request.person, is_code=True)
        return functools.partial(self.answer, entry, request)

    async def refuse(self, entry: InFlight, error: Exception) -> None:
        """Show why a request is not answered, though there was a first sign."""
        if not isinstance(error, errors.BotError):
            _log.error("a request could not be made", exc_info=error)
        sentence = run_words.error_sentence(error)
        entry.reply.emit(events.TurnEnded(status=values.TurnStatus.FAILED, sentence=sentence))
        await entry.showing
        self._close(entry)

    async def answer(self, entry: InFlight, request: requests.Request) -> None:
        """Run a request that was opened; it gets its place in the lane at once.

        Raises:
            BotError: nothing of it can be shown, nor why.
            LeftToNextBotError: the bot ends before it has begun with it.
        """
        entry.key = request.key
        try:
            await self._answer(entry, request)
        finally:
            self._close(entry)
        place = entry.place
        if not place.thread and entry.thread:
            self._services.threads.note_kernel(
                place.workspace.team, place.channel, entry.thread, uses_channel_kernel=True
            )
        if entry.reply.refusal:
            raise errors.BotError(entry.reply.refusal)
        if entry.reply.is_left:
            raise event_claims.LeftToNextBotError

    async def go_on(self, request: requests.Request) -> None:
        """Show how a request goes on that a bot began which is gone, in the same messages."""
        key, user = request.key, request.person.id
        workspace = await self._services.workspaces.get(key.workspace)
        thread = key.thread or await self._thread_of(workspace, key.channel, request.id)
        place = message_posting.Place(
            workspace, key.channel, thread=thread, request_ts="", user=user
        )
        profile = await self._services.permissions.profile(workspace, user)
        entry = await self.open(
            key,
            place,
            request.id,
            requests.Person(user, profile.name),
            is_code=request.is_code,
            is_replayed=True,
        )
        with contextlib.suppress(event_claims.LeftToNextBotError):
            # Its turn is found by the next bot.
            await self.answer(entry, request)

    async def _thread_of(
        self, workspace: installations.InstalledWorkspace, channel: str, request_id: str
    ) -> str:
        """Return the thread of a message that used the channel's own kernel; empty for none."""
        message_ts = request_id.partition("-")[0]
        if not _TIMESTAMP.fullmatch(message_ts):
            return ""
        try:
            response = await self._services.api.call(
                workspace, "conversations.replies", channel=channel, ts=message_ts, limit=1
            )
        except api_errors.SlackError as error:
            _log.info("the thread of a request is not known: %s", error)
            return ""
        messages = response.get("messages") or [{}]
        return str(messages[0].get("thread_ts") or message_ts)

    async def _answer(self, entry: InFlight, request: requests.Request) -> None:
        reply = entry.reply
        stopped = values.TurnStatus.STOPPED
        try:
            if entry.is_cancelled:
                reply.emit(events.TurnEnded(status=stopped, sentence=run_words.CUT_SHORT))
            else:
                entry.is_handed_on = True
                await self._service.handle(request, reply)
            await entry.showing
        except Exception:
            # The last net of a request.
            _log.exception("a request fell")
            fault = run_words.FAULT
            reply.emit(events.TurnEnded(status=values.TurnStatus.FAILED, sentence=fault))
        finally:
            # Also on shutdown: the end is still shown, if that is quick.
            await asyncio.wait([entry.showing], timeout=_LAST_WORDS_SECONDS)
            entry.showing.cancel()

    async def close_interrupted(self, key: values.SessionKey) -> None:
        """Close what bots that are gone left in a session's thread, or in its channel.

        Raises:
            SlackError: its workspace is not known.
        """
        workspace = await self._services.workspaces.get(key.workspace)
        place = message_posting.Place(
            workspace, key.channel, thread=key.thread, request_ts="", user=""
        )
        await interrupted_answers.close_all(self._services.api, place, self._is_running)

    def _is_running(self, answer_id: str) -> bool:
        entries = self._entries.values()
        return any(_answer_id(entry.place, entry.request_id) == answer_id for entry in entries)

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
        own = [entry for entry in entries if person in ("", entry.place.user)]
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

    async def supersede(self, team: str, channel: str, ts: str) -> None:
        """Cancel all requests of a message, and wait until their answers stand."""
        entries = self._entries_of({"team": team, "channel": channel, "ts": ts})
        if entries:
            await self._cancel(entries)
            showing = [entry.showing for entry in entries]
            await asyncio.wait(showing, timeout=_SUPERSEDED_SECONDS)

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
        by its answer, as far as that is said."""
        return [
            entry
            for entry in self._entries.values()
            if which.items()
            <= {
                "team": entry.key.workspace,
                "channel": entry.key.channel,
                "answer": _answer_id(entry.place, entry.request_id),
                "ts": entry.message,
                "root": entry.thread,
                "session": entry.key.thread,
            }.items()
        ]


def _id(key: values.SessionKey, request_id: str) -> tuple[str, str, str]:
    # The session of a thread may not have been known when a button was made.
    return key.workspace, key.channel, request_id


def title_of(request: requests.Request) -> str:
    """Return the title of a session that begins with this request."""
    return "" if request.is_code else quantities.one_line(request.text, TITLE_CHARACTERS)


def _answer_id(place: message_posting.Place, request_id: str) -> str:
    """Name the answer to a message in any wording, or to an interaction."""
    return f"{place.channel}/{request_id.partition('-')[0]}"
