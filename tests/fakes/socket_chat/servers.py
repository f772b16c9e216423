"""The server of a small chat network over a Unix socket: one JSON line a call, planned faults."""

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import json
import time

MAX_CHARACTERS = 600
MAX_FILES = 2
MAX_FILE_BYTES = 64 * 1024


@dataclasses.dataclass(eq=False)
class Message:
    """A message in a room; the thread of a message is the room "room/message".

    Attributes:
        author: the person who wrote it; empty for the bot.
        answers: the id of the message that it replies to; 0 for none.
        files: contents by name, in order.
        buttons: actions and ids, as `action id`.
        notified_person: the person who was notified of it.
        versions: all its texts, in order.
        uploads: the number of files uploaded for all its versions.
    """

    id: int
    room: str
    nonce: str = ""
    text: str = ""
    author: str = ""
    answers: int = 0
    files: dict = dataclasses.field(default_factory=dict)
    buttons: list = dataclasses.field(default_factory=list)
    notified_person: str = ""
    moment: float = dataclasses.field(default_factory=time.time)
    versions: list = dataclasses.field(default_factory=list)
    uploads: int = 0


@dataclasses.dataclass
class Fault:
    """A fault of the next calls of a kind.

    Attributes:
        call: "post", "edit", …
        kind: "drop" carries the call out without a response; "away" does nothing; any other kind
            is the error of a refusal.
    """

    call: str
    kind: str
    times: int = 1
    details: dict = dataclasses.field(default_factory=dict)


class _RefusedError(Exception):
    pass


class Server:
    """The server, with the rules of its network."""

    def __init__(self, path):
        self.path = path
        self.messages = {}
        self.whispers = []
        self.closed_rooms = set()
        self.calls = []
        self._faults = []
        self._bots = []
        self._ids = itertools.count(1)
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=2**22)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    def plan(self, call, kind, times=1, **details):
        """Plan a fault of coming calls."""
        fault = Fault(call, kind, times, details)
        self._faults.append(fault)
        return fault

    def room(self, name):
        """Return the messages of a room, in order."""
        return [message for message in self.messages.values() if message.room == name]

    def answers(self, name):
        """Return the bot's messages in a room, in order."""
        return [message for message in self.room(name) if not message.author]

    def say(self, person, room, text, answers=0):
        """Let a person write a message."""
        message = Message(next(self._ids), room, text=text, author=person, answers=answers)
        self.messages[message.id] = message
        return self.deliver(message)

    def change(self, message, text):
        """Let a person edit a message."""
        message.text = text
        message.versions.append(text)
        return self.deliver(message, "edit")

    def remove(self, message):
        """Let a person delete a message."""
        del self.messages[message.id]
        return self.deliver(message, "delete")

    def press(self, person, message, action):
        """Let a person press a button; if it opens a form, `submit` follows."""
        button = next(button for button in message.buttons if button.split()[0] == action)
        self._publish("press", person=person, button=button, message=self._payload(message))

    def submit(self, person, button, text):
        """Let a person submit the form of a button."""
        self._publish("form", person=person, button=button, text=text)

    def deliver(self, message, event="message"):
        """Send an event of a message to all connected bots, perhaps a second time."""
        self._publish(event, message=self._payload(message))
        return message

    def _publish(self, event, **fields):
        for bot in self._bots:
            bot.write(json.dumps({"event": event} | fields).encode() + b"\n")

    async def _serve(self, reader, writer):
        with contextlib.closing(writer):
            call = json.loads(await reader.readline())
            if call["call"] == "listen":
                self._bots.append(writer)
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                self._bots.remove(writer)
                return
            response = self._respond(call)
            if response is not None:
                writer.write(json.dumps(response).encode() + b"\n")
                await writer.drain()

    def _respond(self, call):
        kind = call.pop("call")
        self.calls.append(kind)
        fault = next((f for f in self._faults if f.times and f.call == kind), None)
        if fault is not None:
            fault.times -= 1
            if fault.kind == "away":
                return None
            if fault.kind != "drop":
                return {"error": fault.kind} | fault.details
        try:
            response = getattr(self, f"_{kind}")(**call)
        except _RefusedError as error:
            response = {"error": str(error)}
        return None if fault is not None else response

    def _post(self, room, nonce, **content):
        self._check(room)
        for message in self.room(room):
            if message.nonce == nonce:
                return self._payload(message)
        message = Message(next(self._ids), room, nonce, notified_person=content["notifies"])
        self._write(message, **content)
        self.messages[message.id] = message
        return self._payload(message)

    def _edit(self, message, **content):
        stored = self._find(message)
        self._check(stored.room)
        self._write(stored, **content)
        return self._payload(stored)

    def _delete(self, message):
        del self.messages[self._find(message).id]
        return {}

    def _list(self, room):
        messages = self.messages.values() if room is None else self.room(room)
        return {"messages": [self._payload(message) for message in messages]}

    def _thread(self, message):
        stored = self._find(message)
        self._check(stored.room)
        return {"room": f"{stored.room}/{stored.id}"}

    def _whisper(self, person, text):
        self.whispers.append((person, text))
        return {}

    def _check(self, room):
        if room in self.closed_rooms:
            raise _RefusedError("closed")

    def _find(self, message):
        if message not in self.messages:
            raise _RefusedError("deleted")
        return self.messages[message]

    def _write(self, message, *, text, kept, files, buttons, notifies=""):
        data = {name: base64.b64decode(content) for name, content in files.items()}
        if len(text) > MAX_CHARACTERS or not (text.strip() or data or kept):
            raise _RefusedError("content refused")
        is_large = any(len(content) > MAX_FILE_BYTES for content in data.values())
        if is_large or len(kept) + len(data) > MAX_FILES:
            raise _RefusedError("files refused")
        message.files = {name: message.files[name] for name in kept} | data
        message.text, message.buttons = text, buttons
        message.versions.append(text)
        message.uploads += len(data)

    def _payload(self, message):
        return {
            "id": message.id,
            "room": message.room,
            "author": message.author,
            "answers": message.answers,
            "version": len(message.versions),
            "text": message.text,
            "files": list(message.files),
            "buttons": message.buttons,
            "moment": message.moment,
        }
