"""The socket chat as a platform: how it reads messages, and its startup."""

import asyncio
import contextlib
import functools
import json

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import in_flight, inbox, policies, sync
from interpreter_bot.sessions import requests
from interpreter_bot.wording import access_words, command_words, place_words
from tests.fakes.socket_chat import transports

PLATFORM = "socket"
BOT = "@bot"
_COMMAND_NETWORK = "discord"  # Commands are written as on Discord.
_FORM_ACTIONS = ("answer", "change")


class SocketChat:
    """Takes the events of the server; see `chat.inbox.Network`.

    Attributes:
        banned: people who may not use the bot.
        rooms: where it may be used; everywhere if there are none.
    """

    def __init__(self, path, service, *, follow_threads=True, max_edit_age_seconds=60.0):
        self._service = service
        self.banned, self.rooms = set(), set()
        self.network, self.markdown = transports.SocketTransport(path), transports.SocketMarkup()
        self.in_flight = in_flight.RequestsInFlight(
            service,
            self.network,
            self.markdown,
            {"follow_threads": follow_threads},
        )
        self.inbox = inbox.Inbox(
            PLATFORM,
            service,
            self,
            self.in_flight.find_preferences,
            max_edit_age_seconds=max_edit_age_seconds,
            spawn=self.in_flight.spawn,
        )

    async def take(self, event):
        """Take an event of the server."""
        match event["event"]:
            case "message":
                await self.inbox.receive(event["message"])
            case "edit":
                await self.inbox.receive_edit(event["message"])
            case "delete":
                number = str(event["message"]["id"])
                await self.in_flight.stop(lambda entry: entry.id == number)
            case "press":
                await self._press(event["person"], event["message"], *event["button"].split())
            case "form":
                question = event["button"].split()[1]
                await self._service.questions.respond(
                    question, "answer", event["text"], person=event["person"]
                )

    async def _press(self, person, message, action, subject_id):
        location = transports.location(_session(message["room"]))
        try:
            if action == "stop":
                await self.in_flight.stop(lambda entry: entry.id == subject_id, person)
            elif action not in _FORM_ACTIONS:
                await self._service.questions.respond(subject_id, action, person=person)
        except errors.BotError as error:
            await self.network.whisper(location, person, str(error))

    async def notify(self, key, sentence):
        """Send a sentence to the people of a session."""
        await sync.post_once(self.network, transports.location(key), sentence)

    async def parse(self, raw):
        if not raw["author"]:
            return None
        location = transports.location(_session(raw["room"]))
        text = raw["text"].replace(BOT, "").strip()
        replied_messages = await self._find(raw["room"], raw["answers"]) if raw["answers"] else []
        question_ids = [button.split()[1] for m in replied_messages for button in m["buttons"]]
        is_for_others = "@" in text or any(m["author"] for m in replied_messages)
        return inbox.Message(
            id=str(raw["id"]),
            event_id=f"message {raw['id']}",
            version=f"/{raw['version']}",
            location=location,
            session=location.session,
            person=requests.Person(raw["author"], raw["author"]),
            text=text,
            sent_at=raw["moment"],
            content={"room": raw["room"], "message": raw["id"]},
            command=command_table.parse_words(text, _COMMAND_NETWORK),
            replied_question_ids=frozenset(question_ids) if raw["answers"] else None,
            is_addressed=_is_direct(raw) or BOT in raw["text"],
            mentions_bot=BOT in raw["text"],
            is_for_others=is_for_others,
            source=raw,
        )

    async def find_again(self, event):
        messages = await self._find(event.content["room"], event.content["message"])
        return await self.parse(messages[0]) if messages else None

    async def _find(self, room, number):
        return [raw for raw in await self.network.messages(room) if raw["id"] == number]

    async def may_answer(self, message, question):
        return _is_direct(message.source) or await self._people(message) == {message.person.id}

    async def is_in_own_thread(self, message):
        key = message.location.session
        return bool(key.thread) and await self._service.queries.exists(key)

    async def find_mention_reason(self, message, chosen):
        if not chosen.follow_threads:
            return access_words.MENTION_ME
        is_alone = await self._people(message) == {message.person.id}
        return "" if is_alone or message.replied_question_ids else access_words.MENTION_ME_IN_CROWD

    async def _people(self, message):
        messages = await self.network.messages(message.source["room"])
        return {raw["author"] for raw in messages} - {""}

    async def admit(self, message):
        if self.rooms and message.location.session.channel not in self.rooms:
            raise policies.NotHereError(access_words.NOT_HERE)
        if message.person.id in self.banned:
            raise policies.NotAllowedError(access_words.NOT_LISTED)
        return message

    async def make_command_place(self, message):
        key, person = message.location.session, message.person
        scope = values.Scope(PLATFORM, "", key.channel, person.id)
        place = command_types.Place(self._service, key, person, scope, self.in_flight.settings)
        return place, _View(self.network, message)

    async def prepare(self, message, chosen, *, code, is_edit):
        request = requests.Request(
            key=message.location.session,
            person=message.person,
            text=code or message.text,
            model=chosen.model,
            is_code=bool(code),
            id=message.id,
        )
        place = functools.partial(self._find_place, message)
        return await self.in_flight.prepare(
            request, message.location, place, shows_code=chosen.show_code, is_edit=is_edit
        )

    async def post_notice(self, message, sentence):
        await self.in_flight.post_notice(message.location, sentence)

    async def refuse_password(self, message, sentence):
        await self.refuse(message, sentence, is_private=False)

    async def refuse(self, message, sentence, *, is_private):
        person = message.person.id
        await self.in_flight.refuse(message.location, person, sentence, is_private=is_private)

    async def _find_place(self, message):
        if _is_direct(message.source) or message.location.session.thread:
            return message.location
        room = await self.network.open_thread(message.source["id"])
        return transports.location(_session(room))


class _View:
    """Shows results of commands; see `chat.commands.View`."""

    max_characters, is_private = 500, True

    def __init__(self, network, message):
        self._network, self._message = network, message
        markdown = transports.SocketMarkup()
        self.escape, self.inline_code = markdown.escape, markdown.inline_code
        self.small_print = markdown.small_print

    def help(self, commands):
        return command_words.discord_help(", ".join(command.name for command in commands))

    async def send(self, text):
        await sync.post_once(self._network, self._message.location, text)

    async def ask(self, question, label, invocation):
        await self.send(question)

    async def open_form(self, form, invocation):
        raise errors.BotError(place_words.FORM_BY_COMMAND)


@contextlib.asynccontextmanager
async def connect_platform(path, service, **options):
    """Run the platform inside the context."""
    chat = SocketChat(path, service, **options)
    service.notify_through(PLATFORM, chat.notify, go_on=chat.in_flight.go_on)

    def take_again(event):
        chat.in_flight.spawn(chat.inbox.receive_again(event), "an event of a bot that is gone")

    service.events.open_platform(PLATFORM, take_again)
    reader, writer = await asyncio.open_unix_connection(path, limit=2**22)

    async def listen():
        while line := await reader.readline():
            chat.in_flight.spawn(chat.take(json.loads(line)), "event")

    with contextlib.closing(writer):
        writer.write(b'{"call": "listen"}\n')
        listener = asyncio.create_task(listen())
        await chat.inbox.catch_up(await chat.network.messages())
        yield chat
        listener.cancel()
        await chat.in_flight.drain(5)


def _session(room):
    channel, _, thread = room.partition("/")
    return values.SessionKey(PLATFORM, "", channel, thread)


def _is_direct(raw):
    return raw["room"].startswith("@")
