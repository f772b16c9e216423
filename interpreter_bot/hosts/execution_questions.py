"""What running code asks, and who may answer it: they come and go, and the first answer counts."""

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
    """Who may answer what code asks: a follower of its execution."""

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Ask for an answer; `number` names the question."""

    def withdraw(self, number: int) -> None:
        """Take the question back: it is answered, or no longer asked."""


class Questions:
    """The questions of one execution, one after the other."""

    def __init__(self, input_seconds: float = math.inf) -> None:
        """Begin.

        Args:
            input_seconds: how long an answer is waited for while anybody could give it.
        """
        self._input_seconds = input_seconds
        self._questioners: list[Questioner] = []
        self._came_or_went = asyncio.Event()
        self._number = 0
        self._request: values.InputRequested | None = None
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, request: values.InputRequested) -> str:
        """Ask all who listen, now and later; the first answer counts.

        Raises:
            BotError: none came; the sentence says so.
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
        left = self._input_seconds
        while not answer.done() and left > 0:
            self._came_or_went.clear()
            # While nobody is there, nobody can be asked.
            timeout = left if self._questioners and left < math.inf else None
            began = time.monotonic()
            changed = asyncio.create_task(self._came_or_went.wait(), name="listeners")
            either: set[asyncio.Future[Any]] = {answer, changed}
            try:
                await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if timeout is not None:
                left -= time.monotonic() - began
        if not answer.done():
            raise errors.UnansweredError
        return answer.result()

    def answer(self, number: int, answer: str | errors.BotError) -> None:
        """Take an answer, or a refusal; one that comes too late counts for nothing."""
        if number != self._number or self._answer is None or self._answer.done():
            return
        if isinstance(answer, str):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)

    @contextlib.contextmanager
    def asking(self, questioner: Questioner) -> Iterator[None]:
        """Let somebody answer, as long as the context is open."""
        self._questioners.append(questioner)
        self._came_or_went.set()
        try:
            if self._request is not None:
                questioner.ask(self._number, self._request)
            yield
        finally:
            self._questioners.remove(questioner)
            if self._request is not None:
                questioner.withdraw(self._number)
            self._came_or_went.set()


class CallbackQuestioner:
    """Answers each question with what a callback returns; implements `Questioner`."""

    def __init__(self, questions: Questions, ask: ports.Ask) -> None:
        self._questions = questions
        self._ask = ask
        self._calling: asyncio.Task[None] | None = None

    def ask(self, number: int, request: values.InputRequested) -> None:
        """Call back."""
        self._calling = asyncio.create_task(self._call(number, request), name="answer to code")

    async def _call(self, number: int, request: values.InputRequested) -> None:
        try:
            self._questions.answer(number, await self._ask(request))
        except errors.BotError as error:
            self._questions.answer(number, error)

    def withdraw(self, number: int) -> None:
        """End the call."""
        if self._calling is not None:
            self._calling.cancel()
