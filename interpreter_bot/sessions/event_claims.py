"""Events of networks: exactly one of all bots takes each, and none is lost without a word.

A message is taken before anything is done about it, and a while before its turn is recorded: it is
looked up who may, what was said before, and others may be before it. A bot that is killed meanwhile
has answered nothing, and the network does not say it again: the next bot takes it again, once, or
tells people.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import cancellation, encryption, errors, settings, values
from interpreter_bot.store import databases
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)


# People who write more are asked to say it again.
_MAX_CHARACTERS: Final = 256 * 1024
# Until it is looked again, if the database could not be used.
_LOOK_SECONDS: Final = 5.0
# The name of all that is stored of one with a token.
_ENCRYPTED: Final = "encrypted"


class LeftToNextBotError(Exception):
    """This bot ends before it has begun with an event; the next one takes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class LostEvent:
    """An event whose bot died before it had begun with it; it is claimed by this one.

    Attributes:
        key: of the session whose people wait for an answer.
        event_id: among all of its platform.
        content: what was claimed with it.
    """

    key: values.SessionKey
    event_id: str
    content: Mapping[str, Any]


HandleAgain: TypeAlias = Callable[[LostEvent], None]
"""Begins to take an event as if it had just come in, but for what had been done about it."""


class EventClaims:
    """Claims of events, in all processes of one database.

    Args:
        database: where they are recorded.
        config: the settings in effect.
        notify: notifies people.
    """

    def __init__(
        self,
        database: databases.Database,
        config: settings.Settings,
        notify: Callable[[values.SessionKey, str], Awaitable[object]],
    ) -> None:
        self._events = database.events
        self._config = config
        self._notify = notify
        self._platforms: dict[str, HandleAgain] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()

    def open_platform(self, platform: str, handle_again: HandleAgain) -> None:
        """Let events of a platform be taken again that a bot claimed which is gone.

        It is looked for them at once, and not before: a bot that is killed while it starts has
        taken none.
        """
        self._platforms[platform] = handle_again
        task = asyncio.create_task(self._look_periodically(), name=f"lost events of {platform}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Look for none any more; what is looked for just now is found."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_LOOK_SECONDS)
            for task in late:
                task.cancel()

    async def claim(
        self,
        platform: str,
        event_id: str,
        *,
        key: values.SessionKey | None = None,
        request_id: str = "",
        content: Mapping[str, Any] | None = None,
        is_secret: bool = False,
    ) -> bool:
        """Claim an event: exactly one of all callers, in any process, gets True.

        Args:
            platform: that sent it.
            event_id: among all of the platform.
            key: of the session whose people wait for an answer, until `settled`.
            request_id: of the request that it becomes.
            content: JSON with which its platform can take it again.
            is_secret: there is a token in the content, so it is stored encrypted.
        """
        address = values.text(key) if key is not None else ""
        if content is not None and len(json.dumps(content)) > _MAX_CHARACTERS:
            content = None
        if content is not None and is_secret:
            content = await self._encrypt(content)
        return await self._events.claim(
            platform, event_id, address=address, request_id=request_id, content=content
        )

    async def reclaim(self, platform: str, event_id: str) -> bool:
        """Claim an event that was claimed before; False if it was not."""
        return await self._events.reclaim(platform, event_id)

    @contextlib.asynccontextmanager
    async def settled(self, platform: str, event_id: str) -> AsyncIterator[None]:
        """Answer an event that was claimed: after the context nobody waits any more, unless it ends
        in `LeftToNextBotError`."""
        is_left = False
        try:
            yield
        except LeftToNextBotError:
            is_left = True
        finally:
            try:
                if not is_left:
                    await cancellation.shielded(self._events.settle(platform, event_id))
            except errors.StoreError:
                _log.exception("that a message was answered could not be recorded")

    async def find_lost(self) -> tuple[values.SessionKey, ...]:
        """Find the events with which bots that died had not begun, and take them again.

        Only those of platforms that are open.

        Returns:
            The sessions with any that cannot be taken again, each once: their people are told.

        Raises:
            StoreError: they cannot be looked for.
        """
        session_keys: dict[values.SessionKey, None] = {}
        for claim in await self._events.take_orphans(self._platforms):
            key, content = values.key(claim.address), await self._decrypt(claim.content)
            if content is None:
                session_keys[key] = None
                continue
            try:
                self._platforms[claim.platform](LostEvent(key, claim.event_id, content))
            except (LookupError, TypeError):
                # Another release wrote it. Those after it are ours as well by now.
                _log.warning("a message cannot be taken again", exc_info=True)
                session_keys[key] = None
        for key in session_keys:
            await self._notify(key, session_words.MESSAGE_LOST)
        return tuple(session_keys)

    async def _look_periodically(self) -> None:
        while True:
            try:
                # One after the other, so that no two platforms find the same events.
                async with self._looking:
                    await self.find_lost()
            except errors.StoreError:
                _log.exception("what a bot that died had not begun could not be looked for")
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    async def _encrypt(self, content: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what is stored of a content; None without a key, and it is not taken again."""
        try:
            ring = encryption.KeyRing.of(self._config)
            text = await asyncio.to_thread(ring.encrypt, json.dumps(content))
        except errors.SettingsError:
            _log.exception("a message cannot be taken again should this bot die now")
            return None
        return {_ENCRYPTED: text}

    async def _decrypt(self, content: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the content of what is stored; None if there is none, or its key is gone."""
        if content is None or _ENCRYPTED not in content:
            return content
        try:
            ring = encryption.KeyRing.of(self._config)
            text = await asyncio.to_thread(ring.decrypt, content[_ENCRYPTED])
        except errors.SettingsError:
            _log.exception("a message cannot be taken again")
            return None
        document: Mapping[str, Any] = json.loads(text)
        return document
