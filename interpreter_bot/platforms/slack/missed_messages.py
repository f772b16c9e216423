"""Messages that were sent while no bot was connected: read at start, and handled as if new.

Only channels and threads that were used in the last day are read. A message that was handled before
is claimed, so it is not handled twice.
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
_MAX_RECENT_SESSIONS: Final = 200
_DAY_SECONDS: Final = 86_400.0


class MissedMessages:
    """Reads messages for which no event arrived."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        messages: message_events.MessageEvents,
    ) -> None:
        self._service = shared.service
        self._workspaces = shared.workspaces
        self._api = shared.api
        self._look_back_seconds = shared.api.timing.look_back_seconds
        self._inbox = messages.inbox

    async def catch_up(self) -> None:
        """Handle the messages of the last `look_back_seconds`, oldest first.

        Raises:
            StoreError: the recent sessions cannot be read.
        """
        since = time.time() - self._look_back_seconds
        missed_messages: list[message_events.RawMessage] = []
        for key in await self._recent_places():
            try:
                workspace = await self._workspaces.get(key.workspace)
                messages = await self._read(workspace, key, since)
            except web_api.WaitError as error:
                # Some apps may read only once a minute, and must read threads, too.
                _log.info("no more missed messages are read: %s", error)
                break
            except api_errors.SlackError as error:
                _log.info("missed messages cannot be read: %s", error)
                continue
            # Without `edited`, a message that was answered before its edit counts as claimed.
            missed_messages += [
                message_events.RawMessage(
                    workspace,
                    {name: value for name, value in message.items() if name != "edited"},
                    key.channel,
                )
                for message in messages
                if not workspace.is_author_of(message)
            ]
        missed_messages.sort(key=lambda message: str(message.content.get("ts")))
        await self._inbox.catch_up(missed_messages)

    async def _recent_places(self) -> Iterable[values.SessionKey]:
        """Return the channels and threads that were used last."""
        recent = await self._service.recent("slack", None, limit=_MAX_RECENT_SESSIONS)
        places: dict[values.SessionKey, None] = {}
        for overview in recent:
            key = overview.record.key
            if time.time() - overview.record.used.timestamp() < _DAY_SECONDS:
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
