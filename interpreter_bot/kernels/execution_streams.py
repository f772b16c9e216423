"""The message streams of one execution: its outputs, its reply, its input requests.

Every message is hostile: foreign parents are dropped, floods are throttled and then ended, and
nothing here waits without a deadline held by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import outputs, variable_names
from interpreter_bot.kernels.wire import clients, jupyter_messages, sockets, zmtp
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

_BREATH_MESSAGES: Final = 16
_BREATH_BYTES: Final = 256 * 1024
_BREATH_READING_SECONDS: Final = 0.005
_MAX_MESSAGES: Final = 100_000
# As many displays as are shown, each of the largest size, take half of it.
_MAX_READING_SECONDS: Final = 4.0
_MAX_MALFORMED: Final = 100
_MAX_QUESTIONS: Final = 100
_MAX_TOOL_REQUESTS: Final = 10_000
_IDLE_SECONDS: Final = 5.0
# Where output is known to be lost, the idle status may be, too.
_LOST_IDLE_SECONDS: Final = 0.5
_MAX_RENEWALS: Final = 10
# A kernel that ends closes its sockets before its end is noticed.
_DEATH_SECONDS: Final = 1.0
_SHOWN_SECONDS: Final = 1.0
_LARGEST: Final = zmtp.MAX_BYTES // settings.MIB
_FLOOD_PAUSE_SECONDS: Final = 0.005
_FLOOD_MESSAGES: Final = 2000

Show = Callable[[values.Output], None]
Ask = Callable[[values.InputRequested], Awaitable[str]]
KillKernel = Callable[[values.Ending, str], None]
"""Ends a kernel that broke the protocol's rules, with an ending and a sentence for people."""


async def _refuse_call() -> str:
    """Answer a call of a tool that is too large, or none at all; no person can."""
    return json.dumps({"error": "This call is too large, or no call of a tool."})


class Install(Protocol):
    """Callback that installs packages into the kernel."""

    async def __call__(
        self, wanted: list[object] | str, *, say: Callable[[str], None], ask: Ask | None
    ) -> str:
        """Install packages; returns the answer for the guest.

        Args:
            wanted: arguments of `pip install`, or a module that was not found. Hostile.
            say: shows people what is about to be done.
            ask: asks them whether it may be done.
        """


class ExecutionStream:
    """Reader of one execution's shell, iopub and stdin messages."""

    def __init__(
        self,
        connection: clients.Client,
        reader: outputs.OutputReader,
        *,
        show: Show,
        ask: Ask | None,
        install: Install | None,
        most_bytes: int,
        input_seconds: float,
        kill: KillKernel,
        give_up: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._show = show
        self._ask = ask
        self._install = install
        self._input_seconds = input_seconds
        self._kill = kill
        self._give_up = give_up
        self._request_id = ""
        self._idle = asyncio.Event()
        self._idle_wait: asyncio.Timeout | None = None
        self._renewals = 0
        self._said: set[str] = set()
        self._heard = 0
        self._breathed_at_bytes = connection.received_bytes
        self._breathed_at_seconds = connection.reading_seconds
        self._most_bytes = connection.received_bytes + most_bytes
        self._most_seconds = connection.reading_seconds + _MAX_READING_SECONDS
        self._tasks: list[asyncio.Task[None]] = []
        self._asking_since: float | None = None
        self._seconds_asked = 0.0
        self._asking = asyncio.Lock()
        self._marks = asyncio.Semaphore(0)
        self._mark_seconds = _SHOWN_SECONDS
        self._put: list[asyncio.Task[str]] = []
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = "aborted"
        self.namespace: variable_names.VariableNames | None = None
        self.has_lost_output = False

    @property
    def is_asking(self) -> bool:
        """Whether the code waits for a person; that time is not counted as the code's."""
        return self._asking_since is not None

    @property
    def seconds_asking(self) -> float:
        """How long people have taken to answer so far."""
        since = self._asking_since
        return self._seconds_asked + (time.monotonic() - since if since is not None else 0.0)

    def start(
        self, code: str, *, is_counted: bool = True, is_silent: bool = False
    ) -> asyncio.Task[None]:
        """Send the code; the returned task ends when the execution has ended.

        Args:
            code: Python.
            is_counted: it is a cell of the person's, with the next number.
            is_silent: it runs before the kernel has its workspace, and shows nothing.
        """
        content = {"code": code, "silent": is_silent, "store_history": is_counted}
        over = asyncio.create_task(self._see_through(content), name="execution")
        self._tasks = [over]
        return over

    async def _see_through(self, content: dict[str, object]) -> None:
        content |= {"user_expressions": {}, "stop_on_error": True}
        # `echo` is no key of Jupyter's: our kernels then leave out `busy` and `execute_input`.
        content |= {"allow_stdin": self._ask is not None, "echo": False}
        # A kernel that does not read delays this, which counts as the code's time.
        self._request_id = await self._request(content)
        self._tasks.append(asyncio.create_task(self._hear_output(), name="output"))
        if self._ask is not None or self._install is not None:
            self._tasks.append(asyncio.create_task(self._hear_questions(), name="input"))
        await self._await_over()

    async def _request(self, content: dict[str, object]) -> str:
        """Send the request, on new connections if the present ones are broken.

        Raises:
            KernelLostError: both attempts failed; the kernel is being ended.
        """
        with contextlib.suppress(sockets.LostSocket):
            return await self._connection.send("shell", "execute_request", content)
        with contextlib.suppress(sockets.LostSocket):
            await self._connection.renew()
            return await self._connection.send("shell", "execute_request", content)
        await self._end_silent_kernel()
        raise errors.KernelLostError

    async def read_rest(self, seconds: float) -> None:
        """Read for a moment longer what a dead kernel had sent."""
        hearing = self._tasks[1:2]
        heard = -1
        while hearing and not hearing[0].done() and heard != self._heard:
            heard = self._heard
            await asyncio.wait(hearing, timeout=seconds)

    async def close(self) -> None:
        """Stop reading."""
        for task in (*self._tasks, *self._put):
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _next(self, name: clients.Name) -> jupyter_messages.Message:
        """Return the next message about this execution's request."""
        malformed = 0
        while True:
            # Dropped messages cost time as well.
            self._heard += 1
            if self._heard % _BREATH_MESSAGES == 0 or self._has_heard_much():
                await self._breathe()
            try:
                return await self._connection.receive(name, about=self._request_id)
            except jupyter_messages.ForeignMessage:
                await asyncio.sleep(0)
            except jupyter_messages.OversizedMessage:
                self._say(run_words.output_too_large(_LARGEST))
            except jupyter_messages.MalformedMessage as error:
                if isinstance(error, jupyter_messages.IntricateMessage):
                    self._say(run_words.OUTPUT_TOO_COMPLEX)
                malformed += 1
                if malformed > _MAX_MALFORMED:
                    self._end_kernel(run_words.MALFORMED_MESSAGES)
                    await asyncio.sleep(_IDLE_SECONDS)
            except sockets.LostSocket:
                await self._lose(name)

    async def _lose(self, name: clients.Name) -> None:
        """Reconnect after a lost channel, or end a kernel that is unusable without it."""
        self._renewals += 1
        if name == "iopub" and self._renewals <= _MAX_RENEWALS:
            try:
                await self._connection.renew_output()
            except sockets.LostSocket as error:
                _log.info("a kernel's output is lost: %r", error.__cause__)
            else:
                self._say(run_words.OUTPUT_LOST)
                self._expect_idle_soon()
                return
        # Reconnecting the other channels is in vain: replies are addressed to the former identity.
        await self._end_silent_kernel()

    async def _end_silent_kernel(self) -> None:
        """End a kernel that does not answer, unless it is about to end by itself."""
        await asyncio.sleep(_DEATH_SECONDS)
        self._end_kernel(run_words.CONNECTIONS_BROKEN)
        await asyncio.sleep(_IDLE_SECONDS)

    def _expect_idle_soon(self) -> None:
        """Shorten the wait for the idle status, which may be lost."""
        if self._idle_wait is not None:
            now = asyncio.get_running_loop().time()
            self._idle_wait.reschedule(now + _LOST_IDLE_SECONDS)

    def _say(self, sentence: str) -> None:
        """Show a notice about the output, at most once each."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._show(values.Notice(sentence))

    def _end_kernel(self, reason: str) -> None:
        self._kill(values.Ending.CRASHED, reason)

    async def _await_over(self) -> None:
        while True:
            message = await self._next("shell")
            if message.msg_type == "execute_reply":
                break
        status = message.content.get("status")
        seconds = _LOST_IDLE_SECONDS if run_words.OUTPUT_LOST in self._said else _IDLE_SECONDS
        try:
            async with asyncio.timeout(seconds) as self._idle_wait:
                await self._idle.wait()
        except TimeoutError:
            self.has_lost_output = run_words.OUTPUT_LOST not in self._said
            self._say(run_words.OUTPUT_LOST)
        self.namespace = variable_names.read(message.content)
        self.status = status if isinstance(status, str) else "aborted"

    async def _hear_output(self) -> None:
        while True:
            message = await self._next("iopub")
            if message.msg_type == "status":
                if message.content.get("execution_state") == "idle":
                    self._idle.set()
                continue
            if message.msg_type == "input_request":
                self._marks.release()  # All that was shown before that question is read.
                continue
            if message.size_bytes > _BREATH_BYTES:
                # Decoding and cleaning take long; the event loop goes on meanwhile.
                read = await asyncio.to_thread(self._read, message)
            else:
                read = self._read(message)
            began = time.thread_time()
            for output in read:
                self._show(output)
            self._connection.reading_seconds += time.thread_time() - began

    def _read(self, message: jupyter_messages.Message) -> outputs.Outputs:
        began = time.thread_time()
        try:
            return self._reader.read(message)
        finally:
            self._connection.reading_seconds += time.thread_time() - began

    def _has_heard_much(self) -> bool:
        """Return whether the messages since the last pause took long to read."""
        size_bytes = self._connection.received_bytes - self._breathed_at_bytes
        seconds = self._connection.reading_seconds - self._breathed_at_seconds
        return size_bytes > _BREATH_BYTES or seconds > _BREATH_READING_SECONDS

    async def _breathe(self) -> None:
        """Yield the event loop: the longer, the more was read and the longer that took."""
        connection = self._connection
        size_bytes = connection.received_bytes - self._breathed_at_bytes
        seconds = connection.reading_seconds - self._breathed_at_seconds
        self._breathed_at_bytes = connection.received_bytes
        self._breathed_at_seconds = connection.reading_seconds
        if (
            self._heard > _MAX_MESSAGES
            or connection.received_bytes > self._most_bytes
            or connection.reading_seconds > self._most_seconds
        ):
            self._end_kernel(run_words.TOO_MANY_MESSAGES)
            await asyncio.sleep(_IDLE_SECONDS)
        is_flood = self._heard > _FLOOD_MESSAGES or size_bytes > _BREATH_BYTES
        await asyncio.sleep(max(seconds, _FLOOD_PAUSE_SECONDS if is_flood else 0))

    async def _hear_questions(self) -> None:
        questions = tool_requests = 0
        while questions < _MAX_QUESTIONS and tool_requests < _MAX_TOOL_REQUESTS:
            message = await self._next("stdin")
            if outputs.tool_request(message):
                tool_requests += 1
            else:
                questions += 1
                await self._read_what_was_shown()
            answering = self._answering(message) if message.msg_type == "input_request" else None
            if answering is not None and (answer := await self._answer(answering)) is not None:
                content: dict[str, object] = {"value": answer, "status": "ok"}
                parent = message.msg_id
                # If it is lost, the next receive notices and handles it.
                with contextlib.suppress(sockets.LostSocket):
                    await self._connection.send("stdin", "input_reply", content, parent_id=parent)
        self._end_kernel(run_words.TOO_MANY_QUESTIONS)

    async def _read_what_was_shown(self) -> None:
        """Wait until all is read that came before a question, which comes by a shorter way."""
        try:
            async with asyncio.timeout(self._mark_seconds):
                await self._marks.acquire()
        except TimeoutError:
            self._mark_seconds = 0.0

    def _answering(self, message: jupyter_messages.Message) -> Callable[[], Awaitable[str]] | None:
        """Return what will answer a question, if anything does."""
        prompt = message.content.get("prompt")
        wanted = prompt.get("install") if isinstance(prompt, dict) else None
        if isinstance(wanted, list | str) and self._install is not None:
            return functools.partial(self._install, wanted, say=self._say_aloud, ask=self._ask)
        if self._ask is None:
            return None
        if request := outputs.tool_request(message):
            return functools.partial(
                self._ask, values.InputRequested("", False, tool_request=request)
            )
        if isinstance(prompt, dict):
            return _refuse_call
        text = outputs.prompt(prompt) if isinstance(prompt, str) else ""
        is_password = message.content.get("password") is True
        return functools.partial(self._ask, values.InputRequested(text, is_password))

    def _say_aloud(self, text: str) -> None:
        self._show(values.Text("stdout", text))

    async def _answer(self, answering: Callable[[], Awaitable[str]]) -> str | None:
        try:
            return await self._timed(answering)
        except errors.BotError as error:
            self._give_up(str(error))
        return None

    async def put(self, request: values.InputRequested) -> str:
        """Ask what the code needs to know without having asked; its time stands still.

        Raises:
            BotError: there is no answer; a KernelError: nobody can be asked (any more).
        """
        if self._ask is None or len(self._put) >= _MAX_QUESTIONS:
            raise errors.KernelError
        asking = asyncio.create_task(self._timed(functools.partial(self._ask, request)))
        self._put.append(asking)
        try:
            await asyncio.wait({asking})
        finally:
            asking.cancel()
        if asking.cancelled():
            raise errors.KernelError
        if isinstance(error := asking.exception(), errors.UnansweredError):
            self._give_up(str(error))
        return asking.result()

    async def _timed(self, answering: Callable[[], Awaitable[str]]) -> str:
        """Wait for a person, one question at a time, beside the code's time.

        Raises:
            UnansweredError: nobody answered.
        """
        async with self._asking:
            self._asking_since = time.monotonic()
            try:
                async with asyncio.timeout(self._input_seconds):
                    return await answering()
            except TimeoutError as error:
                raise errors.UnansweredError from error
            finally:
                self._seconds_asked = self.seconds_asking
                self._asking_since = None
                if not self.answered.done():
                    self.answered.set_result(None)
                self.answered = asyncio.get_running_loop().create_future()
