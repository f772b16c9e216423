"""Leases of the doors of a host's kernels to bots, to which connections of code are streamed.

A lease lasts until the bot's link closes or another link opens. Without a lease, the host refuses
connections. The next bot leases the doors, unless its rules no longer allow anything.

The bot's end is `hosts.remote_doors`. A limited number of connections is accepted at a time; others
wait in the kernel's network. If the bot does not fetch a connection, or if its link breaks, the
connection is reset.
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
_REFUSAL_PAUSE_SECONDS: Final = 0.1
_MAX_CONNECTIONS: Final = 64
_MAX_FETCH_SECONDS: Final = 30.0
_ACCEPT_PAUSE_SECONDS: Final = 0.1
# How long code may still send after the bot has ended its side.
_MAX_HALF_OPEN_SECONDS: Final = 60.0
_MAX_MESSAGE_BYTES: Final = 256 * 1024
_STREAM_NAME_BYTES: Final = 16
# A bot that hangs delays the next bot by at most this time.
_MAX_CLOSING_SECONDS: Final = 1.0


class _Connection:
    """A connection of code that waits for a bot to fetch it, or that is being relayed."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.relay_future: asyncio.Future[asyncio.Task[None]] = (
            asyncio.get_running_loop().create_future()
        )


@dataclasses.dataclass(slots=True)
class _LeasedDoors:
    """Doors that were leased at least once.

    Attributes:
        key: of the session.
        doors: the doors.
        version: of the setup that ran in the kernel; empty if none did.
        link: to the bot that has leased them; None without a lease.
        streams: tasks that relay connections to that bot.
        change_lock: held while the lease changes from one bot to another.
    """

    key: str
    doors: kernel_doors.LocalDoors
    version: str = ""
    link: web.WebSocketResponse | None = None
    streams: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    change_lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class DoorLeases:
    """The doors of a host's kernels."""

    def __init__(self, host: local_host.LocalHost) -> None:
        self._host = host
        self._doors_by_kernel: dict[str, _LeasedDoors] = {}
        self._serve_tasks: set[asyncio.Task[None]] = set()
        # By random names of their streams.
        self._offered_connections: dict[str, _Connection] = {}
        self._is_closed = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/door_link", self._serve_link),
            web.get("/v1/door_stream", self._serve_stream),
        ]

    async def close(self) -> None:
        self._is_closed = True
        for task in self._serve_tasks:
            task.cancel()
        if self._serve_tasks:
            await asyncio.wait(self._serve_tasks)

    async def _serve_link(self, request: web.Request) -> web.StreamResponse:
        """Lease a kernel's doors to a bot, and offer it connections, until its link ends."""
        kernel_id = request.query["kernel"]
        leased_doors = await self._open_doors(kernel_id, request.query["key"])
        link = web.WebSocketResponse(
            heartbeat=door_streams.HEARTBEAT_SECONDS, compress=False, timeout=_MAX_CLOSING_SECONDS
        )
        async with leased_doors.change_lock:
            if self._doors_by_kernel.get(kernel_id) is not leased_doors:
                # The kernel ended meanwhile.
                raise errors.KernelError(host_words.NO_DOORS)
            await link.prepare(request)
            await _release(leased_doors)
            leased_doors.link = link
        try:
            await link.send_str(messages.encode(messages.DoorsOpened(leased_doors.doors.ports)))
            async for _ in link:
                break  # The bot sends nothing on the link.
        except ConnectionError:
            _log.info("a bot disconnected before it could lease doors")
        finally:
            async with leased_doors.change_lock:
                if leased_doors.link is link:
                    await _release(leased_doors)
        return link

    async def _open_doors(self, kernel_id: str, key: str) -> _LeasedDoors:
        """Return a kernel's doors; the first call begins to accept connections.

        Raises:
            KernelError: the kernel has no doors.
        """
        if kernel_id not in self._doors_by_kernel:
            doors = await self._host.doors(kernel_id)
            if doors is None:
                raise errors.KernelError(host_words.NO_DOORS)
            if kernel_id in self._doors_by_kernel:
                # Another link came meanwhile.
                doors.close()
                return self._doors_by_kernel[kernel_id]
            if self._is_closed:
                doors.close()
                raise errors.KernelError(host_words.NO_DOORS)
            leased_doors = self._doors_by_kernel[kernel_id] = _LeasedDoors(key, doors)
            serve_task = asyncio.create_task(
                self._serve_doors(kernel_id, leased_doors), name="doors of a kernel"
            )
            self._serve_tasks.add(serve_task)
            serve_task.add_done_callback(self._serve_tasks.discard)
        return self._doors_by_kernel[kernel_id]

    async def _serve_doors(self, kernel_id: str, leased_doors: _LeasedDoors) -> None:
        """Accept connections until the kernel or this host ends."""
        tasks = {
            asyncio.create_task(
                self._accept_connections(leased_doors, door), name="door of a kernel"
            )
            for door in (kernel_doors.PROXY, kernel_doors.SERVICES)
        }
        tasks.add(asyncio.create_task(leased_doors.doors.wait_closed(), name="end of a kernel"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._doors_by_kernel[kernel_id]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            leased_doors.doors.close()
            async with leased_doors.change_lock:
                await _release(leased_doors)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("the doors of %s failed", kernel_id, exc_info=error)

    async def _accept_connections(
        self, leased_doors: _LeasedDoors, door: kernel_doors.Door
    ) -> None:
        slots = asyncio.Semaphore(_MAX_CONNECTIONS)

        def on_stream_end(task: asyncio.Task[None], endpoint: socket.socket) -> None:
            # In a callback, because a task that is cancelled at once never begins.
            door_streams.reset(endpoint)
            slots.release()
            leased_doors.streams.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("a connection of a door could not be relayed", exc_info=error)

        while True:
            await slots.acquire()
            try:
                endpoint = await leased_doors.doors.accept(door)
            except OSError:
                _log.exception("no connection of a kernel can be accepted")
                slots.release()
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if leased_doors.link is None:
                await _refuse(endpoint)
                slots.release()
                continue
            offer = self._offer_connection(leased_doors.link, door, endpoint)
            task = asyncio.create_task(offer, name="connection of a door")
            leased_doors.streams.add(task)
            task.add_done_callback(functools.partial(on_stream_end, endpoint=endpoint))

    async def _offer_connection(
        self, link: web.WebSocketResponse, door: kernel_doors.Door, endpoint: socket.socket
    ) -> None:
        """Offer a connection to a bot, and wait until it ends or nobody has fetched it in time."""
        name, connection = secrets.token_hex(_STREAM_NAME_BYTES), _Connection(endpoint)
        self._offered_connections[name] = connection
        try:
            await link.send_str(messages.encode(messages.DoorConnection(door, name)))
            await asyncio.wait({connection.relay_future}, timeout=_MAX_FETCH_SECONDS)
            if connection.relay_future.done():
                await asyncio.wait({connection.relay_future.result()})
        except ConnectionError:
            _log.info("a bot disconnected before it could fetch a connection")
        finally:
            self._offered_connections.pop(name, None)
            if connection.relay_future.done():
                connection.relay_future.result().cancel()
                await asyncio.wait({connection.relay_future.result()})

    async def _serve_stream(self, request: web.Request) -> web.StreamResponse:
        """Relay an offered connection; each can be fetched once."""
        connection = self._offered_connections.pop(request.query["stream"], None)
        if connection is None:
            raise web.HTTPNotFound
        response = web.WebSocketResponse(
            compress=False, max_msg_size=_MAX_MESSAGE_BYTES, timeout=_MAX_CLOSING_SECONDS
        )

        async def relay() -> None:
            await response.prepare(request)
            await door_streams.relay(
                connection.endpoint, response, max_seconds=_MAX_HALF_OPEN_SECONDS
            )

        relay_task = asyncio.create_task(relay(), name="relayed connection")
        # Set this before any await, so that the fetched connection is not given up.
        connection.relay_future.set_result(relay_task)
        try:
            await asyncio.wait({relay_task})
        finally:
            relay_task.cancel()
        return response

    async def set_up_doors(self, kernel_id: str, code: str, version: str) -> None:
        """Run the code of a setup in a kernel; see `ports.HostProcess.set_up_doors`."""
        # For a kernel without leased doors, the setup only explains why it has none.
        leased_doors = self._doors_by_kernel.get(kernel_id)
        if leased_doors is None or leased_doors.version != version:
            await self._host.set_up_doors(kernel_id, code)
            if leased_doors is not None:
                leased_doors.version = version

    async def unleased_doors(self) -> dict[str, str]:
        """Return the kernels whose doors no bot has leased, with the keys of their sessions."""
        return {
            kernel_id: leased_doors.key
            for kernel_id, leased_doors in self._doors_by_kernel.items()
            if leased_doors.link is None
        }


async def _release(leased_doors: _LeasedDoors) -> None:
    """End a bot's lease of doors, and reset its connections."""
    link, leased_doors.link = leased_doors.link, None
    streams = set(leased_doors.streams)
    for task in streams:
        task.cancel()
    if streams:
        await asyncio.wait(streams)
    if link is not None:
        await link.close()


async def _refuse(endpoint: socket.socket) -> None:
    """Refuse a connection with a sentence that says why."""
    reason = host_words.NOT_CONNECTED.encode("ascii")
    with endpoint:
        await asyncio.sleep(_REFUSAL_PAUSE_SECONDS)
        # Errors of the code's end do not matter.
        with contextlib.suppress(OSError):
            # Closing with unread data would reset the connection before code reads the answer.
            with contextlib.suppress(BlockingIOError):
                endpoint.recv(_MAX_HEAD_BYTES)
            endpoint.send(_REFUSAL_HEAD % (reason, len(reason), reason) + reason)
