"""A host in another process, on this machine or another; its kernels outlive this bot.

It does what `local_host` does, over a connection to `kernel_host.host_server`.
`messages` validates a host's messages; `host_connection` resends lost calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from interpreter_bot import code_activity, errors, values
from interpreter_bot.hosts import (
    host_addresses,
    host_connection,
    kernel_doors,
    messages,
    ports,
    remote_doors,
    remote_workspaces,
    requests,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

MAX_ANSWER_SECONDS: Final = 5.0
"""How long to wait for the answer of each of several hosts."""

T = TypeVar("T")


class RemoteKernel:
    """A kernel of another process; implements `ports.Kernel`."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        lease_number: int,
        started: messages.KernelStarted,
    ) -> None:
        self._connection = connection
        self._lease_number = lease_number
        self.id = started.id
        self.loss_notice = started.loss_notice
        self.run_count = started.run_count
        self.restored_variables = started.restored_variables
        self.restore_notice = started.restore_notice

    async def execute(
        self,
        code: str,
        *,
        execution_id: str,
        show: ports.OnEvent,
        ask: ports.Ask | None = None,
        seconds: float | None = None,
        is_bot_code: bool = False,
    ) -> ports.ExecutionEnd:
        if messages.is_too_long(code):
            finished = values.Finished(values.Ending.REFUSED, 0.0, host_words.CODE_TOO_LONG)
            return ports.ExecutionEnd(finished, run_count=self.run_count)
        message = messages.Code(self._lease_number, self.id, code, seconds, is_bot_code)
        end = await _follow(
            self._connection, execution_id, after=0, show=show, ask=ask, code=message
        )
        self.run_count = max(self.run_count, end.run_count)
        return end


class _KernelStart(host_connection.Call):
    """The start of a leased kernel; its result describes the kernel."""

    def __init__(self, number: int, lease_number: int, on_wait: ports.OnWait | None) -> None:
        self._number, self._lease_number, self._on_wait = number, lease_number, on_wait
        self.result: asyncio.Future[messages.KernelStarted] = (
            asyncio.get_running_loop().create_future()
        )

    def message(self, *, host_changed: bool) -> messages.ToHost:
        """Return the request for the kernel, the same for each host."""
        return messages.StartKernel(self._number, self._lease_number)

    def on_reply(self, reply: messages.Reply) -> None:
        """Handle the started kernel, a sentence on what the start waits for, or its failure."""
        if self.result.done():
            return
        match reply:
            case messages.CallFailed(_, error_fields):
                self.result.set_exception(messages.to_error(error_fields))
            case messages.KernelStarted():
                self.result.set_result(reply)
            case messages.StartWaits(_, sentence) if self._on_wait is not None:
                self._on_wait(sentence)

    def on_host_lost(self) -> None:
        if not self.result.done():
            self.result.set_exception(errors.KernelStartError(host_words.CONNECTION_LOST))


class ExecutionCall(host_connection.Call):
    """An execution that is followed, and begun first if there is code; its result is its end."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        number: int,
        execution_id: str,
        *,
        after: int,
        show: ports.OnEvent,
        ask: ports.Ask | None,
        code: messages.Code | None,
    ) -> None:
        self._connection = connection
        self._number = number
        self._execution_id = execution_id
        self._after = after
        self._show = show
        self._ask = ask
        self._code = code
        self._was_sent = False
        self._answer_tasks: dict[int, asyncio.Task[None]] = {}
        self.result: asyncio.Future[ports.ExecutionEnd] = asyncio.get_running_loop().create_future()

    def message(self, *, host_changed: bool) -> messages.ToHost:
        """Return the request to begin the execution and follow it after the last event."""
        # Another host would run the code a second time.
        code = None if host_changed and self._was_sent else self._code
        self._was_sent = True
        # The host repeats questions that are still open.
        self.close()
        return messages.Follow(
            self._number, self._execution_id, self._after, self._ask is not None, code
        )

    def on_reply(self, reply: messages.Reply) -> None:
        """Handle a question of the code, or the reason why nothing can be followed."""
        match reply:
            case messages.CallFailed(_, error_fields):
                error = messages.to_error(error_fields)
                if isinstance(error, errors.ExecutionMissingError) and self._code is not None:
                    self.on_host_lost()
                elif not self.result.done():
                    self.result.set_exception(error)
            case messages.Question(_, number, request):
                if (task := self._answer_tasks.pop(number, None)) is not None:
                    task.cancel()
                if request is not None and self._ask is not None:
                    answering = self._answer(number, request, self._ask)
                    task = asyncio.create_task(answering, name="answer to code")
                    self._answer_tasks[number] = task

    async def _answer(self, number: int, request: values.InputRequested, ask: ports.Ask) -> None:
        text, error = None, None
        try:
            text = await ask(request)
            if messages.is_too_long(text):
                raise errors.KernelError(host_words.ANSWER_TOO_LONG)
        except errors.BotError as refusal:
            text, error = None, messages.error_fields(refusal)
        self._connection.send(messages.Answer(self._execution_id, number, text, error))

    def on_event(self, number: int, record: bytes) -> None:
        """Handle an output or the end; skip one that was received before."""
        if number <= self._after or self.result.done():
            return
        event = messages.unpack(record)
        self._after = number
        if isinstance(event, ports.ExecutionEnd):
            self.result.set_result(event)
        else:
            self._show(event, number)

    def on_host_lost(self) -> None:
        """End as crashed, because the host that ran the code is lost."""
        if not self.result.done():
            finished = values.Finished(
                values.Ending.CRASHED, 0.0, host_words.CONNECTION_LOST, kernel_lost=True
            )
            self.result.set_result(
                ports.ExecutionEnd(finished, loss_reason=host_words.CONNECTION_LOST)
            )

    def close(self) -> None:
        for task in self._answer_tasks.values():
            task.cancel()
        self._answer_tasks.clear()


class RemoteLease(host_connection.Call):
    """A lease of another process's kernel; implements `ports.Lease`."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        doors: remote_doors.RemoteDoors,
        key: str,
        *,
        person: str = "",
        epoch: int = 0,
        is_ephemeral: bool = False,
    ) -> None:
        self.number = connection.new_call_number()
        self._connection, self._doors = connection, doors
        self._message = messages.Lease(self.number, key, person, epoch, is_ephemeral)

    def message(self, *, host_changed: bool) -> messages.ToHost:
        return self._message

    async def kernel(self, *, on_wait: ports.OnWait | None = None) -> RemoteKernel:
        number = self._connection.new_call_number()
        start = _KernelStart(number, self.number, on_wait)
        with self._connection.open_call(number, start):
            started = await start.result
        lease = self._message
        await self._doors.open(lease.key, started.id, epoch=lease.epoch)
        return RemoteKernel(self._connection, self.number, started)


class RemoteHost(ports.HostProcess):
    """A host in another process. Inherited methods are sent as requests. Use `open`."""

    outlives_bot = True
    ends_with_bot = False

    def __init__(
        self,
        connection: host_connection.HostConnection,
        *,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
        is_ephemeral: bool = False,
        is_bot: bool = False,
        find_epoch: remote_doors.FindEpoch | None = None,
    ) -> None:
        self.connection = connection
        self._epoch = 0
        self._doors = remote_doors.RemoteDoors(
            self, connection, doorkeeper, is_bot=is_bot, find_epoch=find_epoch
        )
        self._is_ephemeral = is_ephemeral
        self.ephemeral_keys: set[str] = set()
        self._stack = contextlib.ExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: host_addresses.Address,
        *,
        newest_link: pathlib.Path | None = None,
        patience_seconds: float = 30.0,
        restart_host: host_connection.RestartHost | None = None,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
        is_ephemeral: bool = False,
        is_bot: bool = False,
        find_epoch: remote_doors.FindEpoch | None = None,
    ) -> AsyncIterator[RemoteHost]:
        """Connect to a host; see `host_connection.HostConnection.open`.

        The doorkeeper decides what code can reach; without one, nothing. With `is_ephemeral`, the
        host deletes the sessions when the connection ends for any reason. With `is_bot`, this
        process opens the doors that the former bot had. With several hosts, `find_epoch`
        says which sessions are on this one.

        Raises:
            KernelError: it cannot be reached, or is of another release.
        """
        opening = host_connection.HostConnection.open(
            address,
            newest_link=newest_link,
            patience_seconds=patience_seconds,
            restart_host=restart_host,
        )
        async with opening as connection:
            host = cls(
                connection,
                doorkeeper=doorkeeper,
                is_ephemeral=is_ephemeral,
                is_bot=is_bot,
                find_epoch=find_epoch,
            )
            try:
                with host._stack:
                    yield host
            finally:
                await host._doors.close()

    def _delete_at_end(self, key: str) -> None:
        """If the connection is ephemeral, let the host delete a session when it ends."""
        if self._is_ephemeral and key not in self.ephemeral_keys:
            self.ephemeral_keys.add(key)
            lease = RemoteLease(self.connection, self._doors, key, is_ephemeral=True)
            self._stack.enter_context(self.connection.open_call(lease.number, lease))

    def with_epoch(self, epoch: int) -> RemoteHost:
        """Return this host with an epoch in all its requests; see `placed_hosts`."""
        bound_host = copy.copy(self)
        bound_host._epoch = epoch
        return bound_host

    def take_over_doors(self) -> None:
        """Start to open the doors that no bot has leased."""
        self._doors.take_over()

    @property
    def has_doors(self) -> bool:
        return self.connection.status.has_doors

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        return self.connection.status.sandbox_level

    @property
    def packages(self) -> Mapping[str, str]:
        return self.connection.status.packages

    @property
    def keeps_variables(self) -> bool:
        return self.connection.status.keeps_variables

    def reach(self, key: str) -> code_activity.Reach:
        return self._doors.reach(key)

    async def subscribe_losses(self, on_loss: ports.OnLoss | None) -> None:
        # An ephemeral session reports the loss itself when it is used again.
        if not self._is_ephemeral:
            await self.connection.subscribe_losses(on_loss)

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[RemoteLease]:
        self._delete_at_end(key)
        lease = RemoteLease(self.connection, self._doors, key, person=person, epoch=self._epoch)
        with self.connection.open_call(lease.number, lease):
            yield lease

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.OnEvent, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        return await _follow(self.connection, execution_id, after=after, show=show, ask=ask)

    def acknowledge(self, execution_id: str) -> None:
        self.connection.send(messages.Acknowledge(execution_id))

    async def workspace(self, key: str) -> remote_workspaces.RemoteWorkspace:
        self._delete_at_end(key)
        return remote_workspaces.RemoteWorkspace.create(self.connection, key, self._epoch)

    async def send_request(self, request: requests.Request, arguments: Any) -> Any:  # noqa: ANN401
        """Send a request, in this epoch if it is about a session."""
        key = getattr(arguments, "key", "")
        params = {"key": key, "epoch": str(self._epoch)} if key and self._epoch else {}
        return await self.connection.send_request(request, arguments, params)


async def ask_all(
    hosts: Collection[RemoteHost], ask: Callable[[RemoteHost], Awaitable[T]]
) -> list[T | None]:
    """Ask several hosts at once; the answer is None for a host that fails or is slow."""

    async def answer(host: RemoteHost) -> T | None:
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                return await ask(host)
        except (errors.BotError, TimeoutError):
            _log.warning("a host does not answer", exc_info=True)
            return None

    return await asyncio.gather(*map(answer, hosts))


async def try_to_stop(host: RemoteHost, execution_id: str, reason: str) -> None:
    """Stop an execution at a host once it can be reached; log a failure."""
    try:
        await host.stop(execution_id, reason)
    except errors.BotError:
        _log.warning("an execution could not be stopped", exc_info=True)


async def _follow(
    connection: host_connection.HostConnection,
    execution_id: str,
    *,
    after: int,
    show: ports.OnEvent,
    ask: ports.Ask | None,
    code: messages.Code | None = None,
) -> ports.ExecutionEnd:
    """Follow an execution to its end; with `code`, begin it first."""
    number = connection.new_call_number()
    call = ExecutionCall(
        connection, number, execution_id, after=after, show=show, ask=ask, code=code
    )
    try:
        with connection.open_call(number, call):
            return await call.result
    finally:
        call.close()
