"""Calls from a bot to a host process that are repeated after each reconnection.

Each implements `host_connection.Call`.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from interpreter_bot import errors, values
from interpreter_bot.hosts import connection_messages, host_connection, host_messages, ports
from interpreter_bot.wording import run_words

_GONE: Final = f"The process that kept the Python kernel is lost. {run_words.LOST}"

T = TypeVar("T")


def read(kind: type[T], said: object) -> T:
    """Make a value of what a host said.

    Raises:
        KernelError: it is none.
    """
    try:
        return host_messages.read(kind, said)
    except host_messages.MalformedError as error:
        raise errors.KernelError(host_messages.UNREADABLE) from error


class LeaseCall:
    """A lease; it is over when it is ended."""

    def __init__(
        self, number: int, key: str, person: str, *, epoch: int = 0, is_ephemeral: bool = False
    ) -> None:
        self._message = connection_messages.Lease(number, key, person, epoch, is_ephemeral)

    def message(self, *, is_other_host: bool) -> connection_messages.ToHost:
        """Lease, also from another host."""
        return self._message

    def take(self, reply: connection_messages.Reply) -> None:
        """Ignore it: a lease has no reply."""

    def event(self, number: int, record: bytes) -> None:
        """Hear nothing."""

    def lose(self) -> None:
        """Wait for the host to come back: what was leased is asked for anew then."""


class KernelCall:
    """A kernel that starts.

    Attributes:
        result: what it says of itself.
    """

    def __init__(self, number: int, lease: int, waiting: ports.OnWait | None) -> None:
        self._number, self._lease, self._waiting = number, lease, waiting
        self.result: asyncio.Future[connection_messages.KernelStarted] = (
            asyncio.get_running_loop().create_future()
        )

    def message(self, *, is_other_host: bool) -> connection_messages.ToHost:
        """Ask for the kernel, also another host."""
        return connection_messages.StartKernel(self._number, self._lease)

    def take(self, reply: connection_messages.Reply) -> None:
        """Take the kernel, what its start waits for, or why there is none."""
        if self.result.done():
            return
        match reply:
            case connection_messages.Failed(_, error):
                self.result.set_exception(host_messages.error(error))
            case connection_messages.KernelStarted():
                self.result.set_result(reply)
            case connection_messages.Waiting(_, sentence) if self._waiting is not None:
                self._waiting(sentence)

    def event(self, number: int, record: bytes) -> None:
        """Hear nothing: this is no execution."""

    def lose(self) -> None:
        """Have no kernel."""
        if not self.result.done():
            self.result.set_exception(errors.KernelStartError(_GONE))


class ExecutionCall:
    """An execution that is followed, and begun if it was not yet.

    Attributes:
        result: its end.
    """

    def __init__(
        self,
        connection: host_connection.HostConnection,
        number: int,
        execution_id: str,
        *,
        after: int,
        show: ports.Show,
        ask: ports.Ask | None,
        code: connection_messages.Code | None,
    ) -> None:
        self._connection = connection
        self._number = number
        self._execution_id = execution_id
        self._after = after
        self._show = show
        self._ask = ask
        self._code = code
        self._was_sent = False
        self._answering: dict[int, asyncio.Task[None]] = {}
        self.result: asyncio.Future[ports.ExecutionEnd] = asyncio.get_running_loop().create_future()

    def message(self, *, is_other_host: bool) -> connection_messages.ToHost:
        """Begin it, and follow it from what was not received yet."""
        # Another host would run it a second time.
        code = None if is_other_host and self._was_sent else self._code
        self._was_sent = True
        # A question that is still open is asked again.
        self.close()
        return connection_messages.Follow(
            self._number, self._execution_id, self._after, self._ask is not None, code
        )

    def take(self, reply: connection_messages.Reply) -> None:
        """Take a question of the code, or why there is nothing to follow."""
        match reply:
            case connection_messages.Failed(_, fields):
                error = host_messages.error(fields)
                if isinstance(error, errors.ExecutionMissingError) and self._code is not None:
                    self.lose()
                elif not self.result.done():
                    self.result.set_exception(error)
            case connection_messages.Question(_, question, request):
                if (task := self._answering.pop(question, None)) is not None:
                    task.cancel()
                if request is not None and self._ask is not None:
                    answering = self._answer(question, request, self._ask)
                    task = asyncio.create_task(answering, name="answer to code")
                    self._answering[question] = task

    async def _answer(self, question: int, request: values.InputRequested, ask: ports.Ask) -> None:
        text, error = None, None
        try:
            text = await ask(request)
        except errors.BotError as refusal:
            error = host_messages.error_fields(refusal)
        self._connection.send(connection_messages.Answer(self._execution_id, question, text, error))

    def event(self, number: int, record: bytes) -> None:
        """Take an output, or the end; one that is known already is passed over."""
        if number <= self._after or self.result.done():
            return
        event = host_messages.unpack(record)
        self._after = number
        if isinstance(event, ports.ExecutionEnd):
            self.result.set_result(event)
        else:
            self._show(event, number)

    def lose(self) -> None:
        """End: the host that ran it is gone."""
        if not self.result.done():
            finished = values.Finished(values.Ending.CRASHED, 0.0, _GONE, kernel_lost=True)
            self.result.set_result(ports.ExecutionEnd(finished, loss_reason=_GONE))

    def close(self) -> None:
        """Ask nobody any more."""
        for task in self._answering.values():
            task.cancel()
        self._answering.clear()
