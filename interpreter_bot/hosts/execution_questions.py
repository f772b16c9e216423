"""Questions of running code: several followers may be asked, and the first answer counts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any, Protocol

from interpreter_bot import errors, values
from interpreter_bot.hosts import ports


class Questioner(Protocol):
    """A follower of an execution who may answer the code's questions."""

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask for an answer to the question of this number."""

    def withdraw(self, number: int) -> None:
        """Withdraw the question, as it is answered or no longer asked."""


class Questions:
    """The questions of one execution, one after the other."""

    def __init__(self, input_seconds: float = math.inf) -> None:
        """Wait at most `input_seconds` for an answer, not counting time without a follower."""
        self._input_seconds = input_seconds
        self._questioners: list[Questioner] = []
        self._listeners_changed = asyncio.Event()
        self._number = 0
        self._request: values.InputRequested | None = None
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, request: values.InputRequested) -> str:
        """Ask all present and later followers, and return the first answer.

        Raises:
            BotError: no answer came in time, or the first one was a refusal.
        """
        self._number += 1
        self._request = request
        self._answer = asyncio.get_running_loop().create_future()
        try:
            for questioner in tuple(self._questioners):
                questioner.ask(self._number, request)
            return await self._await_answer(self._answer)
        finally:
            self._answer = self._request = None
            for questioner in tuple(self._questioners):
                questioner.withdraw(self._number)

    async def _await_answer(self, answer: asyncio.Future[str]) -> str:
        remaining = self._input_seconds
        while not answer.done() and remaining > 0:
            self._listeners_changed.clear()
            # Time runs only while somebody is asked.
            timeout = remaining if self._questioners and remaining < math.inf else None
            began = time.monotonic()
            change = asyncio.create_task(self._listeners_changed.wait(), name="listeners")
            either: set[asyncio.Future[Any]] = {answer, change}
            try:
                await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
            if timeout is not None:
                remaining -= time.monotonic() - began
        if not answer.done():
            raise errors.UnansweredError
        return answer.result()

    def answer(self, number: int, answer: str | errors.BotError) -> None:
        """Accept an answer or a refusal; ignore one that comes too late."""
        if number != self._number or self._answer is None or self._answer.done():
            return
        if isinstance(answer, str):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)

    @contextlib.contextmanager
    def listening(self, questioner: Questioner) -> Iterator[None]:
        """Ask a follower too, as long as the context is open."""
        self._questioners.append(questioner)
        self._listeners_changed.set()
        try:
            if self._request is not None:
                questioner.ask(self._number, self._request)
            yield
        finally:
            self._questioners.remove(questioner)
            if self._request is not None:
                questioner.withdraw(self._number)
            self._listeners_changed.set()


class CallbackQuestioner:
    """Answers each question with what a callback returns; implements `Questioner`."""

    def __init__(self, questions: Questions, ask: ports.Ask) -> None:
        self._questions = questions
        self._ask = ask
        self._call_task: asyncio.Task[None] | None = None

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Call back."""
        self._call_task = asyncio.create_task(self._call(number, request), name="answer to code")

    async def _call(self, number: int, request: values.InputRequested) -> None:
        try:
            self._questions.answer(number, await self._ask(request))
        except errors.BotError as error:
            self._questions.answer(number, error)

    def withdraw(self, number: int) -> None:
        """End the call."""
        if self._call_task is not None:
            self._call_task.cancel()
