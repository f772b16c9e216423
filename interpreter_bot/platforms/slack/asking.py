"""Questions that wait for people: the next message in a thread, or a button."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from typing import Final

ELSEWHERE: Final = "If several processes of this bot run, try again: another may have it."
"""For whoever answers what this process does not know of; see `Questions`."""
LATE: Final = f"That is no longer waiting. {ELSEWHERE}"
ASKS: Final = "asks"
QUESTION: Final = "question"
"""Facts in a message of ours that say: Python waits for this person's next message."""

_MOST_KNOWN: Final = 1_000


@dataclasses.dataclass(slots=True)
class Question:
    """One that is open.

    Attributes:
        id: for buttons; nobody can guess it.
        user: who may answer, besides admins where it is about leave.
        code: what waits for leave; empty for an `input()`.
        answer: what a person said, or the code that may run; None means that it may not.
    """

    id: str
    user: str
    code: str
    prompt: str
    answer: asyncio.Future[str | None]


_Thread = tuple[str, str, str]


class Questions:
    """All that are open, in this process: a restart ends the code that asked, too."""

    def __init__(self) -> None:
        self._by_thread: Final[dict[_Thread, list[Question]]] = {}
        self._by_id: Final[dict[str, Question]] = {}
        self._asked: Final[collections.deque[str]] = collections.deque(maxlen=_MOST_KNOWN)

    @contextlib.contextmanager
    def open(
        self,
        thread: _Thread | None,
        user: str,
        *,
        code: str = "",
        prompt: str = "",
    ) -> Iterator[Question]:
        """Ask; with a thread (team, channel, root), a message there is the answer as well."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        question = Question(secrets.token_urlsafe(12), user, code, prompt, future)
        self._by_id[question.id] = question
        self._asked.append(question.id)
        waiting = self._by_thread.setdefault(thread, []) if thread else []
        waiting.append(question)
        try:
            yield question
        finally:
            del self._by_id[question.id]
            waiting.remove(question)
            if thread and not waiting:
                self._by_thread.pop(thread, None)

    def waits(self, thread: _Thread, user: str) -> bool:
        """Say whether a message of somebody in a thread would be an answer."""
        return any(q.user == user and not q.answer.done() for q in self._by_thread.get(thread, ()))

    def tell(self, thread: _Thread, user: str, text: str) -> bool:
        """Take a message as the answer to the oldest question it can be for."""
        for question in self._by_thread.get(thread, ()):
            if question.user == user and not question.answer.done():
                question.answer.set_result(text)
                return True
        return False

    def is_ours(self, question_id: str) -> bool:
        """Say whether this process asked that, be it open or not."""
        return question_id in self._asked

    def get(self, question_id: str) -> Question | None:
        """Find one that is still open."""
        question = self._by_id.get(question_id)
        return question if question and not question.answer.done() else None
