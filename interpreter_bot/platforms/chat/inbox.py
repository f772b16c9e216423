"""Messages of people: in order, each once, and for whoever waits for them.

The way of a message is a line: its place in the order, whether it is for the bot, the claim, the
question that it answers, else its command or request. It may come more than once, and to more than
one bot: it is claimed before anything is done about it, with what the next bot needs to take it,
should this one die before it has begun.
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

Start: TypeAlias = Callable[[], Awaitable[None]]
"""Goes on with what is prepared, and ends when its answer stands."""
Answer: TypeAlias = Callable[[], Awaitable[bool]]
"""Answers a question of running code; False if it is not asked any more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the inbox has to know of a message, or of something else that becomes a request.

    Attributes:
        place: whose messages are prepared one after the other.
        name: by which it is claimed, as it is worded now.
        key: the session of the people who wait.
        request_id: of the request that it becomes.
        content: with which it can be taken again; None if it may have been carried out by then.
        is_addressed: it is a direct message, or mentions the bot.
        is_for_others: it mentions or replies to others.
    """

    place: Hashable
    name: str
    key: values.SessionKey
    request_id: str
    content: Mapping[str, Any] | None = None
    is_addressed: bool = False
    is_for_others: bool = False


class Receiver(Protocol[_Message_contra]):
    """A network's part of the way of its messages."""

    async def answer_of(self, message: _Message_contra, /) -> Answer | None:
        """Return what answers a question of running code with a message; None if it is none."""

    async def is_in_own_thread(self, message: _Message_contra, /) -> bool:
        """Say whether a message stands in a thread in which the bot was asked before."""

    async def why_mention(self, message: _Message_contra, /) -> str:
        """Return why messages in such a thread need a mention, as a sentence; empty if they do
        not."""

    async def tell_to_mention(self, message: _Message_contra, sentence: str, /) -> None:
        """Say that sentence in the thread."""

    async def prepare(self, message: _Message_contra, /, *, is_again: bool) -> Start | None:
        """See who may, and make a command or a request of a message; None if nothing is to do.

        Args:
            message: which is for the bot.
            is_again: a bot that is gone may have shown part of its answer.
        """

    async def refuse(self, message: _Message_contra, sentence: str, /) -> None:
        """Say to the author of a message why nothing comes of it."""


class Intake:
    """Takes events of a network: those of a place in order, each once."""

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

    async def take(
        self,
        envelope: Envelope,
        prepare: Callable[[], Awaitable[Start | None]],
        *,
        is_claimed: bool = False,
    ) -> bool:
        """Prepare an event in its order, and go on with it; False if another bot has it."""
        async with contextlib.AsyncExitStack() as stack, self.order(envelope.place):
            if not is_claimed and not await self._claim(envelope, envelope.content):
                return False
            await stack.enter_async_context(self._events.settled(self._network, envelope.name))
            start = await prepare()
            waiting = stack.pop_all()
        await self._go_on(waiting, start, envelope.name)
        return True

    async def _claim(self, envelope: Envelope, content: Mapping[str, Any] | None) -> bool:
        return await self._events.claim(
            self._network,
            envelope.name,
            key=envelope.key,
            request_id=envelope.request_id,
            content=content,
        )

    async def _go_on(
        self, waiting: contextlib.AsyncExitStack, start: Start | None, name: str
    ) -> None:
        """Go on with what was prepared; people wait for its end."""
        if start is None or self._spawn is None:
            await _within(waiting, start)
        else:
            self._spawn(_within(waiting, start), name)


async def _within(waiting: contextlib.AsyncExitStack, start: Start | None) -> None:
    async with waiting:
        if start is not None:
            await start()


class Inbox(Intake, Generic[_Message]):
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
        """Take a message if it is for the bot; False if it is, but was claimed before."""
        async with contextlib.AsyncExitStack() as stack, self.order(envelope.place):
            answer = await self._receiver.answer_of(message)
            if answer is None and not await self.is_for_bot(message, envelope):
                return True
            # An answer to Python is no request, should this bot die now.
            if not await self._claim(envelope, envelope.content if answer is None else None):
                return False
            await stack.enter_async_context(self._events.settled(self._network, envelope.name))
            if answer is not None and await answer():
                return True
            start = await self.prepare(message, is_again=False)
            waiting = stack.pop_all()
        await self._go_on(waiting, start, envelope.name)
        return True

    async def is_for_bot(
        self, message: _Message, envelope: Envelope, *, is_told: bool = True
    ) -> bool:
        """Say whether a message is for the bot; its thread is told once if it takes a mention."""
        if envelope.is_addressed:
            return True
        if envelope.is_for_others or not await self._receiver.is_in_own_thread(message):
            return False
        reason = await self._receiver.why_mention(message)
        # People may leave the thread, or settings change: it is not to be taken at a later start.
        # One that was claimed already answered a question, and only came twice.
        if reason and is_told and await self._events.claim(self._network, envelope.name):
            thread = values.text(envelope.key)
            if await self._events.claim(self._network, f"needs a mention {thread}"):
                await self._receiver.tell_to_mention(message, reason)
        return not reason

    async def prepare(self, message: _Message, *, is_again: bool) -> Start | None:
        """Prepare a message, or say why nothing comes of it: no other bot answers it."""
        try:
            return await self._receiver.prepare(message, is_again=is_again)
        except Exception as error:
            if not isinstance(error, errors.BotError):
                _log.exception("a message could not be taken")
            await self._receiver.refuse(message, run_words.error_sentence(error))
            return None
