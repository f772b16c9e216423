"""Questions of turns to people, and who may answer them.

A turn asks one question at a time. Question and answer are stored until the turn asks another or
ends: a bot that takes the turn over asks under the same id, and gets an answer that came meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import cancellation, errors, events, values
from interpreter_bot.wording import question_words

if TYPE_CHECKING:
    # Code without a turn has no database.
    from interpreter_bot.store import turn_questions

_log = logging.getLogger(__name__)

_MAX_KNOWN: Final = 1_000
_ID_BITS: Final = 60
_QUESTIONS: Final[dict[str, Callable[..., events.Question]]] = {
    kind.__name__: kind for kind in (events.InputQuestion, events.ApprovalQuestion)
}
_ANSWERS: Final[dict[str, Callable[..., events.Answer]]] = {
    kind.__name__: kind
    for kind in (events.TextAnswer, events.Approved, events.Declined, events.Unanswered)
}


def question_id(turn_id: int, cell: int, origin: str, text: str) -> str:
    """Return the id of a question: the same if it is asked again by another bot.

    Args:
        turn_id: of its turn.
        cell: that it is about.
        origin: distinguishes it from other questions about the cell.
        text: the question itself, so that no answer ever counts for another text.
    """
    text = "\0".join((str(turn_id), str(cell), origin, text))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return str(int.from_bytes(digest) >> (len(digest) * 8 - _ID_BITS))


@dataclasses.dataclass(eq=False, slots=True)
class _Entry:
    """A question of a turn; it has a waiter once this bot asks it, by `emit`."""

    turn_id: int
    question: events.Question
    answer: events.Answer | None = None
    is_stored: bool = False
    waiter: asyncio.Future[events.Answer] | None = None
    emit: events.Emit = events.discard

    @property
    def is_secret(self) -> bool:
        question = self.question
        return isinstance(question, events.InputQuestion) and question.is_password


class Questions:
    """The latest question of each turn that runs."""

    def __init__(self, table: turn_questions.TurnQuestions | None = None) -> None:
        """Begin with none; without a table they end with this process."""
        self._table = table
        self._by_turn: dict[int, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}
        self._asked: Final[collections.deque[str]] = collections.deque(maxlen=_MAX_KNOWN)

    async def load(self) -> None:
        """Load the questions of turns that other bots began, so that people can answer them.

        Raises:
            StoreError: they cannot be read.
        """
        for stored in await self._table.load() if self._table else ():
            try:
                entry = _Entry(stored.turn_id, read_question(stored.question), is_stored=True)
                entry.answer = read_answer(stored.answer)
            except (KeyError, TypeError, ValueError) as error:
                # Another release wrote it. The turn asks anew.
                _log.warning("a question of turn %d cannot be read", stored.turn_id, exc_info=error)
                continue
            self._by_turn[stored.turn_id] = self._by_id[entry.question.id] = entry

    def find(self, question_id: str) -> events.Question | None:
        """Return a question that can be answered."""
        entry = self._by_id.get(question_id)
        return entry.question if entry is not None and entry.answer is None else None

    def open_in(self, session: values.SessionKey, person: str) -> tuple[events.Question, ...]:
        """Return the questions to a person in a session that can be answered, the oldest first."""
        return tuple(
            entry.question
            for entry in self._by_id.values()
            if entry.answer is None
            and (entry.question.session, entry.question.person) == (session, person)
        )

    def has_asked(self, question_id: str) -> bool:
        """Return whether a question is known: it can be answered, or this process asked it."""
        return question_id in self._by_id or question_id in self._asked

    def require(
        self, question_id: str, person: str, *, is_admin: bool = False, edits: bool = False
    ) -> events.Question:
        """Return a question if a person may answer it.

        The person who asked may. An administrator may decide on approvals, except edits of the code
        and calls with that person's account.

        Raises:
            AnswerRefusedError: the person may not, or it is too late.
        """
        question = self.find(question_id)
        if question is None:
            raise errors.AnswerRefusedError(question_words.EXPIRED)
        is_open_to_admins = isinstance(question, events.ApprovalQuestion) and not (
            question.is_personal or edits
        )
        if person != question.person and not (is_admin and is_open_to_admins):
            raise errors.AnswerRefusedError(question_words.NOT_YOURS)
        if edits and isinstance(question, events.ApprovalQuestion) and not question.can_edit:
            raise errors.AnswerRefusedError(question_words.NOT_EDITABLE)
        return question

    async def answer(
        self, question_id: str, answer: events.Answer, *, person: str, is_admin: bool = False
    ) -> None:
        """Answer a question, also one that waits for the bot that takes its turn over.

        Raises:
            AnswerRefusedError: the person may not, or it is too late; the answer does not count.
            StoreError: the answer does not count, and can be tried again. `Unanswered` counts
                anyway, or else the turn would wait for ever while the database is down.
        """
        edited = answer.edited if isinstance(answer, events.Approved) else None
        question = self.require(question_id, person, is_admin=is_admin, edits=edited is not None)
        is_note = isinstance(question, events.ApprovalQuestion) and question.subject == "note"
        if is_note and len(edited or "") > values.MAX_NOTE_CHARACTERS:
            raise errors.AnswerRefusedError(
                question_words.note_too_long(len(edited or ""), values.MAX_NOTE_CHARACTERS)
            )
        entry = self._by_id[question_id]
        if entry.is_secret and (entry.waiter is None or entry.waiter.done()):
            # It would have to wait in the database. The next bot asks again.
            raise errors.AnswerRefusedError(question_words.EXPIRED)
        question = entry.question
        if isinstance(question, events.InputQuestion) and isinstance(answer, events.TextAnswer):
            answer = events.TextAnswer(question.find_choice(answer.text))
        if isinstance(answer, events.Approved):
            # Set here only, as platforms pass on what a person sent.
            answer = dataclasses.replace(answer, admin="" if person == question.person else person)
        # Shielded, as the page may close: a stored answer must also reach the turn.
        await cancellation.shielded(self._accept_answer(entry, answer))

    async def respond(
        self,
        question_id: str,
        action: str,
        text: str = "",
        *,
        person: str,
        is_admin: bool = False,
    ) -> None:
        """Answer a question by its button, or by the form that one opened; see `answer`.

        Args:
            question_id: of the question.
            action: `run`, `refuse`, a scope, a choice, or that of a button with a form.
            text: of the form.
        """
        question = self.require(question_id, person, is_admin=is_admin)
        answer: events.Answer
        match action:
            case "run":
                answer = events.Approved()
            case "refuse":
                answer = events.Declined()
            case values.FOR_SESSION:
                answer = events.Approved(scope=action)
            case _ if action.startswith(events.PICK_PREFIX):
                answer = _picked(question, int(action.removeprefix(events.PICK_PREFIX)))
            case _:
                answer = events.make_answer(question, text)
        await self.answer(question_id, answer, person=person, is_admin=is_admin)

    async def _accept_answer(self, entry: _Entry, answer: events.Answer) -> None:
        """Store an answer, unless it is secret, and pass it to the turn."""
        entry.answer, is_first = answer, False
        try:
            is_first = await self._store(entry, answer)
        finally:
            if not is_first:
                entry.answer = None
        if not is_first or self._by_id.get(entry.question.id) is not entry:
            # Another bot took an answer, or the question was withdrawn meanwhile.
            raise errors.AnswerRefusedError(question_words.EXPIRED)
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_result(answer)

    async def _store(self, entry: _Entry, answer: events.Answer) -> bool:
        """Store an answer for the next bot; return whether it is the first one."""
        if self._table is None or not entry.is_stored or entry.is_secret:
            return True
        try:
            return await self._table.answer(entry.question.id, to_document(answer))
        except errors.StoreError:
            if isinstance(answer, events.Unanswered):
                return True
            raise

    async def ask(
        self,
        question: events.Question,
        *,
        emit: events.Emit,
        turn_id: int = 0,
        is_suspended: Callable[[], bool] = lambda: False,
    ) -> events.Answer:
        """Ask, and wait for the answer. Withdrawn if this is cancelled.

        Args:
            question: what is asked.
            emit: gets the events; no question event if the answer is known already.
            turn_id: of the turn that waits.
            is_suspended: whether the next bot will ask again, so that the question stays open.
        """
        entry = self._by_id.get(question.id)
        if entry is None:
            entry = _Entry(turn_id, question)
            await self._replace(turn_id, entry)
        answer = public_answer = entry.answer
        if answer is None:
            entry.waiter, entry.emit = asyncio.get_running_loop().create_future(), emit
            emit(events.QuestionAsked(question))
            try:
                answer = public_answer = await entry.waiter
            except asyncio.CancelledError:
                if not is_suspended():
                    self._withdraw(entry)
                raise
        if entry.is_secret:
            # Stored nowhere: a host that lost the answer on its way asks again.
            self._drop(entry)
            public_answer = (
                events.TextAnswer("") if isinstance(answer, events.TextAnswer) else answer
            )
        emit(events.QuestionClosed(question, public_answer))
        return answer

    def withdraw(self, turn_id: int) -> None:
        """Close the open question of a turn, if there is one: the code that asked has ended."""
        if (entry := self._by_turn.get(turn_id)) is not None:
            self._withdraw(entry)

    def _withdraw(self, entry: _Entry) -> None:
        waiter = entry.waiter
        is_open = self._by_id.get(entry.question.id) is entry
        # By its waiter: an answer that is not stored yet may still be refused.
        if is_open and waiter is not None and (waiter.cancelled() or not waiter.done()):
            self._drop(entry)
            waiter.cancel()
            entry.emit(events.QuestionClosed(entry.question, None))

    def forget(self, turn_id: int) -> None:
        """Forget the question of a turn that has ended."""
        if (entry := self._by_turn.get(turn_id)) is not None:
            self._drop(entry)

    async def _replace(self, turn_id: int, entry: _Entry) -> None:
        """Replace the turn's former question, whose answer it has received."""
        self.forget(turn_id)
        self._by_turn[turn_id] = self._by_id[entry.question.id] = entry
        self._asked.append(entry.question.id)
        if self._table is None:
            return
        try:
            await self._table.put(turn_id, entry.question.id, to_document(entry.question))
            entry.is_stored = True
        except errors.StoreError:
            _log.exception("a question of turn %d would not survive this bot", turn_id)

    def _drop(self, entry: _Entry) -> None:
        # Its row goes with the next question of the turn, or with the turn.
        self._by_id.pop(entry.question.id, None)
        self._by_turn.pop(entry.turn_id, None)


def _picked(question: events.Question, place: int) -> events.Answer:
    if not isinstance(question, events.InputQuestion) or place >= len(question.choices):
        raise errors.AnswerRefusedError(question_words.EXPIRED)
    return events.TextAnswer(question.choices[place])


def to_document(message: events.Question | events.Answer) -> dict[str, Any]:
    """Return a question or an answer as it is stored."""
    return {"kind": type(message).__name__, **dataclasses.asdict(message)}


def read_question(document: Mapping[str, Any]) -> events.Question:
    """Read a stored question.

    Raises:
        KeyError, TypeError, ValueError: another release wrote it.
    """
    fields = dict(document)
    fields["session"] = values.SessionKey(**fields["session"])
    if "choices" in fields:
        fields["choices"] = tuple(fields["choices"])
    return _QUESTIONS[fields.pop("kind")](**fields)


def read_answer(document: Mapping[str, Any] | None) -> events.Answer | None:
    """Read a stored answer, if there is one.

    Raises:
        KeyError, TypeError, ValueError: another release wrote it.
    """
    if document is None:
        return None
    fields = dict(document)
    return _ANSWERS[fields.pop("kind")](**fields)


def outcome(answer: events.Answer | None) -> str:
    """Return how a question ended, as a sentence."""
    match answer:
        case None:
            return question_words.EXPIRED
        case events.TextAnswer():
            return question_words.ANSWERED
        case events.Unanswered(reason=reason):
            return reason
        case events.Declined():
            return question_words.DECLINED
        case events.Approved(scope=values.FOR_SESSION):
            return question_words.APPROVED_FOR_SESSION
        case events.Approved(edited=None):
            return question_words.APPROVED
    return question_words.APPROVED_AS_EDITED


def summary(question: events.Question, answer: events.Answer | None) -> str:
    """Return the question and its outcome, as a sentence."""
    if isinstance(question, events.InputQuestion) and question.is_of_model:
        text = answer.text if isinstance(answer, events.TextAnswer) else outcome(answer)
        return question_words.answered_question(question.prompt, text)
    if isinstance(question, events.InputQuestion):
        return f"{question_words.code_asked(question.prompt.strip())} {outcome(answer)}"
    return f"{question_words.title(question.subject)} {outcome(answer)}"


def printed_answer(question: events.Question, answer: events.Answer | None) -> values.Text | None:
    """Return prompt and input as they appear in the output of code, as on a terminal."""
    if not (isinstance(question, events.InputQuestion) and isinstance(answer, events.TextAnswer)):
        return None
    if question.is_of_model:
        return None
    text = "•••" if question.is_password else answer.text
    return values.Text("stdout", f"{question.prompt}{text}\n")
