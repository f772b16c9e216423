"""Being installed in many workspaces through OAuth, and remembering their tokens."""

from __future__ import annotations

import logging
from typing import Any, Final, TypeAlias

from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.installation_store.sqlalchemy import AsyncSQLAlchemyInstallationStore
from slack_sdk.oauth.state_store.sqlalchemy import AsyncSQLAlchemyOAuthStateStore
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot import settings
from interpreter_bot.platforms.slack import serving

_log = logging.getLogger(__name__)

SCOPES: Final = (
    *("app_mentions:read", "assistant:write", "channels:history", "chat:write", "commands"),
    *("files:read", "files:write", "groups:history", "im:history", "im:read", "im:write"),
    *("mpim:history", "usergroups:read", "users:read"),
)
"""What the bot asks to be allowed: what it uses, and what agents need; as in the manifest."""

Engine: TypeAlias = Any
"""SQLAlchemy's `AsyncEngine`; who made it knows what it is, and only slack_sdk looks into it."""

_STATE_SECONDS: Final = 600


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
        logger=_log,
    )
    client = AsyncWebClient(base_url=slack.api_base_url)
    return AsyncOAuthFlow(client=client, logger=_log, settings=settings)
