"""Messages that people send, edit and delete: those that are for the bot become requests.

Steps for a message: parse it, check whether it is for the bot, claim it, check the author's
permission, make the request, start it. A mention in a channel comes as two events, and
any event may be repeated, perhaps to another bot process, so a message is claimed first.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.chat import commands, inbox, policies
from interpreter_bot.platforms.slack import (
    blocks,
    command_views,
    handler_dependencies,
    installations,
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
from interpreter_bot.wording import access_words, question_words

_log = logging.getLogger(__name__)

PLATFORM: Final = "slack"
_MAX_REMEMBERED_ANSWERS: Final = 1_000
_MAX_PAST_TURNS: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Received:
    """A message of a workspace; `raw_message` as Slack sent it, `channel` if it does not say it."""

    workspace: installations.InstalledWorkspace
    incoming: message_parsing.IncomingMessage
    raw_message: Mapping[str, Any]
    channel: str = ""
    is_edit: bool = False

    @property
    def message(self) -> message_parsing.Message:
        return self.incoming.message

    @property
    def envelope(self) -> inbox.Envelope:
        """What the inbox has to know of it."""
        message, team = self.message, self.workspace.team
        content = {"facts": self.raw_message, "channel": self.channel, "is_edit": self.is_edit}
        return inbox.Envelope(
            name=f"{team}/{message.channel}/{message.ts}/{message.edited}",
            key=message_requests.session_key(self.workspace, message, uses_channel_kernel=False),
            request_id=message.id,
            content=content if self.incoming.command is None else None,
            is_addressed=message.is_direct or self.incoming.is_mention,
            is_for_others=message_parsing.mentions_others(message.text, self.workspace.bot_user),
        )


class MessageEvents:
    """Handles messages that are for the bot; see `chat.inbox.Receiver`."""

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
        self._input_answers: collections.deque[tuple[str, str, str]]
        self._input_answers = collections.deque(maxlen=_MAX_REMEMBERED_ANSWERS)
        self._inbox = inbox.Inbox[_Received](PLATFORM, shared.service.events, self)

    async def on_event(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any]
    ) -> None:
        """Take a `message` or an `app_mention`: one that is new, edited or deleted."""
        match event.get("subtype"):
            case "message_changed":
                await self._on_edit(workspace, event)
            case "message_deleted":
                channel, ts = str(event.get("channel", "")), str(event.get("deleted_ts", ""))
                await self._in_flight.cancel_message(workspace.team, channel, ts)
            case _:
                incoming = message_parsing.incoming(event, workspace.bot_user)
                if incoming is not None:
                    self._threads.record_message(workspace.team, incoming.message)
                    received = _Received(workspace, incoming, event)
                    await self._inbox.receive(received, received.envelope)

    async def handle_again(self, event: event_claims.LostEvent) -> None:
        """Handle a message that an earlier bot process claimed but did not begin."""
        raw_message, channel = event.content["facts"], event.content["channel"]
        workspace = await self._services.workspaces.get(event.key.workspace)
        incoming = message_parsing.incoming(raw_message, workspace.bot_user, channel)
        if incoming is None:
            # Another release read this event as a message; this one does not, so it is dropped.
            async with self._service.events.settled(PLATFORM, event.event_id):
                _log.warning("a claimed event is dropped, as it is no message to this release")
            return
        received = _Received(workspace, incoming, raw_message, channel)
        envelope = dataclasses.replace(received.envelope, name=event.event_id)
        prepare = functools.partial(self._inbox.prepare, received, is_again=True)
        await self._inbox.handle(envelope, prepare, is_claimed=True)

    async def _on_edit(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any]
    ) -> None:
        """Answer an edited message again, while it is fresh."""
        raw_message = event.get("message") or {}
        previous = event.get("previous_message") or {}
        channel = str(event.get("channel", ""))
        incoming = message_parsing.incoming(raw_message, workspace.bot_user, channel)
        if incoming is None:
            return
        message = incoming.message
        if not message.edited or previous.get("text") == message.text:
            # Slack says that a message changed also when it unfurls a link in it.
            return
        if (raw_message.get("edited") or {}).get("user") != message.user:
            return
        if (workspace.team, message.channel, message.ts) in self._input_answers:
            # It answered `input()`, which already has the answer.
            return
        if time.time() - float(message.ts) > self._services.config.edit_seconds:
            return
        received = _Received(workspace, incoming, raw_message, channel, is_edit=True)
        await self._inbox.receive(received, received.envelope)

    async def find_answer(self, received: _Received) -> inbox.Answer | None:
        question = None if received.is_edit else self._question_of(received)
        return None if question is None else functools.partial(self._answer, received, question)

    def _question_of(self, received: _Received) -> events.InputQuestion | None:
        """Return what Python asks its author in the thread of a message that is no mention."""
        workspace, message = received.workspace, received.message
        if received.incoming.is_mention or not message.thread:
            return None
        uses_channel_kernel = self._threads.uses_channel_kernel(
            workspace.team, message.channel, message.thread
        )
        key = message_requests.session_key(
            workspace, message, uses_channel_kernel=bool(uses_channel_kernel)
        )
        for question in self._questions.open_in(key, message.user):
            if not isinstance(question, events.InputQuestion) or question.is_password:
                continue
            # Several threads share a channel's session; words in one are no answer in another.
            if message.thread == (key.thread or self._threads.thread_of_question(question.id)):
                return question
        return None

    async def _answer(self, received: _Received, question: events.InputQuestion) -> bool:
        """Answer a question of `input()`; return whether it was still open."""
        message, answer = received.message, events.TextAnswer(received.incoming.text)
        try:
            await self._questions.answer(question.id, answer, person=message.user)
        except errors.AnswerRefusedError:
            return False
        self._input_answers.append((received.workspace.team, message.channel, message.ts))
        return True

    async def is_in_own_thread(self, received: _Received) -> bool:
        workspace, message = received.workspace, received.message
        if not message.thread:
            return False
        uses_channel_kernel = self._threads.uses_channel_kernel(
            workspace.team, message.channel, message.thread
        )
        # Asks the database, not Slack: most threads do not concern the bot.
        if not uses_channel_kernel and not await self._service.queries.exists(
            received.envelope.key
        ):
            return False
        thread = await self._read_thread(workspace, message)
        # What was written before the bot was asked anything there is for others.
        return self._answers_former_bot(thread, message) or message.ts >= thread.joined

    async def mention_reason(self, received: _Received) -> str:
        workspace, message = received.workspace, received.message
        thread = await self._read_thread(workspace, message)
        if self._answers_former_bot(thread, message):
            return ""
        scope = values.Scope(PLATFORM, workspace.team, message.channel, message.user)
        if not (await self._services.permissions.preferences(scope)).follow_threads:
            return access_words.MENTION_ME
        people = thread.people
        if not thread.is_whole:
            # The store remembers who talked with the bot there.
            key = received.envelope.key
            past_turns = await self._service.queries.history(key, limit=_MAX_PAST_TURNS)
            people |= {turn.person for turn in past_turns}
        return "" if people == {message.user} else access_words.MENTION_ME_IN_CROWD

    async def announce_mention(self, received: _Received, sentence: str) -> None:
        if (await self._read_thread(received.workspace, received.message)).is_mention_told:
            return
        place = message_posting.place_of(received.workspace, received.message)
        content = {"text": sentence, "blocks": [blocks.note(sentence)]}
        payload = {message_posting.MENTION_NEEDED: True}
        await message_posting.post(self._services.api, place, content, place.thread, payload)

    def _answers_former_bot(
        self, thread: thread_history.Thread, message: message_parsing.Message
    ) -> bool:
        """Return whether a message answers a question of a bot that is gone."""
        is_answer = bool(thread.question) and thread.asks == message.user
        return is_answer and not self._questions.has_asked(thread.question)

    async def _read_thread(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> thread_history.Thread:
        if not message.thread:
            return thread_history.Thread()
        return await self._threads.read(workspace, message.channel, message.thread, message.ts)

    async def refuse(self, received: _Received, sentence: str) -> None:
        place = message_posting.place_of(received.workspace, received.message)
        await message_posting.whisper(self._services.api, place, sentence)

    async def prepare(self, received: _Received, *, is_again: bool) -> inbox.StartRequest | None:
        workspace, incoming, message = received.workspace, received.incoming, received.message
        place = message_posting.place_of(workspace, message)
        if received.is_edit:
            await self._in_flight.cancel_message(workspace.team, message.channel, message.ts)
        try:
            profile = await self._services.permissions.require(
                workspace, message.user, message.channel, user_team=message.user_team
            )
        except policies.NotHereError:
            return None
        command = incoming.command
        if command is None:
            return await self._prepare_request(incoming, place, profile, is_again=is_again)
        thread = await self._read_thread(workspace, message)
        key = message_requests.session_key(
            workspace, message, uses_channel_kernel=thread.uses_channel_kernel
        )
        command_place = self._commands.place_of(key, place, profile)
        view = self._commands.view(key, place)
        action = await commands.of_words(command, incoming.text, command_place, view)
        if action is None:
            return await self._prepare_request(incoming, place, profile, is_again=is_again)
        if isinstance(action, command_table.Run):
            request = requests.Request(
                key=key, person=command_place.person, text=action.code, is_code=True, id=message.id
            )
            return await self._in_flight.open_code(place, request)
        # The next messages in this thread are meant for the bot as well.
        await self._service.begin(key)
        return action

    async def _prepare_request(
        self,
        incoming: message_parsing.IncomingMessage,
        place: message_posting.Place,
        profile: permissions.Profile,
        *,
        is_again: bool,
    ) -> inbox.StartRequest | None:
        """Make a request of a message, after a first sign."""
        message, workspace = incoming.message, place.workspace
        uses_channel_kernel = self._threads.uses_channel_kernel(
            workspace.team, message.channel, message.root
        )
        key = message_requests.session_key(
            workspace, message, uses_channel_kernel=bool(uses_channel_kernel)
        )
        entry: requests_in_flight.InFlight | None = None
        # Without text or files there may be nothing to do, so no sign of work is shown yet.
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
            # Opened now, not at its turn, so that later messages wait behind it.
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
        turns = await self._service.queries.history(request.key, limit=2)
        if len(turns) < 2:
            await self._service.rename(request.key, requests_in_flight.title_of(request))
