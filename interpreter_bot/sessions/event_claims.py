"""Events of networks: exactly one of all bots takes each, and none is lost without a word.

A message is taken before anything is done about it, and a while before its turn is recorded: it is
looked up who may, what was said before, and others may be before it. A bot that is killed meanwhile
has answered nothing, and the network does not say it again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import cancellation, errors, values
from interpreter_bot.store import databases

_log = logging.getLogger(__name__)

LOST: Final = (
    "The bot was restarted before it had begun with what was said here last. Please say it again."
)


class EventClaims:
    """Claims of events, in all processes of one database."""

    def __init__(self, database: databases.Database) -> None:
        self._events = database.events

    async def claim(
        self,
        platform: str,
        event_id: str,
        *,
        key: values.SessionKey | None = None,
        request_id: str = "",
    ) -> bool:
        """Claim an event: exactly one of all callers, in any process, gets True.

        Args:
            platform: that sent it.
            event_id: among all of the platform.
            key: of the session whose people wait for an answer, until `settled`.
            request_id: of the request that it becomes.
        """
        address = values.text(key) if key is not None else ""
        return await self._events.claim(platform, event_id, address=address, request_id=request_id)

    @contextlib.asynccontextmanager
    async def settled(self, platform: str, event_id: str) -> AsyncIterator[None]:
        """Answer an event that was claimed: after the context nobody waits any more."""
        try:
            yield
        finally:
            try:
                await cancellation.shielded(self._events.settle(platform, event_id))
            except errors.StoreError:
                _log.exception("that a message was answered could not be recorded")

    async def lost(self) -> tuple[values.SessionKey, ...]:
        """Return the sessions in which bots that died had not begun with a message, each once."""
        return tuple(map(values.key, await self._events.take_orphans()))
