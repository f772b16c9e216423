"""Logins of the bot itself at MCP servers, by OAuth's client credentials. Tokens stay in memory.

The server is not asked where to send the secret: the settings name the issuer, and nothing is sent
to any other origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mcp.client.auth.extensions import client_credentials
from mcp.shared import auth

from interpreter_bot import errors, logs, settings
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import tool_words


class _TokensInMemory:
    """Tokens of one login; implements the SDK's `TokenStorage`."""

    def __init__(self, note: Callable[[Iterable[str]], None]) -> None:
        self._note = note
        self._tokens: auth.OAuthToken | None = None

    async def get_tokens(self) -> auth.OAuthToken | None:
        """Return the tokens."""
        return self._tokens

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        """Keep new tokens."""
        secrets = [text for text in (tokens.access_token, tokens.refresh_token) if text]
        logs.add_secrets(secrets, are_short_lived=True)
        self._note(secrets)
        self._tokens = tokens

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """Return nothing: the settings name the client."""
        return None

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        """Keep nothing, for the same reason."""


def provider(
    server: settings.McpServer,
    login: settings.OAuthLogin,
    environment: Mapping[str, str],
    *,
    note: Callable[[Iterable[str]], None],
) -> client_credentials.ClientCredentialsOAuthProvider:
    """Create the authenticator that adds the bot's tokens to requests.

    Args:
        server: the tokens are for it.
        login: its login in the settings.
        environment: holds the secret that `login` names.
        note: receives each secret and token, so that answers can be searched for it.

    Raises:
        SettingsError: the secret is missing.
    """
    try:
        secret = header_values.fill_variables(login.client_secret, environment)
    except header_values.VariableError as error:
        raise errors.SettingsError(tool_words.bad_setting(server.name, str(error))) from None
    logs.add_secrets([secret])
    note([secret])
    return client_credentials.ClientCredentialsOAuthProvider(
        server_url=server.url or "",
        storage=_TokensInMemory(note),
        client_id=login.client_id,
        client_secret=secret,
        issuer=login.issuer,
        scope=login.scope or None,
    )
