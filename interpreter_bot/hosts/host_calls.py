"""Calls from a bot to a host process that are repeated after each reconnection.

Each implements `host_connection.Call`.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_connection, messages, ports
from interpreter_bot.wording import host_words

T = TypeVar("T")


def read(kind: type[T], value: object) -> T:
    """Read a value that a host sent.

    Raises:
        KernelError: it has another shape.
    """
    try:
        return messages.read(kind, value)
    except messages.MalformedError as error:
        raise errors.KernelError(host_words.UNREADABLE) from error


class LeaseCall:
    """A lease of a session's kernel."""

    def __init__(
        self, number: int, key: str, person: str, *, epoch: int = 0, is_ephemeral: bool = False
    ) -> None:
        self._message = messages.Lease(number, key, person, epoch, is_ephemeral)

    def message(self, *, host_changed: bool) -> messages.ToHost:
        """Return the lease; another host gets the same."""
        return self._message

    def on_reply(self, reply: messages.Reply) -> None:
        """Ignore the reply: a lease has none."""

    def on_event(self, number: int, record: bytes) -> None:
        """Ignore the event: a lease has none."""

    def on_host_lost(self) -> None:
        """Stay open: the next host gets the lease."""


class KernelCall:
    """The start of a leased kernel.

    Attributes:
        result: the kernel's description.
    """

    def __init__(self, number: int, lease: int, waiting: ports.OnWait | None) -> None:
        self._number, self._lease, self._waiting = number, lease, waiting
        self.result: asyncio.Future[messages.KernelStarted] = (
            asyncio.get_running_loop().create_future()
        )

    def message(self, *, host_changed: bool) -> messages.ToHost:
        """Return the request for the kernel; another host gets the same."""
        return messages.StartKernel(self._number, self._lease)

    def on_reply(self, reply: messages.Reply) -> None:
        """Handle the started kernel, a sentence on what the start waits for, or its failure."""
        if self.result.done():
            return
        match reply:
            case messages.Failed(_, error):
                self.result.set_exception(messages.error(error))
            case messages.KernelStarted():
                self.result.set_result(reply)
            case messages.Waiting(_, sentence) if self._waiting is not None:
                self._waiting(sentence)

    def on_event(self, number: int, record: bytes) -> None:
        """Ignore the event: a start has none."""

    def on_host_lost(self) -> None:
        """Fail the start."""
        if not self.result.done():
            self.result.set_exception(errors.KernelStartError(host_words.LOST))


class ExecutionCall:
    """An execution that is followed, and begun first if there is code.

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
            case messages.Failed(_, fields):
                error = messages.error(fields)
                if isinstance(error, errors.ExecutionMissingError) and self._code is not None:
                    self.on_host_lost()
                elif not self.result.done():
                    self.result.set_exception(error)
            case messages.Question(_, question, request):
                if (task := self._answer_tasks.pop(question, None)) is not None:
                    task.cancel()
                if request is not None and self._ask is not None:
                    answer_code = self._answer(question, request, self._ask)
                    task = asyncio.create_task(answer_code, name="answer to code")
                    self._answer_tasks[question] = task

    async def _answer(self, question: int, request: values.InputRequested, ask: ports.Ask) -> None:
        text, error = None, None
        try:
            text = await ask(request)
        except errors.BotError as refusal:
            error = messages.error_fields(refusal)
        self._connection.send(messages.Answer(self._execution_id, question, text, error))

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
        """End as crashed: the host that ran the code is gone."""
        if not self.result.done():
            finished = values.Finished(
                values.Ending.CRASHED, 0.0, host_words.LOST, kernel_lost=True
            )
            self.result.set_result(ports.ExecutionEnd(finished, loss_reason=host_words.LOST))

    def close(self) -> None:
        """Withdraw all open questions."""
        for task in self._answer_tasks.values():
            task.cancel()
        self._answer_tasks.clear()
