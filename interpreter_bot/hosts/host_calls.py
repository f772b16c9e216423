"""Calls from a bot to a host process that are repeated after each reconnection.

Each implements `host_connection.Call`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_connection, host_messages, ports
from interpreter_bot.kernels import kernel_loss_reasons

_GONE: Final = f"The process that kept the Python kernel is lost. {kernel_loss_reasons.LOST}"

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
        said = {"do": "lease", "call": number, "key": key, "person": person}
        self._message: dict[str, object] = said | {"ephemeral": is_ephemeral, "epoch": epoch}

    def message(self, *, is_other_host: bool) -> dict[str, object]:
        """Lease, also from another host."""
        return dict(self._message)

    def told(self, message: Mapping[str, Any]) -> None:
        """Hear nothing: there is nothing to be said of a lease."""

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
        self.result: asyncio.Future[host_messages.KernelBeginning] = (
            asyncio.get_running_loop().create_future()
        )

    def message(self, *, is_other_host: bool) -> dict[str, object]:
        """Ask for the kernel, also another host."""
        return {"do": "kernel", "call": self._number, "lease": self._lease}

    def told(self, message: Mapping[str, Any]) -> None:
        """Take the kernel, what its start waits for, or why there is none."""
        if self.result.done():
            return
        if "error" in message:
            self.result.set_exception(host_messages.error(message["error"]))
        elif "kernel" in message:
            self._take(message["kernel"])
        elif self._waiting is not None:
            self._waiting(str(message["waits"]))

    def _take(self, told: object) -> None:
        try:
            self.result.set_result(host_messages.read(host_messages.KernelBeginning, told))
        except host_messages.MalformedError as error:
            self.result.set_exception(errors.KernelStartError(str(error)))

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
        begun: Mapping[str, object] | None,
    ) -> None:
        self._connection = connection
        self._number = number
        self._execution_id = execution_id
        self._after = after
        self._show = show
        self._ask = ask
        self._begun = begun
        self._was_said = False
        self._answering: dict[int, asyncio.Task[None]] = {}
        self.result: asyncio.Future[ports.ExecutionEnd] = asyncio.get_running_loop().create_future()

    def message(self, *, is_other_host: bool) -> dict[str, object]:
        """Begin it, and follow it from what was not received yet."""
        said: dict[str, object] = {
            "do": "follow",
            "call": self._number,
            "execution": self._execution_id,
            "after": self._after,
            "asks": self._ask is not None,
        }
        # Another host would run it a second time.
        if self._begun is not None and not (is_other_host and self._was_said):
            said |= {"do": "execute", **self._begun}
        self._was_said = True
        # A question that is still open is asked again.
        self.close()
        return said

    def told(self, message: Mapping[str, Any]) -> None:
        """Take a question of the code, or why there is nothing to follow."""
        if "error" in message:
            error = host_messages.error(message["error"])
            if isinstance(error, errors.ExecutionMissingError) and self._begun is not None:
                self.lose()
            elif not self.result.done():
                self.result.set_exception(error)
            return
        question = int(message["question"])
        if (task := self._answering.pop(question, None)) is not None:
            task.cancel()
        if "asks" in message and self._ask is not None:
            request = host_messages.read(values.InputRequested, message["asks"])
            answering = self._answer(question, request, self._ask)
            self._answering[question] = asyncio.create_task(answering, name="answer to code")

    async def _answer(self, question: int, request: values.InputRequested, ask: ports.Ask) -> None:
        said: dict[str, object] = {"do": "answer", "execution": self._execution_id}
        try:
            said["text"] = await ask(request)
        except errors.BotError as error:
            said["error"] = host_messages.error_fields(error)
        self._connection.send(said | {"question": question})

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
