"""People's messages: which are for the bot, and what is done with them and their edits.

Steps for a message: wait for its turn, check whether it is for the bot, claim it, then answer a
question with it or carry out its command or request. An edited message is handled again, and its
answer takes the place of the old one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import cachetools

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import command_types, preferences
from interpreter_bot.platforms.chat import claims, commands, policies, transport
from interpreter_bot.sessions import event_claims, requests, session_service
from interpreter_bot.wording import question_words, run_words

_log = logging.getLogger(__name__)

_MAX_ANSWERED_IDS: Final = 1000
_MAX_EDIT_AGE_SECONDS: Final = 300.0

_Raw = TypeVar("_Raw")
_T = TypeVar("_T")
_RawContra = TypeVar("_RawContra", contravariant=True)

FindPreferences: TypeAlias = Callable[[values.SessionKey, str], Awaitable[preferences.Preferences]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Message(Generic[_T]):
    """A message of a person.

    Attributes:
        id: unique in its channel; also of the request that it becomes.
        event_id: under which it is claimed, unique in its network.
        version: differs for each edit.
        location: where it stands; messages of one session are prepared one after the other.
        session: whose questions it may answer.
        text: without the mention of the bot.
        sent_at: in wall-clock time.
        content: what the network needs to find it again; stored with the claim.
        command: the command that its text is, if any.
        replied_question_ids: of the questions that it replies to; None if it is no reply.
        is_addressed: it is a direct message, or mentions the bot.
        mentions_bot: its text mentions the bot, so it cannot answer a question.
        is_for_others: it mentions or replies to others.
        source: what else its network needs to know of it.
    """

    id: str
    event_id: str
    version: str
    location: transport.Location
    session: values.SessionKey
    person: requests.Person
    text: str
    sent_at: float
    content: Mapping[str, Any]
    command: command_types.Invocation | None = None
    replied_question_ids: frozenset[str] | None = None
    is_addressed: bool = False
    mentions_bot: bool = False
    is_for_others: bool = False
    source: _T


class Network(Protocol[_RawContra, _T]):
    """What a network knows of its messages and people."""

    async def parse(self, raw: _RawContra, /) -> Message[_T] | None:
        """Return a message as chats know it; None if no person wrote it."""

    async def find_again(self, event: event_claims.LostEvent, /) -> Message[_T] | None:
        """Return a message that an earlier process claimed, by its content; None if it is gone."""

    async def may_answer(self, message: Message[_T], question: events.InputQuestion, /) -> bool:
        """Return whether a message that replies to nothing counts as the answer to a question."""

    async def is_in_own_thread(self, message: Message[_T], /) -> bool:
        """Return whether a message stands in a thread in which the bot was asked before."""

    async def find_mention_reason(
        self, message: Message[_T], author_preferences: preferences.Preferences, /
    ) -> str:
        """Return why messages in the bot's threads need a mention of it; empty if they do not."""

    async def admit(self, message: Message[_T], /) -> Message[_T]:
        """Check the author of a message, and return it with what is known of them.

        Raises:
            NotAllowedError: they may not use the bot there.
        """

    async def make_command_place(
        self, message: Message[_T], /
    ) -> tuple[command_types.Place, commands.View]:
        """Return the place of a command in words, and what shows its result."""

    async def prepare(
        self,
        message: Message[_T],
        author_preferences: preferences.Preferences,
        /,
        *,
        code: str,
        is_edit: bool,
    ) -> claims.StartRequest | None:
        """Make a request of a message; None if there is nothing to do, which the author is told.

        Args:
            code: that its command runs; empty without one.
            is_edit: the answer replaces the one to the message before it was edited.

        Raises:
            BotError: nothing can be done; the sentence says why.
        """

    async def post_notice(self, message: Message[_T], sentence: str, /) -> None:
        """Post a sentence, which is not an answer, where a message stands."""

    async def refuse_password(self, message: Message[_T], sentence: str, /) -> None:
        """Post why a message is not passed on; it must not reach a model as context either."""

    async def refuse(self, message: Message[_T], sentence: str, /, *, is_private: bool) -> None:
        """Tell the author why a message is not answered; in private, if that is possible."""


class Inbox(claims.OrderedClaims, Generic[_Raw, _T]):
    """Takes the messages of a network."""

    def __init__(
        self,
        platform: str,
        service: session_service.SessionService,
        network: Network[_Raw, _T],
        find_preferences: FindPreferences,
        *,
        max_edit_age_seconds: float = _MAX_EDIT_AGE_SECONDS,
        spawn: Callable[..., object] | None = None,
    ) -> None:
        """Take messages.

        Args:
            max_edit_age_seconds: how long after a message its edits are answered.
            spawn: runs what was prepared in a task; without it, `receive` waits for the end.
        """
        super().__init__(platform, service.events, spawn)
        self._service = service
        self._network = network
        self._find_preferences = find_preferences
        self._max_edit_age_seconds = max_edit_age_seconds
        self._answered_ids = cachetools.LRUCache[str, None](_MAX_ANSWERED_IDS)

    async def receive(self, raw: _Raw) -> None:
        """Handle a new message if it is for the bot, and no process claimed it before."""
        message = await self._network.parse(raw)
        if message is None:
            return
        async with contextlib.AsyncExitStack() as stack, self.lock_of(message.location.session):
            question = await self._find_question(message)
            if question is None and not await self._is_for_bot(message):
                return
            envelope = self._envelope(message)
            if question is not None:
                # No content is stored, so that the next bot does not repeat the answer.
                envelope = dataclasses.replace(envelope, content=None)
            if not await self.claim(envelope):
                return
            await stack.enter_async_context(
                self._events.settling(self._network_name, message.event_id)
            )
            start = await self._prepare(message, question=question)
            claim_scope = stack.pop_all()
        await self.start_prepared(claim_scope, start, message.event_id)

    async def receive_edit(self, raw: _Raw) -> None:
        """Handle an edited message; its answer takes the place of the old one.

        Networks themselves edit messages, such as to add previews: the same words are no edit.
        """
        message = await self._network.parse(raw)
        if message is None or message.event_id in self._answered_ids:
            return
        if time.time() - message.sent_at > self._max_edit_age_seconds:
            return
        async with contextlib.AsyncExitStack() as stack, self.lock_of(message.location.session):
            if not await self._is_for_bot(message, may_announce=False):
                return
            envelope = self._envelope(message)
            # If it was not for the bot before, it is a new message.
            is_edit = not await self.claim(envelope)
            if is_edit:
                envelope = dataclasses.replace(
                    envelope, event_id=message.event_id + message.version
                )
                if not await self.claim(envelope):
                    return
            await stack.enter_async_context(
                self._events.settling(self._network_name, envelope.event_id)
            )
            start = await self._prepare(message, is_edit=is_edit)
            claim_scope = stack.pop_all()
        await self.start_prepared(claim_scope, start, envelope.event_id)

    async def receive_again(self, event: event_claims.LostEvent) -> None:
        """Handle a message that an earlier bot claimed and did not finish, as it reads now."""

        async def prepare() -> claims.StartRequest | None:
            message = await self._network.find_again(event)
            return await self._prepare(message) if message is not None else None

        envelope = claims.Envelope(event_id=event.event_id, key=event.key, request_id="")
        await self.handle(envelope, prepare, is_claimed=True)

    async def catch_up(self, missed: Iterable[_Raw]) -> None:
        """Handle messages that may have been missed; those that were not are claimed already."""
        for raw in missed:
            try:
                await self.receive(raw)
            except Exception:
                # An error with one message does not keep the others from being handled.
                _log.exception("a message that was missed could not be taken")

    async def _find_question(self, message: Message[_T]) -> events.InputQuestion | None:
        """Return the question that a message answers, by a reply or as the network judges it."""
        cannot_answer = message.mentions_bot or message.is_for_others
        for question in self._service.questions.list_open(message.session, message.person.id):
            if not isinstance(question, events.InputQuestion):
                continue
            if message.replied_question_ids is not None:
                is_answer = question.id in message.replied_question_ids
            else:
                # Also a question for a password: what is typed there must not reach a model.
                is_answer = not cannot_answer and await self._network.may_answer(message, question)
            if is_answer:
                return question
        return None

    async def _answer_question(self, message: Message[_T], question: events.InputQuestion) -> bool:
        """Answer a question with a message; return False if the message is a request instead."""
        if question.is_password:
            await self._network.refuse_password(message, question_words.NO_PASSWORDS)
            return True
        answer = events.TextAnswer(message.text)
        try:
            if not message.text:
                return False
            await self._service.questions.answer(question.id, answer, person=message.person.id)
        except errors.AnswerRefusedError:
            return False
        self._answered_ids[message.event_id] = None
        return True

    def _may_be_password(self, message: Message[_T]) -> bool:
        """Return whether a message may hold a password that code of a dead bot asked for."""
        return not message.mentions_bot and self._service.questions.may_be_lost_password(
            message.session, message.person.id, sent_at=message.sent_at
        )

    def _envelope(self, message: Message[_T]) -> claims.Envelope:
        """Return the claim of a message, with its content if it may be handled again.

        A command might be carried out twice, and passwords are stored nowhere.
        """
        is_repeatable = message.command is None and not self._may_be_password(message)
        return claims.Envelope(
            event_id=message.event_id,
            key=message.location.session,
            request_id=message.id,
            content=message.content if is_repeatable else None,
        )

    async def _is_for_bot(self, message: Message[_T], *, may_announce: bool = True) -> bool:
        """Return whether a message is for the bot; if it needs a mention, say so once a thread."""
        if message.is_addressed:
            return True
        if message.is_for_others or not await self._network.is_in_own_thread(message):
            return False
        is_stop = message.command is not None and message.command.command.name == "stop"
        if is_stop and self._service.is_busy_for(message.session, message.person.id):
            # Also in a thread of several people: it can only mean the answer to this person.
            return True
        key, person = message.location.session, message.person.id
        author_preferences = await self._find_preferences(key, person)
        reason = await self._network.find_mention_reason(message, author_preferences)
        # Claim the message: a bot that starts later must not answer it, even if mentions are no
        # longer needed then. If it was claimed, it answered a question and was delivered twice.
        if (
            reason
            and may_announce
            and await self._events.claim(self._network_name, message.event_id)
        ):
            thread = values.format_key(message.location.session)
            if await self._events.claim(self._network_name, f"needs a mention {thread}"):
                await self._network.post_notice(message, reason)
        return not reason

    async def _prepare(
        self,
        message: Message[_T],
        *,
        question: events.InputQuestion | None = None,
        is_edit: bool = False,
    ) -> claims.StartRequest | None:
        """Answer a question with a message, else prepare it, or tell its author why not."""
        async with self._refuse_on_error(message):
            if question is not None and await self._answer_question(message, question):
                return None
            if self._may_be_password(message):
                await self._network.refuse_password(message, question_words.LOST_PASSWORD)
                await self._service.questions.note_lost_password_refused(
                    message.session, message.person.id
                )
                return None
            message, code = await self._network.admit(message), ""
            if message.command is not None:
                place, view = await self._network.make_command_place(message)
                start = await commands.prepare_words(message.command, message.text, place, view)
                if isinstance(start, command_types.CodeToRun):
                    code = start.code
                elif start is not None:
                    return start
            key, person = message.location.session, message.person.id
            author_preferences = await self._find_preferences(key, person)
            start = await self._network.prepare(
                message, author_preferences, code=code, is_edit=is_edit
            )
            return start and functools.partial(self._run, message, start)
        return None

    async def _run(self, message: Message[_T], start: claims.StartRequest) -> None:
        async with self._refuse_on_error(message):
            await start()

    @contextlib.asynccontextmanager
    async def _refuse_on_error(self, message: Message[_T]) -> AsyncIterator[None]:
        """Tell the author of a message why it is not answered, as no other bot will answer it.

        If nobody may use the bot in a place, the author is told nothing.
        """
        try:
            yield
        except policies.NotHereError as error:
            _log.info("a message was refused: %s", error)
        except event_claims.LeftToNextBotError:
            raise
        except Exception as error:
            if not isinstance(error, errors.BotError):
                _log.exception("a message could not be taken")
            await self._network.refuse(
                message,
                run_words.error_sentence(error),
                is_private=isinstance(error, policies.NotAllowedError),
            )
