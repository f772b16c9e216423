"""The gateway: hello, identify, resume, heartbeats, events by shard, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
import uuid
import zlib
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from tests.fakes.discord_server import worlds

MESSAGE_CONTENT = 1 << 15
GUILDS, GUILD_MESSAGES, DIRECT_MESSAGES = 1 << 0, 1 << 9, 1 << 12
PRIVILEGED = {"members": 1 << 1, "presences": 1 << 8, "message_content": MESSAGE_CONTENT}


@dataclasses.dataclass(eq=False)
class Session:
    """A session of a shard; it keeps its events, also while no client is connected."""

    intents: int
    shard: int
    shards: int
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    changed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    socket: web.WebSocketResponse | None = None

    def push(self, kind: str, data: Any) -> None:
        self.events.append({"op": 0, "s": len(self.events) + 1, "t": kind, "d": data})
        self.changed.set()


class Gateway:
    """All sessions.

    Attributes:
        identifies: the data of each accepted IDENTIFY.
        resumes: session ids of accepted RESUMEs.
        duplicates: how many more times each message is delivered.
        refused_intents: privileged intents that are switched off in the portal.
        is_refusing: whether connections are refused.
        is_silent: whether connections are closed before the hello.
        identify_seconds: the period in which one IDENTIFY is accepted; a second one gets "invalid
            session", as on Discord with a `max_concurrency` of one.
        early_identifies: the number of IDENTIFYs that came within that period.
    """

    def __init__(self, *, bot: worlds.User, token: str, url: str = "") -> None:
        self._bot = bot
        self._token = token
        self.url = url
        self.guilds: list[worlds.Guild] = []
        self.sessions: list[Session] = []
        self.identifies: list[dict[str, Any]] = []
        self.resumes: list[str] = []
        self.faults: list[str] = []
        self.duplicates = 0
        self.refused_intents: set[str] = set()
        self.is_refusing = False
        self.is_silent = False
        self.identify_seconds = 5.0
        self.early_identifies = 0
        self._last_identify = -1e9
        self._sockets: dict[web.WebSocketResponse, web.Request] = {}
        self._dropped: set[web.WebSocketResponse] = set()
        self._compressors: dict[web.WebSocketResponse, Any] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.is_refusing:
            return web.Response(status=503)
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        self._sockets[socket] = request
        if request.query.get("compress") == "zlib-stream":
            self._compressors[socket] = zlib.compressobj()
        if self.is_silent:
            await socket.close(code=1001)
            return socket
        sender = None
        session = None
        try:
            await self._send_payload(socket, {"op": 10, "d": {"heartbeat_interval": 41_250}})
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT:
                    break
                message = json.loads(frame.data)
                if message["op"] == 1:
                    await self._send_payload(socket, {"op": 11})
                elif message["op"] == 2:
                    session = await self._identify(socket, message["d"])
                    if session is not None:
                        sender = asyncio.create_task(self._send_events(session, socket, 0))
                elif message["op"] == 6:
                    session = await self._resume(socket, message["d"])
                    if session is not None:
                        seq = message["d"]["seq"]
                        session.push("RESUMED", {})
                        sender = asyncio.create_task(self._send_events(session, socket, seq))
        finally:
            self._sockets.pop(socket, None)
            self._compressors.pop(socket, None)
            if sender is not None:
                sender.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await sender
            if session is not None and session.socket is socket:
                session.socket = None
                # A session ends if the client closes the connection with these codes.
                is_abandoned = socket.close_code in (1000, 1001) and socket not in self._dropped
                if is_abandoned and session in self.sessions:
                    self.sessions.remove(session)
        return socket

    async def _send_payload(self, socket: web.WebSocketResponse, payload: Any) -> None:
        """Send a payload, compressed as a stream if the client asked for that."""
        compressor = self._compressors.get(socket)
        if compressor is None:
            await socket.send_json(payload)
            return
        data = compressor.compress(json.dumps(payload).encode())
        await socket.send_bytes(data + compressor.flush(zlib.Z_SYNC_FLUSH))

    async def _send_events(
        self, session: Session, socket: web.WebSocketResponse, cursor: int
    ) -> None:
        while not socket.closed:
            session.changed.clear()
            while cursor < len(session.events):
                event = session.events[cursor]
                cursor += 1
                await self._send_payload(socket, event)
            await session.changed.wait()

    async def _identify(
        self, socket: web.WebSocketResponse, data: dict[str, Any]
    ) -> Session | None:
        if data["token"] != self._token:
            await socket.close(code=4004)
            return None
        now, previous = time.monotonic(), self._last_identify
        self._last_identify = now
        if now - previous < self.identify_seconds:
            self.early_identifies += 1
            await self._send_payload(socket, {"op": 9, "d": False})
            return None
        refused = [n for n in self.refused_intents if data["intents"] & PRIVILEGED[n]]
        if refused:
            await socket.close(code=4014)
            return None
        shard, shards = data.get("shard", (0, 1))
        if not 0 <= shard < shards:
            self.faults.append("invalid shard")
            await socket.close(code=4010)
            return None
        self.identifies.append(data)
        session = Session(data["intents"], shard, shards)
        session.socket = socket
        self.sessions.append(session)
        guilds = [
            guild for guild in self.guilds if guild.has_bot and _belongs_to_shard(session, guild)
        ]
        session.push(
            "READY",
            {
                "v": 10,
                "user": self._bot.payload,
                "guilds": [{"id": str(guild.id), "unavailable": True} for guild in guilds],
                "session_id": session.id,
                "resume_gateway_url": self.url,
                "application": {"id": str(self._bot.id), "flags": 0},
                "shard": [shard, shards],
            },
        )
        for guild in guilds:
            if guild.late_seconds:
                # In an outage, Discord announces some guilds later, or never.
                loop = asyncio.get_running_loop()
                loop.call_later(guild.late_seconds, self._announce_guild, session, guild)
            else:
                self._announce_guild(session, guild)
        return session

    def _announce_guild(self, session: Session, guild: worlds.Guild) -> None:
        session.push("GUILD_CREATE", guild.payload(self._bot))

    async def _resume(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> Session | None:
        session = next((s for s in self.sessions if s.id == data["session_id"]), None)
        if session is None or data["token"] != self._token:
            await self._send_payload(socket, {"op": 9, "d": False})
            return None
        self.resumes.append(session.id)
        session.socket = socket
        return session

    def push(self, kind: str, data: Any, *, guild: worlds.Guild | None) -> None:
        """Deliver an event to the shard it belongs to."""
        for session in self.sessions:
            if _belongs_to_shard(session, guild):
                session.push(kind, data)

    def push_message(self, kind: str, message: worlds.Message) -> None:
        """Deliver a message to the sessions whose intents include it."""
        guild = message.channel.guild
        needed_intent = GUILD_MESSAGES if guild else DIRECT_MESSAGES
        if guild and not guild.has_bot:
            return
        is_always_readable = (
            guild is None or message.author is self._bot or self._bot in message.mentioned
        )
        times = 1 + (self.duplicates if kind == "MESSAGE_CREATE" else 0)
        for session in self.sessions:
            if session.intents & needed_intent and _belongs_to_shard(session, guild):
                is_blank = not is_always_readable and not session.intents & MESSAGE_CONTENT
                for _ in range(times):
                    session.push(kind, message.payload(is_blank=is_blank))

    async def send_raw(self, text: str) -> None:
        """Send any text to every connection."""
        for socket in list(self._sockets):
            await socket.send_str(text)

    async def drop(self, *, code: int = 4000) -> None:
        """Close every connection; sessions stay and can be resumed."""
        for socket in list(self._sockets):
            self._dropped.add(socket)
            await socket.close(code=code)

    def abort(self) -> None:
        """Cut every connection without notice."""
        for request in list(self._sockets.values()):
            if request.transport is not None:
                request.transport.abort()

    async def ask_to_reconnect(self) -> None:
        """Send op 7."""
        for socket in list(self._sockets):
            await self._send_payload(socket, {"op": 7, "d": None})

    def forget(self) -> None:
        """Forget all sessions, so that none can be resumed, and cut every connection."""
        self.sessions.clear()
        self.abort()

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY)


def _belongs_to_shard(session: Session, guild: worlds.Guild | None) -> bool:
    """Return whether a guild, or direct messages (None), belong to the session's shard."""
    return ((guild.id >> 22) if guild else 0) % session.shards == session.shard
