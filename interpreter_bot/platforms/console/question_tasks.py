"""Questions of a turn that standard input answers while the turn goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from interpreter_bot import errors, events
from interpreter_bot.wording import session_words


class TakesAnswer(Protocol):
    """Takes the answer to a question, such as `SessionService.answer`."""

    def __call__(
        self, question_id: str, answer: events.Answer, /, *, person: str
    ) -> Awaitable[None]:
        """Take it."""


class QuestionTasks:
    """Reads one answer at a time, while its question is open."""

    def __init__(self, answer: TakesAnswer) -> None:
        self._answer = answer
        self._task: asyncio.Task[None] | None = None

    def begin(
        self,
        question: events.Question,
        read: Callable[[], Awaitable[events.Answer]],
    ) -> None:
        """Read an answer, and pass it on."""
        self._task = asyncio.create_task(self._pass_on(question, read), name="answer a question")

    def end(self) -> None:
        """Read no more: the question is closed."""
        if self._task is not None:
            self._task.cancel()

    async def _pass_on(
        self, question: events.Question, read: Callable[[], Awaitable[events.Answer]]
    ) -> None:
        try:
            answer = await read()
        except errors.BotError as error:
            answer = events.Unanswered(str(error))
        except OSError:
            # What comes next is told so, too.
            answer = events.Unanswered(session_words.OUTPUT_UNWATCHED)
        # The question may just have been withdrawn.
        with contextlib.suppress(errors.AnswerRefusedError):
            try:
                await self._answer(question.id, answer, person=question.person)
            except errors.StoreError as error:
                # The line is consumed and will not be written again.
                unanswered = events.Unanswered(str(error))
                await self._answer(question.id, unanswered, person=question.person)
