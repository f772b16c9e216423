"""A person at the page, without a browser: asks, answers what code asks, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, Final

import aiohttp

_PATIENCE_SECONDS = 0.05
_THINKING_SECONDS = 0.3
_MAX_TURNS = 500
LOST: Final = {"type": "over", "status": "lost", "reason": "The bot was restarted before this."}


class Visitor:
    """A person whose tab connects again whenever the bot is back; use as a context manager.

    Attributes:
        address: of the page, with its token; changes with the bot's process.
        shown: all turns of the session as they were shown when it was connected last, and since.
        accepted: what it said that the bot has.
        notices: sentences about the session, outside of any turn.
        on_event: is told of each event as it comes.
        on_look: is called when what `look_into` asked for has come.
    """

    def __init__(self, thread: str, answer: Callable[[str], str] | None) -> None:
        """Be somebody in a session.

        Args:
            thread: of the session.
            answer: gives the answer to a prompt; None for somebody who answers nothing by itself.
        """
        self.address = ""
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.on_event: Callable[[dict[str, Any]], None] = lambda _: None
        self.on_look: Callable[[], None] = lambda: None
        self._thread = thread
        self._answer = answer
        self._asked: dict[str, dict[str, Any]] = {}
        self.accepted: set[str] = set()
        self.notices: list[str] = []
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Visitor:
        self._task = asyncio.create_task(self._stay(), name="a visitor")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def say(self, request_id: str, text: str, *, is_code: bool) -> None:
        """Say something, again and again until the bot has it."""
        said = {"do": "send", "thread": self._thread, "id": request_id, "text": text}
        self._asked[request_id] = said | {"is_code": is_code}
        await self._send(self._asked[request_id])

    async def _send(self, message: dict[str, Any]) -> None:
        if self._socket is not None:
            with contextlib.suppress(ConnectionError):
                await self._socket.send_json(message)

    async def decide(self, question_id: str, text: str | None) -> None:
        """Answer a question; None declines."""
        answer = {"do": "answer", "thread": self._thread, "question": question_id, "text": text}
        await self._send(answer)

    async def look(self) -> None:
        """Have the whole session shown."""
        await self._send({"do": "watch", "thread": self._thread, "max_turns": _MAX_TURNS})

    async def look_into(self, table: str, wanted: dict[str, Any]) -> None:
        """Have a part of a table shown."""
        asked = {"do": "read_data", "thread": self._thread, "table": table, "query_id": 1}
        await self._send(asked | {"view": wanted})

    async def _stay(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await self._visit(self.address)
            self._socket = None
            await asyncio.sleep(_PATIENCE_SECONDS)

    async def _visit(self, address: str) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address, allow_redirects=False) as entered:
                key = entered.headers["Location"].partition("#key=")[2]
            url = address.partition("?")[0] + "live"
            origin = address.partition("/?")[0]
            protocols = ("interpreter-bot", key)
            async with session.ws_connect(url, protocols=protocols, origin=origin) as socket:
                self._socket = socket
                await self.look()
                for said in list(self._asked.values()):
                    await self._send(said)
                async for message in socket:
                    for told in json.loads(message.data):
                        await self._hear(told)

    async def _hear(self, told: dict[str, Any]) -> None:
        match told["kind"]:
            case "conversation":
                turns = [(one["request_id"], one["events"]) for one in told["past"]]
                turns += [(one["id"], one["events"]) for one in told["live"]]
                ids = [request_id for request_id, _ in turns]
                assert len(set(ids)) == len(ids), "a turn is shown twice"
                # As the page says it of what the bot had, and had not begun when it ended.
                self.shown = {name: [LOST] for name in self.accepted.difference(ids)}
                self.shown |= {name: [] for name in ids}
                self.notices = told["notices"]
                for name, events in turns:
                    for event in events:
                        await self._see(name, event)
            case "turn":
                self.shown[told["id"]] = []
                for event in told["events"]:
                    await self._see(told["id"], event)
            case "event":
                await self._see(told["turn"], told["event"])
            case "notice":
                self.notices.append(told["text"])
            case "data_read":
                assert "problem" not in told, told
                self.on_look()
            case "accepted":
                if self._asked.pop(told["id"], None):
                    self.accepted.add(told["id"])

    async def _see(self, name: str, event: dict[str, Any]) -> None:
        events = self.shown.setdefault(name, [])
        events.append(event)
        self.on_event(event)
        if event["type"] == "settled":
            events[:] = [other for other in events if other.get("id") != event["id"]]
        elif event["type"] == "input" and self._answer is not None:
            answer = self._answer(event["text"])
            loop = asyncio.get_running_loop()
            loop.call_later(_THINKING_SECONDS, self._tell, name, event, answer)

    def _tell(self, name: str, asked: dict[str, Any], answer: str) -> None:
        """Answer what is still asked."""
        if asked in self.shown.get(name, ()):
            deciding = self.decide(asked["id"], answer)
            telling = asyncio.create_task(deciding, name="an answer to code")
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


def printed(events: list[dict[str, Any]]) -> list[str]:
    """Return the lines that code printed, as a turn shows them."""
    texts = (event["text"] for event in events if event["type"] == "stdout")
    return "".join(texts).splitlines()
