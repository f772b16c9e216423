"""Being installed in many workspaces through OAuth, and remembering their tokens."""

from __future__ import annotations

import logging
from typing import Any, Final, TypeAlias

from slack_bolt.async_app import AsyncBoltRequest
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

from interpreter_bot import logs, settings
from interpreter_bot.platforms.slack import serving

_log = logging.getLogger(__name__)

SCOPES: Final = (
    *("app_mentions:read", "assistant:write", "channels:history", "chat:write", "commands"),
    *("files:read", "files:write", "groups:history", "im:history", "im:read", "im:write"),
    *("mpim:history", "usergroups:read", "users:read"),
)
"""What the bot asks to be allowed: what it uses, and what agents need; as in the manifest."""

WHOLE: Final = (
    "This bot is installed workspace by workspace, not for a whole organisation. Install it again "
    "and choose one workspace."
)
"""Said to whoever installs it for an organisation."""

Engine: TypeAlias = Any
"""SQLAlchemy's `AsyncEngine`; who made it knows what it is, and only slack_sdk looks into it."""

_STATE_SECONDS: Final = 600


class _Flow(AsyncOAuthFlow):
    """Takes no token that is for no workspace: nothing would ever come of it."""

    async def store_installation(
        self, request: AsyncBoltRequest, installation: Installation
    ) -> None:
        if installation.is_enterprise_install:
            _log.warning("refused to be installed for organisation %s", installation.enterprise_id)
            raise BoltError(WHOLE)
        logs.redact([installation.bot_token or ""])
        await super().store_installation(request, installation)


async def _refused(args: AsyncFailureArgs) -> BoltResponse:
    if str(args.error) == WHOLE:
        return BoltResponse(status=400, body=WHOLE, headers={"Content-Type": "text/plain"})
    return await args.default.failure(args)


async def _installed(args: AsyncSuccessArgs) -> BoltResponse:
    return await args.default.success(args)


async def store(slack: settings.Slack, engine: Engine) -> AsyncInstallationStore:
    """Open the store of installations."""
    installations = AsyncSQLAlchemyInstallationStore(slack.client_id, engine, logger=_log)
    await installations.create_tables()  # type: ignore[no-untyped-call]
    return installations


async def flow(
    slack: settings.Slack, engine: Engine, installations: AsyncInstallationStore
) -> AsyncOAuthFlow:
    """Make what answers the browsers of people who install the bot."""
    states = AsyncSQLAlchemyOAuthStateStore(_STATE_SECONDS, engine, logger=_log)
    await states.create_tables()  # type: ignore[no-untyped-call]
    public = slack.public_url.rstrip("/")
    settings = AsyncOAuthSettings(
        client_id=slack.client_id,
        client_secret=slack.client_secret.get_secret_value(),
        scopes=list(SCOPES),
        redirect_uri=f"{public}{serving.REDIRECT_PATH}" if public else None,
        install_path=serving.INSTALL_PATH,
        redirect_uri_path=serving.REDIRECT_PATH,
        installation_store=installations,
        state_store=states,
        callback_options=AsyncCallbackOptions(success=_installed, failure=_refused),
        logger=_log,
    )
    client = AsyncWebClient(base_url=slack.api_base_url)
    return _Flow(client=client, logger=_log, settings=settings)
