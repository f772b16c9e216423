"""Claims of messages and other events that become requests: in order in a session, once each.

A network may deliver an event more than once, to more than one bot process, so it is claimed first.
The claim holds what the next process needs to handle it if this one dies before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import Any, TypeAlias

from interpreter_bot import values
from interpreter_bot.sessions import event_claims

StartRequest: TypeAlias = Callable[[], Awaitable[None]]
"""Carries out the prepared request; returns when its answer is posted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The claim of an event.

    Attributes:
        event_id: of this version of a message, or of another event.
        key: the session of the people who wait; its events are prepared one after the other.
        request_id: of the request that the event becomes.
        content: what another process needs to handle it again; None if it must not be repeated.
        is_secret: there is a token in the content.
    """

    event_id: str
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
        """Take events; without `spawn`, `handle` waits until the prepared request has ended."""
        self._network_name = network
        self._events = events
        self._spawn = spawn
        self._locks: weakref.WeakValueDictionary[Hashable, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    def lock_of(self, place: Hashable) -> asyncio.Lock:
        """Return the lock of a place; a lock that nobody uses is not kept."""
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
            await stack.enter_async_context(
                self._events.settling(self._network_name, envelope.event_id)
            )
            start = await prepare()
            claim_scope = stack.pop_all()
        await self.start_prepared(claim_scope, start, envelope.event_id)
        return True

    async def claim(self, envelope: Envelope) -> bool:
        """Claim an event; False if a bot did before."""
        return await self._events.claim(
            self._network_name,
            envelope.event_id,
            key=envelope.key,
            request_id=envelope.request_id,
            content=envelope.content,
            is_secret=envelope.is_secret,
        )

    async def start_prepared(
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
