"""Messages on Discord: parsed, assigned to sessions, and answered in threads or by replies."""

from __future__ import annotations

import dataclasses
import functools
from typing import Final, TypeAlias

import discord

from interpreter_bot import events, settings
from interpreter_bot.platforms import command_types, preferences
from interpreter_bot.platforms.chat import claims, in_flight, inbox, policies, sync, transport
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    command_views,
    file_transfers,
    message_parsing,
    permissions,
    persistent_buttons,
    recent_messages,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import event_claims, requests, session_service
from interpreter_bot.text import code_reading
from interpreter_bot.wording import access_words

_MESSAGE_TYPES: Final = frozenset({discord.MessageType.default, discord.MessageType.reply})
_ANSWER_ACTIONS: Final = frozenset({"answer"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """A message and its channel, which was fetched if the library did not know it."""

    message: discord.Message
    channel: discord.abc.MessageableChannel


_Message: TypeAlias = inbox.Message[_Source]


class MessageEvents:
    """Receives messages; see `chat.inbox.Network`.

    Attributes:
        inbox: handles those that are for the bot.
    """

    def __init__(
        self,
        network: discord_transport.DiscordTransport,
        service: session_service.SessionService,
        config: settings.Discord,
        requests_in_flight: in_flight.RequestsInFlight,
        files: file_transfers.Attachments,
    ) -> None:
        self._client = network.client
        self._network = network
        self._service = service
        self._config = config
        self._in_flight = requests_in_flight
        self._files = files
        self._threads = channels_and_threads.Threads(
            network.client, service, config, network.limits
        )
        self._memberships = permissions.Memberships(network.client, config, network.limits)
        self._recent = recent_messages.RecentMessages(config, network.limits)
        self.inbox = inbox.Inbox[discord.Message, _Source](
            channels_and_threads.PLATFORM,
            service,
            self,
            requests_in_flight.find_preferences,
            spawn=requests_in_flight.spawn,
        )

    @property
    def _bot_id(self) -> int:
        return self._client.user.id if self._client.user is not None else 0

    async def on_message(self, message: discord.Message) -> None:
        """Handle a new message."""
        self._recent.note_message(message)
        await self.inbox.receive(message)

    async def on_edit(self, message: discord.Message) -> None:
        """Handle an edited message; Discord itself edits some, to add previews."""
        self._recent.note_message(message)
        if message.edited_at is not None:
            await self.inbox.receive_edit(message)

    async def on_delete(self, message_id: int) -> None:
        """Handle a deleted message: withdraw its request, or stop its turn."""
        self._recent.forget(message_id)
        await self._in_flight.stop(lambda entry: entry.id == str(message_id))

    async def parse(self, raw: discord.Message) -> _Message | None:
        if not _is_of_a_person(raw):
            return None
        self._threads.note_person(raw)
        async with self.inbox.lock_of(("channel of", raw.channel.id)):
            channel = await self._find_channel(raw)
        original = message_parsing.replied_message(raw)
        question_ids = None
        if original is not None:
            is_of_bot = original.author.id == self._bot_id
            question_ids = frozenset(
                persistent_buttons.subject_ids(original, _ANSWER_ACTIONS) if is_of_bot else ()
            )
        edited_at = raw.edited_at
        place = channels_and_threads.place_of_channel(channel, raw.guild)
        return inbox.Message(
            id=str(raw.id),
            event_id=f"message {raw.id}",
            version=f" edited {edited_at.timestamp()}" if edited_at is not None else "",
            location=channels_and_threads.location(place),
            session=place.key,
            person=channels_and_threads.person_of(raw.author),
            text=message_parsing.words(raw, self._bot_id),
            sent_at=raw.created_at.timestamp(),
            content={"channel": channel.id, "message": raw.id},
            command=message_parsing.command(raw, self._bot_id),
            replied_question_ids=question_ids,
            is_addressed=raw.guild is None or message_parsing.is_addressed(raw, self._bot_id),
            mentions_bot=message_parsing.mentions_bot(raw, self._bot_id),
            is_for_others=message_parsing.is_for_others(raw, self._bot_id),
            source=_Source(raw, channel),
        )

    async def _find_channel(self, message: discord.Message) -> discord.abc.MessageableChannel:
        """Return the channel of a message; one that is not cached (yet) is fetched."""
        if isinstance(message.channel, discord.PartialMessageable) and message.guild is not None:
            channel = await self._client.fetch_channel(message.channel.id)
            if isinstance(channel, discord.abc.Messageable):
                return channel
        return message.channel

    async def find_again(self, event: event_claims.LostEvent) -> _Message | None:
        channel_id = event.content["channel"]
        try:
            channel = self._client.get_channel(channel_id) or await self._client.fetch_channel(
                channel_id
            )
            if not isinstance(channel, discord.abc.Messageable):
                return None
            message = await channel.fetch_message(event.content["message"])
        except discord.NotFound:
            return None
        return await self.parse(message)

    async def may_answer(self, message: _Message, question: events.InputQuestion) -> bool:
        channel = message.source.channel
        if not isinstance(channel, discord.Thread):
            return message.source.message.guild is None
        return await self._threads.is_of_one_person(channel, int(question.person))

    async def is_in_own_thread(self, message: _Message) -> bool:
        if not isinstance(message.source.channel, discord.Thread):
            return False
        first_request = await self._threads.first_request(message.source.channel)
        return first_request is not None and message.source.message.id >= first_request

    async def find_mention_reason(
        self, message: _Message, author_preferences: preferences.Preferences
    ) -> str:
        if not author_preferences.follow_threads:
            return access_words.MENTION_OR_REPLY
        if not self._client.intents.message_content:
            return access_words.MENTION_OR_REPLY_TO_BE_READ
        thread = message.source.channel
        original = message_parsing.replied_message(message.source.message)
        if original is not None and original.author.id == self._bot_id:
            return ""
        if not isinstance(thread, discord.Thread):
            return ""
        is_of_one_person = await self._threads.is_of_one_person(thread, int(message.person.id))
        return "" if is_of_one_person else access_words.MENTION_OR_REPLY_IN_CROWD

    async def admit(self, message: _Message) -> _Message:
        if refusal := await self._refusal(message.source.message, message.source.channel):
            raise refusal
        return message

    async def _refusal(
        self, message: discord.Message, channel: discord.abc.MessageableChannel
    ) -> policies.NotAllowedError | None:
        """Return why a message's author may not use the bot there; None if they may."""
        membership = await self._memberships.find_membership(message.author, message.guild)
        guild_id = message.guild.id if message.guild is not None else None
        requester = permissions.make_requester(message.author, guild_id, channel, membership)
        return policies.refusal(requester, permissions.rules(self._config))

    async def make_command_place(
        self, message: _Message
    ) -> tuple[command_types.Place, command_views.ChannelView]:
        author, channel = message.source.message.author, message.source.channel
        channel_permissions = discord.Permissions.none()
        if isinstance(author, discord.Member) and not isinstance(
            channel, discord.PartialMessageable
        ):
            channel_permissions = channel.permissions_for(author)
        place = channels_and_threads.place_of_channel(channel, message.source.message.guild)
        return (
            command_views.command_place(
                self._service,
                self._in_flight,
                self._network,
                place,
                author,
                channel,
                channel_permissions,
            ),
            command_views.ChannelView(self._network, place, channel, author.id),
        )

    async def prepare(
        self,
        message: _Message,
        author_preferences: preferences.Preferences,
        *,
        code: str,
        is_edit: bool,
    ) -> claims.StartRequest | None:
        raw, channel = message.source.message, message.source.channel
        earlier_messages = await self._messages_before(message)
        original, replies_to_outsider = message_parsing.replied_message(raw), False
        if original is not None and original.author.id != self._bot_id:
            replies_to_outsider = bool(await self._refusal(original, raw.channel))
        content = message_parsing.parse(
            raw, self._bot_id, earlier_messages, replies_to_outsider=replies_to_outsider
        )
        if not content.text and not content.attachments:
            await sync.post_once(self._network, message.location, access_words.WRITE_SOMETHING)
            return None
        if isinstance(channel, discord.Thread):
            self._threads.note_request(channel.id, raw.id)
        code = code or content.code
        if not self._service.queries.models:
            # Without a model, only code in the message can be run.
            code = code or code_reading.find_python(content.text)
        request = requests.Request(
            key=message.location.session,
            person=message.person,
            text=code or content.text,
            attachments=self._files.make_attachments(content.attachments),
            is_code=bool(code),
            id=message.id,
            recent=content.recent,
            may_steer=not code,
        )
        return await self._in_flight.prepare(
            request,
            message.location,
            functools.partial(self._find_location, message, author_preferences),
            shows_code=author_preferences.show_code and not request.is_code,
            is_edit=is_edit,
        )

    async def _messages_before(self, message: _Message) -> list[discord.Message]:
        """Return the messages before a request that are no requests themselves."""
        raw, channel = message.source.message, message.source.channel
        if raw.guild is None:
            return []
        # Messages of people who may not use the bot must not reach the model as context.
        return [
            earlier
            for earlier in await self._recent.messages_before(raw, channel, self._bot_id)
            if self._in_flight.find_entry(message.location.session, str(earlier.id)) is None
            and (earlier.author.bot or not await self._refusal(earlier, channel))
        ]

    async def post_notice(self, message: _Message, sentence: str) -> None:
        await self._in_flight.post_notice(message.location, sentence)

    async def refuse_password(self, message: _Message, sentence: str) -> None:
        # The next bot gathers context from after the latest answer, and this refusal counts as one.
        self._recent.hide(message.source.message.id)
        await self.refuse(message, sentence, is_private=False)

    async def refuse(self, message: _Message, sentence: str, *, is_private: bool) -> None:
        person = message.person.id
        await self._in_flight.refuse(message.location, person, sentence, is_private=is_private)

    async def _find_location(
        self, message: _Message, author_preferences: preferences.Preferences
    ) -> transport.Location:
        """Find the location of the answer: a thread on the message, or else a reply to it."""
        raw, channel = message.source.message, message.source.channel
        if isinstance(channel, discord.Thread) or raw.guild is None:
            return message.location
        if author_preferences.threads:
            title = message_parsing.title(message.text)
            async with self._network.show_working(message.location):
                thread_id = await self._threads.open_thread(raw, title)
            if thread_id is not None:
                self._recent.follow(thread_id)
                session = dataclasses.replace(message.location.session, thread=str(thread_id))
                return discord_transport.session_location(session)
        return dataclasses.replace(message.location, reply_to=message.id)


def _is_of_a_person(message: discord.Message) -> bool:
    """Return whether a person wrote a message: bots would answer each other for ever."""
    is_automatic = message.author.bot or message.author.system or message.webhook_id is not None
    return not is_automatic and message.type in _MESSAGE_TYPES
