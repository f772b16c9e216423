"""A person at the page, without a browser: asks, answers questions of code, and reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, Final

import aiohttp

_RECONNECT_SECONDS = 0.05
_THINKING_SECONDS = 0.3
_MAX_TURNS = 500
LOST: Final = {"type": "over", "status": "lost", "reason": "The bot was restarted before this."}


class Visitor:
    """A person whose tab reconnects whenever the bot is back; use as a context manager.

    Attributes:
        address: the page's address with its token; changes with the bot's process.
        shown: events of each turn of the session, by request id, since the last connect.
        accepted: ids of the requests that the bot has accepted.
        notices: notices about the session, outside of any turn.
        connected: set once the bot has sent the session's turns.
        on_event: called with each event.
        on_table_read: called when the rows that `read_table` requested have come.
    """

    def __init__(self, thread: str, answer: Callable[[str], str] | None) -> None:
        """Prepare a visitor; entering the context connects.

        Args:
            thread: the session's thread.
            answer: returns the answer to a prompt of code; None to answer no prompt.
        """
        self.address = ""
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.on_event: Callable[[dict[str, Any]], None] = lambda _: None
        self.on_table_read: Callable[[], None] = lambda: None
        self._thread = thread
        self._answer = answer
        self._unaccepted_requests: dict[str, dict[str, Any]] = {}
        self.accepted: set[str] = set()
        self.notices: list[str] = []
        self.connected = asyncio.Event()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Visitor:
        self._task = asyncio.create_task(self._stay_connected(), name="a visitor")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def send_message(self, request_id: str, text: str, *, is_code: bool) -> None:
        """Send a message; it is sent again after each connect until the bot accepts it."""
        request = {"do": "send", "thread": self._thread, "id": request_id, "text": text}
        self._unaccepted_requests[request_id] = request | {"is_code": is_code}
        await self._send(self._unaccepted_requests[request_id])

    async def _send(self, message: dict[str, Any]) -> None:
        if self._socket is not None:
            with contextlib.suppress(ConnectionError):
                await self._socket.send_json(message)

    async def decide(self, question_id: str, text: str | None) -> None:
        """Answer a question; None declines."""
        answer = {"do": "answer", "thread": self._thread, "question": question_id, "text": text}
        await self._send(answer)

    async def watch_session(self) -> None:
        """Ask for all turns of the session."""
        await self._send({"do": "watch", "thread": self._thread, "max_turns": _MAX_TURNS})

    async def read_table(self, table: str, view: dict[str, Any]) -> None:
        """Ask for a part of a table."""
        request = {"do": "read_data", "thread": self._thread, "table": table, "query_id": 1}
        await self._send(request | {"view": view})

    async def _stay_connected(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await self._visit(self.address)
            self._socket = None
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _visit(self, address: str) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address, allow_redirects=False) as response:
                key = response.headers["Location"].partition("#key=")[2]
            url = address.partition("?")[0] + "live"
            origin = address.partition("/?")[0]
            protocols = ("interpreter-bot", key)
            async with session.ws_connect(url, protocols=protocols, origin=origin) as socket:
                self._socket = socket
                await self.watch_session()
                for request in list(self._unaccepted_requests.values()):
                    await self._send(request)
                async for message in socket:
                    for page_message in json.loads(message.data):
                        await self._receive(page_message)

    async def _receive(self, page_message: dict[str, Any]) -> None:
        match page_message["kind"]:
            case "conversation":
                turns = [(turn["request_id"], turn["events"]) for turn in page_message["past"]]
                turns += [(turn["id"], turn["events"]) for turn in page_message["live"]]
                ids = [request_id for request_id, _ in turns]
                assert len(set(ids)) == len(ids), "a turn is shown twice"
                # The page shows accepted requests that the bot had not begun as lost.
                self.shown = {name: [LOST] for name in self.accepted.difference(ids)}
                self.shown |= {name: [] for name in ids}
                self.notices = page_message["notices"]
                self.connected.set()
                for name, events in turns:
                    for event in events:
                        await self._add_event(name, event)
            case "turn":
                self.shown[page_message["id"]] = []
                for event in page_message["events"]:
                    await self._add_event(page_message["id"], event)
            case "event":
                await self._add_event(page_message["turn"], page_message["event"])
            case "notice":
                self.notices.append(page_message["text"])
            case "data_read":
                assert "problem" not in page_message, page_message
                self.on_table_read()
            case "accepted":
                if self._unaccepted_requests.pop(page_message["id"], None):
                    self.accepted.add(page_message["id"])

    async def _add_event(self, name: str, event: dict[str, Any]) -> None:
        events = self.shown.setdefault(name, [])
        events.append(event)
        self.on_event(event)
        if event["type"] == "settled":
            events[:] = [other for other in events if other.get("id") != event["id"]]
        elif event["type"] == "input" and self._answer is not None:
            answer = self._answer(event["text"])
            loop = asyncio.get_running_loop()
            loop.call_later(_THINKING_SECONDS, self._answer_prompt, name, event, answer)

    def _answer_prompt(self, name: str, prompt_event: dict[str, Any], answer: str) -> None:
        """Answer a prompt that is still open."""
        if prompt_event in self.shown.get(name, ()):
            sending = self.decide(prompt_event["id"], answer)
            task = asyncio.create_task(sending, name="an answer to code")
            self._answer_tasks.add(task)
            task.add_done_callback(self._answer_tasks.discard)


def list_printed_lines(events: list[dict[str, Any]]) -> list[str]:
    """Return the lines that a turn's code printed."""
    texts = (event["text"] for event in events if event["type"] == "stdout")
    return "".join(texts).splitlines()
