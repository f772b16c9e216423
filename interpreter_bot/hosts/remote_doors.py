"""Doors of kernels in a host process, which streams their connections to this bot.

`RemoteDoors` decides which doors of a host this bot opens; `TunneledDoors` are the doors of one
kernel. Over one WebSocket for each kernel, the link, the host announces connections of code; the
bot fetches each over a WebSocket of its own, a stream. The bot does not trust a host to name the
session of a connection: it knows the session from its lease of the doors, and checks for each
connection that the session is still on that host.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp

from interpreter_bot import code_activity, errors
from interpreter_bot.hosts import door_streams, host_connection, kernel_doors, messages, ports

_log = logging.getLogger(__name__)

_MAX_OPENING_SECONDS: Final = 20.0
_RETRY_PAUSE_SECONDS: Final = 1.0
# Doors may become free at any time: a host notices a lost link only after half a minute, and the
# bot that had a session may die.
_CHECK_INTERVAL_SECONDS: Final = 10.0
_MAX_PARALLEL_OPENINGS: Final = 16

_MAX_STREAMS: Final = 256
_MAX_MESSAGE_BYTES: Final = 256 * 1024
_MOVE_CHECK_INTERVAL_SECONDS: Final = 20.0
# Errors of a lost link, and of malformed messages of the host.
_LINK_ERRORS: Final = (aiohttp.ClientError, OSError, messages.MalformedError, TypeError)

T = TypeVar("T")

FindEpoch: TypeAlias = Callable[[str, str], Awaitable[int | None]]
"""Returns a session's epoch on the host of a data directory; None if it is on another host."""


class RemoteDoors:
    """Opens doors of one host's kernels, and takes over doors that the former bot left open."""

    def __init__(
        self,
        host: ports.HostProcess,
        connection: host_connection.HostConnection,
        doorkeeper: kernel_doors.Doorkeeper | None,
        *,
        is_bot: bool,
        find_epoch: FindEpoch | None = None,
    ) -> None:
        """Open nothing yet.

        Without `is_bot`, as in a short-lived command, no doors of the former bot are taken over.
        With several hosts, only doors of sessions for which `find_epoch` returns an epoch are.
        """
        self._host = host
        self._connection = connection
        self._doorkeeper = doorkeeper
        self._watch_task: asyncio.Task[None] | None = None
        self._check_requested = asyncio.Event()
        self._slots = asyncio.Semaphore(_MAX_PARALLEL_OPENINGS)
        self._opening_kernel_ids: set[str] = set()
        self._setup_kernel_ids: set[str] = set()
        self._find_epoch = find_epoch
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        if is_bot and doorkeeper is not None:
            connection.on_connect = self.take_over

    def reach(self, key: str) -> code_activity.Reach:
        return code_activity.NO_REACH if self._doorkeeper is None else self._doorkeeper.reach(key)

    async def close(self) -> None:
        """Stop all work on doors."""
        self._connection.on_connect = None
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def open(self, key: str, kernel_id: str, *, epoch: int = 0) -> None:
        """Let the doorkeeper open a kernel's doors, and the host set them up in the kernel.

        `epoch` is the session's on this host; 0 with a single host.
        """
        if self._doorkeeper is None:
            return
        lease_doors = functools.partial(self._lease, key, kernel_id, epoch)
        try:
            await self._set_up(kernel_id, await self._doorkeeper.open(key, kernel_id, lease_doors))
        except errors.KernelError:
            # If the host is lost, so is the kernel, which the running execution reports.
            _log.warning("the doors of %s could not be opened", kernel_id, exc_info=True)

    async def _set_up(self, kernel_id: str, setup: kernel_doors.DoorSetup | None) -> None:
        """Let the host set up doors in a kernel, which waits until running code ends."""
        if setup is None or self._doorkeeper is None or kernel_id in self._setup_kernel_ids:
            return
        self._setup_kernel_ids.add(kernel_id)
        try:
            await self._host.set_up_doors(kernel_id, setup.code, setup.version)
            self._doorkeeper.note_setup_done(kernel_id)
        finally:
            self._setup_kernel_ids.discard(kernel_id)

    def take_over(self) -> None:
        """Start to open doors of this host that no bot has leased."""
        self._check_requested.set()
        if self._watch_task is None and not self._is_closed:
            self._watch_task = self._start_task(self._watch_unleased_doors(), "unleased doors")

    async def _watch_unleased_doors(self) -> None:
        """Open doors that no bot has leased, for ever."""
        while True:
            self._check_requested.clear()
            try:
                for kernel_id, key in (await self._host.unleased_doors()).items():
                    if kernel_id not in self._opening_kernel_ids:
                        self._opening_kernel_ids.add(kernel_id)
                        self._start_task(
                            self._open_unleased(kernel_id, key), "opening of unleased doors"
                        ).add_done_callback(_log_opening_error)
            except errors.BotError as error:
                _log.info("unleased doors cannot be listed now: %r", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL_SECONDS):
                    await self._check_requested.wait()

    async def _open_unleased(self, kernel_id: str, key: str) -> None:
        """Let the doorkeeper open a kernel's doors."""
        try:
            async with self._slots:
                epoch = await self._find_current_epoch(key)
                if epoch is None or self._doorkeeper is None:
                    return  # The session is on another host.
                lease_doors = functools.partial(self._lease, key, kernel_id, epoch)
                setup = await self._doorkeeper.open(key, kernel_id, lease_doors)
        finally:
            # Removed before the setup: while a busy kernel waits for it, doors may break again.
            self._opening_kernel_ids.discard(kernel_id)
        await self._set_up(kernel_id, setup)

    def _start_task(self, work: Coroutine[object, None, T], name: str) -> asyncio.Task[T]:
        self._tasks.add(task := asyncio.create_task(work, name=name))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _find_current_epoch(self, key: str) -> int | None:
        if self._find_epoch is None:
            return 0
        return await self._find_epoch(self._connection.status.data_id, key)

    def _on_relay_end(self, task: asyncio.Task[bool]) -> None:
        if task.cancelled() or self._is_closed:
            return
        if (error := task.exception()) is not None:
            _log.error("the relay of a kernel's doors failed", exc_info=error)
        elif task.result():
            # The link broke, but code still runs and may use the doors.
            asyncio.get_running_loop().call_later(_RETRY_PAUSE_SECONDS, self.take_over)

    async def _lease(self, key: str, kernel_id: str, epoch: int = 0) -> kernel_doors.Doors | None:
        """Lease a kernel's doors from the host; None if it refuses.

        Raises:
            KernelError: the host does not answer.
        """

        async def is_current() -> bool:
            return await self._find_current_epoch(key) == epoch

        params = {"kernel": kernel_id, "key": key}
        params |= {"epoch": str(epoch)} if epoch else {}
        ask = functools.partial(self._host.ask_person, kernel_id)
        doors = TunneledDoors(self._connection, params, is_current, ask)
        task = self._start_task(doors.relay(), f"relayed doors of {kernel_id}")
        task.add_done_callback(self._on_relay_end)
        try:
            async with asyncio.timeout(_MAX_OPENING_SECONDS):
                is_open = await doors.open_result
        except TimeoutError as error:
            doors.close()
            raise errors.KernelError from error
        except asyncio.CancelledError:
            doors.close()
            raise
        return doors if is_open else None


def _log_opening_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("doors of a kernel could not be opened again", exc_info=error)


class TunneledDoors:
    """The doors of one kernel; implements `kernel_doors.Doors` once they are open."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        params: dict[str, str],
        is_current: Callable[[], Awaitable[bool]],
        ask: kernel_doors.Ask,
    ) -> None:
        self.ask = ask
        self.ports = 0, 0
        self._connection = connection
        self._params = params
        self._is_current = is_current
        self._streams: set[asyncio.Task[None]] = set()
        self._accept_queues: tuple[asyncio.Queue[socket.socket], ...] = (
            asyncio.Queue(),
            asyncio.Queue(),
        )
        self._close_requested, self._close_event = asyncio.Event(), asyncio.Event()
        self.open_result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Result: whether the host leased the doors."""

    async def accept(self, door: int) -> socket.socket:
        return await self._accept_queues[door].get()

    async def wait_closed(self) -> None:
        await self._close_event.wait()

    def close(self) -> None:
        self._close_requested.set()

    async def relay(self) -> bool:
        """Relay connections until the kernel ends, its doors are closed, or the host is lost.

        Returns:
            Whether the host, not this bot, ended the relay. If the kernel lives, its doors can be
            leased again.
        """
        try:
            async with await self._connection.session.ws_connect(
                "/v1/door_link",
                params=self._params,
                heartbeat=door_streams.HEARTBEAT_SECONDS,
                max_msg_size=_MAX_MESSAGE_BYTES,
            ) as link:
                message = messages.decode(messages.ToDoors, await link.receive_str())
                if not isinstance(message, messages.DoorsOpened):
                    raise messages.MalformedError("the doors are not open")
                self.ports = message.ports
                if not self.open_result.done():
                    self.open_result.set_result(True)
                await self._relay_until_closed(link)
        except _LINK_ERRORS as error:
            _log.info("the doors of %s are not relayed: %r", self._params["kernel"], error)
        finally:
            if not self.open_result.done():
                self.open_result.set_result(False)
            self._close_event.set()
        return self.open_result.result() and not self._close_requested.is_set()

    async def _relay_until_closed(self, link: aiohttp.ClientWebSocketResponse) -> None:
        close_task = asyncio.create_task(self._close_requested.wait(), name="end of relayed doors")
        accept_task = asyncio.create_task(
            self._accept_connections(link), name="connections of code"
        )
        move_task = asyncio.create_task(self._wait_for_move(), name="move of the session")
        try:
            await asyncio.wait(
                {close_task, accept_task, move_task}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            tasks = {close_task, accept_task, move_task, *self._streams}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for queue in self._accept_queues:
                while not queue.empty():
                    queue.get_nowait().close()
        for task in (accept_task, move_task):
            if not task.cancelled():
                task.result()

    async def _accept_connections(self, link: aiohttp.ClientWebSocketResponse) -> None:
        """Fetch each connection that the host announces.

        Raises:
            OSError: the host announces too many connections.
            MalformedError: it sends another message.
        """
        async for message in link:
            connection = messages.decode(messages.ToDoors, message.data)
            if not isinstance(connection, messages.DoorConnection):
                raise messages.MalformedError("the doors are open already")
            if len(self._streams) >= _MAX_STREAMS:
                raise ConnectionRefusedError
            # Do not await here: a slow database would delay the link's heartbeat.
            fetching = self._fetch_connection(link, connection)
            task = asyncio.create_task(fetching, name="connection of a door")
            self._streams.add(task)
            task.add_done_callback(self._on_relay_end)

    async def _fetch_connection(
        self, link: aiohttp.ClientWebSocketResponse, connection: messages.DoorConnection
    ) -> None:
        """Relay a connection; release the doors instead if the session has left this host.

        Raises:
            BotError: the session's host cannot be found now; unfetched connections are closed.
        """
        if not await self._is_current():
            await link.close()
            return
        async with await self._connection.session.ws_connect(
            "/v1/door_stream",
            params={"stream": connection.stream_name},
            max_msg_size=_MAX_MESSAGE_BYTES,
        ) as stream:
            bot_end, doorkeeper_end = socket.socketpair()
            for end in (bot_end, doorkeeper_end):
                end.setblocking(False)
            self._accept_queues[connection.door].put_nowait(doorkeeper_end)
            await door_streams.relay(bot_end, stream)

    async def _wait_for_move(self) -> None:
        """Wait until the session is on another host; check only while connections are open."""
        while True:
            await asyncio.sleep(_MOVE_CHECK_INTERVAL_SECONDS)
            # If the session's host cannot be found now, connections stay open.
            with contextlib.suppress(errors.BotError):
                if self._streams and not await self._is_current():
                    return

    def _on_relay_end(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a connection of a door could not be relayed", exc_info=error)
