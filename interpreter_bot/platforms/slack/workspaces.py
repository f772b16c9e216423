"""The workspaces the bot is in, and its token in each."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from slack_bolt.async_app import AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore

from interpreter_bot import logs
from interpreter_bot.platforms.slack import failures

_log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Workspace:
    """One installation.

    Attributes:
        team: `T…`.
        bot_user: `U…`, how people mention the bot.
        bot: `B…`, how its own messages are signed.
        enterprise: `E…`, where there is one.
    """

    team: str
    bot_user: str
    bot: str
    token: str = dataclasses.field(repr=False)
    enterprise: str = ""

    def has_written(self, message: Mapping[str, Any]) -> bool:
        """Say whether a message is the bot's own; not every server signs it with `bot_id`."""
        is_signed = bool(self.bot) and message.get("bot_id") == self.bot
        return is_signed or message.get("user") == self.bot_user


class Workspaces:
    """Finds installations: the single one of a token, or those of a store."""

    def __init__(
        self, single: Workspace | None = None, store: AsyncInstallationStore | None = None
    ) -> None:
        self._single = single
        self._store = store
        self._known: dict[str, tuple[float, Workspace]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._gone: set[str] = set()
        self._removing: set[str] = set()
        self._left: collections.Counter[str] = collections.Counter()

    async def get(self, team: str, enterprise: str = "") -> Workspace:
        """Find an installation.

        Raises:
            GoneError: there is none.
        """
        if self._single is not None:
            if self._single.team in self._gone:
                raise failures.GoneError("login", "account_inactive")
            return self._single
        # One after the other, also where it is known by then: so events keep their order.
        async with self._asking.setdefault(team, asyncio.Lock()):
            seen, known = self._known.get(team, (0.0, None))
            if known is not None and time.monotonic() - seen < _FRESH_SECONDS:
                return known
            found = await self._find(team, enterprise)
            self._known[team] = (time.monotonic(), found)
            return found

    async def of(self, context: AsyncBoltContext) -> Workspace:
        """Find the installation that an event of bolt's is for.

        Raises:
            GoneError: there is none.
        """
        found = context.authorize_result
        team = (found.team_id if found else None) or context.team_id or ""
        return await self.get(team, (found.enterprise_id if found else None) or "")

    async def _find(self, team: str, enterprise: str) -> Workspace:
        if self._store is None or team in self._removing:
            raise failures.GoneError("login", "account_inactive")
        left = self._left[team]
        found = await self._store.async_find_bot(
            enterprise_id=enterprise or None, team_id=team or None
        )
        # What was read while the bot was being removed is the past.
        if found is None or left != self._left[team]:
            raise failures.GoneError("login", "account_inactive")
        self._gone.discard(team)
        logs.redact([found.bot_token])
        return Workspace(team, found.bot_user_id, found.bot_id, found.bot_token, enterprise)

    def leave(self, team: str) -> None:
        """Use the token of a workspace no more; it is dead."""
        if team not in self._gone:
            _log.warning("the bot is no longer installed in %s, or its token was revoked", team)
        self._gone.add(team)
        self._left[team] += 1
        self._known.pop(team, None)

    def has_left(self, team: str) -> bool:
        """Say whether the token of a workspace is dead."""
        return team in self._gone

    async def uninstall(self, team: str, enterprise: str = "") -> None:
        """Forget the token of a workspace for good."""
        self.leave(team)
        if self._store is None:
            return
        self._removing.add(team)
        try:
            await self._store.async_delete_all(enterprise_id=enterprise or None, team_id=team)
        finally:
            self._removing.discard(team)

    async def authorize(
        self, enterprise_id: str | None, team_id: str | None, user_id: str | None
    ) -> AuthorizeResult | None:
        """Answer bolt, without asking Slack: an event is acknowledged in time whatever it does."""
        try:
            found = await self.get(team_id or "", enterprise_id or "")
        except failures.GoneError:
            return None
        return AuthorizeResult(
            enterprise_id=found.enterprise or None,
            team_id=found.team,
            bot_user_id=found.bot_user,
            bot_id=found.bot,
            bot_token=found.token,
            user_id=user_id,
        )
