"""Doors of a kernel in a host process, which streams its connections here.

The host says, over a WebSocket that is the link, whenever code connects; each connection is fetched
by a stream of its own. Whose it is, no host says: this end asked for the doors of one kernel of one
session, and looks with each connection whether that session is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from interpreter_bot import errors
from interpreter_bot.hosts import door_streams, host_connection, kernel_doors, messages

_log = logging.getLogger(__name__)

_MAX_STREAMS: Final = 256
_MAX_MESSAGE_BYTES: Final = 256 * 1024
_LOOK_SECONDS: Final = 20.0
# A link that is lost, and whatever a host may say instead of what it should.
_BROKEN: Final = (aiohttp.ClientError, OSError, messages.MalformedError, TypeError)


class TunneledDoors:
    """The doors of one kernel; implements `kernel_doors.Doors` once `opened` is true."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        asked: dict[str, str],
        is_current: Callable[[], Awaitable[bool]],
        ask: kernel_doors.Ask,
    ) -> None:
        """Open nothing yet.

        Args:
            connection: to the host.
            asked: which kernel, of which session, in which epoch.
            is_current: whether the session is still on that host in that epoch.
            ask: see `kernel_doors.Doors`.
        """
        self.ask = ask
        self.ports = 0, 0
        self._connection = connection
        self._asked = asked
        self._is_current = is_current
        self._streams: set[asyncio.Task[None]] = set()
        self._accepted: tuple[asyncio.Queue[socket.socket], ...] = asyncio.Queue(), asyncio.Queue()
        self._closing, self._closed = asyncio.Event(), asyncio.Event()
        self.opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the host gives any."""

    async def accept(self, door: int) -> socket.socket:
        """Return the next connection; see `kernel_doors.Doors.accept`."""
        return await self._accepted[door].get()

    async def wait_closed(self) -> None:
        """Return once the host gives no more connections."""
        await self._closed.wait()

    def close(self) -> None:
        """Accept no more; `carry` returns."""
        self._closing.set()

    async def carry(self) -> bool:
        """Carry connections until the kernel ends, its doors are closed here, or the host goes.

        Returns:
            Whether the host ended it: if the kernel lives on, its doors may be asked for again.
        """
        try:
            async with await self._connection.session.ws_connect(
                "/v1/door_link",
                params=self._asked,
                heartbeat=door_streams.HEARTBEAT_SECONDS,
                max_msg_size=_MAX_MESSAGE_BYTES,
            ) as link:
                opened = messages.to_doors(await link.receive_str())
                if not isinstance(opened, messages.DoorsOpened):
                    raise messages.MalformedError("the doors are not open")
                self.ports = opened.ports
                if not self.opened.done():
                    self.opened.set_result(True)
                await self._carry(link)
        except _BROKEN as error:
            _log.info("the doors of %s are not carried: %r", self._asked["kernel"], error)
        finally:
            if not self.opened.done():
                self.opened.set_result(False)
            self._closed.set()
        return self.opened.result() and not self._closing.is_set()

    async def _carry(self, link: aiohttp.ClientWebSocketResponse) -> None:
        closing = asyncio.create_task(self._closing.wait(), name="end of carried doors")
        taking = asyncio.create_task(self._take(link), name="connections of code")
        leaving = asyncio.create_task(self._left(), name="whose the doors are")
        try:
            await asyncio.wait({closing, taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = {closing, taking, leaving, *self._streams}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for queue in self._accepted:
                while not queue.empty():
                    queue.get_nowait().close()
        for task in (taking, leaving):
            if not task.cancelled():
                task.result()

    async def _take(self, link: aiohttp.ClientWebSocketResponse) -> None:
        """Fetch each connection that the host tells of.

        Raises:
            OSError: the host names more than it may.
            MalformedError: it sends something else.
        """
        async for message in link:
            connection = messages.to_doors(message.data)
            if not isinstance(connection, messages.DoorConnection):
                raise messages.MalformedError("the doors are open already")
            if len(self._streams) >= _MAX_STREAMS:
                raise ConnectionRefusedError
            # Nothing is awaited here: else a slow database would let the link pass for dead.
            fetching = self._fetch(link, connection)
            task = asyncio.create_task(fetching, name="connection of a door")
            self._streams.add(task)
            task.add_done_callback(self._over)

    async def _fetch(
        self, link: aiohttp.ClientWebSocketResponse, connection: messages.DoorConnection
    ) -> None:
        """Carry a connection, if the session is still there; else let go of its doors.

        Raises:
            BotError: nobody knows; the host closes a connection that is not fetched.
        """
        if not await self._is_current():
            await link.close()
            return
        async with await self._connection.session.ws_connect(
            "/v1/door_stream", params={"stream": connection.stream}, max_msg_size=_MAX_MESSAGE_BYTES
        ) as stream:
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setblocking(False)
            self._accepted[connection.door].put_nowait(theirs)
            await door_streams.relay(ours, stream)

    async def _left(self) -> None:
        """Return once the session is elsewhere, though connections of its are open."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            # Where nobody knows, what is open stays so.
            with contextlib.suppress(errors.BotError):
                if self._streams and not await self._is_current():
                    return

    def _over(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a connection of a door could not be carried", exc_info=error)
