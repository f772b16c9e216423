"""Messages that people send, edit and delete: their sessions, and the requests they become."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import command_types, preferences
from interpreter_bot.platforms.chat import (
    claims,
    commands,
    in_flight,
    inbox,
    policies,
    transport,
)
from interpreter_bot.platforms.slack import (
    blocks,
    command_views,
    handler_dependencies,
    installations,
    message_parsing,
    message_posting,
    thread_history,
)
from interpreter_bot.platforms.slack import transport as slack_transport
from interpreter_bot.sessions import event_claims, requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import access_words, command_words

PLATFORM: Final = "slack"
_MAX_PAST_TURNS: Final = 20
_MAX_TITLE_CHARACTERS: Final = 80
_MAX_FILES: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class RawMessage:
    """A message as Slack sent it.

    Attributes:
        content: of the event, or of the message in a history.
        channel: its channel, if the content names none.
    """

    workspace: installations.InstalledWorkspace
    content: Mapping[str, Any]
    channel: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """A message as the Slack platform needs it."""

    workspace: installations.InstalledWorkspace
    incoming: message_parsing.IncomingMessage

    @property
    def message(self) -> message_parsing.Message:
        return self.incoming.message

    @property
    def place(self) -> message_posting.Place:
        """The place of its answer."""
        return message_posting.place_of(self.workspace, self.message)


_Message: TypeAlias = inbox.Message[_Source]


class MessageEvents:
    """Receives messages; see `chat.inbox.Network`.

    Attributes:
        inbox: handles those that are for the bot.
    """

    def __init__(
        self,
        dependencies: handler_dependencies.HandlerDependencies,
        requests_in_flight: in_flight.RequestsInFlight,
        slack_commands: command_views.SlackCommands,
    ) -> None:
        self._dependencies = dependencies
        self._service = dependencies.service
        self._threads = dependencies.threads
        self._in_flight = requests_in_flight
        self._commands = slack_commands
        self.inbox = inbox.Inbox[RawMessage, _Source](
            PLATFORM,
            dependencies.service,
            self,
            requests_in_flight.find_preferences,
        )

    async def on_event(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any]
    ) -> None:
        """Handle a message that is new, edited or deleted, or that says that a person left.

        For a mention in a channel, Slack sends a `message` and an `app_mention`.
        """
        channel = str(event.get("channel", ""))
        match event.get("subtype"):
            case "message_changed":
                message = event.get("message") or {}
                previous = event.get("previous_message") or {}
                # Slack also reports a change when it unfurls a link.
                is_same = previous.get("text") == message.get("text")
                edit = message.get("edited") or {}
                if edit.get("ts") and edit.get("user") == message.get("user") and not is_same:
                    await self.inbox.receive_edit(RawMessage(workspace, message, channel))
            case "message_deleted":
                deleted_message = workspace.team, f"{channel}/{event.get('deleted_ts')}"
                await self._in_flight.stop(
                    lambda entry: (entry.location.session.workspace, entry.id) == deleted_message
                )
            case "channel_leave" | "group_leave":
                key = values.SessionKey(PLATFORM, workspace.team, channel)
                await self._service.schedules.pause_owner_schedules(
                    key, str(event.get("user", "")), access_words.OWNER_LEFT_CHANNEL
                )
            case _:
                await self.inbox.receive(RawMessage(workspace, event))

    async def parse(self, raw: RawMessage) -> _Message | None:
        workspace = raw.workspace
        incoming = message_parsing.parse_incoming(raw.content, workspace.bot_user, raw.channel)
        if incoming is None:
            return None
        message = incoming.message
        if not message.edited_at:
            self._threads.record_message(workspace.team, message)
        session = _session_key(workspace, message, uses_channel_kernel=False)
        return inbox.Message(
            id=message.id,
            event_id=f"{workspace.team}/{message.channel}/{message.ts}/",
            version=message.edited_at,
            location=transport.Location(
                session=session, channel=message.channel, thread=message.root
            ),
            session=self._known_session(workspace, message),
            person=requests.Person(message.user, ""),
            text=incoming.text,
            sent_at=float(message.ts),
            content={
                "message": raw.content,
                "channel": raw.channel,
                "is_edit": bool(message.edited_at),
            },
            command=incoming.command,
            is_addressed=message.is_direct or incoming.is_mention,
            mentions_bot=incoming.is_mention,
            is_for_others=message_parsing.mentions_others(message.text, workspace.bot_user),
            source=_Source(workspace, incoming),
        )

    def _known_session(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> values.SessionKey:
        """Return the session of a message's thread, as far as it is known without reading that."""
        uses_channel_kernel = self._threads.uses_channel_kernel(
            workspace.team, message.channel, message.root
        )
        return _session_key(workspace, message, uses_channel_kernel=bool(uses_channel_kernel))

    async def find_again(self, event: event_claims.LostEvent) -> _Message | None:
        content, channel = event.content["message"], event.content["channel"]
        workspace = await self._dependencies.workspaces.get(event.key.workspace)
        return await self.parse(RawMessage(workspace, content, channel))

    async def may_answer(self, message: _Message, question: events.InputQuestion) -> bool:
        # Threads may share a channel's session: a message in one answers no question in another.
        thread = message.session.thread or self._threads.thread_of_question(question.id)
        return bool(thread) and message.source.message.thread == thread

    async def is_in_own_thread(self, message: _Message) -> bool:
        workspace, slack_message = message.source.workspace, message.source.message
        if not slack_message.thread:
            return False
        uses_channel_kernel = message.session != message.location.session
        # This asks the database, not Slack, as most threads do not concern the bot.
        if not uses_channel_kernel and not await self._service.queries.exists(
            message.location.session
        ):
            return False
        thread = await self._read_thread(workspace, slack_message)
        # Messages from before the bot joined the thread are for others.
        return slack_message.ts >= thread.joined_at

    async def find_mention_reason(
        self, message: _Message, author_preferences: preferences.Preferences
    ) -> str:
        slack_message = message.source.message
        if not author_preferences.follow_threads:
            return access_words.MENTION_ME
        thread = await self._read_thread(message.source.workspace, slack_message)
        people = thread.people
        if not thread.is_whole:
            # The people who talked with the bot in it are known from the store.
            past_turns = await self._service.queries.history(
                message.location.session, limit=_MAX_PAST_TURNS
            )
            people |= {turn.record.person for turn in past_turns}
        return "" if people == {slack_message.user} else access_words.MENTION_ME_IN_CROWD

    async def _read_thread(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> thread_history.Thread:
        if not message.thread:
            return thread_history.Thread()
        return await self._threads.read(workspace, message.channel, message.thread, message.ts)

    async def post_notice(self, message: _Message, sentence: str) -> None:
        place = message.source.place
        content = {"text": sentence, "blocks": [blocks.note(sentence)]}
        payload = {message_posting.NO_ANSWER: True}
        await message_posting.post(self._dependencies.api, place, content, place.thread, payload)

    async def refuse_password(self, message: _Message, sentence: str) -> None:
        place = message.source.place
        # The next bot gathers context from after the latest answer, and this refusal counts as one.
        self._threads.mark_answered(place.workspace.team, message.source.message)
        content = {"text": sentence, "blocks": [blocks.note(sentence)]}
        await message_posting.post(self._dependencies.api, place, content, place.thread)

    async def refuse(self, message: _Message, sentence: str, *, is_private: bool) -> None:
        await message_posting.whisper(self._dependencies.api, message.source.place, sentence)

    async def admit(self, message: _Message) -> _Message:
        slack_message = message.source.message
        profile = await self._dependencies.permissions.require(
            message.source.workspace,
            slack_message.user,
            slack_message.channel,
            user_team=slack_message.user_team,
        )
        return dataclasses.replace(message, person=profile.person)

    async def make_command_place(
        self, message: _Message
    ) -> tuple[command_types.Place, commands.View]:
        source = message.source
        key = await self._read_session(source)
        # From now on, messages in this thread are for the bot.
        await self._service.create_session(key)
        profile = await self._dependencies.permissions.profile(
            source.workspace, message.person.id, source.message.user_team
        )
        place = self._commands.command_place(key, source.place, profile)
        return place, self._commands.make_view(key, source.place)

    async def _read_session(self, source: _Source) -> values.SessionKey:
        """Return the session of a message's thread."""
        thread = await self._read_thread(source.workspace, source.message)
        return _session_key(
            source.workspace, source.message, uses_channel_kernel=thread.uses_channel_kernel
        )

    async def prepare(
        self,
        message: _Message,
        author_preferences: preferences.Preferences,
        *,
        code: str,
        is_edit: bool,
    ) -> claims.StartRequest | None:
        source = message.source
        sent_message, incoming = source.message, source.incoming
        title = "" if sent_message.thread else title_of(incoming.text)
        location = slack_transport.location(source.place, message.session, title=title)
        if is_edit or code or incoming.is_code or not (incoming.text or sent_message.files):
            # Nothing is shown yet, as there may be nothing to do, or an answer already.
            request = await self._make_request(message, code)
            location = dataclasses.replace(location, session=request.key)
            start = await self._in_flight.prepare(
                request,
                location,
                shows_code=author_preferences.show_code and not request.is_code,
                is_edit=is_edit,
            )
        else:
            entry = self._in_flight.open_entry(message.id, message.person.id, location)
            self._in_flight.begin_answer(
                entry, is_code=False, shows_code=author_preferences.show_code
            )
            try:
                request = await self._make_request(message)
            except Exception as error:
                await self._in_flight.refuse_request(entry, error)
                return None
            start = functools.partial(self._in_flight.answer, entry, request)
        self._threads.mark_answered(source.workspace.team, sent_message)
        return start and functools.partial(self._start, start, request)

    async def _make_request(self, message: _Message, code: str = "") -> requests.Request:
        """Make a request of a message; one to run `code` if its command stands for code.

        Raises:
            BotError: there is nothing to be done.
        """
        source = message.source
        if code:
            return requests.Request(
                key=await self._read_session(source),
                person=message.person,
                text=code,
                is_code=True,
                id=message.id,
            )
        workspace, sent_message = source.workspace, source.message
        incoming = source.incoming
        thread = await self._read_thread(workspace, sent_message)
        key = _session_key(workspace, sent_message, uses_channel_kernel=thread.uses_channel_kernel)
        request = requests.Request(
            key=key, person=message.person, text=incoming.text, id=message.id
        )
        downloads = self._dependencies.downloads
        if incoming.is_code:
            code = incoming.code
            if sent_message.files:
                code = await downloads.read_text(workspace, sent_message.files[0])
            return dataclasses.replace(request, text=code, is_code=True)
        limit = self._dependencies.config.context_messages
        channel_messages: Sequence[message_parsing.Message] = ()
        if limit and not sent_message.thread and not sent_message.is_direct:
            channel_messages = await self._threads.read_channel(workspace, sent_message)
        messages = (*channel_messages, *thread.before)
        names = await self._find_names(workspace, (*messages, *thread.messages_with_files))
        earlier_files = await self._earlier_files(request, thread, names)
        files = [*sent_message.files[:_MAX_FILES], *earlier_files]
        if not request.text and not files:
            help_text = await command_views.help_text(self._service, key, message.person)
            raise errors.BotError(help_text)
        return dataclasses.replace(
            request,
            text=request.text or command_words.DESCRIBE_UPLOAD,
            attachments=downloads.make_attachments(workspace, files),
            recent=thread_history.recent_messages(
                [earlier for earlier in messages if earlier.bot or earlier.user in names],
                names,
                limit=limit,
            ),
            may_steer=True,
        )

    async def _earlier_files(
        self,
        request: requests.Request,
        thread: thread_history.Thread,
        names_by_user: Mapping[str, str],
    ) -> Sequence[Mapping[str, Any]]:
        """Return the files of earlier messages that a request asks for."""
        files = [
            file
            for earlier in thread.messages_with_files
            if earlier.bot or earlier.user in names_by_user
            for file in earlier.files
        ]
        if not files:
            return ()
        infos = await self._service.queries.files(request.key)
        present_names = frozenset(info.name for info in infos)
        return thread_history.requested_files(files, request.text, present_names)[:_MAX_FILES]

    async def _find_names(
        self,
        workspace: installations.InstalledWorkspace,
        messages: Sequence[message_parsing.Message],
    ) -> dict[str, str]:
        """Return the names of the people who wrote earlier messages, by their ids.

        People who may not use the bot there are left out, because their messages and files must
        not reach a model.
        """
        names = {}
        for earlier in {message.user: message for message in messages if not message.bot}.values():
            try:
                profile = await self._dependencies.permissions.require(
                    workspace, earlier.user, earlier.channel, user_team=earlier.user_team
                )
            except policies.NotAllowedError:
                continue
            names[earlier.user] = profile.name
        return names

    async def _start(self, start: claims.StartRequest, request: requests.Request) -> None:
        await start()
        if request.is_code:
            return
        turns = await self._service.queries.history(request.key, limit=2)
        if len(turns) < 2:
            await self._service.rename(request.key, title_of(request.text))


def _session_key(
    workspace: installations.InstalledWorkspace,
    message: message_parsing.Message,
    *,
    uses_channel_kernel: bool,
) -> values.SessionKey:
    """Return the key of a message's session: its thread's, or its channel's."""
    root = "" if uses_channel_kernel else message.root
    return values.SessionKey("slack", workspace.team, message.channel, root)


def title_of(text: str) -> str:
    """Return the title of a session that begins with a request."""
    return quantities.one_line(text, _MAX_TITLE_CHARACTERS)
