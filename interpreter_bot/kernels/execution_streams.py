"""The message streams of one execution: its outputs, its reply, its input requests.

Every message may be hostile: messages about other requests are dropped, and a kernel that floods
the bot is slowed down, then ended. The caller limits the total time of an execution.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import outputs
from interpreter_bot.kernels.wire import clients, jupyter_messages, sockets, zmtp
from interpreter_bot.wording import run_words, tool_words

_log = logging.getLogger(__name__)

_PAUSE_EVERY_MESSAGES: Final = 16
_PAUSE_EVERY_BYTES: Final = 256 * 1024
_PAUSE_EVERY_SECONDS: Final = 0.005
_MAX_MESSAGES: Final = 100_000
# Reading the allowed number of the largest displays takes half of this.
_MAX_READING_SECONDS: Final = 4.0
_MAX_MALFORMED_MESSAGES: Final = 100
_MAX_QUESTIONS: Final = 100
_MAX_TOOL_REQUESTS: Final = 10_000
_IDLE_SECONDS: Final = 5.0
# If output was lost, the idle status may be lost, too, so wait only briefly.
_IDLE_AFTER_LOSS_SECONDS: Final = 0.5
_MAX_RENEWALS: Final = 10
# The sockets of a dying kernel close before its death is noticed.
_DEATH_SECONDS: Final = 1.0
_OUTPUT_MARK_SECONDS: Final = 1.0
_MAX_MESSAGE_MIB: Final = zmtp.MAX_BYTES // settings.MIB
_FLOOD_PAUSE_SECONDS: Final = 0.005
_MIN_FLOOD_MESSAGES: Final = 2000

Show = Callable[[values.Output], None]
Ask = Callable[[values.InputRequested], Awaitable[str]]
KillKernel = Callable[[values.Ending, str], None]
"""Ends a kernel that broke the protocol's rules, with an ending and a sentence for people."""


Install = Callable[[list[object] | str, Callable[[str], None], Ask | None], Awaitable[str]]
"""Installs packages into the kernel, and returns the answer for the guest.

Its first argument is hostile: arguments of `pip install`, or the name of a missing module. The
others show a text to the person, and ask them.
"""


async def _refuse_call() -> str:
    """Refuse a malformed tool call without asking a person."""
    return json.dumps({"error": tool_words.CALL_MALFORMED})


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
        max_bytes: int,
        input_seconds: float,
        kill: KillKernel,
        interrupt: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._show = show
        self._ask = ask
        self._install = install
        self._input_seconds = input_seconds
        self._kill = kill
        self._interrupt = interrupt
        self._request_id = ""
        self._idle_received = asyncio.Event()
        self._idle_timeout: asyncio.Timeout | None = None
        self._renewal_count = 0
        self._shown_notices: set[str] = set()
        self._message_count = 0
        self._bytes_at_pause = connection.received_bytes
        self._seconds_at_pause = connection.reading_seconds
        self._max_bytes = connection.received_bytes + max_bytes
        self._max_seconds = connection.reading_seconds + _MAX_READING_SECONDS
        self._tasks: list[asyncio.Task[None]] = []
        self._asking_since: float | None = None
        self._earlier_asking_seconds = 0.0
        self._ask_lock = asyncio.Lock()
        self._output_marks = asyncio.Semaphore(0)
        self._output_mark_seconds = _OUTPUT_MARK_SECONDS
        self._question_tasks: list[asyncio.Task[str]] = []
        self.next_answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = "aborted"
        self.namespace: outputs.VariableNames | None = None
        self.has_lost_output = False

    @property
    def is_asking(self) -> bool:
        """Whether the code waits for a person; the wait does not count as the code's time."""
        return self._asking_since is not None

    @property
    def seconds_asking(self) -> float:
        """How long people have taken to answer so far."""
        asking_since = self._asking_since
        return self._earlier_asking_seconds + (
            time.monotonic() - asking_since if asking_since is not None else 0.0
        )

    def start(self, code: str, *, is_counted: bool = True) -> asyncio.Task[None]:
        """Send the code; the returned task ends when the execution has ended.

        `is_counted` means that it is a person's cell, which gets the next number.
        """
        content = {"code": code, "silent": False, "store_history": is_counted}
        execution = asyncio.create_task(self._run(content), name="execution")
        self._tasks = [execution]
        return execution

    async def _run(self, content: dict[str, object]) -> None:
        content |= {"user_expressions": {}, "stop_on_error": True}
        content["allow_stdin"] = self._ask is not None
        # A kernel that does not read its socket delays this; the delay counts as the code's time.
        self._request_id = await self._send_request(content)
        self._tasks.append(asyncio.create_task(self._receive_output(), name="output"))
        if self._ask is not None or self._install is not None:
            self._tasks.append(asyncio.create_task(self._receive_questions(), name="input"))
        await self._wait_for_end()

    async def _send_request(self, content: dict[str, object]) -> str:
        """Send the request; if the connections are broken, try once more on new ones.

        If both attempts fail, this ends the kernel, and waits until it is cancelled.
        """
        with contextlib.suppress(sockets.LostSocket):
            return await self._connection.send("shell", "execute_request", content)
        with contextlib.suppress(sockets.LostSocket):
            await self._connection.renew()
            return await self._connection.send("shell", "execute_request", content)
        while True:
            await self._end_silent_kernel()

    async def read_remaining_output(self, seconds: float) -> None:
        """Read the remaining output of a dead kernel, until no message came for `seconds`."""
        output_task = self._tasks[1:2]
        count = -1
        while output_task and not output_task[0].done() and count != self._message_count:
            count = self._message_count
            await asyncio.wait(output_task, timeout=seconds)

    async def close(self) -> None:
        for task in (*self._tasks, *self._question_tasks):
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _receive(self, channel: clients.ChannelName) -> jupyter_messages.Message:
        """Return the next message of a channel about this execution's request."""
        malformed_count = 0
        while True:
            # Messages that are dropped count, too, as reading them takes time.
            self._message_count += 1
            if self._message_count % _PAUSE_EVERY_MESSAGES == 0 or self._needs_pause():
                await self._pause()
            try:
                return await self._connection.receive(channel, expected_parent=self._request_id)
            except jupyter_messages.ForeignMessage:
                await asyncio.sleep(0)
            except jupyter_messages.OversizedMessage:
                self._notify_once(run_words.output_too_large(_MAX_MESSAGE_MIB))
            except jupyter_messages.MalformedMessage as error:
                if isinstance(error, jupyter_messages.IntricateMessage):
                    self._notify_once(run_words.OUTPUT_TOO_COMPLEX)
                malformed_count += 1
                if malformed_count > _MAX_MALFORMED_MESSAGES:
                    self._end_kernel(run_words.MALFORMED_MESSAGES)
                    await asyncio.sleep(_IDLE_SECONDS)
            except sockets.LostSocket:
                await self._reconnect_or_end(channel)

    async def _reconnect_or_end(self, channel: clients.ChannelName) -> None:
        """Reconnect the output channel; end the kernel if another channel is lost."""
        self._renewal_count += 1
        if channel == "iopub" and self._renewal_count <= _MAX_RENEWALS:
            try:
                await self._connection.renew_output()
            except sockets.LostSocket as error:
                _log.info("a kernel's output is lost: %r", error.__cause__)
            else:
                self._notify_once(run_words.OUTPUT_LOST)
                self._expect_idle_soon()
                return
        # On another channel, reconnecting would not help: the reply goes to the old socket
        # identity.
        await self._end_silent_kernel()

    async def _end_silent_kernel(self) -> None:
        """End a kernel with broken connections, after a moment in which it may die by itself."""
        await asyncio.sleep(_DEATH_SECONDS)
        self._end_kernel(run_words.CONNECTIONS_BROKEN)
        await asyncio.sleep(_IDLE_SECONDS)

    def _expect_idle_soon(self) -> None:
        """Shorten the wait for the idle status, which may be lost."""
        if self._idle_timeout is not None:
            now = asyncio.get_running_loop().time()
            self._idle_timeout.reschedule(now + _IDLE_AFTER_LOSS_SECONDS)

    def _notify_once(self, sentence: str) -> None:
        """Show a notice about the output, each sentence at most once."""
        if sentence not in self._shown_notices:
            self._shown_notices.add(sentence)
            self._show(values.Notice(sentence))

    def _end_kernel(self, reason: str) -> None:
        self._kill(values.Ending.CRASHED, reason)

    async def _wait_for_end(self) -> None:
        while True:
            message = await self._receive("shell")
            if message.msg_type == "execute_reply":
                break
        status = message.content.get("status")
        seconds = (
            _IDLE_AFTER_LOSS_SECONDS
            if run_words.OUTPUT_LOST in self._shown_notices
            else _IDLE_SECONDS
        )
        try:
            async with asyncio.timeout(seconds) as self._idle_timeout:
                await self._idle_received.wait()
        except TimeoutError:
            self.has_lost_output = run_words.OUTPUT_LOST not in self._shown_notices
            self._notify_once(run_words.OUTPUT_LOST)
        self.namespace = outputs.read_names(message.content)
        self.status = status if isinstance(status, str) else "aborted"

    async def _receive_output(self) -> None:
        while True:
            message = await self._receive("iopub")
            if message.msg_type == "status":
                if message.content.get("execution_state") == "idle":
                    self._idle_received.set()
                continue
            if message.msg_type == "input_request":
                # The kernel sends this mark on the output channel before it asks a question.
                self._output_marks.release()
                continue
            if message.size_bytes > _PAUSE_EVERY_BYTES:
                # Decoding a large message takes long, and must not block the event loop.
                new_outputs = await asyncio.to_thread(self._read, message)
            else:
                new_outputs = self._read(message)
            started_at = time.thread_time()
            for output in new_outputs:
                self._show(output)
            self._connection.reading_seconds += time.thread_time() - started_at

    def _read(self, message: jupyter_messages.Message) -> outputs.Outputs:
        started_at = time.thread_time()
        try:
            return self._reader.read(message)
        finally:
            self._connection.reading_seconds += time.thread_time() - started_at

    def _needs_pause(self) -> bool:
        """Return whether the messages since the last pause took long to read."""
        size_bytes = self._connection.received_bytes - self._bytes_at_pause
        seconds = self._connection.reading_seconds - self._seconds_at_pause
        return size_bytes > _PAUSE_EVERY_BYTES or seconds > _PAUSE_EVERY_SECONDS

    async def _pause(self) -> None:
        """Let other tasks run, for as long as reading took; end a kernel that sends too much."""
        connection = self._connection
        size_bytes = connection.received_bytes - self._bytes_at_pause
        seconds = connection.reading_seconds - self._seconds_at_pause
        self._bytes_at_pause = connection.received_bytes
        self._seconds_at_pause = connection.reading_seconds
        if (
            self._message_count > _MAX_MESSAGES
            or connection.received_bytes > self._max_bytes
            or connection.reading_seconds > self._max_seconds
        ):
            self._end_kernel(run_words.TOO_MANY_MESSAGES)
            await asyncio.sleep(_IDLE_SECONDS)
        is_flood = self._message_count > _MIN_FLOOD_MESSAGES or size_bytes > _PAUSE_EVERY_BYTES
        await asyncio.sleep(max(seconds, _FLOOD_PAUSE_SECONDS if is_flood else 0))

    async def _receive_questions(self) -> None:
        question_count = tool_request_count = 0
        while question_count < _MAX_QUESTIONS and tool_request_count < _MAX_TOOL_REQUESTS:
            message = await self._receive("stdin")
            if outputs.read_tool_request(message):
                tool_request_count += 1
            else:
                question_count += 1
                await self._wait_for_earlier_output()
            get_answer = (
                self._find_answerer(message) if message.msg_type == "input_request" else None
            )
            if get_answer is not None and (answer := await self._answer(get_answer)) is not None:
                content: dict[str, object] = {"value": answer, "status": "ok"}
                parent = message.msg_id
                # If the channel is lost, the next receive notices and handles it.
                with contextlib.suppress(sockets.LostSocket):
                    await self._connection.send("stdin", "input_reply", content, parent_id=parent)
        self._end_kernel(run_words.TOO_MANY_QUESTIONS)

    async def _wait_for_earlier_output(self) -> None:
        """Wait until the output before a question is read: questions come by a faster channel."""
        try:
            async with asyncio.timeout(self._output_mark_seconds):
                await self._output_marks.acquire()
        except TimeoutError:
            self._output_mark_seconds = 0.0

    def _find_answerer(
        self, message: jupyter_messages.Message
    ) -> Callable[[], Awaitable[str]] | None:
        """Return a function that gets the answer to a question; None if nobody can answer."""
        prompt = message.content.get("prompt")
        request = prompt.get("install") if isinstance(prompt, dict) else None
        if isinstance(request, list | str) and self._install is not None:
            return functools.partial(self._install, request, self._print, self._ask)
        if self._ask is None:
            return None
        if request := outputs.read_tool_request(message):
            return functools.partial(
                self._ask, values.InputRequested("", False, tool_request=request)
            )
        if isinstance(prompt, dict):
            return _refuse_call
        text = outputs.clean_prompt(prompt) if isinstance(prompt, str) else ""
        is_password = message.content.get("password") is True
        return functools.partial(self._ask, values.InputRequested(text, is_password))

    def _print(self, text: str) -> None:
        self._show(values.Text("stdout", text))

    async def _answer(self, get_answer: Callable[[], Awaitable[str]]) -> str | None:
        try:
            return await self._ask_uncounted(get_answer)
        except errors.BotError as error:
            self._interrupt(str(error))
        return None

    async def ask_person(self, request: values.InputRequested) -> str:
        """Ask the person a question of the bot while code runs; the code's clock stops.

        Raises:
            KernelError: nobody can be asked, or the execution ended.
            BotError: there is no answer.
        """
        if self._ask is None or len(self._question_tasks) >= _MAX_QUESTIONS:
            raise errors.KernelError
        question_task = asyncio.create_task(
            self._ask_uncounted(functools.partial(self._ask, request))
        )
        self._question_tasks.append(question_task)
        try:
            await asyncio.wait({question_task})
        finally:
            question_task.cancel()
        if question_task.cancelled():
            raise errors.KernelError
        if isinstance(error := question_task.exception(), errors.UnansweredError):
            self._interrupt(str(error))
        return question_task.result()

    async def _ask_uncounted(self, get_answer: Callable[[], Awaitable[str]]) -> str:
        """Ask one question at a time, without counting the wait as the code's time.

        Raises:
            UnansweredError: nobody answered.
        """
        async with self._ask_lock:
            self._asking_since = time.monotonic()
            try:
                async with asyncio.timeout(self._input_seconds):
                    return await get_answer()
            except TimeoutError as error:
                raise errors.UnansweredError from error
            finally:
                self._earlier_asking_seconds = self.seconds_asking
                self._asking_since = None
                if not self.next_answer.done():
                    self.next_answer.set_result(None)
                self.next_answer = asyncio.get_running_loop().create_future()
