"""Questions of a turn, which are answered from standard input while the turn goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from interpreter_bot import errors, events
from interpreter_bot.wording import session_words


class TakeAnswer(Protocol):
    """A function that takes the answer to a question, such as `SessionService.answer`."""

    def __call__(
        self, question_id: str, answer: events.Answer, /, *, person: str
    ) -> Awaitable[None]:
        """Take the answer."""


class QuestionTasks:
    """Reads one answer at a time, while its question is open."""

    def __init__(self, answer: TakeAnswer) -> None:
        self._answer = answer
        self._task: asyncio.Task[None] | None = None

    def begin(
        self,
        question: events.Question,
        read: Callable[[], Awaitable[events.Answer]],
    ) -> None:
        """Read an answer in a task, and forward it."""
        self._task = asyncio.create_task(
            self._forward_answer(question, read), name="answer a question"
        )

    def end(self) -> None:
        """Stop reading, as the question is closed."""
        if self._task is not None:
            self._task.cancel()

    async def _forward_answer(
        self, question: events.Question, read: Callable[[], Awaitable[events.Answer]]
    ) -> None:
        try:
            answer = await read()
        except errors.BotError as error:
            answer = events.Unanswered(str(error))
        except OSError:
            # Output that follows fails in the same way.
            answer = events.Unanswered(session_words.OUTPUT_UNWATCHED)
        # The question may just have been withdrawn.
        with contextlib.suppress(errors.AnswerRefusedError):
            try:
                await self._answer(question.id, answer, person=question.person)
            except errors.StoreError as error:
                # The person's line is consumed, so the question must not wait for it.
                unanswered = events.Unanswered(str(error))
                await self._answer(question.id, unanswered, person=question.person)
