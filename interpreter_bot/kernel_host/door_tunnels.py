"""Connections of code at the doors of one kernel, offered to a bot on another machine.

The bot's end is `hosts.tunneled_doors`. So many at a time are accepted; others wait in the kernel's
own network. One that the bot does not fetch, or that is open when its link breaks, is reset.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from typing import Final

from aiohttp import web

from interpreter_bot.hosts import door_streams, kernel_doors

_log = logging.getLogger(__name__)

_MOST_OF_A_DOOR: Final = 64
_FETCH_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
# Whom a bot has answered all need not say much more.
_LAST_SECONDS: Final = 60.0
_MESSAGE_BYTES: Final = 256 * 1024
_NAME_BYTES: Final = 16


class _Accepted:
    """A connection that waits to be fetched, or is carried."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.carrying: asyncio.Future[asyncio.Task[None]] = (
            asyncio.get_running_loop().create_future()
        )


class DoorTunnels:
    """What code connected to and bots may fetch, by names that nobody guesses."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Accepted] = {}

    async def offer(self, link: web.WebSocketResponse, doors: kernel_doors.Doors) -> None:
        """Accept what connects to two doors, and tell a bot, until it goes or this is cancelled."""
        await link.send_json({"ports": doors.ports})
        # Copies: whoever has the others closes them when the kernel ends.
        with doors.proxy.dup() as proxy, doors.services.dup() as services:
            await self._offer(link, (proxy, services))

    async def _offer(
        self, link: web.WebSocketResponse, doors: tuple[socket.socket, socket.socket]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            accepting = [
                group.create_task(self._accept(link, number, door), name="door of a kernel")
                for number, door in enumerate(doors)
            ]
            async for _ in link:
                break  # It has nothing to say.
            for task in accepting:
                task.cancel()

    async def _accept(self, link: web.WebSocketResponse, number: int, door: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(_MOST_OF_A_DOOR)
        door.setblocking(False)
        door.listen(_MOST_OF_A_DOOR)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                try:
                    endpoint, _ = await loop.sock_accept(door)
                except OSError:
                    _log.exception("no connection of a kernel can be accepted")
                    free.release()
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                group.create_task(self._hold(link, number, endpoint, free), name="held connection")

    async def _hold(
        self,
        link: web.WebSocketResponse,
        number: int,
        endpoint: socket.socket,
        free: asyncio.Semaphore,
    ) -> None:
        """Have a connection until it was carried to its end, or nobody fetches it."""
        name, accepted = secrets.token_hex(_NAME_BYTES), _Accepted(endpoint)
        self._waiting[name] = accepted
        try:
            await link.send_json({"door": number, "stream": name})
            await asyncio.wait({accepted.carrying}, timeout=_FETCH_SECONDS)
            if accepted.carrying.done():
                await asyncio.wait({accepted.carrying.result()})
        except ConnectionError:
            _log.info("a bot went before it heard of a connection")
        finally:
            self._waiting.pop(name, None)
            if accepted.carrying.done():
                accepted.carrying.result().cancel()
                await asyncio.wait({accepted.carrying.result()})
            endpoint.close()
            free.release()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Carry a connection that was offered, once."""
        accepted = self._waiting.pop(request.query["stream"], None)
        if accepted is None:
            raise web.HTTPNotFound
        response = web.WebSocketResponse(compress=False, max_msg_size=_MESSAGE_BYTES)
        await response.prepare(request)
        relaying = door_streams.relay(accepted.endpoint, response, most_seconds=_LAST_SECONDS)
        carrying = asyncio.create_task(relaying, name="carried connection")
        accepted.carrying.set_result(carrying)
        try:
            await asyncio.wait({carrying})
        finally:
            carrying.cancel()
        return response
