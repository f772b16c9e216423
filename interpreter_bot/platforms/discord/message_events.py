"""From message event to request: which messages are for the bot, and in what order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final

import discord

from interpreter_bot import errors, events, settings
from interpreter_bot.platforms import command_table, preferences
from interpreter_bot.platforms.chat import commands, inbox, policies
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    command_views,
    file_transfers,
    markdown,
    message_parsing,
    permissions,
    persistent_buttons,
    recent_messages,
    requests_in_flight,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import (
    event_claims,
    requests,
    session_service,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import access_words, question_words, run_words

_log = logging.getLogger(__name__)

_KINDS: Final = frozenset({discord.MessageType.default, discord.MessageType.reply})
_ANSWERS: Final = frozenset({"answer", "once", "session", "install", "yes", "no"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Received:
    """A message, and its channel as far as that is known."""

    message: discord.Message
    channel: discord.abc.MessageableChannel


class MessageEvents:
    """Handles messages that are for the bot; see `chat.inbox.Receiver`.

    Attributes:
        recent_messages: the latest messages of the channels in which the bot is asked.
        recent_requests: messages that became requests, as long as they may be changed.
    """

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        in_flight: requests_in_flight.RequestsInFlight,
        files: file_transfers.Attachments,
    ) -> None:
        self._client = client
        self._service = service
        self._config = config
        self._in_flight = in_flight
        self._files = files
        self._threads = channels_and_threads.Threads(client, service, config, in_flight.limits)
        self._members = permissions.Memberships(client, config, in_flight.limits)
        self._inbox = inbox.Inbox[_Received](
            channels_and_threads.PLATFORM, service.events, self, in_flight.spawn
        )
        self.recent_messages = recent_messages.RecentMessages(config, in_flight.limits)
        self.recent_requests = requests_in_flight.RequestsByMessage()

    @property
    def _me(self) -> int:
        return self._client.user.id if self._client.user is not None else 0

    def in_order(self, channel_id: int) -> asyncio.Lock:
        """Return the lock of a channel: its messages are handled one after the other."""
        return self._inbox.order(channel_id)

    async def on_message(self, message: discord.Message) -> bool:
        """Handle a new message; return whether it is for the bot, but was claimed before."""
        self.recent_messages.note(message)
        if not _is_of_a_person(message):
            return False
        self._threads.note_person(message)
        async with self._inbox.order(("channel of", message.channel.id)):
            channel = await self._channel(message)
        received = _Received(message, channel)
        return not await self._inbox.receive(received, self._envelope(received))

    def _envelope(self, received: _Received) -> inbox.Envelope:
        """Return what the inbox has to know of a message."""
        message, channel = received.message, received.channel
        is_command = message_parsing.command(message, self._me) is not None
        return inbox.Envelope(
            order_key=message.channel.id,
            name=f"message {message.id}",
            key=channels_and_threads.of_channel(channel, message.guild).key,
            request_id=str(message.id),
            content=None if is_command else {"channel": channel.id, "message": message.id},
            is_addressed=message.guild is None
            or any(user.id == self._me for user in message.mentions),
            is_for_others=message_parsing.is_of_others(message, self._me),
        )

    async def find_answer(self, received: _Received) -> inbox.Answer | None:
        question = await self._question_of(received.message, received.channel)
        return None if question is None else functools.partial(self._answer, received, question)

    async def _question_of(
        self, message: discord.Message, channel: discord.abc.MessageableChannel
    ) -> events.InputQuestion | None:
        """Return the question of running code that a message answers: by a reply to it; where one
        person is alone with the bot, by any message that is nothing else."""
        key = channels_and_threads.of_channel(channel, message.guild).key
        asked = [
            question
            for question in self._service.questions.open_in(key, str(message.author.id))
            if isinstance(question, events.InputQuestion)
        ]
        original = message_parsing.referred(message)
        if original is not None and original.author.id == self._me:
            ids = {*persistent_buttons.ids(original, _ANSWERS)}
            return next((question for question in asked if question.id in ids), None)
        if original is not None or message_parsing.mentions_bot(message, self._me):
            return None
        question = next((question for question in asked if not question.is_password), None)
        if question is None or message_parsing.is_of_others(message, self._me):
            return None
        is_alone = message.guild is None or (
            isinstance(channel, discord.Thread)
            and await self._threads.is_of_one_person(channel, message.author.id)
        )
        return question if is_alone else None

    async def _answer(self, received: _Received, question: events.InputQuestion) -> bool:
        """Answer a question by a message; says whether nothing else is to come of that."""
        message = received.message
        if question.is_password:
            await self._say(received.channel, question_words.NO_PASSWORDS)
            return True
        text = message_parsing.words(message.content, message.mentions, self._me)
        if not text:
            return False
        person = str(message.author.id)
        try:
            await self._service.answer(question.id, events.TextAnswer(text), person=person)
        except errors.AnswerRefusedError:
            return False
        return True

    async def handle_again(self, event: event_claims.LostEvent) -> None:
        """Take a message that a bot had claimed which is gone, as it stands there now."""
        content = event.content
        envelope = inbox.Envelope(
            order_key=content["channel"],
            name=event.event_id,
            key=event.key,
            request_id=str(content["message"]),
        )
        prepare = functools.partial(self._prepare_lost, content["channel"], content["message"])
        await self._inbox.handle(envelope, prepare, is_claimed=True)

    async def _prepare_lost(self, channel_id: int, message_id: int) -> inbox.StartRequest | None:
        channel = self._client.get_channel(channel_id)
        channel = channel or await self._client.fetch_channel(channel_id)
        if not isinstance(channel, discord.abc.Messageable):
            return None
        message = await channel.fetch_message(message_id)
        return await self._inbox.prepare(_Received(message, message.channel), is_again=True)

    async def on_edit(self, message: discord.Message, event: str) -> None:
        """Handle a message again that was edited since any bot answered it.

        Args:
            event: as which the edit was claimed.
        """
        received = _Received(message, await self._channel(message))
        envelope = dataclasses.replace(self._envelope(received), name=event)
        prepare = functools.partial(self._prepare_edited, received)
        await self._inbox.handle(envelope, prepare, is_claimed=True)

    async def _prepare_edited(self, received: _Received) -> inbox.StartRequest | None:
        message = received.message
        place = channels_and_threads.of_channel(received.channel, message.guild)
        said = await self.parsed(message)
        wanted = self.request(message, said, place, preferences.Preferences())
        for answered in (place, channels_and_threads.of_thread(place, message.id)):
            past = await self._service.queries.history(answered.key)
            if any(turn.request == wanted.text for turn in past):
                # Its words are unchanged.
                return None
        return await self._inbox.prepare(received, is_again=False)

    async def refuse(self, received: _Received, sentence: str) -> None:
        await self._say(received.channel, f"⚠️ {markdown.escape(sentence)}")

    @contextlib.asynccontextmanager
    async def _said_why_not(self, received: _Received) -> AsyncIterator[None]:
        """Say in a channel what goes wrong inside: no other bot will answer, it is claimed."""
        try:
            yield
        except Exception as error:
            _log.exception("a message could not be taken")
            await self.refuse(received, run_words.error_sentence(error))

    async def _channel(self, message: discord.Message) -> discord.abc.MessageableChannel:
        """Return the channel of a message; one that is not cached (yet) is fetched."""
        if isinstance(message.channel, discord.PartialMessageable) and message.guild is not None:
            found = await self._client.fetch_channel(message.channel.id)
            if isinstance(found, discord.abc.Messageable):
                return found
        return message.channel

    async def is_still_for_us(self, message: discord.Message) -> bool:
        """Return whether an edited message is for the bot now, as far as is known."""
        received = _Received(message, message.channel)
        return await self._inbox.is_for_bot(received, self._envelope(received), announces=False)

    async def is_in_own_thread(self, received: _Received) -> bool:
        if not isinstance(received.channel, discord.Thread):
            return False
        joined = await self._threads.joined(received.channel)
        return joined is not None and received.message.id >= joined

    async def mention_reason(self, received: _Received) -> str:
        message, thread = received.message, received.channel
        if not isinstance(thread, discord.Thread):
            return ""
        place = channels_and_threads.of_channel(thread, message.guild)
        chosen = await self._in_flight.chosen_by(place, channels_and_threads.person(message.author))
        if not chosen.follow_threads:
            return access_words.MENTION_OR_REPLY
        if not self._client.intents.message_content:
            return access_words.MENTION_OR_REPLY_TO_BE_READ
        original = message_parsing.referred(message)
        if original is not None and original.author.id == self._me:
            return ""
        is_alone = await self._threads.is_of_one_person(thread, message.author.id)
        return "" if is_alone else access_words.MENTION_OR_REPLY_IN_CROWD

    async def announce_mention(self, received: _Received, sentence: str) -> None:
        await self._say(received.channel, markdown.small_print(f"🔹 {sentence}"))

    async def _say_privately(self, received: _Received, text: str) -> None:
        """Tell the author alone; everybody if they take no direct messages."""
        message = received.message
        place = channels_and_threads.of_channel(received.channel, message.guild)
        network = discord_transport.DiscordTransport(self._client, self._in_flight.limits)
        at = channels_and_threads.location(place)
        if not await network.whisper(at, str(message.author.id), text):
            await self._say(received.channel, text)

    async def _say(self, channel: discord.abc.Messageable, text: str) -> None:
        try:
            await channel.send(text)
        except api_errors.ANY as error:
            _log.info("a sentence could not be said", exc_info=error)

    async def prepare(self, received: _Received, *, is_again: bool) -> inbox.StartRequest | None:
        message, channel = received.message, received.channel
        if refusal := await self._refusal(message, channel):
            _log.info("a message was refused: %s", refusal)
            if not isinstance(refusal, policies.NotHereError):
                await self._say_privately(received, str(refusal))
            return None
        place = channels_and_threads.of_channel(channel, message.guild)
        chosen = await self._in_flight.chosen_by(place, channels_and_threads.person(message.author))
        said = await self.parsed(message, await self._before(message, channel))
        if not said.text and not said.attachments:
            await self._say(channel, access_words.WRITE_SOMETHING)
            return None
        if command := message_parsing.command(message, self._me):
            there, view = self._place_of_command(message, channel)
            start = await commands.of_words(command, said.text, there, view)
            if isinstance(start, command_table.Run):
                said = dataclasses.replace(said, code=start.code)
            elif start is not None:
                return start
        is_alone = isinstance(channel, discord.Thread) or message.guild is None
        if isinstance(channel, discord.Thread):
            self._threads.join(channel.id, message.id)
        recent = self.recent_requests.remember(message)
        if is_alone or not chosen.threads:
            run = self._run(recent, said, place, chosen, is_reply=not is_alone)
            return functools.partial(self._in_flight.carry_out, run, chosen)
        return functools.partial(self._open_thread, received, recent, said, place, chosen)

    def _place_of_command(
        self, message: discord.Message, channel: discord.abc.MessageableChannel
    ) -> tuple[command_table.Place, command_views.ChannelView]:
        """Return the place of a command in words, and what shows its result."""
        author, in_flight = message.author, self._in_flight
        permissions = discord.Permissions.none()
        if isinstance(author, discord.Member) and not isinstance(
            channel, discord.PartialMessageable
        ):
            permissions = channel.permissions_for(author)
        place = channels_and_threads.of_channel(channel, message.guild)
        return (
            command_views.place_of(self._service, in_flight, place, author, channel, permissions),
            command_views.ChannelView(self._client, in_flight, place, channel, author.id),
        )

    async def _before(
        self, message: discord.Message, channel: discord.abc.MessageableChannel
    ) -> list[discord.Message]:
        """Return what was said before a message, and is no request itself."""
        if message.guild is None:
            return []
        said = await self.recent_messages.before(message, channel, self._me)
        # The words of people who may not use the bot do not reach it as context either.
        return [
            earlier
            for earlier in said
            if self.recent_requests.find(earlier.id) is None
            and (earlier.author.bot or not await self._refusal(earlier, channel))
        ]

    async def parsed(
        self, message: discord.Message, before: Iterable[discord.Message] = ()
    ) -> message_parsing.ParsedMessage:
        """Parse a message, and those before it."""
        original = message_parsing.referred(message)
        refusal = None
        if original is not None and original.author.id != self._me:
            refusal = await self._refusal(original, message.channel)
        return message_parsing.parse(message, self._me, before, is_of_outsider=bool(refusal))

    async def _refusal(
        self, message: discord.Message, channel: discord.abc.MessageableChannel
    ) -> policies.NotAllowedError | None:
        """Return why a message's author may not use the bot there; None if they may."""
        standing = await self._members.standing(message.author, message.guild)
        guild_id = message.guild.id if message.guild is not None else None
        requester = permissions.requester(message.author, guild_id, channel, standing)
        return policies.refusal(requester, permissions.rules(self._config))

    def request(
        self,
        message: discord.Message,
        said: message_parsing.ParsedMessage,
        place: channels_and_threads.Place,
        chosen: preferences.Preferences,
    ) -> requests.Request:
        """Make a request of a message. Without any model, the code in it is what can be run."""
        code = said.code
        if not self._service.queries.models:
            code = code or code_reading.code_in(said.text)
        return requests_in_flight.request_in(
            place,
            channels_and_threads.person(message.author),
            code or said.text,
            chosen,
            attachments=self._files.of(said.attachments),
            is_code=bool(code),
            id=str(message.id),
            edits=str(message.id) if message.edited_at else "",
            recent=said.recent,
        )

    def _run(
        self,
        recent: requests_in_flight.RequestOfMessage,
        said: message_parsing.ParsedMessage,
        place: channels_and_threads.Place,
        chosen: preferences.Preferences,
        *,
        is_reply: bool,
    ) -> requests_in_flight.InFlight:
        message = recent.message
        request = self.request(message, said, place, chosen)
        reply_to = str(message.id) if is_reply else ""
        at = channels_and_threads.location(place, reply_to=reply_to)
        recent.run = requests_in_flight.InFlight(request, place, at)
        return recent.run

    async def _open_thread(
        self,
        received: _Received,
        recent: requests_in_flight.RequestOfMessage,
        said: message_parsing.ParsedMessage,
        place: channels_and_threads.Place,
        chosen: preferences.Preferences,
    ) -> None:
        """Answer in a thread on the message, or else by a reply to it."""
        message = recent.message
        async with self._said_why_not(received):
            is_open = asyncio.Event()
            self._in_flight.limits.spawn(
                discord_transport.type_until(is_open, message.channel.typing), "typing"
            )
            try:
                thread_id = await self._threads.open(message, message_parsing.title(said.text))
            finally:
                is_open.set()
            if recent.is_deleted:
                return
            if recent.message is not message:
                said = await self.parsed(recent.message)
            if thread_id is not None:
                self.recent_messages.follow(thread_id)
                place = channels_and_threads.of_thread(place, thread_id)
            run = self._run(recent, said, place, chosen, is_reply=thread_id is None)
            await self._in_flight.carry_out(run, chosen)


def _is_of_a_person(message: discord.Message) -> bool:
    """Return whether a person wrote it: bots that answer each other would never end."""
    is_automatic = message.author.bot or message.author.system or message.webhook_id is not None
    return not is_automatic and message.type in _KINDS
