"""Events of networks: exactly one bot handles each, and people are notified of a lost one.

A bot claims a message as soon as it arrives, some time before the turn is recorded: permissions and
recent messages are loaded first, and earlier requests may be queued. The network does not send a
message twice, so if the bot is killed in between, the next bot handles the message once, or
notifies the people of its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import cancellation, encryption, errors, settings, values
from interpreter_bot.sessions import requests
from interpreter_bot.store import databases
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)


# A longer message is not stored; if its bot dies, people are asked to send it again.
_MAX_CHARACTERS: Final = 256 * 1024
# Pause before the next search if the database could not be used.
_RETRY_SECONDS: Final = 5.0
# The only key of a stored event whose content is encrypted.
_ENCRYPTED: Final = "encrypted"


class LeftToNextBotError(Exception):
    """This bot shuts down before it begins with an event; the next bot handles it."""


@dataclasses.dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that this bot claimed because the former bot died before handling it.

    Attributes:
        key: of the session whose people wait for an answer.
        event_id: unique within its platform.
        content: the content that was claimed with it, see `EventClaims.claim`.
    """

    key: values.SessionKey
    event_id: str
    content: Mapping[str, Any]


HandleAgain: TypeAlias = Callable[[LostEvent], None]
"""Handles an event as if it had just arrived, but skips steps that were already done."""


class EventClaims:
    """Claims of events, in all processes of one database."""

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
        self._search_lock = asyncio.Lock()

    def open_platform(self, platform: str, handle_again: HandleAgain) -> None:
        """Handle a platform's lost events from now on; a search for them starts at once."""
        self._platforms[platform] = handle_again
        task = asyncio.create_task(
            self._handle_lost_with_retries(), name=f"lost events of {platform}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop searching; a search in progress may finish."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=_RETRY_SECONDS)
            for task in unfinished:
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
            event_id: unique within the platform.
            key: of the session whose people wait for an answer, until the event is settled.
            request_id: id of the request that is made of it.
            content: JSON from which its platform can handle it again.
            is_secret: the content has a token, so it is stored encrypted.
        """
        key_text = values.format_key(key) if key is not None else ""
        if content is not None and len(json.dumps(content)) > _MAX_CHARACTERS:
            content = None
        if content is not None and is_secret:
            content = await self._encrypt(content)
        return await self._events.claim(
            platform, event_id, address=key_text, request_id=request_id, content=content
        )

    async def reclaim(self, platform: str, event_id: str) -> bool:
        """Claim an event that was claimed before; False if it was not."""
        return await self._events.reclaim(platform, event_id)

    @contextlib.asynccontextmanager
    async def settling(self, platform: str, event_id: str) -> AsyncIterator[None]:
        """Settle a claimed event when the context ends, unless by `LeftToNextBotError`."""
        is_left_to_next_bot = False
        try:
            yield
        except LeftToNextBotError:
            is_left_to_next_bot = True
        finally:
            try:
                if not is_left_to_next_bot:
                    await cancellation.shielded(self._events.settle(platform, event_id))
            except errors.StoreError:
                _log.exception("could not record that a message was answered")

    @contextlib.asynccontextmanager
    async def claiming_turn(self, request: requests.Request) -> AsyncIterator[None]:
        """Claim the turn that a request resumes; settle the claim when the context ends.

        If this bot dies before all of the answer is posted, the next one finds the claim. Turns of
        schedules are not claimed: they are deleted if they have nothing to report.
        """
        if not request.resumed_turn_id or request.is_scheduled:
            yield
            return
        platform, event_id = request.key.platform, f"turn {uuid.uuid4().hex}"
        await self.claim(platform, event_id, key=request.key, request_id=request.id)
        async with self.settling(platform, event_id):
            yield

    async def handle_lost_events(self) -> tuple[values.SessionKey, ...]:
        """Handle the lost events of open platforms again; return the sessions where this fails.

        People of those sessions are notified.

        Raises:
            StoreError: the events cannot be read.
        """
        session_keys: dict[values.SessionKey, None] = {}
        for claim in await self._events.take_orphans(self._platforms):
            key, content = values.parse_key(claim.address), await self._decrypt(claim.content)
            if content is None:
                session_keys[key] = None
                continue
            try:
                self._platforms[claim.platform](LostEvent(key, claim.event_id, content))
            except Exception:
                # Such as an event that another release wrote. The other events are claimed already,
                # so they would be lost without a notice.
                _log.exception("a message cannot be handled again")
                session_keys[key] = None
        for key in session_keys:
            await self._notify(key, session_words.MESSAGE_LOST)
        return tuple(session_keys)

    async def _handle_lost_with_retries(self) -> None:
        while True:
            try:
                # Searches run one at a time, so that two of them do not find the same events.
                async with self._search_lock:
                    await self.handle_lost_events()
            except errors.StoreError:
                _log.exception("could not look for the unhandled events of dead bots")
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _encrypt(self, content: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Encrypt a content for the store; None without a key, so no bot can handle it again."""
        try:
            ring = encryption.KeyRing.from_settings(self._config)
            text = await asyncio.to_thread(ring.encrypt, json.dumps(content))
        except errors.SettingsError:
            _log.exception("a message cannot be handled again if this bot dies now")
            return None
        return {_ENCRYPTED: text}

    async def _decrypt(self, content: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Decrypt a stored content; None if there is none, or its key is gone."""
        if content is None or _ENCRYPTED not in content:
            return content
        try:
            ring = encryption.KeyRing.from_settings(self._config)
            text = await asyncio.to_thread(ring.decrypt, content[_ENCRYPTED])
        except errors.SettingsError:
            _log.exception("a message cannot be handled again")
            return None
        document: Mapping[str, Any] = json.loads(text)
        return document
