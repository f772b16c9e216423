"""Questions of turns to people, and the check who may answer them.

A turn asks one question at a time. Question and answer are stored until the turn asks another or
ends. So a bot that takes over the turn asks under the same id, and finds an answer that came
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import cancellation, errors, events, values
from interpreter_bot.wording import question_words

if TYPE_CHECKING:
    # Code without a turn has no database.
    from interpreter_bot.store import turn_questions

_log = logging.getLogger(__name__)

_ID_BITS: Final = 60
# For so long after the end of a turn, a person may still type a password that its code asked for.
_LOST_PASSWORD_LIFETIME: Final = datetime.timedelta(days=1)
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
        cell: number of the cell that the question is about.
        origin: distinguishes the question from others about the cell.
        text: of the question, so that an answer never counts for another text.
    """
    text = "\0".join((str(turn_id), str(cell), origin, text))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return str(int.from_bytes(digest) >> (len(digest) * 8 - _ID_BITS))


@dataclasses.dataclass(eq=False, slots=True)
class _Entry:
    """A question of a turn; it has a waiter and `emit` once this bot has asked it."""

    turn_id: int
    question: events.Question
    answer: events.Answer | None = None
    is_stored: bool = False
    waiter: asyncio.Future[events.Answer] | None = None
    emit: events.Emit = events.discard

    @property
    def is_secret(self) -> bool:
        return _is_for_password(self.question)


@dataclasses.dataclass(slots=True)
class _LostPassword:
    """A password that code of dead bots asked a person for, who may still type it.

    Attributes:
        turn_ids: of the turns whose code asked.
        until: messages that were sent before this time may hold it.
    """

    turn_ids: set[int] = dataclasses.field(default_factory=set)
    until: float = 0.0


class Questions:
    """The latest question of each running turn."""

    def __init__(self, table: turn_questions.TurnQuestions | None = None) -> None:
        """Begin without questions; if there is no table, they end with this process."""
        self._table = table
        self._by_turn: dict[int, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}
        self._lost_passwords: dict[tuple[values.SessionKey, str], _LostPassword] = {}

    async def load(self) -> None:
        """Load the questions of turns that other bots began, so that people can answer them.

        Raises:
            StoreError: they cannot be read.
        """
        for stored_question in await self._table.load() if self._table else ():
            try:
                entry = _Entry(
                    stored_question.turn_id, read_question(stored_question.question), is_stored=True
                )
                entry.answer = read_answer(stored_question.answer)
            except (KeyError, TypeError, ValueError) as error:
                # Another release wrote it. The turn will ask again.
                _log.warning(
                    "a question of turn %d cannot be read", stored_question.turn_id, exc_info=error
                )
                continue
            self._by_turn[stored_question.turn_id] = self._by_id[entry.question.id] = entry
        await self._load_lost_passwords()

    async def _load_lost_passwords(self) -> None:
        """Load the questions for passwords of turns that ended with their bot; delete others."""
        if self._table is None:
            return
        now = datetime.datetime.now(datetime.UTC)
        await self._table.delete_older(now - _LOST_PASSWORD_LIFETIME)
        other_turn_ids = []
        for stored_question in await self._table.load_left_behind():
            question = None
            # Questions that another release wrote cannot be read.
            with contextlib.suppress(KeyError, TypeError, ValueError):
                question = read_question(stored_question.question)
            if question is not None and _is_for_password(question):
                self._note_lost_password(stored_question.turn_id, question)
            else:
                other_turn_ids.append(stored_question.turn_id)
        await self._delete(other_turn_ids)

    def find(self, question_id: str) -> events.Question | None:
        """Return a question that can be answered."""
        entry = self._by_id.get(question_id)
        return entry.question if entry is not None and entry.answer is None else None

    def list_open(self, session: values.SessionKey, person: str) -> tuple[events.Question, ...]:
        """Return the questions of a session that a person can answer, the oldest first."""
        return tuple(
            entry.question
            for entry in self._by_id.values()
            if entry.answer is None
            and (entry.question.session, entry.question.person) == (session, person)
        )

    def may_be_lost_password(
        self, session: values.SessionKey, person: str, *, sent_at: float
    ) -> bool:
        """Return whether a message may answer a question for a password that a dead bot asked.

        Its code has ended, but the person may have typed the password before they knew.
        """
        lost_password = self._lost_passwords.get((session, person))
        return lost_password is not None and sent_at < lost_password.until

    async def note_lost_password_refused(self, session: values.SessionKey, person: str) -> None:
        """Record that the person was told, so their messages from now on are no passwords."""
        lost_password = self._lost_passwords[session, person]
        lost_password.until = min(lost_password.until, time.time())
        await self._delete(lost_password.turn_ids)

    def _note_lost_password(self, turn_id: int, question: events.Question) -> None:
        lost_password = self._lost_passwords.setdefault(
            (question.session, question.person), _LostPassword()
        )
        lost_password.turn_ids.add(turn_id)
        lost_password.until = time.time() + _LOST_PASSWORD_LIFETIME.total_seconds()

    def require_answerable(
        self, question_id: str, person: str, *, is_admin: bool = False, is_edit: bool = False
    ) -> events.Question:
        """Return a question if a person may answer it.

        The person whose request it is may. An administrator may decide on approvals, but neither
        edit the code nor approve calls with that person's account.

        Raises:
            AnswerRefusedError: the person may not answer, or it is too late.
        """
        question = self.find(question_id)
        if question is None:
            raise errors.AnswerRefusedError(question_words.EXPIRED)
        is_open_to_admins = isinstance(question, events.ApprovalQuestion) and not (
            question.is_personal or is_edit
        )
        if person != question.person and not (is_admin and is_open_to_admins):
            raise errors.AnswerRefusedError(question_words.NOT_YOURS)
        if is_edit and isinstance(question, events.ApprovalQuestion) and not question.can_edit:
            raise errors.AnswerRefusedError(question_words.NOT_EDITABLE)
        return question

    async def answer(
        self, question_id: str, answer: events.Answer, *, person: str, is_admin: bool = False
    ) -> None:
        """Answer a question, also one whose turn no bot has taken over yet.

        Raises:
            AnswerRefusedError: the answer does not count, as the person may not answer, or it is
                too late.
            StoreError: the answer does not count, and can be tried again. `Unanswered` counts
                all the same, so that a turn does not wait for ever while the database is down.
        """
        edited = answer.edited if isinstance(answer, events.Approved) else None
        question = self.require_answerable(
            question_id, person, is_admin=is_admin, is_edit=edited is not None
        )
        is_note = isinstance(question, events.ApprovalQuestion) and question.subject == "note"
        if is_note and len(edited or "") > values.MAX_NOTE_CHARACTERS:
            raise errors.AnswerRefusedError(
                question_words.note_too_long(len(edited or ""), values.MAX_NOTE_CHARACTERS)
            )
        entry = self._by_id[question_id]
        if entry.is_secret and (entry.waiter is None or entry.waiter.done()):
            # A secret is not stored, so it cannot wait for the next bot, which asks again.
            raise errors.AnswerRefusedError(question_words.EXPIRED)
        question = entry.question
        if isinstance(question, events.InputQuestion) and isinstance(answer, events.TextAnswer):
            answer = events.TextAnswer(question.find_choice(answer.text))
        if isinstance(answer, events.Approved):
            # Platforms pass on input of people, so the administrator is set here alone.
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
        """Answer a question by a button, or by the form that a button opened; see `answer`.

        Args:
            action: the button's: `run`, `refuse`, a scope, a choice, or another if it has a form.
            text: entered into the form.
        """
        question = self.require_answerable(question_id, person, is_admin=is_admin)
        answer: events.Answer
        match action:
            case "run":
                answer = events.Approved()
            case "refuse":
                answer = events.Declined()
            case values.FOR_SESSION:
                answer = events.Approved(scope=action)
            case _ if action.startswith(events.PICK_PREFIX):
                answer = _choice_answer(question, int(action.removeprefix(events.PICK_PREFIX)))
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
        """Ask a question, and wait for its answer; cancelling this withdraws the question.

        Args:
            emit: receives the events; if the answer is known already, only the closing one.
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
            # A secret is stored nowhere. If its host does not receive it, the host asks again.
            self._drop(entry)
            public_answer = (
                events.TextAnswer("") if isinstance(answer, events.TextAnswer) else answer
            )
        emit(events.QuestionClosed(question, public_answer))
        return answer

    def withdraw(self, turn_id: int) -> None:
        """Close the open question of a turn, if there is one, as the code that asked has ended."""
        if (entry := self._by_turn.get(turn_id)) is not None:
            self._withdraw(entry)

    def _withdraw(self, entry: _Entry) -> None:
        waiter = entry.waiter
        is_open = self._by_id.get(entry.question.id) is entry
        # `entry.answer` tells nothing, as an answer that is being stored may still be refused.
        if is_open and waiter is not None and (waiter.cancelled() or not waiter.done()):
            self._drop(entry)
            waiter.cancel()
            entry.emit(events.QuestionClosed(entry.question, None))

    def forget(self, turn_id: int) -> bool:
        """Forget the question of a turn that has ended.

        Returns:
            Whether the person may still type a password for it. It then has to stay stored, so that
            later bots know.
        """
        entry = self._by_turn.get(turn_id)
        if entry is None:
            return False
        self._drop(entry)
        # A former bot asked, and this one did not ask again.
        is_lost = entry.is_secret and entry.waiter is None
        if is_lost:
            self._note_lost_password(turn_id, entry.question)
        return is_lost

    async def _delete(self, turn_ids: Collection[int]) -> None:
        """Delete the stored questions of turns that have ended."""
        if self._table is None or not turn_ids:
            return
        try:
            await self._table.delete(turn_ids)
        except errors.StoreError:
            _log.exception("questions of turns that have ended could not be deleted")

    async def _replace(self, turn_id: int, entry: _Entry) -> None:
        """Replace the turn's former question, whose answer it has received."""
        self.forget(turn_id)
        self._by_turn[turn_id] = self._by_id[entry.question.id] = entry
        if self._table is None:
            return
        try:
            await self._table.put(turn_id, entry.question.id, to_document(entry.question))
            entry.is_stored = True
        except errors.StoreError:
            _log.exception("a question of turn %d would not survive this bot", turn_id)

    def _drop(self, entry: _Entry) -> None:
        # Its row is deleted with the next question of the turn, or with the turn.
        self._by_id.pop(entry.question.id, None)
        self._by_turn.pop(entry.turn_id, None)


def _is_for_password(question: events.Question) -> bool:
    return isinstance(question, events.InputQuestion) and question.is_password


def _choice_answer(question: events.Question, index: int) -> events.Answer:
    if not isinstance(question, events.InputQuestion) or index >= len(question.choices):
        raise errors.AnswerRefusedError(question_words.EXPIRED)
    return events.TextAnswer(question.choices[index])


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


def outcome_sentence(answer: events.Answer | None) -> str:
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


def summary_sentence(question: events.Question, answer: events.Answer | None) -> str:
    """Return the question and its outcome, as a sentence."""
    if isinstance(question, events.InputQuestion) and question.is_of_model:
        text = answer.text if isinstance(answer, events.TextAnswer) else outcome_sentence(answer)
        return question_words.answered_question(question.prompt, text)
    if isinstance(question, events.InputQuestion):
        return f"{question_words.code_asked(question.prompt.strip())} {outcome_sentence(answer)}"
    return f"{question_words.title(question.subject)} {outcome_sentence(answer)}"


def printed_answer(question: events.Question, answer: events.Answer | None) -> values.Text | None:
    """Return prompt and input as they appear in the output of code, as on a terminal."""
    if not (isinstance(question, events.InputQuestion) and isinstance(answer, events.TextAnswer)):
        return None
    if question.is_of_model:
        return None
    text = "•••" if question.is_password else answer.text
    return values.Text("stdout", f"{question.prompt}{text}\n")
