"""Registry of the questions that running code, or its approval, puts to people.

Platforms show a question and bring answers to it; what is open, whose message answers it, and that
only the first answer counts, is decided here. A question lives as long as the code that asked.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from interpreter_bot import errors
from interpreter_bot.wording import question_words

_ID_BITS: Final = 60
_MAX_KNOWN: Final = 1_000


@dataclasses.dataclass(eq=False, slots=True)
class Question:
    """A question that waits for an answer.

    Attributes:
        id: by which buttons know it; digits.
        person: who may answer; see `may_answer`.
        place: where their next message is the answer; None where no message is.
        code: what is to be approved; empty for `input()`.
        prompt: what `input()` says.
        answer: becomes what was answered, or the code that may run; None refuses.
        is_personal: the code acts with an account of the person.
    """

    id: str
    person: str
    place: Hashable
    code: str
    prompt: str
    answer: asyncio.Future[str | None]
    is_personal: bool = False

    def may_answer(self, person: str, *, is_admin: bool, edits: bool = False) -> bool:
        """Say whether a person may answer: who asked, and of code to approve an administrator,
        unless it acts with an account of who asked, or is to be other code than was asked for."""
        is_open_to_admins = bool(self.code) and not (self.is_personal or edits)
        return person == self.person or (is_admin and is_open_to_admins)

    def resolve(self, answer: str | None) -> bool:
        """Answer it; says whether it still waited."""
        if self.answer.done():
            return False
        self.answer.set_result(answer)
        return True


def _random_id() -> str:
    # By chance, so that no button of an earlier run of the bot answers another question.
    return str(secrets.randbits(_ID_BITS))


class PendingQuestions:
    """All that are open, by their ids."""

    def __init__(self, *, next_id: Callable[[], str] = _random_id) -> None:
        """Begin with none; ids are by chance if nothing makes them."""
        self._next_id = next_id
        self._open: Final[dict[str, Question]] = {}
        self._asked: Final[collections.deque[str]] = collections.deque(maxlen=_MAX_KNOWN)

    @contextlib.contextmanager
    def open(
        self,
        person: str,
        place: Hashable = None,
        *,
        code: str = "",
        prompt: str = "",
        is_personal: bool = False,
    ) -> Iterator[Question]:
        """Let a question wait, for as long as the context lasts."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        question = Question(
            self._next_id(), person, place, code, prompt, future, is_personal=is_personal
        )
        self._open[question.id] = question
        self._asked.append(question.id)
        try:
            yield question
        finally:
            del self._open[question.id]
            future.cancel()

    def find(self, question_id: str) -> Question | None:
        """Return a question that still waits."""
        question = self._open.get(question_id)
        return question if question and not question.answer.done() else None

    def require(self, question_id: str) -> Question:
        """Return a question that still waits.

        Raises:
            BotError: it does not; the sentence says so.
        """
        question = self.find(question_id)
        if question is None:
            raise errors.BotError(question_words.EXPIRED)
        return question

    def for_message(self, person: str, place: Hashable) -> Question | None:
        """Return the oldest question that somebody's message in a place answers."""
        for question in self._open.values():
            is_theirs = question.person == person and question.place == place
            if is_theirs and place is not None and not question.answer.done():
                return question
        return None

    def has_asked(self, question_id: str) -> bool:
        """Say whether this process asked that, be it open or not."""
        return question_id in self._asked
