"""Connection of one bot: its leases, the executions that it follows, and reports of losses.

Leases end with the connection, so that a dead bot's kernels can be reaped; executions go on.
A bot that reconnects repeats its open calls, so every message may arrive twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.hosts import (
    executions,
    local_host,
    messages,
    ports,
)
from interpreter_bot.kernel_host import session_epochs
from interpreter_bot.kernels import live_kernels
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _ActiveLease:
    """An open lease."""

    key: str
    lease: local_host.LocalLease
    stack: contextlib.AsyncExitStack
    is_ephemeral: bool


class BotConnection:
    """Connection of one bot, from `serve` to its end.

    Attributes:
        is_listening: whether lost kernels are reported to it.
        is_bot: whether it is a bot and not a short-lived command.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        host: local_host.LocalHost,
        host_executions: executions.Executions,
        *,
        may_start_kernels: Callable[[], bool],
        on_listen: Callable[[], None],
        is_bot: bool,
        epochs: session_epochs.SessionEpochs,
    ) -> None:
        self.is_bot = is_bot
        self.is_listening = False
        self._on_listen = on_listen
        self._socket = socket
        self._may_start_kernels = may_start_kernels
        self._host = host
        self._executions = host_executions
        self._send_lock = asyncio.Lock()
        self._epochs = epochs
        self._leases: dict[int, _ActiveLease] = {}
        # Tasks that open leases, kept until the leases end.
        self._lease_tasks: dict[int, asyncio.Task[_ActiveLease]] = {}
        # Tasks that start kernels or follow executions, by the numbers of their calls.
        self._call_tasks: dict[int, asyncio.Task[None]] = {}
        self._send_tasks: set[asyncio.Task[None]] = set()
        self._loss_acknowledgements: dict[int, asyncio.Future[None]] = {}
        self._loss_number = 0

    async def serve(self) -> None:
        """Handle the bot's messages until it disconnects."""
        try:
            async for message in self._socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                request: messages.ToHost = messages.decode(messages.ToHost, message.data)
                try:
                    await self._dispatch(request)
                except (errors.BotError, OSError):
                    # Only one session is affected; the bot's other sessions go on.
                    _log.exception("a request of a bot failed")
        except ValueError:  # MalformedError is one; an execution's id may be another.
            # Probably a bot of another release.
            _log.exception("a bot sent an invalid message")
            await self._socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
        finally:
            await self._end_calls_and_leases()

    async def _dispatch(self, message: messages.ToHost) -> None:
        match message:
            case messages.Lease():
                self._begin_lease(message)
            case messages.StartKernel():
                self._begin_call(message.call_number, self._start_kernel(message))
            case messages.Follow():
                self._begin_call(message.call_number, self._follow(message))
            case messages.Cancel(call_number):
                await self._cancel(call_number)
            case messages.Answer():
                self._answer(message)
            case messages.Acknowledge(execution_id):
                self._executions.acknowledge(execution_id)
            case messages.ReportLosses(is_on):
                self.is_listening = is_on
                self._on_listen()
            case messages.LossAcknowledged(number):
                acknowledgement = self._loss_acknowledgements.get(number)
                if acknowledgement is not None and not acknowledgement.done():
                    acknowledgement.set_result(None)

    async def close(self) -> None:
        """Close the connection; the bot reconnects if there is another host."""
        await self._socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    def send_draining(self) -> None:
        """Tell the bot that this host takes no more sessions."""
        self._send_soon(messages.Draining())

    def owns_session(self, key: str) -> bool:
        """Return whether a session ends with this connection."""
        return any(lease.is_ephemeral and lease.key == key for lease in self._leases.values())

    async def report_loss(self, loss: ports.KernelLoss) -> None:
        """Report a lost kernel and wait until the bot has acknowledged it.

        Raises:
            ConnectionError: it disconnected before.
        """
        self._loss_number += 1
        number = self._loss_number
        acknowledgement = self._loss_acknowledgements[number] = (
            asyncio.get_running_loop().create_future()
        )
        try:
            await self._send(messages.KernelLost(number, loss))
            await acknowledgement
        finally:
            del self._loss_acknowledgements[number]

    def _begin_lease(self, message: messages.Lease) -> None:
        # In the background, because a session's former kernel may have to save its variables first.
        task = asyncio.create_task(
            self._open_lease(message), name=f"lease {message.call_number} of a bot"
        )
        self._lease_tasks[message.call_number] = task
        task.add_done_callback(_log_lease_failure)

    async def _open_lease(self, message: messages.Lease) -> _ActiveLease:
        key = message.key
        await self._epochs.accept(key, message.epoch)
        if not self._may_start_kernels() and key not in await self._host.statuses([key]):
            raise errors.KernelStartError(host_words.HOST_DRAINS)
        stack = contextlib.AsyncExitStack()
        lease = await stack.enter_async_context(self._host.lease(key, person=message.person))
        active_lease = self._leases[message.call_number] = _ActiveLease(
            key, lease, stack, message.is_ephemeral
        )
        return active_lease

    async def _wait_for_lease(self, number: int) -> _ActiveLease | None:
        """Return a lease once it is open; None if there is no such call.

        Raises:
            KernelError: it could not be opened.
        """
        lease_task = self._lease_tasks.get(number)
        return None if lease_task is None else await asyncio.shield(lease_task)

    async def _start_kernel(self, message: messages.StartKernel) -> None:
        def on_wait(sentence: str) -> None:
            self._send_soon(messages.StartWaits(message.call_number, sentence))

        active_lease = await self._wait_for_lease(message.lease_number)
        if active_lease is None:
            raise errors.KernelStartError(host_words.HOST_DRAINS)
        kernel = await active_lease.lease.kernel(on_wait=on_wait)
        await self._send(
            messages.KernelStarted(
                message.call_number,
                id=kernel.id,
                loss_notice=kernel.loss_notice,
                run_count=kernel.run_count,
                restored_variables=kernel.restored_variables,
                restore_notice=kernel.restore_notice,
            )
        )

    async def _follow(self, message: messages.Follow) -> None:
        call_number, execution_id, code = message.call_number, message.execution_id, message.code
        if code is not None:
            kernel = await self._find_kernel(code.lease_number, code.kernel_id)
            if kernel is not None:
                self._executions.begin(
                    execution_id,
                    kernel,
                    code.code,
                    can_ask=message.can_ask,
                    seconds=code.seconds,
                    is_bot_code=code.is_bot_code,
                )
            elif not self._executions.is_known(execution_id):
                finished = values.Finished(
                    values.Ending.REFUSED, 0.0, host_words.KERNEL_GONE, kernel_lost=True
                )
                end = ports.ExecutionEnd(finished, loss_reason=host_words.KERNEL_GONE)
                await self._send_event(call_number, 1, messages.pack(end))
                return

        async def send(event_number: int, record: bytes) -> None:
            await self._send_event(call_number, event_number, record)

        await self._executions.follow(
            execution_id,
            after=message.after,
            send=send,
            questioner=_RemoteQuestioner(self, call_number) if message.can_ask else None,
        )

    async def _find_kernel(self, lease_number: int, kernel_id: str) -> live_kernels.Kernel | None:
        """Return the kernel of a lease; None if another one has replaced it."""
        try:
            active_lease = await self._wait_for_lease(lease_number)
        except errors.KernelError:
            # The bot gets the reason by its call that starts the kernel.
            return None
        kernel = None if active_lease is None else self._host.pool.kernels.get(active_lease.key)
        return kernel if kernel is not None and kernel.id == kernel_id else None

    async def _cancel(self, number: int) -> None:
        if (lease_task := self._lease_tasks.pop(number, None)) is not None:
            lease_task.cancel()
            await asyncio.wait({lease_task})
        if (lease := self._leases.pop(number, None)) is not None:
            await self._end_lease(lease)
        if (task := self._call_tasks.get(number)) is not None:
            task.cancel()

    def _answer(self, message: messages.Answer) -> None:
        questions = self._executions.questions(message.execution_id)
        if questions is None:
            return
        if message.text is not None:
            questions.answer(message.question_number, message.text)
        elif message.error is not None:
            questions.answer(message.question_number, messages.to_error(message.error))

    def _begin_call(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        """Run a call in the background, and report its failure to the bot."""
        if (former_task := self._call_tasks.get(number)) is not None:
            former_task.cancel()

        async def run() -> None:
            try:
                await work
            except errors.BotError as error:
                await self._send(messages.CallFailed(number, messages.error_fields(error)))
            except ConnectionError:
                raise
            except Exception:
                # Without an answer to its call, the bot would wait for ever.
                _log.exception("a request of a bot failed")
                error_fields = messages.error_fields(errors.KernelError())
                await self._send(messages.CallFailed(number, error_fields))

        task = self._call_tasks[number] = asyncio.create_task(run(), name=f"call {number} of a bot")
        task.add_done_callback(lambda _: self._on_call_end(number, task))

    def _on_call_end(self, number: int, task: asyncio.Task[None]) -> None:
        if self._call_tasks.get(number) is task:
            del self._call_tasks[number]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionError):
            _log.error("a request of a bot failed", exc_info=error)

    async def _send(self, message: messages.ToBot) -> None:
        await self._socket.send_str(messages.encode(message))

    def _send_soon(self, message: messages.ToBot) -> None:
        task = asyncio.create_task(self._send(message), name="message to a bot")
        self._send_tasks.add(task)
        task.add_done_callback(self._on_sent)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._send_tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.info("a bot disconnected before a message was sent: %r", error)

    async def _send_event(self, call_number: int, event_number: int, record: bytes) -> None:
        # One event at a time, so that events for a slow bot do not fill the memory.
        async with self._send_lock:
            await self._socket.send_bytes(messages.pack_frame(call_number, event_number, record))

    async def _end_calls_and_leases(self) -> None:
        for task in [*self._call_tasks.values(), *self._send_tasks]:
            task.cancel()
        for acknowledgement in self._loss_acknowledgements.values():
            if not acknowledgement.done():
                acknowledgement.set_exception(ConnectionResetError("the bot has gone"))
        lease_tasks = list(self._lease_tasks.values())
        for lease_task in lease_tasks:
            lease_task.cancel()
        if lease_tasks:
            await asyncio.wait(lease_tasks)
        for lease in self._leases.values():
            await self._end_lease(lease)
        self._leases.clear()

    async def _end_lease(self, lease: _ActiveLease) -> None:
        await lease.stack.aclose()
        if lease.is_ephemeral:
            try:
                await self._host.forget(lease.key)
            except (errors.BotError, OSError):
                _log.exception("a session could not be forgotten")


def _log_lease_failure(lease_task: asyncio.Task[_ActiveLease]) -> None:
    """Log why a lease failed; the bot gets the reason by its call that starts the kernel."""
    if not lease_task.cancelled() and (error := lease_task.exception()) is not None:
        _log.info("a lease could not be opened", exc_info=error)


class _RemoteQuestioner:
    """Forwards the questions of one execution to a bot."""

    def __init__(self, connection: BotConnection, call_number: int) -> None:
        self._connection = connection
        self._call_number = call_number

    def ask(self, number: int, request: values.InputRequested) -> None:
        message = messages.Question(self._call_number, number, request)
        self._connection._send_soon(message)

    def withdraw(self, number: int) -> None:
        self._connection._send_soon(messages.Question(self._call_number, number, None))
