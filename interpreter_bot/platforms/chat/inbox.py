"""Messages of people, handled in order and once each.

Steps for a message: wait for its turn, check whether it is for the bot, claim it, then answer a
question with it or carry out its command or request. A network may deliver it more than once, to
more than one bot process, so it is claimed first. The claim holds what the next process needs to
handle it if this one dies before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from interpreter_bot import errors, values
from interpreter_bot.sessions import event_claims
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

_Message = TypeVar("_Message")
_Message_contra = TypeVar("_Message_contra", contravariant=True)

StartRequest: TypeAlias = Callable[[], Awaitable[None]]
"""Carries out the prepared request; returns when its answer is posted."""
Answer: TypeAlias = Callable[[], Awaitable[bool]]
"""Answers a question of running code; False if the question is closed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the inbox has to know of a message, or of something else that becomes a request.

    Attributes:
        name: under which the current version of the message is claimed.
        key: the session of the people who wait; its messages are prepared one after the other.
        request_id: of the request that it becomes.
        content: what another process needs to handle it again; None if it must not be repeated.
        is_secret: there is a token in the content.
        is_addressed: it is a direct message, or mentions the bot.
        is_for_others: it mentions or replies to others.
    """

    name: str
    key: values.SessionKey
    request_id: str
    content: Mapping[str, Any] | None = None
    is_secret: bool = False
    is_addressed: bool = False
    is_for_others: bool = False


class Receiver(Protocol[_Message_contra]):
    """The steps that each network implements."""

    async def find_answer(self, message: _Message_contra, /) -> Answer | None:
        """Return what answers a question of running code with a message; None if it is none."""

    async def is_in_own_thread(self, message: _Message_contra, /) -> bool:
        """Return whether a message stands in a thread in which the bot was asked before."""

    async def mention_reason(self, message: _Message_contra, /) -> str:
        """Return why messages in such a thread need a mention, as a sentence; empty if they do
        not."""

    async def announce_mention(self, message: _Message_contra, sentence: str, /) -> None:
        """Say that sentence in the thread."""

    async def prepare(self, message: _Message_contra, /, *, is_again: bool) -> StartRequest | None:
        """Check permission and prepare the command or request; None if there is nothing to do.

        Args:
            message: which is for the bot.
            is_again: an earlier process may have posted part of the answer.
        """

    async def refuse(self, message: _Message_contra, sentence: str, /) -> None:
        """Tell the author of a message why it is not carried out."""


class OrderedClaims:
    """Handles events of a network once each, in order within a place."""

    def __init__(
        self,
        network: str,
        events: event_claims.EventClaims,
        spawn: Callable[[Coroutine[Any, Any, None], str], object] | None = None,
    ) -> None:
        """Take events.

        Args:
            network: its name.
            events: where they are claimed.
            spawn: runs what was prepared in a task; by default it is waited for.
        """
        self._network = network
        self._events = events
        self._spawn = spawn
        self._orders: weakref.WeakValueDictionary[Hashable, asyncio.Lock]
        self._orders = weakref.WeakValueDictionary()

    def order(self, place: Hashable) -> asyncio.Lock:
        """Return the lock of a place, first come, first served; unused ones take no memory."""
        return self._orders.setdefault(place, asyncio.Lock())

    async def handle(
        self,
        envelope: Envelope,
        prepare: Callable[[], Awaitable[StartRequest | None]],
        *,
        is_claimed: bool = False,
    ) -> bool:
        """Claim, prepare and start an event at its turn; False if another bot claimed it."""
        async with contextlib.AsyncExitStack() as stack, self.order(envelope.key):
            if not is_claimed and not await self.claim(envelope):
                return False
            await stack.enter_async_context(self._events.settled(self._network, envelope.name))
            start = await prepare()
            claim_scope = stack.pop_all()
        await self._start(claim_scope, start, envelope.name)
        return True

    async def claim(self, envelope: Envelope) -> bool:
        """Claim an event; False if a bot did before."""
        return await self._events.claim(
            self._network,
            envelope.name,
            key=envelope.key,
            request_id=envelope.request_id,
            content=envelope.content,
            is_secret=envelope.is_secret,
        )

    async def _start(
        self, claim_scope: contextlib.AsyncExitStack, start: StartRequest | None, name: str
    ) -> None:
        """Start what was prepared, and settle the claim when it ends."""
        if start is None or self._spawn is None:
            await _run_within(claim_scope, start)
        else:
            self._spawn(_run_within(claim_scope, start), name)


async def _run_within(claim_scope: contextlib.AsyncExitStack, start: StartRequest | None) -> None:
    async with claim_scope:
        if start is not None:
            await start()


class Inbox(OrderedClaims, Generic[_Message]):
    """Takes the messages of a network."""

    def __init__(
        self,
        network: str,
        events: event_claims.EventClaims,
        receiver: Receiver[_Message],
        spawn: Callable[[Coroutine[Any, Any, None], str], object] | None = None,
    ) -> None:
        super().__init__(network, events, spawn)
        self._receiver = receiver

    async def receive(self, message: _Message, envelope: Envelope) -> bool:
        """Handle a message if it is for the bot; False if another process claimed it."""
        async with contextlib.AsyncExitStack() as stack, self.order(envelope.key):
            answer = await self._receiver.find_answer(message)
            if answer is None and not await self.is_for_bot(message, envelope):
                return True
            # An answer to `input()` is not a request, so the next bot must not repeat it.
            if answer is not None:
                envelope = dataclasses.replace(envelope, content=None)
            if not await self.claim(envelope):
                return False
            await stack.enter_async_context(self._events.settled(self._network, envelope.name))
            start = await self.prepare(message, is_again=False, answer=answer)
            claim_scope = stack.pop_all()
        await self._start(claim_scope, start, envelope.name)
        return True

    async def is_for_bot(
        self, message: _Message, envelope: Envelope, *, announces: bool = True
    ) -> bool:
        """Return whether a message is for the bot; if a mention is needed, announce that once."""
        if envelope.is_addressed:
            return True
        if envelope.is_for_others or not await self._receiver.is_in_own_thread(message):
            return False
        reason = await self._receiver.mention_reason(message)
        # Claimed, so that a later start does not answer it after people left or settings changed.
        # If it was claimed before, it answered a question and was delivered twice.
        if reason and announces and await self._events.claim(self._network, envelope.name):
            thread = values.text(envelope.key)
            if await self._events.claim(self._network, f"needs a mention {thread}"):
                await self._receiver.announce_mention(message, reason)
        return not reason

    async def prepare(
        self, message: _Message, *, is_again: bool, answer: Answer | None = None
    ) -> StartRequest | None:
        """Answer a question with a message, else prepare it, or tell its author why not, as no
        other bot will answer it."""
        try:
            if answer is not None and await answer():
                return None
            return await self._receiver.prepare(message, is_again=is_again)
        except Exception as error:
            if not isinstance(error, errors.BotError):
                _log.exception("a message could not be taken")
            await self._receiver.refuse(message, run_words.error_sentence(error))
            return None
