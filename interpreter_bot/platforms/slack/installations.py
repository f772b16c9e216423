"""Workspaces where the bot is installed, and its tokens: one of the settings, or many by OAuth."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from slack_bolt.async_app import AsyncBoltContext, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltError
from slack_bolt.oauth.async_callback_options import (
    AsyncCallbackOptions,
    AsyncFailureArgs,
    AsyncSuccessArgs,
)
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_bolt.response import BoltResponse
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.installation_store.sqlalchemy import AsyncSQLAlchemyInstallationStore
from slack_sdk.oauth.state_store.sqlalchemy import AsyncSQLAlchemyOAuthStateStore
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot import errors, logs, settings
from interpreter_bot.platforms.slack import api_errors, http_server
from interpreter_bot.wording import slack_words

_log = logging.getLogger(__name__)

_CACHE_SECONDS: Final = 300.0

SCOPES: Final = (
    *("app_mentions:read", "assistant:write", "channels:history", "channels:read", "chat:write"),
    *("commands", "files:read", "files:write", "groups:history", "groups:read", "im:history"),
    *("im:read", "im:write", "mpim:history", "mpim:read", "usergroups:read", "users:read"),
)
"""The scopes that the bot requests, as in the manifest."""
_SECRET_COLUMNS: Final = (
    *("bot_token", "bot_refresh_token", "user_token", "user_refresh_token"),
    "incoming_webhook_url",
)


class Tables(Protocol):
    """The database, for tables that slack_sdk defines.

    Attributes:
        engine: SQLAlchemy's `AsyncEngine`; only slack_sdk looks into it.
    """

    engine: Any

    async def create(self, metadata: Any, *, secrets: Collection[str] = ()) -> None:  # noqa: ANN401
        """Create missing tables, and encrypt the columns named; see `store.third_party_tables`."""


_MAX_STATE_AGE_SECONDS: Final = 600


@dataclasses.dataclass(frozen=True, slots=True)
class InstalledWorkspace:
    """One installation.

    Attributes:
        team: `T…`.
        bot_user: `U…`, by which people mention the bot.
        bot: `B…`, which signs its own messages.
        enterprise: `E…`, if there is one.
    """

    team: str
    bot_user: str
    bot: str
    token: str = dataclasses.field(repr=False)
    enterprise: str = ""

    def is_author_of(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is the bot's own; not every server signs it with `bot_id`."""
        is_signed = bool(self.bot) and message.get("bot_id") == self.bot
        return is_signed or message.get("user") == self.bot_user


class InstalledWorkspaces:
    """Finds installations: the only one, whose token is in the settings, or those of a store."""

    def __init__(
        self,
        only_workspace: InstalledWorkspace | None = None,
        store: AsyncInstallationStore | None = None,
    ) -> None:
        self._only_workspace = only_workspace
        self._store = store
        self._cache: dict[str, tuple[float, InstalledWorkspace]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._revoked_teams: set[str] = set()
        self._teams_being_removed: set[str] = set()
        self._is_lost = asyncio.Event()
        self._loss: api_errors.GoneError | None = None
        self._drop_counts: collections.Counter[str] = collections.Counter()

    async def get(self, team: str, enterprise: str = "") -> InstalledWorkspace:
        """Return an installation.

        Raises:
            GoneError: there is none.
        """
        if self._only_workspace is not None:
            if self._only_workspace.team in self._revoked_teams:
                raise self._loss or api_errors.GoneError("login", "account_inactive")
            return self._only_workspace
        # One lookup at a time, even if the workspace is cached, so that events keep their order.
        async with self._locks.setdefault(team, asyncio.Lock()):
            cached_at, cached = self._cache.get(team, (0.0, None))
            if cached is not None and time.monotonic() - cached_at < _CACHE_SECONDS:
                return cached
            workspace = await self._find(team, enterprise)
            self._cache[team] = (time.monotonic(), workspace)
            return workspace

    async def of_event(self, context: AsyncBoltContext) -> InstalledWorkspace:
        """Return the installation of an event.

        Raises:
            GoneError: there is none.
        """
        authorization = context.authorize_result
        team = (authorization.team_id if authorization else None) or context.team_id or ""
        return await self.get(team, (authorization.enterprise_id if authorization else None) or "")

    async def _find(self, team: str, enterprise: str) -> InstalledWorkspace:
        if self._store is None or team in self._teams_being_removed:
            raise api_errors.GoneError("login", "account_inactive")
        drop_count = self._drop_counts[team]
        bot = await self._store.async_find_bot(
            enterprise_id=enterprise or None, team_id=team or None
        )
        # A token read while the bot was being removed is stale.
        if bot is None or drop_count != self._drop_counts[team]:
            raise api_errors.GoneError("login", "account_inactive")
        self._revoked_teams.discard(team)
        logs.add_secrets([bot.bot_token], are_short_lived=True)
        return InstalledWorkspace(team, bot.bot_user_id, bot.bot_id, bot.bot_token, enterprise)

    def drop_token(self, team: str, reason: api_errors.GoneError) -> None:
        """Stop using the token of a workspace.

        With a store, the next event of the workspace reads the token again. Without one, the only
        workspace is lost; see `wait_for_loss`.
        """
        if team not in self._revoked_teams:
            _log.warning(
                "the bot is no longer installed in %s, or its token was revoked: %s", team, reason
            )
        self._revoked_teams.add(team)
        self._drop_counts[team] += 1
        self._cache.pop(team, None)
        if self._only_workspace is not None:
            self.report_loss(reason)

    def report_loss(self, reason: api_errors.GoneError) -> None:
        """Record that no workspace can be served any more; see `wait_for_loss`."""
        self._loss = reason
        self._is_lost.set()

    async def wait_for_loss(self) -> None:
        """Wait until the only workspace, or the connection of all of them, is lost.

        Raises:
            LostError: always.
        """
        await self._is_lost.wait()
        raise api_errors.LostError(slack_words.token_lost(self._loss))

    def is_revoked(self, team: str) -> bool:
        """Return whether the token of a workspace is no longer accepted."""
        return team in self._revoked_teams

    async def uninstall(self, team: str, enterprise: str = "") -> None:
        """Delete the token of a workspace."""
        self.drop_token(team, api_errors.GoneError("the bot", "token_revoked"))
        if self._store is None:
            return
        self._teams_being_removed.add(team)
        try:
            await self._store.async_delete_all(enterprise_id=enterprise or None, team_id=team)
        finally:
            self._teams_being_removed.discard(team)

    async def authorize(
        self, enterprise_id: str | None, team_id: str | None, user_id: str | None
    ) -> AuthorizeResult | None:
        """Authorize an event for bolt, without a call to Slack, which could take too long."""
        try:
            workspace = await self.get(team_id or "", enterprise_id or "")
        except api_errors.GoneError:
            return None
        return AuthorizeResult(
            enterprise_id=workspace.enterprise or None,
            team_id=workspace.team,
            bot_user_id=workspace.bot_user,
            bot_id=workspace.bot,
            bot_token=workspace.token,
            user_id=user_id,
        )


class _Flow(AsyncOAuthFlow):
    """An OAuth flow that refuses tokens of a whole organisation, which the bot cannot use."""

    async def store_installation(
        self, request: AsyncBoltRequest, installation: Installation
    ) -> None:
        if installation.is_enterprise_install:
            _log.warning(
                "refused an installation for the organisation %s", installation.enterprise_id
            )
            raise BoltError(slack_words.WHOLE_ORGANISATION)
        logs.add_secrets([installation.bot_token or ""])
        try:
            await super().store_installation(request, installation)
        except errors.BotError as error:
            _log.error(
                "the token of workspace %s could not be stored: %s", installation.team_id, error
            )
            raise BoltError(slack_words.TOKEN_NOT_STORED) from error


async def _answer_failure(args: AsyncFailureArgs) -> BoltResponse:
    status = {slack_words.WHOLE_ORGANISATION: 400, slack_words.TOKEN_NOT_STORED: 500}.get(
        sentence := str(args.error)
    )
    if status is not None:
        return BoltResponse(status=status, body=sentence, headers={"Content-Type": "text/plain"})
    return await args.default.failure(args)


async def _answer_success(args: AsyncSuccessArgs) -> BoltResponse:
    return await args.default.success(args)


async def open_store(config: settings.Slack, tables: Tables) -> AsyncInstallationStore:
    """Open the store of installations, whose tokens are encrypted.

    Raises:
        BotError: the database or the keys cannot be used.
    """
    installations = AsyncSQLAlchemyInstallationStore(config.client_id, tables.engine, logger=_log)
    await tables.create(installations.metadata, secrets=_SECRET_COLUMNS)
    return installations


async def make_flow(
    config: settings.Slack, tables: Tables, installations: AsyncInstallationStore
) -> AsyncOAuthFlow:
    """Make the OAuth flow that serves the browsers of people who install the bot."""
    states = AsyncSQLAlchemyOAuthStateStore(_MAX_STATE_AGE_SECONDS, tables.engine, logger=_log)
    await tables.create(states.metadata)
    public_url = config.public_url.rstrip("/")
    settings = AsyncOAuthSettings(
        client_id=config.client_id,
        client_secret=config.client_secret.get_secret_value(),
        scopes=list(SCOPES),
        redirect_uri=f"{public_url}{http_server.REDIRECT_PATH}" if public_url else None,
        install_path=http_server.INSTALL_PATH,
        redirect_uri_path=http_server.REDIRECT_PATH,
        installation_store=installations,
        state_store=states,
        callback_options=AsyncCallbackOptions(success=_answer_success, failure=_answer_failure),
        logger=_log,
    )
    client = AsyncWebClient(base_url=config.api_base_url)
    return _Flow(client=client, logger=_log, settings=settings)
