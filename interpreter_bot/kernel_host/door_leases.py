"""Doors of a host's kernels, leased to bots: connections of code are streamed to the bot.

A lease lasts until the bot's link closes or another link opens. Without a lease, the host answers
connections with a refusal. The next bot leases the doors or, if its rules no longer allow anything,
shuts them, and the refusal says so.

The bot's end is `hosts.remote_doors`. A limited number of connections is accepted at a time; others
wait in the kernel's network. Connections that the bot does not fetch, or that are open when its
link breaks, are reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
import socket
from typing import Final

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.hosts import (
    door_streams,
    kernel_doors,
    local_host,
    messages,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_REFUSAL_HEAD: Final = (
    b"HTTP/1.1 503 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nX-Proxy-Error: %b\r\n"
    b"Connection: close\r\n\r\n"
)
_MAX_HEAD_BYTES: Final = 64 * 1024
# Refusals are sent one at a time, each after this pause, so that retries cost little.
_ANSWER_SECONDS: Final = 0.1
_MAX_CONNECTIONS: Final = 64
_FETCH_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
# How long code may still send after the bot's end has finished.
_MAX_HALF_OPEN_SECONDS: Final = 60.0
_MAX_MESSAGE_BYTES: Final = 256 * 1024
_NAME_BYTES: Final = 16
# A bot that hangs delays the next one by at most this.
_CLOSE_SECONDS: Final = 1.0


class _Connection:
    """A connection of code that waits for a bot to fetch it, or that is being relayed."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.relay_task: asyncio.Future[asyncio.Task[None]] = (
            asyncio.get_running_loop().create_future()
        )


@dataclasses.dataclass(slots=True)
class _LeasedDoors:
    """Doors that were leased at least once.

    Attributes:
        key: of the session.
        doors: the doors.
        version: of the setup that the kernel has.
        link: to the bot that has leased them; None if none has.
        is_shut: whether the last bot's rules let nothing through.
        streams: tasks that relay connections to that bot.
        change_lock: held while the lease changes from one bot to another.
    """

    key: str
    doors: kernel_doors.LocalDoors
    version: str = ""
    link: web.WebSocketResponse | None = None
    is_shut: bool = False
    streams: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    change_lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class DoorLeases:
    """The doors of a host's kernels."""

    def __init__(self, host: local_host.LocalHost) -> None:
        self._host = host
        self._leased: dict[str, _LeasedDoors] = {}
        self._serve_tasks: set[asyncio.Task[None]] = set()
        # By random names.
        self._offered_connections: dict[str, _Connection] = {}
        self._is_closed = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/door_link", self._link),
            web.get("/v1/door_stream", self._stream),
        ]

    async def close(self) -> None:
        self._is_closed = True
        for task in self._serve_tasks:
            task.cancel()
        if self._serve_tasks:
            await asyncio.wait(self._serve_tasks)

    async def _link(self, request: web.Request) -> web.StreamResponse:
        """Lease a kernel's doors to a bot, and offer it connections, until its link ends."""
        kernel_id = request.query["kernel"]
        leased = await self._open(kernel_id, request.query["key"])
        link = web.WebSocketResponse(
            heartbeat=door_streams.HEARTBEAT_SECONDS, compress=False, timeout=_CLOSE_SECONDS
        )
        async with leased.change_lock:
            if self._leased.get(kernel_id) is not leased:
                # The kernel ended meanwhile.
                raise errors.KernelError(host_words.NO_DOORS)
            await link.prepare(request)
            await _release(leased)
            leased.link, leased.is_shut = link, False
        try:
            await link.send_str(messages.encode(messages.DoorsOpened(leased.doors.ports)))
            async for _ in link:
                break  # The bot sends nothing on the link.
        except ConnectionError:
            _log.info("a bot disconnected before it got its doors")
        finally:
            async with leased.change_lock:
                if leased.link is link:
                    await _release(leased)
        return link

    async def _open(self, kernel_id: str, key: str) -> _LeasedDoors:
        """Return a kernel's doors; the first call begins to accept connections.

        Raises:
            KernelError: it has none.
        """
        if kernel_id not in self._leased:
            doors = await self._host.doors(kernel_id)
            if doors is None:
                raise errors.KernelError(host_words.NO_DOORS)
            if kernel_id in self._leased:
                # Another link came meanwhile.
                doors.close()
                return self._leased[kernel_id]
            if self._is_closed:
                doors.close()
                raise errors.KernelError(host_words.NO_DOORS)
            leased = self._leased[kernel_id] = _LeasedDoors(key, doors)
            serve_task = asyncio.create_task(
                self._serve(kernel_id, leased), name="doors of a kernel"
            )
            self._serve_tasks.add(serve_task)
            serve_task.add_done_callback(self._serve_tasks.discard)
        return self._leased[kernel_id]

    async def _serve(self, kernel_id: str, leased: _LeasedDoors) -> None:
        """Accept connections until the kernel ends, or this host does."""
        tasks = {
            asyncio.create_task(self._accept(leased, door), name="door of a kernel")
            for door in (kernel_doors.PROXY, kernel_doors.SERVICES)
        }
        tasks.add(asyncio.create_task(leased.doors.wait_closed(), name="end of a kernel"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._leased[kernel_id]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            leased.doors.close()
            async with leased.change_lock:
                await _release(leased)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("the doors of %s failed", kernel_id, exc_info=error)

    async def _accept(self, leased: _LeasedDoors, door: kernel_doors.Door) -> None:
        slots = asyncio.Semaphore(_MAX_CONNECTIONS)

        def on_stream_end(task: asyncio.Task[None], endpoint: socket.socket) -> None:
            # In a callback, because a task that is cancelled at once never begins.
            door_streams.reset(endpoint)
            slots.release()
            leased.streams.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("a connection of a door could not be relayed", exc_info=error)

        while True:
            await slots.acquire()
            try:
                endpoint = await leased.doors.accept(door)
            except OSError:
                _log.exception("no connection of a kernel can be accepted")
                slots.release()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if leased.link is None:
                sentence = host_words.DOORS_SHUT if leased.is_shut else host_words.BOT_AWAY
                await _refuse(endpoint, sentence.encode("ascii"))
                slots.release()
                continue
            offer = self._offer(leased.link, door, endpoint)
            task = asyncio.create_task(offer, name="connection of a door")
            leased.streams.add(task)
            task.add_done_callback(functools.partial(on_stream_end, endpoint=endpoint))

    async def _offer(
        self, link: web.WebSocketResponse, door: kernel_doors.Door, endpoint: socket.socket
    ) -> None:
        """Offer a connection to a bot, and wait until its relay ends or nobody fetches it."""
        name, connection = secrets.token_hex(_NAME_BYTES), _Connection(endpoint)
        self._offered_connections[name] = connection
        try:
            await link.send_str(messages.encode(messages.DoorConnection(door, name)))
            await asyncio.wait({connection.relay_task}, timeout=_FETCH_SECONDS)
            if connection.relay_task.done():
                await asyncio.wait({connection.relay_task.result()})
        except ConnectionError:
            _log.info("a bot disconnected before it could fetch a connection")
        finally:
            self._offered_connections.pop(name, None)
            if connection.relay_task.done():
                connection.relay_task.result().cancel()
                await asyncio.wait({connection.relay_task.result()})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Relay a connection that was offered, once."""
        connection = self._offered_connections.pop(request.query["stream"], None)
        if connection is None:
            raise web.HTTPNotFound
        response = web.WebSocketResponse(
            compress=False, max_msg_size=_MAX_MESSAGE_BYTES, timeout=_CLOSE_SECONDS
        )

        async def relay() -> None:
            await response.prepare(request)
            await door_streams.relay(
                connection.endpoint, response, max_seconds=_MAX_HALF_OPEN_SECONDS
            )

        relay_task = asyncio.create_task(relay(), name="relayed connection")
        # Set this before any await: the connection is fetched and must not be given up.
        connection.relay_task.set_result(relay_task)
        try:
            await asyncio.wait({relay_task})
        finally:
            relay_task.cancel()
        return response

    async def set_up_doors(self, kernel_id: str, code: str, version: str) -> None:
        """Run the code of a setup in a kernel; see `ports.HostProcess.set_up_doors`."""
        # Without leased doors, the code tells the kernel why it has none.
        leased = self._leased.get(kernel_id)
        if leased is None or leased.version != version:
            await self._host.set_up_doors(kernel_id, code)
            if leased is not None:
                leased.version = version

    async def unleased_doors(self) -> dict[str, str]:
        """Return the kernels whose doors no bot has leased, with the keys of their sessions."""
        return {
            kernel_id: leased.key
            for kernel_id, leased in self._leased.items()
            if leased.link is None
        }

    async def shut_doors(self, kernel_id: str) -> None:
        """Let refusals say that nothing is allowed, instead of that no bot is connected."""
        leased = self._leased.get(kernel_id)
        if leased is not None and leased.link is None:
            leased.is_shut = True


async def _release(leased: _LeasedDoors) -> None:
    """End a bot's lease of doors, and reset its connections."""
    link, leased.link = leased.link, None
    streams = set(leased.streams)
    for task in streams:
        task.cancel()
    if streams:
        await asyncio.wait(streams)
    if link is not None:
        await link.close()


async def _refuse(endpoint: socket.socket, reason: bytes) -> None:
    """Answer a connection with the reason why nothing is let through."""
    with endpoint:
        await asyncio.sleep(_ANSWER_SECONDS)
        # Errors of the code's end do not matter.
        with contextlib.suppress(OSError):
            # Closing with unread data would reset the connection before code reads the answer.
            with contextlib.suppress(BlockingIOError):
                endpoint.recv(_MAX_HEAD_BYTES)
            endpoint.send(_REFUSAL_HEAD % (reason, len(reason), reason) + reason)
