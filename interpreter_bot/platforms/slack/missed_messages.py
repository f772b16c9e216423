"""Messages that were sent while no bot was connected: looked up at start, and taken as if new.

Those of channels and threads that were used in the last day. A message that was taken before is
claimed, so it is not taken twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    message_events,
    web_api,
)

_log = logging.getLogger(__name__)

_MAX_PLACES: Final = 40
_MAX_MESSAGES: Final = 100
_RECENT_SESSIONS: Final = 200
_DAY_SECONDS: Final = 86_400.0


class MissedMessages:
    """Looks up messages for which no event came."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        messages: message_events.MessageEvents,
    ) -> None:
        self._service = shared.service
        self._workspaces = shared.workspaces
        self._api = shared.api
        self._seconds = shared.config.look_back_seconds
        self._inbox = messages.inbox

    async def catch_up(self) -> None:
        """Take the messages of the last while, oldest first.

        Raises:
            StoreError: it is not known where to look.
        """
        if not self._seconds:
            return
        since = time.time() - self._seconds
        missed: list[message_events.RawMessage] = []
        for key in await self._places():
            try:
                workspace = await self._workspaces.get(key.workspace)
                messages = await self._read(workspace, key, since)
            except web_api.WaitError as error:
                # Such as an app that may read once a minute: threads are read with what remains.
                _log.info("no more messages that were missed are looked up: %s", error)
                break
            except api_errors.SlackError as error:
                _log.info("messages that were missed cannot be looked up: %s", error)
                continue
            # An edited message that was answered before is claimed as it was worded first.
            missed += [
                message_events.RawMessage(
                    workspace, {n: v for n, v in facts.items() if n != "edited"}, key.channel
                )
                for facts in messages
                if not workspace.has_written(facts)
            ]
        missed.sort(key=lambda message: str(message.facts.get("ts")))
        await self._inbox.catch_up(missed)

    async def _places(self) -> Iterable[values.SessionKey]:
        """Return the channels and threads that were used last, each once."""
        recent = await self._service.recent("slack", None, limit=_RECENT_SESSIONS)
        places: dict[values.SessionKey, None] = {}
        for overview in recent:
            key = overview.key
            if time.time() - overview.used.timestamp() < _DAY_SECONDS:
                places.setdefault(values.SessionKey(key.platform, key.workspace, key.channel))
                places.setdefault(key)
        return list(places)[:_MAX_PLACES]

    async def _read(
        self, workspace: installations.InstalledWorkspace, key: values.SessionKey, since: float
    ) -> list[Mapping[str, Any]]:
        method = "conversations.replies" if key.thread else "conversations.history"
        answer = await self._api.call(
            workspace,
            method,
            max_seconds=2.0,
            channel=key.channel,
            ts=key.thread or None,
            oldest=f"{since:.6f}",
            limit=_MAX_MESSAGES,
        )
        messages: list[Mapping[str, Any]] = list(answer.get("messages", ()))
        # The root comes with every page of a thread.
        return [message for message in messages if str(message.get("ts", "")) > f"{since:.6f}"]
