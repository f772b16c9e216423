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


class CarriedDoors:
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

    async def carry(self) -> None:
        """Carry connections until the kernel ends, its doors are closed here, or the host goes."""
        try:
            async with self._connection.dialled("/v1/door_link", self._asked) as link:
                await self._carry(link)
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
            _log.info("the doors of %s are not carried: %r", self._asked["kernel"], error)
        finally:
            if not self.opened.done():
                self.opened.set_result(None)

    async def _carry(self, link: aiohttp.ClientWebSocketResponse) -> None:
        proxy, services = json.loads(await link.receive_str())["ports"]
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-doors-"))
            paths = [str(pathlib.Path(place, name)) for name in ("proxy", "services")]
            # Closed with the doors by whoever has them then; the other ends tell each other.
            mine, theirs = socket.socketpair()
            ended, process = socket.socketpair()
            for one in (mine, ended):
                stack.enter_context(one)
            doors = kernel_doors.Doors(
                _bound(paths[0]),
                _bound(paths[1]),
                process.detach(),
                (int(proxy), int(services)),
                theirs,
            )
            if self.opened.done():
                doors.close()
                return
            self.opened.set_result(doors)
            closing = asyncio.create_task(_closed(mine), name="end of carried doors")
            taking = asyncio.create_task(self._take(link, paths), name="connections of code")
            try:
                await asyncio.wait({closing, taking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tasks = {closing, taking, *self._streams}
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            if not taking.cancelled():
                taking.result()

    async def _take(self, link: aiohttp.ClientWebSocketResponse, paths: list[str]) -> None:
        """Fetch each connection that the host tells of.

        Raises:
            OSError: the session is elsewhere by now, or the host says more than it may.
        """
        async for message in link:
            said = json.loads(message.data)
            path, name = paths[int(said["door"])], str(said["stream"])
            try:
                is_current = await self._is_current()
            except errors.BotError:
                # The host closes a connection that is not fetched.
                _log.warning("it is not known where a session is", exc_info=True)
                continue
            if not is_current or len(self._streams) >= _MOST_STREAMS:
                raise ConnectionRefusedError
            task = asyncio.create_task(self._fetch(name, path), name="connection of a door")
            self._streams.add(task)
            task.add_done_callback(self._over)

    async def _fetch(self, name: str, path: str) -> None:
        async with self._connection.dialled("/v1/door_stream", {"stream": name}) as stream:
            await door_streams.relay(await _connected(path), stream)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a connection of a door could not be carried", exc_info=error)


def _bound(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
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
