"""Doors of a host's kernels, leased to bots: connections of code are streamed to the bot.

A bot leases a kernel's doors as long as its link is open, or until another link comes. Without a
lease, connections get an answer that says so. The next bot leases the doors or, if its rules allow
nothing any more, shuts them, which connections then get as an answer.

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

_HEAD: Final = (
    b"HTTP/1.1 503 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nX-Proxy-Error: %b\r\n"
    b"Connection: close\r\n\r\n"
)
_HEAD_BYTES: Final = 64 * 1024
# Refusals are answered one at a time, each after so long, so that retries cost little.
_ANSWER_SECONDS: Final = 0.1
_MAX_CONNECTIONS: Final = 64
_FETCH_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
# Once the bot's end has finished, code may go on sending for so long.
_LAST_SECONDS: Final = 60.0
_MAX_MESSAGE_BYTES: Final = 256 * 1024
_NAME_BYTES: Final = 16
# A hanging bot delays the next one by at most so long.
_CLOSE_SECONDS: Final = 1.0


class _Connection:
    """A connection of code that waits for a bot to fetch it, or is being carried."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.carrying: asyncio.Future[asyncio.Task[None]] = (
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
        streams: tasks that carry connections to that bot.
        changing: held while the lease changes from one bot to another.
    """

    key: str
    doors: kernel_doors.LocalDoors
    version: str = ""
    link: web.WebSocketResponse | None = None
    is_shut: bool = False
    streams: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    changing: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class DoorLeases:
    """The doors of a host's kernels."""

    def __init__(self, host: local_host.LocalHost) -> None:
        self._host = host
        self._leased: dict[str, _LeasedDoors] = {}
        self._serving: set[asyncio.Task[None]] = set()
        # By random names.
        self._offered: dict[str, _Connection] = {}
        self._is_closed = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/door_link", self._link),
            web.get("/v1/door_stream", self._stream),
        ]

    async def close(self) -> None:
        self._is_closed = True
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _link(self, request: web.Request) -> web.StreamResponse:
        """Lease a kernel's doors to a bot, and offer it connections, until its link ends."""
        kernel_id = request.query["kernel"]
        leased = await self._open(kernel_id, request.query["key"])
        link = web.WebSocketResponse(
            heartbeat=door_streams.HEARTBEAT_SECONDS, compress=False, timeout=_CLOSE_SECONDS
        )
        async with leased.changing:
            if self._leased.get(kernel_id) is not leased:
                # The kernel ended meanwhile.
                raise errors.KernelError(host_words.NO_DOORS)
            await link.prepare(request)
            await _release(leased)
            leased.link, leased.is_shut = link, False
        try:
            await link.send_str(messages.encode(messages.DoorsOpened(leased.doors.ports)))
            async for _ in link:
                break  # It has nothing to say.
        except ConnectionError:
            _log.info("a bot went before it heard of its doors")
        finally:
            async with leased.changing:
                if leased.link is link:
                    await _release(leased)
        return link

    async def _open(self, kernel_id: str, key: str) -> _LeasedDoors:
        """Return a kernel's doors, which accept connections from the first time on.

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
            serving = asyncio.create_task(self._serve(kernel_id, leased), name="doors of a kernel")
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
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
            async with leased.changing:
                await _release(leased)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("the doors of %s are served no more", kernel_id, exc_info=error)

    async def _accept(self, leased: _LeasedDoors, door: kernel_doors.Door) -> None:
        free = asyncio.Semaphore(_MAX_CONNECTIONS)

        def over(task: asyncio.Task[None], endpoint: socket.socket) -> None:
            # Here, as a task that is cancelled at once never begins.
            door_streams.reset(endpoint)
            free.release()
            leased.streams.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("a connection of a door could not be carried", exc_info=error)

        while True:
            await free.acquire()
            try:
                endpoint = await leased.doors.accept(door)
            except OSError:
                _log.exception("no connection of a kernel can be accepted")
                free.release()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if leased.link is None:
                sentence = host_words.DOORS_SHUT if leased.is_shut else host_words.BOT_AWAY
                await _refuse(endpoint, sentence.encode("ascii"))
                free.release()
                continue
            offering = self._offer(leased.link, door, endpoint)
            task = asyncio.create_task(offering, name="connection of a door")
            leased.streams.add(task)
            task.add_done_callback(functools.partial(over, endpoint=endpoint))

    async def _offer(
        self, link: web.WebSocketResponse, door: kernel_doors.Door, endpoint: socket.socket
    ) -> None:
        """Offer a connection to a bot, until it was carried to its end or nobody fetches it."""
        name, connection = secrets.token_hex(_NAME_BYTES), _Connection(endpoint)
        self._offered[name] = connection
        try:
            await link.send_str(messages.encode(messages.DoorConnection(door, name)))
            await asyncio.wait({connection.carrying}, timeout=_FETCH_SECONDS)
            if connection.carrying.done():
                await asyncio.wait({connection.carrying.result()})
        except ConnectionError:
            _log.info("a bot went before it heard of a connection")
        finally:
            self._offered.pop(name, None)
            if connection.carrying.done():
                connection.carrying.result().cancel()
                await asyncio.wait({connection.carrying.result()})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Carry a connection that was offered, once."""
        connection = self._offered.pop(request.query["stream"], None)
        if connection is None:
            raise web.HTTPNotFound
        response = web.WebSocketResponse(
            compress=False, max_msg_size=_MAX_MESSAGE_BYTES, timeout=_CLOSE_SECONDS
        )

        async def carry() -> None:
            await response.prepare(request)
            await door_streams.relay(connection.endpoint, response, max_seconds=_LAST_SECONDS)

        carrying = asyncio.create_task(carry(), name="carried connection")
        # At once: it is fetched, and no more to be given up.
        connection.carrying.set_result(carrying)
        try:
            await asyncio.wait({carrying})
        finally:
            carrying.cancel()
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
        """Answer connections that nothing is allowed, instead of that no bot is there."""
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
            # Closing a connection with unread data would reset it before the answer is read.
            with contextlib.suppress(BlockingIOError):
                endpoint.recv(_HEAD_BYTES)
            endpoint.send(_HEAD % (reason, len(reason), reason) + reason)
