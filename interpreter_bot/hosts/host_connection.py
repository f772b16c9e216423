"""Connection to a host process, which reconnects and then repeats all open calls.

A call is a lease, the start of a kernel, or an execution that the bot follows. It has a number and
stays in a table until it ends. Each reconnection sends all calls again, executions with the number
of the last received event; the host performs each call once. The connection leads to the same host
as long as that host lives, then to the newest host. If the host cannot be reached for long, its
executions end as lost.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import itertools
import logging
import pathlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp

from interpreter_bot import errors
from interpreter_bot.hosts import (
    host_addresses,
    host_sockets,
    http_sessions,
    messages,
    ports,
    requests,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_MIN_WAIT_SECONDS: Final = 0.02
_MAX_WAIT_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 20.0
_MAX_ANSWER_SECONDS: Final = 120.0
# If a host dies, its connection breaks at once, so this wait is only a bound.
_MAX_DETECTION_SECONDS: Final = 1.0


T = TypeVar("T")

RestartHost: TypeAlias = Callable[[], Awaitable[None]]
"""Starts a host if there is none."""


class Call(abc.ABC):
    """A lease, the start of a kernel, or an execution that the bot follows."""

    @abc.abstractmethod
    def message(self, *, host_changed: bool) -> messages.ToHost:
        """Return the message that opens the call, the first time or again."""

    def on_reply(self, reply: messages.Reply) -> None:  # noqa: B027 - a lease has none
        """Handle a reply of the host."""

    def on_event(self, number: int, record: bytes) -> None:  # noqa: B027 - only executions have any
        """Handle an event of an execution.

        Raises:
            MalformedError: the record is not an event.
        """

    def on_host_lost(self) -> None:  # noqa: B027 - the next host gets a lease
        """End the call, as its host is lost."""


class HostConnection:
    """Connection to one host. Use `open`.

    Attributes:
        status: of the host, as of the last connection.
        address: where it listens.
        on_connect: called after each connection.
    """

    status: messages.HostStatus

    def __init__(
        self,
        address: host_addresses.Address,
        newest_link: pathlib.Path | None,
        *,
        patience_seconds: float,
    ) -> None:
        self.address = address
        self._newest_link = newest_link
        self._restart_host: RestartHost | None = None
        self._patience_seconds = patience_seconds
        self._session: http_sessions.HostSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._is_connected = asyncio.Event()
        self._last_connected_at = time.monotonic()
        self._connected_host_id = ""
        self._call_numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._outgoing: asyncio.Queue[messages.ToHost] = asyncio.Queue()
        self._report_tasks: set[asyncio.Task[None]] = set()
        # Losses that are not reported yet, by the host's numbers.
        self._losses: dict[int, ports.KernelLoss] = {}
        self._on_loss: ports.OnLoss | None = None
        self.on_connect: Callable[[], None] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: host_addresses.Address,
        *,
        newest_link: pathlib.Path | None = None,
        patience_seconds: float = 30.0,
        restart_host: RestartHost | None = None,
    ) -> AsyncIterator[HostConnection]:
        """Connect to a host, and again whenever the connection is lost.

        Args:
            address: path of its socket or of a link to it, or a TLS address.
            newest_link: link to the host that replaces this one; `address` by default.
            patience_seconds: how long a host may be away before its executions count as lost.
            restart_host: called if no host can be reached.

        Raises:
            KernelError: it cannot be reached, or is of another release.
        """
        if isinstance(address, pathlib.Path):
            newest_link = newest_link or address
            address = host_sockets.resolve(address) or address
        connection = cls(address, newest_link, patience_seconds=patience_seconds)
        connection._restart_host = restart_host
        connection._session = http_sessions.HostSession(address)
        try:
            connection.status = await http_sessions.read_status(connection._session, address)
            connection._connected_host_id = connection.status.id
            connection_task = asyncio.create_task(
                connection._stay_connected(), name=f"connection to {address}"
            )
            try:
                yield connection
            finally:
                if connection._report_tasks:
                    await asyncio.wait(connection._report_tasks)
                # Before it is cancelled, the writer sends queued messages if the host still reads.
                connection_task.cancel()
                await asyncio.wait({connection_task})
                connection._end_calls()
        finally:
            await connection._session.close()

    @property
    def session(self) -> http_sessions.HostSession:
        """HTTP session with the present host, for requests besides the WebSocket."""
        assert self._session is not None, "use it inside `async with`"  # noqa: S101
        return self._session

    @property
    def is_connected(self) -> bool:
        """Whether the WebSocket is open."""
        return self._socket is not None

    @property
    def away_seconds(self) -> float:
        """How long the host has been away; 0 while it is connected."""
        return 0.0 if self.is_connected else time.monotonic() - self._last_connected_at

    @property
    def has_calls(self) -> bool:
        """Whether any call is open."""
        return bool(self._calls)

    def new_call_number(self) -> int:
        """Return the number of a new call."""
        return next(self._call_numbers)

    @contextlib.contextmanager
    def open_call(self, number: int, call: Call) -> Iterator[None]:
        """Keep a call open, over reconnections, until the context ends."""
        self._calls[number] = call
        if self._socket is not None:
            self.send(call.message(host_changed=False))
        try:
            yield
        finally:
            del self._calls[number]
            self.send(messages.Cancel(number))

    def send(self, message: messages.ToHost) -> None:
        """Send a message if the host is connected; drop it otherwise, unlike calls."""
        if self._socket is not None:
            self._outgoing.put_nowait(message)

    async def send_request(
        self, request: requests.Request, arguments: object, params: Mapping[str, str] | None = None
    ) -> Any:  # noqa: ANN401 - of the request's answer type
        """Send a request and return its answer.

        Raises:
            BotError: the host refused; the sentence says why.
            KernelError: it cannot be reached.
        """
        return await self.request_value(
            request.answer,
            "POST",
            f"/v1/requests/{request.name}",
            is_long=request.is_long,
            is_unrepeatable=request.is_unrepeatable,
            data=messages.encode_json(arguments),
            params=params,
        )

    async def request_value(
        self, answer_type: type[T], method: str, path: str, **options: Any
    ) -> T:
        """Send an HTTP request and return its answer; options are those of `request`.

        Raises:
            BotError: as `send_request` does.
        """
        async with self.request(method, path, **options) as response:
            with _translate_errors():
                return messages.from_json(answer_type, await response.json())

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        is_long: bool = False,
        is_unrepeatable: bool = False,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send an HTTP request; the answer can be read in the context.

        If the host dies before it has answered, the next one is asked. Errors of the context
        itself, such as a full disk, pass unchanged.

        Args:
            is_long: the answer has no time limit.
            is_unrepeatable: the request is not repeated to another host.
            options: of aiohttp.

        Raises:
            BotError: as `send_request` does.
        """
        answer_seconds = None if is_long else _MAX_ANSWER_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_read=answer_seconds)
        with _translate_errors():
            response = await self._send_request(
                method, path, is_unrepeatable=is_unrepeatable, timeout=timeout, **options
            )
        async with response:
            with _translate_errors():
                await _raise_refusal(response)
            yield response

    async def _send_request(
        self, method: str, path: str, *, is_unrepeatable: bool, **options: Any
    ) -> aiohttp.ClientResponse:
        """Repeat a request until a host begins to answer, or none can be reached."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            await self.wait_connected()
            socket = self._socket
            try:
                return await self.session.request(method, path, **options)
            except (aiohttp.ClientConnectionError, OSError) as error:
                # A slow host still lives, so its request must not be repeated.
                is_too_late = socket is None or time.monotonic() > deadline
                if is_too_late or isinstance(error, TimeoutError) or is_unrepeatable:
                    raise
                _log.info("the host ended before it answered: %r", error)
                detection_deadline = time.monotonic() + _MAX_DETECTION_SECONDS
                while self._socket is socket and time.monotonic() < detection_deadline:  # noqa: ASYNC110
                    await asyncio.sleep(_MIN_WAIT_SECONDS)

    async def wait_connected(self) -> None:
        """Wait until a host is connected, for at most `patience_seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_seconds):
                await self._is_connected.wait()

    async def _stay_connected(self) -> None:
        """Stay connected, for ever."""
        wait_seconds = _MIN_WAIT_SECONDS
        while True:
            last_connected_at = self._last_connected_at
            try:
                await self._run_connection()
            except (aiohttp.ClientError, OSError, errors.BotError) as error:
                _log.info("the host cannot be reached: %r", error)
            except Exception:
                # Catch everything: without this loop no session could ever continue.
                _log.exception("the connection to the host failed")
            if self._last_connected_at > last_connected_at:
                wait_seconds = _MIN_WAIT_SECONDS
            elif time.monotonic() - self._last_connected_at > self._patience_seconds:
                self._end_calls()
            try:
                if self._restart_host is not None:
                    await self._restart_host()
            except Exception:
                # Catch everything here, too: there may be no process or descriptor left.
                _log.exception("no host could be started")
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _MAX_WAIT_SECONDS)

    def _end_calls(self) -> None:
        """End all calls, as their host is lost."""
        for call in tuple(self._calls.values()):
            call.on_host_lost()

    async def _run_connection(self) -> None:
        """Connect, send all calls, and handle messages until the connection is lost."""
        session = await self._reach_host()
        opening = await session.ws_connect(
            "/v1/events",
            # Only a bot restarts hosts; commands do not count as bots.
            params={} if self._restart_host is None else {"bot": "1"},
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=messages.MAX_FRAME_BYTES,
        )
        async with opening as socket:
            self._socket = socket
            self._outgoing = asyncio.Queue()
            # The host repeats unreported losses, with new numbers.
            self._losses.clear()
            # Compared only now, because a host that just answered a status request got no calls.
            host_changed = self.status.id != self._connected_host_id
            self._connected_host_id = self.status.id
            for call in tuple(self._calls.values()):
                self.send(call.message(host_changed=host_changed))
            self.send(messages.ReportLosses(self._on_loss is not None))
            writer = asyncio.create_task(self._write(socket), name="messages to a host")
            self._is_connected.set()
            if self.on_connect is not None:
                self.on_connect()
            try:
                async for frame in socket:
                    self._handle_frame(frame)
            finally:
                self._last_connected_at = time.monotonic()
                self._is_connected.clear()
                self._socket = None
                writer.cancel()
                await asyncio.wait({writer})

    async def _reach_host(self) -> http_sessions.HostSession:
        """Read the status of the host, or of the newest host if this one is gone.

        Raises:
            KernelError: no host can be reached, or it cannot be used.
        """
        try:
            self.status = await http_sessions.read_status(self.session, self.address)
        except errors.HostUnusableError:
            raise
        except errors.KernelError:
            path = None if self._newest_link is None else host_sockets.resolve(self._newest_link)
            if path is None or path == self.address:
                raise
            # Closing the session ends requests that the former host will never answer.
            old_session, self._session = self.session, http_sessions.HostSession(path)
            self.address = path
            await old_session.close()
            self.status = await http_sessions.read_status(self.session, path)
        return self.session

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                message = await self._outgoing.get()
                await socket.send_str(messages.encode(message))

    def _handle_frame(self, frame: aiohttp.WSMessage) -> None:
        """Pass a message or an event on to its call.

        Raises:
            MalformedError: it cannot be read, so the connection ends.
        """
        if frame.type is aiohttp.WSMsgType.BINARY:
            call_number, event_number, event = messages.unpack_frame(frame.data)
            if (call := self._calls.get(call_number)) is not None:
                call.on_event(event_number, event)
            return
        if frame.type is not aiohttp.WSMsgType.TEXT:
            raise messages.MalformedError("this is not a message")
        message: messages.ToBot = messages.decode(messages.ToBot, frame.data)
        match message:
            case messages.KernelLost(number, loss):
                self._losses[number] = loss
                task = asyncio.create_task(self._report_loss(number), name="loss of a kernel")
                self._report_tasks.add(task)
                task.add_done_callback(self._on_reported)
            case messages.Draining():
                self.status = dataclasses.replace(self.status, is_draining=True)
            case reply:
                if (call := self._calls.get(reply.call_number)) is not None:
                    call.on_reply(reply)

    async def subscribe_losses(self, on_loss: ports.OnLoss | None) -> None:
        """Call `on_loss` with lost kernels from now on, and with unreported ones at once."""
        self._on_loss = on_loss
        self.send(messages.ReportLosses(on_loss is not None))
        for number in tuple(self._losses):
            await self._report_loss(number)

    async def _report_loss(self, number: int) -> None:
        """Report a lost kernel and acknowledge it to the host, which then stops repeating it."""
        if self._on_loss is not None and (loss := self._losses.pop(number, None)) is not None:
            try:
                await self._on_loss(loss)
            except Exception:
                # Catch everything: the host reports the next loss only after this acknowledgement.
                _log.exception("the loss of a kernel could not be recorded")
            self.send(messages.LossAcknowledged(number))

    def _on_reported(self, task: asyncio.Task[None]) -> None:
        self._report_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the loss of a kernel could not be reported", exc_info=error)


async def _raise_refusal(response: aiohttp.ClientResponse) -> None:
    """Raise the error in a response, if it has one.

    Raises:
        BotError: the host refused.
        aiohttp.ClientResponseError: it failed.
    """
    if response.status == 422:
        refusal = messages.from_json(messages.ErrorFields, await response.json())
        raise messages.to_error(refusal)
    response.raise_for_status()


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors of a request to a host; the block must not run code of a caller."""
    try:
        yield
    except aiohttp.ClientResponseError as error:
        _log.error("the host failed: %r", error)
        raise errors.KernelError(host_words.HOST_FAULT) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.KernelError(host_words.UNREACHABLE) from error
    except (ValueError, RecursionError) as error:
        raise errors.KernelError(host_words.UNREADABLE_MESSAGE) from error
