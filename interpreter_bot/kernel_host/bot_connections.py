"""Connection of one bot: its leases, the executions that it begins and follows, what it is told.

What ends with the connection are leases, so that kernels of a bot that died can be let go, and the
listening; what was begun runs on. Each message does one thing, and a bot that reconnects says again
what it still wants: everything here can be said twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.hosts import executions, host_messages, local_host, ports
from interpreter_bot.kernel_host import session_epochs

_log = logging.getLogger(__name__)

_REFUSED: Final = "The kernel that was to run this code is gone."
_ENDING: Final = "New Pythons are not started just now: what keeps them is being replaced."
_FRAME: Final = struct.Struct("<IQ")


@dataclasses.dataclass(slots=True)
class _Held:
    """A lease, and the kernels that it gave, by id."""

    key: str
    lease: local_host.LocalLease
    stack: contextlib.AsyncExitStack
    is_ephemeral: bool
    kernels: dict[str, local_host.LocalKernel] = dataclasses.field(default_factory=dict)


class BotConnection:
    """Connection of one bot, from `serve` to its end.

    Attributes:
        listens: whether it wants to hear of lost kernels.
        is_bot: whether it is more than a command that comes and goes.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        host: local_host.LocalHost,
        begun: executions.Executions,
        *,
        may_start: Callable[[], bool],
        told: Callable[[], None],
        is_bot: bool,
        epochs: session_epochs.SessionEpochs,
    ) -> None:
        """Serve a bot.

        Args:
            socket: of the bot.
            host: in this process.
            begun: its executions.
            may_start: whether sessions without a kernel may have one.
            told: is called when it begins to listen.
            is_bot: it is no command, which has nobody to hear of kernels.
            epochs: of sessions that may be on other machines by now.
        """
        self.is_bot = is_bot
        self.listens = False
        self._told = told
        self._socket = socket
        self._may_start = may_start
        self._host = host
        self._executions = begun
        self._in_turn = asyncio.Lock()
        self._epochs = epochs
        self._leases: dict[int, _Held] = {}
        # Those above, and those that are on their way.
        self._leasing: dict[int, asyncio.Task[_Held]] = {}
        # What was asked for by number: kernels that start, executions that are followed.
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._losses: dict[int, asyncio.Future[None]] = {}
        self._loss_number = 0
        self._actions: Mapping[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "lease": self._lease,
            "kernel": self._kernel,
            "execute": self._execute,
            "follow": self._follow,
            "cancel": self._cancel,
            "answer": self._answer,
            "acknowledge": self._acknowledge,
            "heard": self._heard,
            "listen": self._listen,
        }

    async def serve(self) -> None:
        """Do what the bot says until it goes."""
        try:
            async for message in self._socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                said = json.loads(message.data)
                try:
                    await self._actions[said["do"]](said)
                except (errors.BotError, OSError):
                    # Of one session: the others of the bot go on.
                    _log.exception("what a bot asked for failed")
        except (ValueError, KeyError, TypeError, RecursionError):
            # A bot of another release at best; what it asked for cannot be told from nonsense.
            _log.exception("a bot said something that cannot be understood")
            await self._socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
        finally:
            await self._let_go()

    async def close(self) -> None:
        """End the connection; the bot comes back if there is a host."""
        await self._socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    def tell_draining(self) -> None:
        """Let the bot know that this host takes no more sessions."""
        self._send_soon({"draining": True})

    def owns(self, key: str) -> bool:
        """Whether a session ends with this connection."""
        return any(held.is_ephemeral and held.key == key for held in self._leases.values())

    async def lose(self, loss: ports.KernelLoss) -> None:
        """Tell the bot of a lost kernel, and wait until it has heard.

        Raises:
            ConnectionError: it went before.
        """
        self._loss_number += 1
        number = self._loss_number
        heard = self._losses[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"loss": number, "fields": loss})
            await heard
        finally:
            del self._losses[number]

    async def _lease(self, said: dict[str, Any]) -> None:
        number, epoch = int(said["call"]), int(said["epoch"])
        key, person = str(said["key"]), str(said["person"])
        leasing = self._leased(
            number, key, person, epoch=epoch, is_ephemeral=bool(said["ephemeral"])
        )
        # Beside other messages: a session that moves takes as long as its variables are saved.
        task = asyncio.create_task(leasing, name=f"lease {number} of a bot")
        self._leasing[number] = task
        task.add_done_callback(_note_failure)

    async def _leased(
        self, number: int, key: str, person: str, *, epoch: int, is_ephemeral: bool
    ) -> _Held:
        await self._epochs.enter(key, epoch)
        if not self._may_start() and key not in await self._host.statuses([key]):
            raise errors.KernelStartError(_ENDING)
        stack = contextlib.AsyncExitStack()
        lease = await stack.enter_async_context(self._host.lease(key, person=person))
        active = self._leases[number] = _Held(key, lease, stack, is_ephemeral)
        return active

    async def _held(self, number: int) -> _Held | None:
        """Return a lease once it is there; None if there is none.

        Raises:
            KernelError: it could not be had.
        """
        leasing = self._leasing.get(number)
        return None if leasing is None else await asyncio.shield(leasing)

    async def _kernel(self, said: dict[str, Any]) -> None:
        number, lease = int(said["call"]), int(said["lease"])

        def waiting(sentence: str) -> None:
            self._send_soon({"call": number, "waits": sentence})

        async def start() -> None:
            active = await self._held(lease)
            if active is None:
                raise errors.KernelStartError(_ENDING)
            kernel = await active.lease.kernel(waiting=waiting)
            active.kernels[kernel.id] = kernel
            beginning = host_messages.KernelBeginning(
                id=kernel.id,
                announcement=kernel.announcement,
                runs=kernel.runs,
                restored=kernel.restored,
                restore_notice=kernel.restore_notice,
            )
            await self._send({"call": number, "kernel": beginning})

        self._begin(number, start())

    async def _execute(self, said: dict[str, Any]) -> None:
        number, after, asks = int(said["call"]), int(said["after"]), bool(said["asks"])
        lease, kernel_id = int(said["lease"]), str(said["kernel"])
        code, execution_id = str(said["code"]), str(said["execution"])
        seconds = None if said["seconds"] is None else float(said["seconds"])
        is_own = said.get("is_own") is True

        async def execute() -> None:
            kernel = await self._given(lease, kernel_id)
            if kernel is not None:
                self._executions.begin(
                    execution_id, kernel.live, code, can_ask=asks, seconds=seconds, is_own=is_own
                )
            elif not self._executions.is_known(execution_id):
                finished = values.Finished(values.Ending.REFUSED, 0.0, _REFUSED, kernel_lost=True)
                end = ports.ExecutionEnd(finished, loss_reason=_REFUSED)
                await self._send_event(number, 1, host_messages.pack(end))
                return
            await self._followed(number, execution_id, after, asks)

        self._begin(number, execute())

    async def _given(self, lease: int, kernel_id: str) -> local_host.LocalKernel | None:
        """Return the kernel that a lease gave, perhaps through an earlier connection."""
        try:
            active = await self._held(lease)
        except errors.KernelError:
            # The request for the kernel is answered with the reason.
            return None
        if active is None:
            return None
        if kernel_id not in active.kernels:
            status = (await self._host.statuses([active.key])).get(active.key)
            if status is None or status.kernel_id != kernel_id or status.loss_reason:
                return None
            active.kernels[kernel_id] = await active.lease.kernel()
        return active.kernels[kernel_id]

    async def _follow(self, said: dict[str, Any]) -> None:
        number, after = int(said["call"]), int(said["after"])
        self._begin(
            number, self._followed(number, str(said["execution"]), after, bool(said["asks"]))
        )

    async def _followed(self, number: int, execution_id: str, after: int, asks: bool) -> None:
        async def send(event: int, record: bytes) -> None:
            await self._send_event(number, event, record)

        questioner = _Questioner(self, number) if asks else None
        await self._executions.follow(execution_id, after=after, send=send, questioner=questioner)

    async def _cancel(self, said: dict[str, Any]) -> None:
        number = int(said["call"])
        if (leasing := self._leasing.pop(number, None)) is not None:
            leasing.cancel()
            await asyncio.wait({leasing})
        if (held := self._leases.pop(number, None)) is not None:
            await self._end_lease(held)
        if (task := self._calls.get(number)) is not None:
            task.cancel()

    async def _answer(self, said: dict[str, Any]) -> None:
        questions = self._executions.questions(str(said["execution"]))
        if questions is not None:
            given = said.get("text")
            answer = host_messages.error(said["error"]) if given is None else str(given)
            questions.answer(int(said["question"]), answer)

    async def _acknowledge(self, said: dict[str, Any]) -> None:
        self._executions.acknowledge(str(said["execution"]))

    async def _listen(self, said: dict[str, Any]) -> None:
        self.listens = bool(said["listens"])
        self._told()

    async def _heard(self, said: dict[str, Any]) -> None:
        heard = self._losses.get(int(said["loss"]))
        if heard is not None and not heard.done():
            heard.set_result(None)

    def _begin(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes long beside the other things; what is wrong with it is told."""
        if (former := self._calls.get(number)) is not None:
            former.cancel()

        async def told() -> None:
            try:
                await work
            except errors.BotError as error:
                await self._send({"call": number, "error": host_messages.error_fields(error)})
            except ConnectionError:
                raise
            except Exception:
                # Without an answer to its call, the bot would wait for ever.
                _log.exception("what a bot asked for failed")
                fault = host_messages.error_fields(errors.KernelError())
                await self._send({"call": number, "error": fault})

        task = self._calls[number] = asyncio.create_task(told(), name=f"call {number} of a bot")
        task.add_done_callback(lambda _: self._over(number, task))

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        if self._calls.get(number) is task:
            del self._calls[number]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionError):
            _log.error("what a bot asked for failed", exc_info=error)

    async def _send(self, message: dict[str, object]) -> None:
        await self._socket.send_str(host_messages.document(message).decode("ascii"))

    def _send_soon(self, message: dict[str, object]) -> None:
        task = asyncio.create_task(self._send(message), name="word to a bot")
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.info("a bot went before it was told something: %r", error)

    async def _send_event(self, number: int, event: int, record: bytes) -> None:
        # One at a time: what all executions together would send to a slow bot is a lot.
        async with self._in_turn:
            await self._socket.send_bytes(_FRAME.pack(number, event) + record)

    async def _let_go(self) -> None:
        for task in [*self._calls.values(), *self._sending]:
            task.cancel()
        for heard in self._losses.values():
            if not heard.done():
                heard.set_exception(ConnectionResetError("the bot has gone"))
        leasing = list(self._leasing.values())
        for lease in leasing:
            lease.cancel()
        if leasing:
            await asyncio.wait(leasing)
        for held in self._leases.values():
            await self._end_lease(held)
        self._leases.clear()

    async def _end_lease(self, held: _Held) -> None:
        await held.stack.aclose()
        if held.is_ephemeral:
            try:
                await self._host.forget(held.key)
            except errors.BotError:
                _log.exception("a session could not be forgotten")


def _note_failure(leasing: asyncio.Task[_Held]) -> None:
    """Log why a lease could not be had; whoever asks for its kernel is told."""
    if not leasing.cancelled() and (error := leasing.exception()) is not None:
        _log.info("a lease could not be had", exc_info=error)


class _Questioner:
    """Passes the questions of one execution on to a bot."""

    def __init__(self, connection: BotConnection, call: int) -> None:
        self._connection = connection
        self._call = call

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask the bot."""
        message = {"call": self._call, "question": number, "asks": request}
        self._connection._send_soon(message)

    def withdraw(self, number: int) -> None:
        """Take the question back."""
        self._connection._send_soon({"call": self._call, "question": number})
