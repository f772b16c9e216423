"""Doors of kernels, handed to bots: a bot holds them as long as it is there.

On this machine it gets the sockets themselves; on another, what connects to them is carried to it.

Who connects to a door while no bot has it is told so; the next bot takes the doors over, or, where
its rules let nothing through any more, shuts them, which code is told. Of several bots the one has
them that runs a turn there, or did last.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.hosts import door_streams, host_messages, kernel_doors, local_host
from interpreter_bot.kernel_host import door_tunnels

_log = logging.getLogger(__name__)

_NONE: Final = "That Python has no doors."
_HELD: Final = "Another bot has the doors of that Python."
_AWAY: Final = (
    b"Nothing is open here: the bot that lets code reach the outside is not there just now."
)
_SHUT: Final = (
    b"Nothing is open here any more: whoever runs the bot no longer lets code of this conversation "
    b"reach anything outside."
)
_HEAD: Final = (
    b"HTTP/1.1 503 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nX-Proxy-Error: %b\r\n"
    b"Connection: close\r\n\r\n"
)
_BACKLOG: Final = 8
_HEAD_BYTES: Final = 64 * 1024
# One at a time and each so long: whoever asks again at once costs nothing.
_CLAIM_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 0.1


@dataclasses.dataclass(slots=True)
class _Handed:
    """Doors that were handed to a bot at least once.

    Attributes:
        key: of the session.
        doors: copies of them.
        mark: of what the kernel was told of them.
        is_held: by a bot.
        is_shut: a bot came that lets nothing through them.
        ended: set when the kernel has, or the host ends.
        claimed: set when another bot is to have them, which runs a turn there.
        is_free: set once none has them.
        answering: tells who connects that no bot has them.
    """

    key: str
    doors: kernel_doors.Doors
    mark: str = ""
    is_held: bool = True
    is_shut: bool = False
    answering: tuple[asyncio.Task[None], ...] = ()
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    claimed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    is_free: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class DoorHandovers:
    """The doors of a host's kernels."""

    def __init__(self, host: local_host.LocalHost) -> None:
        self._host = host
        self._handed: dict[str, _Handed] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._carried = door_tunnels.DoorTunnels()

    def routes(self) -> list[web.RouteDef]:
        """Return the requests; what is wrong with one is told as of all others."""
        return [
            web.post("/v1/doors", self._hand_over),
            web.get("/v1/door_link", self._link),
            web.get("/v1/door_stream", self._carried.stream),
            web.post("/v1/introduce", self._introduce),
            web.post("/v1/ask", self._ask),
            web.get("/v1/unheld_doors", self._unheld),
            web.post("/v1/shut_doors", self._shut),
        ]

    async def close(self) -> None:
        """Shut all doors, for whoever has them."""
        self._ended.set()
        if self._watching:
            await asyncio.wait(self._watching)

    async def _hand_over(self, request: web.Request) -> web.Response:
        """Send the descriptors of a kernel's doors; they are the bot's until it disconnects.

        Nothing but them is sent, with one byte: they come outside of HTTP.
        """
        async with self._held(request) as handed:
            transport = request.get_extra_info("socket")
            if transport is None or transport.family != socket.AF_UNIX:
                raise web.HTTPBadRequest
            with transport.dup() as peer:
                doors = handed.doors
                descriptors = [doors.proxy.fileno(), doors.services.fileno(), doors.process]
                socket.send_fds(peer, [kernel_doors.HANDED], descriptors)
                await self._until_readable(peer, handed.claimed)
        return web.Response()

    async def _link(self, request: web.Request) -> web.StreamResponse:
        """Offer a bot of another machine what connects to a kernel's doors, until either goes."""
        async with self._held(request) as handed:
            link = web.WebSocketResponse(heartbeat=door_streams.HEARTBEAT_SECONDS, compress=False)
            await link.prepare(request)
            offering = asyncio.create_task(
                self._carried.offer(link, handed.doors), name="offered connections"
            )
            tasks = {offering} | {
                asyncio.create_task(one.wait(), name="end of doors for a bot")
                for one in (handed.ended, handed.claimed)
            }
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                if not offering.cancelled() and (error := offering.exception()) is not None:
                    _log.warning("connections are offered no more", exc_info=error)
            await link.close()
        return link

    @contextlib.asynccontextmanager
    async def _held(self, request: web.Request) -> AsyncIterator[_Handed]:
        """Hold a kernel's doors for a bot; then tell code that no bot is there."""
        kernel_id = request.query["kernel"]
        is_claimed = "claim" in request.query
        handed = await self._taken(kernel_id, request.query["key"], is_claimed=is_claimed)
        try:
            yield handed
        finally:
            handed.is_held = False
            handed.is_free.set()
            if self._handed.get(kernel_id) is handed:
                handed.answering = tuple(
                    asyncio.create_task(_answer(door, handed), name="a door that no bot has")
                    for door in (handed.doors.proxy, handed.doors.services)
                )

    async def _taken(self, kernel_id: str, key: str, *, is_claimed: bool) -> _Handed:
        """Hold a kernel's doors; where they are claimed, in the place of a bot that has them.

        Raises:
            KernelError: it has none, or another bot has them.
        """
        handed = self._handed.get(kernel_id)
        if handed is None:
            doors = await self._host.doors(kernel_id)
            if doors is None:
                raise errors.KernelError(_NONE)
            if kernel_id in self._handed or self._ended.is_set():
                doors.close()
                raise errors.KernelError(_HELD)
            handed = self._handed[kernel_id] = _Handed(key, doors)
            watching = asyncio.create_task(self._until_ended(kernel_id), name="end of a kernel")
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
            return handed
        if handed.is_held and is_claimed:
            handed.claimed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLAIM_SECONDS):
                    await handed.is_free.wait()
        if handed.is_held or self._handed.get(kernel_id) is not handed:
            raise errors.KernelError(_HELD)
        handed.is_held, handed.is_shut = True, False
        handed.claimed.clear()
        handed.is_free.clear()
        await _stopped(handed)
        return handed

    async def _until_readable(
        self, descriptor: socket.socket | int, *events: asyncio.Event
    ) -> None:
        """Return when the other side of a descriptor has gone, or everything ends, or an event."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        waiting = {asyncio.create_task(event.wait()) for event in (readable, self._ended, *events)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(descriptor)
            for task in waiting:
                task.cancel()

    async def _until_ended(self, kernel_id: str) -> None:
        """Shut the doors of a kernel that has ended: they alone would keep its network."""
        handed = self._handed[kernel_id]
        try:
            await self._until_readable(handed.doors.process)
        finally:
            del self._handed[kernel_id]
            handed.ended.set()
            await _stopped(handed)
            handed.doors.close()

    async def _introduce(self, request: web.Request) -> web.Response:
        said = await request.json()
        kernel_id, mark = str(said["kernel"]), str(said["mark"])
        handed = self._handed.get(kernel_id)
        if handed is None:
            # It has none, and code is told why.
            await self._host.introduce(kernel_id, str(said["code"]))
        elif handed.mark != mark:
            await self._host.introduce(kernel_id, str(said["code"]))
            handed.mark = mark
        return web.json_response({})

    async def _ask(self, request: web.Request) -> web.Response:
        """Ask a person as long as the bot that wants to know is there."""
        said = await request.json()
        question = host_messages.read(values.InputRequested, said["question"])
        if request.transport is None:
            raise web.HTTPBadRequest
        asking = asyncio.create_task(
            self._host.ask(str(said["kernel"]), question), name="question of a bot"
        )
        with request.transport.get_extra_info("socket").dup() as peer:
            leaving = asyncio.create_task(self._until_readable(peer), name="end of a bot")
            try:
                await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (asking, leaving):
                    task.cancel()
                await asyncio.wait({asking, leaving})
        if asking.cancelled():
            raise errors.KernelError
        answer = host_messages.document(asking.result())
        return web.Response(body=answer, content_type="application/json")

    async def _unheld(self, _: web.Request) -> web.Response:
        found = {name: one.key for name, one in self._handed.items() if not one.is_held}
        return web.Response(body=host_messages.document(found), content_type="application/json")

    async def _shut(self, request: web.Request) -> web.Response:
        """Let code be told that nothing is let through, rather than that nobody is there."""
        handed = self._handed.get(str((await request.json())["kernel"]))
        if handed is not None and not handed.is_held:
            handed.is_shut = True
        return web.json_response({})


async def _stopped(handed: _Handed) -> None:
    """Answer at doors no more."""
    for task in handed.answering:
        task.cancel()
    if handed.answering:
        await asyncio.wait(handed.answering)
    handed.answering = ()


async def _answer(door: socket.socket, handed: _Handed) -> None:
    """Tell who connects that no bot is there, or lets anything through, until it is cancelled."""
    loop = asyncio.get_running_loop()
    door.setblocking(False)
    door.listen(_BACKLOG)
    while True:
        # What code does with its end is no fault here.
        with contextlib.suppress(OSError):
            endpoint, _ = await loop.sock_accept(door)
            with endpoint:
                await asyncio.sleep(_ANSWER_SECONDS)
                # What is unread when a connection is closed takes the answer with it.
                with contextlib.suppress(BlockingIOError):
                    endpoint.recv(_HEAD_BYTES)
                said = _SHUT if handed.is_shut else _AWAY
                endpoint.send(_HEAD % (said, len(said), said) + said)
            continue
        await asyncio.sleep(_ANSWER_SECONDS)
