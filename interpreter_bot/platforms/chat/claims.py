"""Claims of what becomes a request: in order within a session, and once each.

A network may deliver it more than once, to more than one bot process, so it is claimed first. The
claim holds what the next process needs to handle it if this one dies before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import Any, TypeAlias, TypeVar

from interpreter_bot import values
from interpreter_bot.sessions import event_claims

_log = logging.getLogger(__name__)

_Message = TypeVar("_Message")
_Message_contra = TypeVar("_Message_contra", contravariant=True)

StartRequest: TypeAlias = Callable[[], Awaitable[None]]
"""Carries out the prepared request; returns when its answer is posted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What is claimed of a message, or of something else that becomes a request.

    Attributes:
        name: under which the current version of the message is claimed.
        key: the session of the people who wait; its messages are prepared one after the other.
        request_id: of the request that it becomes.
        content: what another process needs to handle it again; None if it must not be repeated.
        is_secret: there is a token in the content.
    """

    name: str
    key: values.SessionKey
    request_id: str
    content: Mapping[str, Any] | None = None
    is_secret: bool = False


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
        self._network_name = network
        self._events = events
        self._spawn = spawn
        self._locks: weakref.WeakValueDictionary[Hashable, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    def lock_of(self, place: Hashable) -> asyncio.Lock:
        """Return the lock of a place, first come, first served; unused ones take no memory."""
        return self._locks.setdefault(place, asyncio.Lock())

    async def handle(
        self,
        envelope: Envelope,
        prepare: Callable[[], Awaitable[StartRequest | None]],
        *,
        is_claimed: bool = False,
    ) -> bool:
        """Claim, prepare and start an event at its turn; False if another bot claimed it."""
        async with contextlib.AsyncExitStack() as stack, self.lock_of(envelope.key):
            if not is_claimed and not await self.claim(envelope):
                return False
            await stack.enter_async_context(self._events.settled(self._network_name, envelope.name))
            start = await prepare()
            claim_scope = stack.pop_all()
        await self.start(claim_scope, start, envelope.name)
        return True

    async def claim(self, envelope: Envelope) -> bool:
        """Claim an event; False if a bot did before."""
        return await self._events.claim(
            self._network_name,
            envelope.name,
            key=envelope.key,
            request_id=envelope.request_id,
            content=envelope.content,
            is_secret=envelope.is_secret,
        )

    async def start(
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
