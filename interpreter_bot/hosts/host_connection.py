"""Connection to a host process: reconnects, and says again what the host has to know.

What a bot wants of a host has numbers and stays in a table until it is over: leases, kernels that
start, executions that are followed. Whenever the connection is made anew, all of it is said again,
executions from the last event on that was received; a host does each of them once. It is said to
the same host as long as that is there, else to the newest. A host that cannot be reached for long,
or is another one by now, ends what ran in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import pathlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import aiohttp

from interpreter_bot import errors
from interpreter_bot.hosts import (
    connection_messages,
    host_addresses,
    host_messages,
    host_requests,
    host_sockets,
    host_statuses,
    ports,
)

_log = logging.getLogger(__name__)

_FRAME: Final = struct.Struct("<IQ")
_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 120.0
_FAILED: Final = "The process that keeps the Python kernels failed. Its log has the details."
# A connection breaks at once when its host dies.
_NOTICE_SECONDS: Final = 1.0


T = TypeVar("T")

Revive: TypeAlias = Callable[[], Awaitable[None]]
"""Starts a host, if there is none."""


class Call(Protocol):
    """Something that a bot wants of a host, until it is over."""

    def message(self, *, is_other_host: bool) -> connection_messages.ToHost:
        """Say what is wanted, the first time or again.

        Args:
            is_other_host: the host that heard it before is no more.
        """

    def take(self, reply: connection_messages.Reply) -> None:
        """Take a reply of the host."""

    def event(self, number: int, record: bytes) -> None:
        """Take an event of an execution.

        Raises:
            MalformedError: it is none.
        """

    def lose(self) -> None:
        """Take that the host is gone."""


class HostConnection:
    """Connection to one host. Use `open`.

    Attributes:
        status: of the host, as of when it was connected last.
        address: where it listens.
        on_connect: is called whenever the host listens.
    """

    status: host_statuses.HostStatus

    def __init__(
        self,
        address: host_addresses.Address,
        newest: pathlib.Path | None,
        *,
        patience_seconds: float,
    ) -> None:
        self.address = address
        self._newest = newest
        self._revive: Revive | None = None
        self._patience_seconds = patience_seconds
        self._session: host_statuses.HostSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._is_connected = asyncio.Event()
        self._seen = time.monotonic()
        self._heard_by = ""
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._outgoing: asyncio.Queue[connection_messages.ToHost] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        # Kernels that ended, by the host's numbers, of which nobody was told.
        self._losses: dict[int, ports.KernelLoss] = {}
        self._told: ports.OnLoss | None = None
        self.on_connect: Callable[[], None] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: host_addresses.Address,
        *,
        newest: pathlib.Path | None = None,
        patience_seconds: float = 30.0,
        revive: Revive | None = None,
    ) -> AsyncIterator[HostConnection]:
        """Connect to a host, and again whenever the connection is lost.

        Args:
            address: of its socket, or a link to it, or of a host on another machine.
            newest: leads to the host that is used when that one is gone; by default the link.
            patience_seconds: how long a host may be away before what ran in it counts as lost.
            revive: called when it cannot be reached.

        Raises:
            KernelError: it cannot be reached, or is of another release.
        """
        if isinstance(address, pathlib.Path):
            newest = newest or address
            address = host_sockets.target(address) or address
        connection = cls(address, newest, patience_seconds=patience_seconds)
        connection._revive = revive
        connection._session = host_statuses.HostSession(address)
        try:
            connection.status = await host_statuses.read_status(connection._session, address)
            connection._heard_by = connection.status.id
            keeping = asyncio.create_task(connection._keep(), name=f"connection to {address}")
            try:
                yield connection
            finally:
                if connection._tasks:
                    await asyncio.wait(connection._tasks)
                # What was said last is written before, unless the host does not read.
                keeping.cancel()
                await asyncio.wait({keeping})
                connection._lose()
        finally:
            await connection._session.close()

    @property
    def session(self) -> host_statuses.HostSession:
        """What asks the host as it is now, beside the one that everything else is said over."""
        assert self._session is not None, "use it inside `async with`"  # noqa: S101
        return self._session

    @property
    def is_connected(self) -> bool:
        """Whether the host listens."""
        return self._socket is not None

    @property
    def away_seconds(self) -> float:
        """How long the host has been away; 0 while it listens."""
        return 0.0 if self.is_connected else time.monotonic() - self._seen

    @property
    def is_used(self) -> bool:
        """Whether anything is wanted of the host, beside answers."""
        return bool(self._calls)

    def new_number(self) -> int:
        """Return the number of something that is to be wanted."""
        return next(self._numbers)

    @contextlib.contextmanager
    def wanting(self, number: int, call: Call) -> Iterator[None]:
        """Want something as long as the context is open."""
        self._calls[number] = call
        if self._socket is not None:
            self.send(call.message(is_other_host=False))
        try:
            yield
        finally:
            del self._calls[number]
            self.send(connection_messages.Cancel(number))

    def send(self, message: connection_messages.ToHost) -> None:
        """Say something, if the host listens; whoever must be heard is in the table of calls."""
        if self._socket is not None:
            self._outgoing.put_nowait(message)

    async def call(
        self, request: host_requests.Request[T], params: Mapping[str, str] | None = None
    ) -> T:
        """Send a request, and return its answer.

        Args:
            request: see `host_requests`.
            params: the session and its epoch, if there are several machines.

        Raises:
            BotError: the host refused; the sentence says why.
            KernelError: it cannot be reached.
        """
        answer: T = await self.answered(
            request.answer,
            "POST",
            f"/v1/requests/{type(request).__name__}",
            is_long=request.is_long,
            is_once=request.is_once,
            data=host_messages.document(request),
            params=params,
        )
        return answer

    async def answered(self, kind: type[T], method: str, path: str, **options: Any) -> T:
        """Send an HTTP request, and return its answer; options are those of `requested`.

        Raises:
            BotError: as `call` does.
        """
        async with self.requested(method, path, **options) as response:
            with _translated():
                return host_messages.read(kind, await response.json())

    @contextlib.asynccontextmanager
    async def requested(
        self,
        method: str,
        path: str,
        *,
        is_long: bool = False,
        is_once: bool = False,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send an HTTP request, and read the answer within the context.

        If the host dies before it has answered, the next one is asked. Errors of the context
        itself, such as a full disk, pass unchanged.

        Args:
            method: of HTTP.
            path: of the host's.
            is_long: it may take as long as it takes.
            is_once: only one host is asked.
            options: of aiohttp.

        Raises:
            BotError: as `call` does.
        """
        answer_seconds = None if is_long else _ANSWER_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_read=answer_seconds)
        with _translated():
            response = await self._begun(method, path, is_once=is_once, timeout=timeout, **options)
        async with response:
            with _translated():
                await _check(response)
            yield response

    async def _begun(
        self, method: str, path: str, *, is_once: bool, **options: Any
    ) -> aiohttp.ClientResponse:
        """Ask for something until a host begins to answer, or none can be reached."""
        until = time.monotonic() + self._patience_seconds
        while True:
            await self.connected()
            asked = self._socket
            try:
                return await self.session.request(method, path, **options)
            except (aiohttp.ClientConnectionError, OSError) as error:
                # One that is too slow is still there, and one that was away for long is no more.
                is_over = asked is None or time.monotonic() > until
                if is_over or isinstance(error, TimeoutError) or is_once:
                    raise
                _log.info("the host went before it answered: %r", error)
                give_up = time.monotonic() + _NOTICE_SECONDS
                while self._socket is asked and time.monotonic() < give_up:  # noqa: ASYNC110
                    await asyncio.sleep(_FIRST_WAIT_SECONDS)

    async def connected(self) -> None:
        """Wait until a host listens, but no longer than it may be away."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_seconds):
                await self._is_connected.wait()

    async def _keep(self) -> None:
        """Stay connected, for ever."""
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            before = self._seen
            try:
                await self._converse()
            except (aiohttp.ClientError, OSError, errors.BotError) as error:
                _log.info("the host cannot be reached: %r", error)
            except Exception:
                # The last net: without a connection nothing would go on for anybody.
                _log.exception("the connection to the host failed")
            if self._seen > before:
                wait_seconds = _FIRST_WAIT_SECONDS
            elif time.monotonic() - self._seen > self._patience_seconds:
                self._lose()
            try:
                if self._revive is not None:
                    await self._revive()
            except errors.BotError:
                _log.exception("no host could be started")
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)

    def _lose(self) -> None:
        """Let nobody wait any more for what the host does."""
        for call in tuple(self._calls.values()):
            call.lose()

    async def _converse(self) -> None:
        """Connect, say what is wanted, and listen until the connection is lost."""
        session = await self._reach()
        connecting = await session.ws_connect(
            "/v1/events",
            # Only a bot has a host started anew; commands come and go.
            params={} if self._revive is None else {"bot": "1"},
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=host_messages.EVENT_BYTES + _FRAME.size,
        )
        async with connecting as opened:
            self._socket = opened
            self._outgoing = asyncio.Queue()
            # Those that it was not told of the host tells again, by other numbers.
            self._losses.clear()
            # Not before: a host that was only asked its name has heard of nothing.
            is_other_host = self.status.id != self._heard_by
            self._heard_by = self.status.id
            for call in tuple(self._calls.values()):
                self.send(call.message(is_other_host=is_other_host))
            self.send(connection_messages.Listen(self._told is not None))
            writing = asyncio.create_task(self._write(opened), name="words to a host")
            self._is_connected.set()
            if self.on_connect is not None:
                self.on_connect()
            try:
                async for message in opened:
                    self._take(message)
            finally:
                self._seen = time.monotonic()
                self._is_connected.clear()
                self._socket = None
                writing.cancel()
                await asyncio.wait({writing})

    async def _reach(self) -> host_statuses.HostSession:
        """Ask the host what it is; where it is gone, the newest one.

        Raises:
            KernelError: there is none, or it cannot be used.
        """
        try:
            self.status = await host_statuses.read_status(self.session, self.address)
        except errors.HostUnusableError:
            raise
        except errors.KernelError:
            path = None if self._newest is None else host_sockets.target(self._newest)
            if path is None or path == self.address:
                raise
            # What was asked of the former one and not answered never will be.
            former, self._session = self.session, host_statuses.HostSession(path)
            self.address = path
            await former.close()
            self.status = await host_statuses.read_status(self.session, path)
        return self.session

    async def _write(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                message = await self._outgoing.get()
                await opened.send_str(connection_messages.encode(message))

    def _take(self, message: aiohttp.WSMessage) -> None:
        """Take one message.

        Raises:
            MalformedError: it makes no sense; the connection had better end.
        """
        try:
            if message.type is aiohttp.WSMsgType.BINARY:
                number, event = _FRAME.unpack_from(message.data)
                if (call := self._calls.get(number)) is not None:
                    call.event(event, message.data[_FRAME.size :])
                return
        except struct.error as error:
            raise host_messages.MalformedError("this is no event") from error
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise host_messages.MalformedError("this is no message")
        match connection_messages.to_bot(message.data):
            case connection_messages.KernelLost(number, loss):
                self._losses[number] = loss
                task = asyncio.create_task(self._tell(number), name="loss of a kernel")
                self._tasks.add(task)
                task.add_done_callback(self._done)
            case connection_messages.Draining():
                self.status = dataclasses.replace(self.status, is_draining=True)
            case reply:
                if (call := self._calls.get(reply.call)) is not None:
                    call.take(reply)

    async def listen(self, told: ports.OnLoss | None) -> None:
        """Tell this one of lost kernels from now on, and of those that nobody was told of."""
        self._told = told
        self.send(connection_messages.Listen(told is not None))
        for number in tuple(self._losses):
            await self._tell(number)

    async def _tell(self, number: int) -> None:
        """Tell of a lost kernel; once that is done, the host need not tell it again."""
        if self._told is not None and (loss := self._losses.pop(number, None)) is not None:
            await self._told(loss)
            self.send(connection_messages.LossNoted(number))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the loss of a kernel could not be noted", exc_info=error)


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raise the error that a host answers with.

    Raises:
        BotError: the host refused.
        aiohttp.ClientResponseError: it failed.
    """
    if response.status == 422:
        refusal = host_messages.read(host_messages.ErrorFields, await response.json())
        raise host_messages.error(refusal)
    response.raise_for_status()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate what a request to a host raises; its block holds nothing of a caller."""
    try:
        yield
    except aiohttp.ClientResponseError as error:
        _log.error("the host failed: %r", error)
        raise errors.KernelError(_FAILED) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.KernelError(host_statuses.UNREACHABLE) from error
    except (ValueError, RecursionError) as error:
        raise errors.KernelError(host_messages.UNREADABLE) from error
