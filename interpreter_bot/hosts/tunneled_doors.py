"""Doors of a kernel on another machine: stand-ins here, to which its connections are carried.

The host says, over a WebSocket that is the link, whenever code connects; each connection is fetched
by a stream of its own. Whose it is, no host says: this end asked for the doors of one kernel of one
session, and looks with each connection whether that session is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import socket
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from interpreter_bot import errors
from interpreter_bot.hosts import door_streams, host_connection, kernel_doors

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.05
_CONNECT_SECONDS: Final = 30.0
_MOST_STREAMS: Final = 256
_MOST_BYTES: Final = 256 * 1024
_LOOK_SECONDS: Final = 20.0
# A link that is lost, and whatever a host may say instead of what it should.
_BROKEN: Final = (
    *(aiohttp.ClientError, OSError, ValueError, LookupError, TypeError),
    *(RecursionError, OverflowError),
)


class TunneledDoors:
    """The doors of one kernel; those who serve them see sockets of this machine."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        asked: dict[str, str],
        is_current: Callable[[], Awaitable[bool]],
    ) -> None:
        """Open nothing yet.

        Args:
            connection: to the host.
            asked: which kernel, of which session, in which epoch.
            is_current: whether the session is still on that host in that epoch.
        """
        self._connection = connection
        self._asked = asked
        self._is_current = is_current
        self._streams: set[asyncio.Task[None]] = set()
        self.opened: asyncio.Future[kernel_doors.Doors | None] = (
            asyncio.get_running_loop().create_future()
        )
        """The doors, or None where the host gives none."""

    async def carry(self) -> bool:
        """Carry connections until the kernel ends, its doors are closed here, or the host goes.

        Returns:
            Whether the host ended it: where the kernel lives on, its doors may be asked for again.
        """
        try:
            alive_seconds = door_streams.HEARTBEAT_SECONDS
            async with await self._connection.session.ws_connect(
                "/v1/door_link",
                params=self._asked,
                heartbeat=alive_seconds,
                max_msg_size=_MOST_BYTES,
            ) as link:
                return await self._carry(link)
        except _BROKEN as error:
            _log.info("the doors of %s are not carried: %r", self._asked["kernel"], error)
            return self.opened.done()
        finally:
            if not self.opened.done():
                self.opened.set_result(None)

    async def _carry(self, link: aiohttp.ClientWebSocketResponse) -> bool:
        proxy, services = map(int, json.loads(await link.receive_str())["ports"])
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-doors-"))
            paths = [str(pathlib.Path(place, name)) for name in ("proxy", "services")]
            # Closed with the doors by whoever has them then; the other ends tell each other.
            mine, theirs = socket.socketpair()
            ended, process = socket.socketpair()
            for one in (mine, ended):
                stack.enter_context(one)
            with contextlib.ExitStack() as given:
                for one in (theirs, process):
                    given.enter_context(one)
                first, second = (given.enter_context(_bound(path)) for path in paths)
                doors = kernel_doors.Doors(
                    first, second, process.detach(), (proxy, services), theirs
                )
                given.pop_all()
            if self.opened.done():
                doors.close()
                return False
            self.opened.set_result(doors)
            closing = asyncio.create_task(_closed(mine), name="end of carried doors")
            taking = asyncio.create_task(self._take(link, paths), name="connections of code")
            leaving = asyncio.create_task(self._left(), name="whose the doors are")
            try:
                await asyncio.wait({closing, taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
                is_closed_here = closing.done()
            finally:
                tasks = {closing, taking, leaving, *self._streams}
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in (taking, leaving):
                if not task.cancelled():
                    task.result()
            return not is_closed_here

    async def _take(self, link: aiohttp.ClientWebSocketResponse, paths: list[str]) -> None:
        """Fetch each connection that the host tells of.

        Raises:
            OSError: the host says more than it may.
            ValueError: it says something else.
        """
        async for message in link:
            said = json.loads(message.data)
            door, name = said["door"], str(said["stream"])
            if door not in range(len(paths)):
                raise ValueError
            if len(self._streams) >= _MOST_STREAMS:
                raise ConnectionRefusedError
            # Nothing is awaited here: else a slow database would let the link pass for dead.
            task = asyncio.create_task(
                self._fetch(link, name, paths[int(door)]), name="connection of a door"
            )
            self._streams.add(task)
            task.add_done_callback(self._over)

    async def _fetch(self, link: aiohttp.ClientWebSocketResponse, name: str, path: str) -> None:
        """Carry a connection, if the session is still there; else let go of its doors.

        Raises:
            BotError: nobody knows; the host closes a connection that is not fetched.
        """
        if not await self._is_current():
            await link.close()
            return
        async with await self._connection.session.ws_connect(
            "/v1/door_stream", params={"stream": name}, max_msg_size=_MOST_BYTES
        ) as stream:
            await door_streams.relay(await _connected(path), stream)

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


def _bound(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(path)
    except BaseException:
        made.close()
        raise
    return made


async def _connected(path: str) -> socket.socket:
    """Connect to who serves a door here; it listens soon, and takes so many at a time.

    Raises:
        OSError: nobody serves it.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)
        async with asyncio.timeout(_CONNECT_SECONDS):
            while True:
                # Not by the event loop, which takes a full queue for the beginning of a success.
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                    made.connect(path)
                    return made
                await asyncio.sleep(_RETRY_SECONDS)
    except BaseException:
        made.close()
        raise


async def _closed(end: socket.socket) -> None:
    """Return when the other end of a pair is closed."""
    end.setblocking(False)
    await asyncio.get_running_loop().sock_recv(end, 1)
