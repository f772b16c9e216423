"""Pending questions of running code, or about its approval, and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from typing import Final

_BITS: Final = 60


@dataclasses.dataclass(eq=False)
class OpenQuestion:
    """A question that waits for an answer.

    Attributes:
        number: by which buttons refer to it.
        owner: who alone may answer.
        channel_id: where it was asked.
        code: what is to be approved; None for `input()`.
        is_password: the answer is not to be repeated.
        answer: becomes what was answered; None refuses.
    """

    number: int
    owner: int
    channel_id: int
    code: str | None
    is_password: bool
    answer: asyncio.Future[str | None]

    def resolve(self, answer: str | None) -> bool:
        """Answer the question; return whether it still waited."""
        if self.answer.done():
            return False
        self.answer.set_result(answer)
        return True


class Questions:
    """All pending questions."""

    def __init__(self) -> None:
        self._open: dict[int, OpenQuestion] = {}

    @contextlib.contextmanager
    def asking(
        self, owner: int, channel_id: int, *, code: str | None = None, is_password: bool = False
    ) -> Iterator[OpenQuestion]:
        """Register a question inside the context."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        # Random, so that no button of an earlier run of the bot answers another question.
        number = secrets.randbits(_BITS)
        question = OpenQuestion(number, owner, channel_id, code, is_password, future)
        self._open[question.number] = question
        try:
            yield question
        finally:
            del self._open[question.number]
            future.cancel()

    def find(self, number: int) -> OpenQuestion | None:
        """Return a pending question."""
        return self._open.get(number)

    def for_words(self, owner: int, channel_id: int) -> OpenQuestion | None:
        """Return the `input()` that a person's message in a channel answers."""
        for question in self._open.values():
            is_theirs = question.owner == owner and question.channel_id == channel_id
            if is_theirs and question.code is None and not question.answer.done():
                return question
        return None
