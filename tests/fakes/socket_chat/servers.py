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
    """A message in a room, or in the thread of a message, whose room is "room/message".

    Attributes:
        author: who wrote it; empty for the bot.
        answers: the message that it replies to; 0 for none.
        files: contents by name, in order.
        buttons: actions and ids, as `action id`.
        told: the person who was notified of it.
        versions: all texts that it had.
        uploads: files that were sent for it so far, in one version or another.
    """

    id: int
    room: str
    nonce: str = ""
    text: str = ""
    author: str = ""
    answers: int = 0
    files: dict = dataclasses.field(default_factory=dict)
    buttons: list = dataclasses.field(default_factory=list)
    told: str = ""
    moment: float = dataclasses.field(default_factory=time.time)
    versions: list = dataclasses.field(default_factory=list)
    uploads: int = 0


@dataclasses.dataclass
class Fault:
    """What goes wrong with the next calls of a kind.

    Attributes:
        call: "post", "edit", …
        kind: "drop" does it and gives no response; "away" does nothing; others are refusals by
            the error that they give.
    """

    call: str
    kind: str
    times: int = 1
    about: dict = dataclasses.field(default_factory=dict)


class _RefusedError(Exception):
    pass


class Server:
    """A chat that keeps the rules of its network."""

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

    def plan(self, call, kind, times=1, **about):
        """Let something go wrong."""
        fault = Fault(call, kind, times, about)
        self._faults.append(fault)
        return fault

    def room(self, name):
        """The messages of a room, in order."""
        return [message for message in self.messages.values() if message.room == name]

    def answers(self, name):
        """The messages of the bot in a room, in order."""
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
        """Let a person press a button; of a form, `submit` is next."""
        button = next(button for button in message.buttons if button.split()[0] == action)
        self._publish("press", person=person, button=button, message=self._told(message))

    def submit(self, person, button, text):
        """Let a person submit the form of a button."""
        self._publish("form", person=person, button=button, text=text)

    def deliver(self, message, event="message"):
        """Let all connected bots have an event of a message, perhaps again."""
        self._publish(event, message=self._told(message))
        return message

    def _publish(self, event, **about):
        for bot in self._bots:
            bot.write(json.dumps({"event": event} | about).encode() + b"\n")

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
                return {"error": fault.kind} | fault.about
        try:
            response = getattr(self, f"_{kind}")(**call)
        except _RefusedError as error:
            response = {"error": str(error)}
        return None if fault is not None else response

    def _post(self, room, nonce, **content):
        self._check(room)
        for message in self.room(room):
            if message.nonce == nonce:
                return self._told(message)
        message = Message(next(self._ids), room, nonce, told=content["notifies"])
        self._write(message, **content)
        self.messages[message.id] = message
        return self._told(message)

    def _edit(self, message, **content):
        known = self._known(message)
        self._check(known.room)
        self._write(known, **content)
        return self._told(known)

    def _delete(self, message):
        del self.messages[self._known(message).id]
        return {}

    def _list(self, room):
        known = self.messages.values() if room is None else self.room(room)
        return {"messages": [self._told(message) for message in known]}

    def _thread(self, message):
        known = self._known(message)
        self._check(known.room)
        return {"room": f"{known.room}/{known.id}"}

    def _whisper(self, person, text):
        self.whispers.append((person, text))
        return {}

    def _check(self, room):
        if room in self.closed_rooms:
            raise _RefusedError("closed")

    def _known(self, message):
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

    def _told(self, message):
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
