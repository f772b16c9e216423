"""What a tab says, made into requests; what it asks for, given.

Longer than most modules: it is one table of what a tab may say, and an action for each entry.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, get_args

import aiohttp
from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import (
    commands,
    events,
    hubs,
    measuring,
    panels,
    pasts,
    replying,
    showing,
    turns,
)
from interpreter_bot.sessions import approvals, conversations, requests

_log = logging.getLogger(__name__)

_Message: TypeAlias = Mapping[str, Any]

_MOST_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_HEARTBEAT_SECONDS: Final = 20.0
_MOST_TURNS: Final = 1000
_MOST_TITLE_CHARACTERS: Final = 200
_TITLE_CHARACTERS: Final = 60
_MOST_ANSWER_CHARACTERS: Final = 64 * 1024


class Listener:
    """The websockets of all tabs. Requests are carried out in tasks that outlive their tab."""

    def __init__(
        self,
        bot: conversations.Conversations,
        hub: hubs.Hub,
        tasks: asyncio.TaskGroup,
        *,
        approval: requests.Approval = "never",
    ) -> None:
        """Args: `approval` is what the page's own settings demand."""
        self._bot = bot
        self._approval = approval
        self._hub = hub
        self._tasks = tasks
        self._sockets: set[web.WebSocketResponse] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._actions: dict[str, Callable[[hubs.Watcher, _Message], Awaitable[None]]] = {
            "watch": self._watch,
            "say": self._say,
            "stop": self._stop,
            "withdraw": self._withdraw,
            "answer": self._answer,
            "reset": self._reset,
            "delete": self._delete,
            "rename": self._rename,
            "choose": self._choose,
            "approve": self._approve,
            "show": self._show,
            "save": self._save,
        }

    async def websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a tab until it goes."""
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SECONDS, max_msg_size=_MOST_MESSAGE_BYTES, compress=False
        )
        await socket.prepare(request)
        watcher = hubs.Watcher()
        self._hub.enter(watcher)
        self._sockets.add(socket)
        sender = asyncio.create_task(_send(socket, watcher), name="web: sending to a tab")
        try:
            watcher.send(showing.greeting(self._bot))
            watcher.send(hubs.written("conversations", await showing.listing(self._bot)))
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._heed(watcher, message.data)
        finally:
            self._hub.leave(watcher)
            self._sockets.discard(socket)
            sender.cancel()
        return socket

    async def close(self, _: web.Application) -> None:
        """Send every tab away; they come again when somebody listens."""
        for socket in tuple(self._sockets):
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    def cancel(self) -> None:
        """Cancel every turn that still waits or runs."""
        for task in self._running:
            task.cancel()

    async def _heed(self, watcher: hubs.Watcher, data: str) -> None:
        message: object = None
        try:
            message = json.loads(data)
            if not isinstance(message, dict):
                raise measuring.MalformedError
            action = self._actions.get(str(message.get("do")))
            if action is None:
                raise measuring.MalformedError
            await action(watcher, message)
        except (ValueError, RecursionError):
            _refuse(watcher, None, measuring.MalformedError())
        except errors.BotError as error:
            _refuse(watcher, message, error)

    async def _watch(self, watcher: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        most = min(max(measuring.whole_number(message, "most"), 1), _MOST_TURNS)
        await showing.show(self._bot, self._hub, watcher, key=key, most=most)

    async def _say(self, watcher: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        turn_id = measuring.turn_id(message.get("id"))
        text = measuring.text(message, "text")
        is_code = message.get("is_code") is True
        command = None if is_code else commands.read(text)
        if command is not None and command.name == "py":
            is_code, text = True, command.rest
        elif command is not None:
            await self._obey(watcher, message, command)
            _accept(watcher, turn_id)
            return
        files = measuring.files(message)
        if not text.strip() and not files:
            raise errors.BotError("Please write something first.")
        if not is_code and not self._bot.models:
            raise errors.BotError(
                "There is no model to answer this. Switch to Python to run code, or set one up."
            )
        is_planned = await self._bot.approval(measuring.HERE, self._approval) == "plan"
        # A tab that lost its connection does not know what arrived, and says it again.
        if await self._bot.claim("web", turn_id):
            request = requests.Request(
                key=key,
                person=measuring.PERSON,
                text=text,
                files=files,
                is_code=is_code,
                id=turn_id,
                approval=self._approval,
            )
            # Looked up here, where messages of a tab come one by one: later the next may be there.
            is_first = not self._hub.of(key.thread) and await self._is_new(key)
            head = pasts.heading(text, files, is_code=is_code, started=time.time())
            turn = self._hub.begin(key.thread, turn_id, head)
            work = self._carry_out(request, turn, is_planned=is_planned)
            self._start(work, f"web: turn {turn_id}")
            if is_first:
                self._start(self._entitle(request), f"web: title of {turn_id}")
        _accept(watcher, turn_id)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _carry_out(
        self, request: requests.Request, turn: turns.Turn, *, is_planned: bool
    ) -> None:
        # Nothing is awaited before it has its place in the lane, or a burst would lose its order.
        reply = replying.TabReply(self._hub, turn, is_planned=is_planned)
        try:
            await self._bot.handle(request, reply)
        finally:
            self._hub.end(request.key.thread, turn)

    async def _entitle(self, request: requests.Request) -> None:
        """Call a conversation that begins by its first words."""
        try:
            title = _title(request.text or ", ".join(request.files))
            await self._bot.rename(request.key, title)
        except errors.BotError:
            _log.exception("a conversation has no title")

    async def _is_new(self, key: values.SessionKey) -> bool:
        try:
            return not await self._bot.history(key, most=1)
        except errors.BotError:
            _log.exception("a conversation may have no title")
            return False

    async def _obey(
        self, watcher: hubs.Watcher, message: _Message, command: commands.Command
    ) -> None:
        if not commands.is_known(command):
            raise errors.BotError(f"There is no command /{command.name}. Type /help for a list.")
        if command.name == "model" and command.rest:
            title = commands.meant(command.rest, self._bot.models)
            await self._choose(watcher, {**message, "model": title})
        elif command.name == "approval" and command.rest:
            await self._approve(watcher, {**message, "approval": command.rest.lower()})
        elif command.name in panels.NAMES:
            await self._show(watcher, {**message, "panel": command.name})
        elif command.name == "stop":
            await self._stop(watcher, message)
        elif command.name == "reset":
            await self._reset(watcher, message)
        else:
            watcher.send(hubs.written("download", {"what": command.name}))

    async def _stop(self, _: hubs.Watcher, message: _Message) -> None:
        if not await self._bot.stop(measuring.key(message.get("thread"))):
            raise errors.BotError("Nothing is running.")

    async def _withdraw(self, _: hubs.Watcher, message: _Message) -> None:
        key, turn_id = measuring.key(message.get("thread")), measuring.turn_id(message.get("id"))
        if not await self._bot.withdraw(key, turn_id):
            raise errors.BotError("It no longer waits.")
        if (turn := self._hub.turn(key.thread, turn_id)) is not None:
            turn.say(events.withdrawn())

    async def _answer(self, _: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        turn = self._hub.turn(key.thread, measuring.turn_id(message.get("turn")))
        if turn is None:
            raise errors.BotError("That question is no longer asked.")
        is_refusal = message.get("text") is None
        text = "" if is_refusal else measuring.text(message, "text", most=_MOST_ANSWER_CHARACTERS)
        turn.answer(measuring.whole_number(message, "question"), None if is_refusal else text)

    async def _reset(self, _: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        await self._bot.reset(key, files=message.get("files") is True)
        self._hub.forget(key.thread)
        self._hub.tell("reset", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _delete(self, _: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        await self._bot.delete(key)
        self._hub.forget(key.thread)
        self._hub.tell("deleted", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _rename(self, _: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        title = measuring.text(message, "title", most=_MOST_TITLE_CHARACTERS).strip()
        if not title:
            raise errors.BotError("A name cannot be empty.")
        await self._bot.rename(key, title)
        self._hub.is_changed.set()

    async def _choose(self, _: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        title = measuring.text(message, "model", most=_MOST_TITLE_CHARACTERS)
        await self._bot.choose_model(key, title or None)
        self._hub.tell("model", {"model": await self._bot.model(key)}, thread=key.thread)

    async def _approve(self, watcher: hubs.Watcher, message: _Message) -> None:
        """Choose whether to be asked before code runs, and show what holds then."""
        wanted = str(message.get("approval"))
        if wanted not in get_args(requests.Approval):
            raise errors.BotError("Please say never, plan or every.")
        await self._bot.choose(measuring.HERE, approvals.NAME, wanted)
        await self._show(watcher, {**message, "panel": "approval"})

    async def _show(self, watcher: hubs.Watcher, message: _Message) -> None:
        key = measuring.key(message.get("thread"))
        name = str(message.get("panel"))
        shown = await panels.panel(self._bot, name, key, approval=self._approval)
        watcher.send(hubs.written("panel", {"panel": name} | shown))

    async def _save(self, watcher: hubs.Watcher, message: _Message) -> None:
        """Make a file of all of a table, and let the tab download it."""
        key = measuring.key(message.get("thread"))
        name = await self._bot.save_table(key, measuring.handle(message.get("table")))
        watcher.send(hubs.written("download", {"what": "file", "name": name}))


async def _send(socket: web.WebSocketResponse, watcher: hubs.Watcher) -> None:
    """Pass on what a tab is to hear, as fast as it takes it."""
    try:
        while batch := await watcher.next():
            await socket.send_str(batch)
    except ConnectionError:
        return
    # The tab did not keep up. It comes again, and is shown the whole.
    await socket.close(code=aiohttp.WSCloseCode.TRY_AGAIN_LATER)


def _title(text: str) -> str:
    """Make a title of the first words that were said."""
    line = " ".join(text[:1000].split())
    if len(line) <= _TITLE_CHARACTERS:
        return line
    return line[:_TITLE_CHARACTERS].rpartition(" ")[0].rstrip(",.;:") + "…"


def _accept(watcher: hubs.Watcher, turn_id: str) -> None:
    watcher.send(hubs.written("accepted", {"id": turn_id}))


def _refuse(watcher: hubs.Watcher, message: object, error: errors.BotError) -> None:
    about = message.get("id") if isinstance(message, dict) else None
    told = {"id": about if isinstance(about, str) else None, "sentence": str(error)}
    watcher.send(hubs.written("refused", told))
