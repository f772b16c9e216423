"""Messages that people send, edit and delete: those that are for the bot become requests.

The path of a message is a line: parse it, see whether it is ours, claim it, see whether its author
may, make the request, start it. A mention in a channel comes as two events, and any event may come
again, perhaps to the next bot: a message is claimed before anything is done about it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.chat import commands
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    command_views,
    handler_dependencies,
    installations,
    message_order,
    message_parsing,
    message_posting,
    message_requests,
    permissions,
    requests_in_flight,
    thread_history,
    turn_drawing,
)
from interpreter_bot.sessions import event_claims, requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import access_words, question_words, run_words

_log = logging.getLogger(__name__)

PLATFORM: Final = "slack"
_MAX_ANSWERS: Final = 1_000
_PAST_LOOKED_AT: Final = 20
_Start: TypeAlias = Callable[[], Awaitable[None]]


class MessageEvents:
    """Handles messages that are for the bot."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        in_flight: requests_in_flight.RequestsInFlight,
        slack_commands: command_views.SlackCommands,
    ) -> None:
        self._services = shared
        self._service = shared.service
        self._threads = shared.threads
        self._questions = shared.service.questions
        self._in_flight = in_flight
        self._commands = slack_commands
        self._answers: collections.deque[tuple[str, str, str]]
        self._answers = collections.deque(maxlen=_MAX_ANSWERS)
        self._orders = message_order.MessageOrder()

    async def on_event(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Take a `message` or an `app_mention`: one that is new, edited or deleted."""
        match event.get("subtype"):
            case "message_changed":
                await self._on_edit(workspace, event, event_id)
            case "message_deleted":
                channel, ts = str(event.get("channel", "")), str(event.get("deleted_ts", ""))
                await self._in_flight.cancel_message(workspace.team, channel, ts)
            case _:
                incoming = message_parsing.incoming(event, workspace.bot_user)
                if incoming is not None:
                    self._threads.hear(workspace.team, incoming.message)
                    content = {"facts": event, "channel": "", "is_edit": False}
                    await self._on_message(workspace, incoming, event_id, content)

    async def take_again(self, event: event_claims.LostEvent) -> None:
        """Take a message that a bot had claimed which is gone."""
        content = event.content
        workspace = await self._services.workspaces.get(event.key.workspace)
        incoming = message_parsing.incoming(
            content["facts"], workspace.bot_user, content["channel"]
        )
        settled = self._service.events.settled(PLATFORM, event.event_id)
        if incoming is None:
            # Another release took it for a message; nobody could take it any better later.
            async with settled:
                _log.warning("a message cannot be taken again: it is read as none")
            return
        thread = (workspace.team, incoming.message.channel, incoming.message.root)
        async with contextlib.AsyncExitStack() as stack, self._orders.at(thread):
            await stack.enter_async_context(settled)
            start = await self._accept_or_refuse(workspace, incoming, is_again=True)
            waiting = stack.pop_all()
        async with waiting:
            if start is not None:
                await start()

    async def _on_edit(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Answer an edited message again, while it is fresh."""
        facts = event.get("message") or {}
        before = event.get("previous_message") or {}
        channel = str(event.get("channel", ""))
        incoming = message_parsing.incoming(facts, workspace.bot_user, channel)
        if incoming is None:
            return
        message = incoming.message
        if not message.edited or before.get("text") == message.text:
            # Slack says that a message changed also when it unfurls a link in it.
            return
        if (facts.get("edited") or {}).get("user") != message.user:
            return
        if (workspace.team, message.channel, message.ts) in self._answers:
            # It was an answer to Python, which has it.
            return
        if time.time() - float(message.ts) > self._services.config.edit_seconds:
            return
        content = {"facts": facts, "channel": channel, "is_edit": True}
        await self._on_message(workspace, incoming, event_id, content)

    async def _on_message(
        self,
        workspace: installations.InstalledWorkspace,
        incoming: message_parsing.IncomingMessage,
        event_id: str,
        content: Mapping[str, Any],
    ) -> None:
        """Handle one message; `content` is what `take_again` needs of it."""
        message, is_edit = incoming.message, content["is_edit"]
        thread = (workspace.team, message.channel, message.root)
        async with contextlib.AsyncExitStack() as stack, self._orders.at(thread):
            question = None if is_edit else self._question_of(workspace, incoming)
            is_answer = question is not None
            if not is_answer and not await self._is_ours(workspace, incoming):
                return
            # An answer to Python is no request, should this bot die now.
            again = None if is_answer or incoming.command is not None else content
            if not await self._claim(workspace, message, event_id, again):
                return
            name = _claimed(workspace, message)
            await stack.enter_async_context(self._service.events.settled(PLATFORM, name))
            if is_edit:
                await self._in_flight.cancel_message(workspace.team, message.channel, message.ts)
            if question is not None and await self._answer(question, incoming):
                self._answers.append((workspace.team, message.channel, message.ts))
                return
            start = await self._accept_or_refuse(workspace, incoming)
            waiting = stack.pop_all()
        async with waiting:
            if start is not None:
                await start()

    def _question_of(
        self,
        workspace: installations.InstalledWorkspace,
        incoming: message_parsing.IncomingMessage,
    ) -> events.InputQuestion | None:
        """Return what Python asks its author in the thread of a message that is no mention."""
        message = incoming.message
        if incoming.is_mention or not message.thread:
            return None
        is_known = self._threads.is_channels(workspace.team, message.channel, message.thread)
        key = message_requests.session_key(workspace, message, is_channels=bool(is_known))
        for question in self._questions.open_in(key, message.user):
            if isinstance(question, events.InputQuestion) and not question.is_password:
                return question
        return None

    async def _answer(
        self, question: events.InputQuestion, incoming: message_parsing.IncomingMessage
    ) -> bool:
        """Answer what Python asks; says whether it asked still."""
        answer = events.TextAnswer(incoming.text)
        try:
            await self._questions.answer(question.id, answer, person=incoming.message.user)
        except errors.BotError:
            return False
        return True

    async def _is_ours(
        self,
        workspace: installations.InstalledWorkspace,
        incoming: message_parsing.IncomingMessage,
    ) -> bool:
        message = incoming.message
        if message.is_direct or incoming.is_mention:
            return True
        if not message.thread or message_parsing.mentions_others(message.text, workspace.bot_user):
            return False
        key = message_requests.session_key(workspace, message, is_channels=False)
        is_known = self._threads.is_channels(workspace.team, message.channel, message.thread)
        # Asks the database, not Slack: most threads do not concern the bot.
        if not is_known and not await self._service.queries.exists(key):
            return False
        thread = await self._read_thread(workspace, message)
        if self._answers_former_bot(thread, message):
            return True
        if message.ts < thread.joined:
            # It was written before the bot was asked anything there.
            return False
        scope = values.Scope(PLATFORM, key.workspace, key.channel, message.user)
        is_followed = (await self._services.permissions.preferences(scope)).follow_threads
        people = thread.people
        if not thread.is_whole:
            # The store remembers who talked with the bot there.
            past = await self._service.queries.history(key, limit=_PAST_LOOKED_AT)
            people |= {turn.person for turn in past}
        if is_followed and people == {message.user}:
            return True
        if not thread.is_mention_told:
            await self._tell_to_mention(workspace, message, is_followed=is_followed)
        # People may leave the thread, or settings change: it is not to be taken at a later start.
        await self._service.events.claim(PLATFORM, _claimed(workspace, message))
        return False

    async def _tell_to_mention(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        *,
        is_followed: bool,
    ) -> None:
        """Say once in a thread of the bot's that only mentions are answered there."""
        name = (
            f"{workspace.team}/{message.channel}/{message.thread}/{message_posting.MENTION_NEEDED}"
        )
        if not await self._service.events.claim(PLATFORM, name):
            return
        place = message_posting.place_of(workspace, message)
        sentence = access_words.MENTION_ME_IN_CROWD if is_followed else access_words.MENTION_ME
        content = {"text": sentence, "blocks": [blocks.note(sentence)]}
        payload = {message_posting.MENTION_NEEDED: True}
        await message_posting.post(self._services.api, place, content, place.thread, payload)

    def _answers_former_bot(
        self, thread: thread_history.Thread, message: message_parsing.Message
    ) -> bool:
        """Say whether a message answers a question of a bot that is gone."""
        is_answer = bool(thread.question) and thread.asks == message.user
        return is_answer and not self._questions.has_asked(thread.question)

    async def _read_thread(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> thread_history.Thread:
        if not message.thread:
            return thread_history.Thread()
        return await self._threads.read(workspace, message.channel, message.thread, message.ts)

    async def _claim(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        event_id: str,
        content: Mapping[str, Any] | None,
    ) -> bool:
        """Claim a message; return whether no process had.

        A command may have been carried out, so it has no content: it is not taken again.
        """
        if event_id and not await self._service.events.claim(PLATFORM, event_id):
            return False
        key = message_requests.session_key(workspace, message, is_channels=False)
        name = _claimed(workspace, message)
        events = self._service.events
        return await events.claim(PLATFORM, name, key=key, request_id=message.id, content=content)

    async def _accept_or_refuse(
        self,
        workspace: installations.InstalledWorkspace,
        incoming: message_parsing.IncomingMessage,
        *,
        is_again: bool = False,
    ) -> _Start | None:
        place = message_posting.place_of(workspace, incoming.message)
        try:
            return await self._permitted(incoming, place, is_again=is_again)
        except api_errors.GoneError:
            raise
        except Exception as error:
            # No other process answers it: it is claimed.
            if not isinstance(error, errors.BotError):
                _log.exception("a message could not be taken")
            sentence = run_words.error_sentence(error)
            await message_posting.whisper(self._services.api, place, sentence)
            return None

    async def _permitted(
        self,
        incoming: message_parsing.IncomingMessage,
        place: message_posting.Place,
        *,
        is_again: bool,
    ) -> _Start | None:
        """See whether the author may; give what starts the message's command or request.

        Raises:
            BotError: they may not, or there is nothing to do.
        """
        message, workspace = incoming.message, place.workspace
        profile = await self._services.permissions.require(
            workspace, message.user, message.channel, user_team=message.user_team
        )
        command = incoming.command
        if command is None:
            return await self._request(incoming, place, profile, is_again=is_again)
        thread = await self._read_thread(workspace, message)
        key = message_requests.session_key(workspace, message, is_channels=thread.is_channels)
        there = self._commands.place_of(key, place, profile)
        view = self._commands.view(key, place)
        work = await commands.of_words(command, incoming.text, there, view)
        if work is None:
            return await self._request(incoming, place, profile, is_again=is_again)
        if isinstance(work, command_table.Run):
            request = requests.Request(
                key=key, person=there.person, text=work.code, is_code=True, id=message.id
            )
            return await self._in_flight.open_code(place, request)
        # The next messages in this thread are meant for the bot as well.
        await self._service.begin(key)
        return work

    async def _request(
        self,
        incoming: message_parsing.IncomingMessage,
        place: message_posting.Place,
        profile: permissions.Profile,
        *,
        is_again: bool,
    ) -> _Start | None:
        """Make a request of a message, after a first sign."""
        message, workspace = incoming.message, place.workspace
        is_known = self._threads.is_channels(workspace.team, message.channel, message.root)
        key = message_requests.session_key(workspace, message, is_channels=bool(is_known))
        entry: requests_in_flight.InFlight | None = None
        # Without words there may be nothing to do, which would be an odd thing to work on.
        if not incoming.is_code and (incoming.text or message.files):
            title = quantities.one_line(incoming.text, requests_in_flight.TITLE_CHARACTERS)
            entry = await self._in_flight.open(
                key,
                place,
                message.id,
                title="" if message.thread else title,
                is_again=is_again,
            )
        try:
            thread = await self._read_thread(workspace, message)
            if self._answers_former_bot(thread, message) and not incoming.is_mention:
                raise errors.BotError(question_words.CODE_GONE)
            request = await message_requests.build(
                self._services, workspace, incoming, thread, profile
            )
        except Exception as error:
            if entry is None:
                raise
            await self._in_flight.refuse(entry, error)
            return None
        if entry is None:
            # Now rather than when it is taken: what is said next waits its turn behind it.
            heading = turn_drawing.heading(profile.name, request.text)
            entry = await self._in_flight.open(
                request.key, place, message.id, heading=heading, is_again=is_again
            )
        self._threads.answer(workspace.team, message)
        return functools.partial(self._start, entry, request)

    async def _start(self, entry: requests_in_flight.InFlight, request: requests.Request) -> None:
        await self._in_flight.answer(entry, request)
        if request.is_code:
            return
        begun = await self._service.queries.history(request.key, limit=2)
        if len(begun) < 2:
            await self._service.rename(request.key, requests_in_flight.title_of(request))


def _claimed(workspace: installations.InstalledWorkspace, message: message_parsing.Message) -> str:
    """Return the name by which a message is claimed, as it is worded now."""
    return f"{workspace.team}/{message.channel}/{message.ts}/{message.edited}"
