"""Hearing what a kernel says about one execution, and answering what it asks.

Everything heard is hostile: foreign parents are dropped, floods are throttled and then ended,
and nothing here waits without somebody outside holding a deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from interpreter_bot import errors, values
from interpreter_bot.kernels import connections, messages, outputs

_BREATH_MESSAGES: Final = 16
_BREATH_BYTES: Final = 256 * 1024
_MOST_MESSAGES: Final = 100_000
_MOST_MALFORMED: Final = 100
_MOST_QUESTIONS: Final = 100
_PROMPT_CHARACTERS: Final = 2000
_IDLE_SECONDS: Final = 5.0
_FLOOD_PAUSE_SECONDS: Final = 0.005
_FLOOD_MESSAGES: Final = 2000


Show = Callable[[values.Output], None]
Ask = Callable[[values.InputRequested], Awaitable[str]]


class Objection(Protocol):
    """Ends a kernel that broke the rules."""

    def __call__(self, ending: values.Ending, reason: str) -> None:
        """Take the ending and the sentence for people."""


class Listener:
    """One execution's ears."""

    def __init__(
        self,
        connection: connections.Connection,
        reader: outputs.Reader,
        *,
        show: Show,
        ask: Ask | None,
        input_seconds: float,
        object_to: Objection,
        give_up: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._show = show
        self._ask = ask
        self._input_seconds = input_seconds
        self._object_to = object_to
        self._give_up = give_up
        self._request_id = ""
        self._idle = asyncio.Event()
        self._heard = 0
        self._breathed_at_bytes = connection.received_bytes
        self._tasks: list[asyncio.Task[None]] = []
        self._asking_since: float | None = None
        self._seconds_asked = 0.0
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = "aborted"
        self.has_lost_output = False

    @property
    def is_asking(self) -> bool:
        """Whether the code waits for a person; that time is not the code's."""
        return self._asking_since is not None

    @property
    def seconds_asking(self) -> float:
        """How long people have taken to answer so far."""
        since = self._asking_since
        return self._seconds_asked + (time.monotonic() - since if since is not None else 0.0)

    async def start(self, code: str) -> asyncio.Task[None]:
        """Send the code; the task returned ends when the execution is over."""
        content: dict[str, object] = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": self._ask is not None,
            "stop_on_error": True,
        }
        self._request_id = await self._connection.send("shell", "execute_request", content)
        over = asyncio.create_task(self._await_over(), name="execution")
        self._tasks = [over, asyncio.create_task(self._hear_output(), name="output")]
        if self._ask is not None:
            self._tasks.append(asyncio.create_task(self._hear_questions(), name="input"))
        return over

    async def listen_on(self, seconds: float) -> None:
        """Listen a moment longer to a kernel that is gone."""
        hearing = self._tasks[1:2]
        heard = -1
        while hearing and not hearing[0].done() and heard != self._heard:
            heard = self._heard
            await asyncio.wait(hearing, timeout=seconds)

    async def close(self) -> None:
        """Stop listening."""
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _next(self, name: connections.Name) -> messages.Message:
        """Return the next message about our request."""
        malformed = 0
        while True:
            try:
                return await self._connection.receive(name, about=self._request_id)
            except messages.ForeignMessage:
                pass
            except messages.MalformedMessage:
                malformed += 1
                if malformed > _MOST_MALFORMED:
                    self._object("The Python process sent messages that make no sense.")
                    await asyncio.sleep(_IDLE_SECONDS)
            # What is dropped costs time as well.
            self._heard += 1
            await self._breathe()

    def _object(self, reason: str) -> None:
        self._object_to(values.Ending.CRASHED, reason)

    async def _await_over(self) -> None:
        while True:
            message = await self._next("shell")
            if message.msg_type == "execute_reply":
                break
        status = message.content.get("status")
        try:
            # A message over the size limit is lost, and an idle that went with it never comes.
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            self.has_lost_output = True
            self._show(values.Notice("Some of the output was lost on the way."))
        self.status = status if isinstance(status, str) else "aborted"

    async def _hear_output(self) -> None:
        while True:
            message = await self._next("iopub")
            self._heard += 1
            if message.msg_type == "status":
                if message.content.get("execution_state") == "idle":
                    self._idle.set()
                continue
            for output in self._reader.read(message):
                self._show(output)
            if self._heard % _BREATH_MESSAGES == 0 or self._has_heard_much():
                await self._breathe()

    def _has_heard_much(self) -> bool:
        """Say whether what came since the last breath took long to read."""
        return self._connection.received_bytes - self._breathed_at_bytes > _BREATH_BYTES

    async def _breathe(self) -> None:
        """Let others have the event loop, the longer the more was heard."""
        size_bytes = self._connection.received_bytes - self._breathed_at_bytes
        self._breathed_at_bytes = self._connection.received_bytes
        if self._heard > _MOST_MESSAGES:
            self._object("The Python process sent more messages than anyone could read.")
            await asyncio.sleep(_IDLE_SECONDS)
        is_flood = self._heard > _FLOOD_MESSAGES or size_bytes > _BREATH_BYTES
        await asyncio.sleep(_FLOOD_PAUSE_SECONDS if is_flood else 0)

    async def _hear_questions(self) -> None:
        for _ in range(_MOST_QUESTIONS):
            message = await self._next("stdin")
            if message.msg_type != "input_request" or self._ask is None:
                continue
            prompt = message.content.get("prompt")
            text = outputs.prompt(prompt)[:_PROMPT_CHARACTERS] if isinstance(prompt, str) else ""
            is_password = message.content.get("password") is True
            answer = await self._answer(self._ask, values.InputRequested(text, is_password))
            if answer is not None:
                content: dict[str, object] = {"value": answer, "status": "ok"}
                parent = message.msg_id
                await self._connection.send("stdin", "input_reply", content, parent_id=parent)
        self._object("The code asked for input more often than anyone would answer.")

    async def _answer(self, ask: Ask, request: values.InputRequested) -> str | None:
        self._asking_since = time.monotonic()
        try:
            async with asyncio.timeout(self._input_seconds):
                return await ask(request)
        except TimeoutError:
            self._give_up("The code waited for input, and nobody answered.")
        except errors.BotError as error:
            self._give_up(str(error))
        finally:
            self._seconds_asked = self.seconds_asking
            self._asking_since = None
            if not self.answered.done():
                self.answered.set_result(None)
            self.answered = asyncio.get_running_loop().create_future()
        return None
