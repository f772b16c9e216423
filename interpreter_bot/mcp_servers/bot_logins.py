"""Logins of the bot itself at MCP servers, by OAuth's client credentials. Tokens stay in memory.

The settings name the issuer, so that a server cannot choose where the secret is sent.
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

    def __init__(self, add_secrets: Callable[[Iterable[str]], None]) -> None:
        self._add_secrets = add_secrets
        self._tokens: auth.OAuthToken | None = None

    async def get_tokens(self) -> auth.OAuthToken | None:
        """Return the present tokens, if any."""
        return self._tokens

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        """Keep new tokens."""
        secrets = [text for text in (tokens.access_token, tokens.refresh_token) if text]
        logs.add_secrets(secrets, are_short_lived=True)
        self._add_secrets(secrets)
        self._tokens = tokens

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """Return None, as the settings name the client."""
        return None

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        """Ignore the client, as the settings name it."""


def create_authenticator(
    server: settings.McpServer,
    login: settings.OAuthLogin,
    environment: Mapping[str, str],
    *,
    add_secrets: Callable[[Iterable[str]], None],
) -> client_credentials.ClientCredentialsOAuthProvider:
    """Create the authenticator that adds the bot's tokens to requests.

    Args:
        server: the server that the tokens are for.
        login: its login in the settings.
        environment: holds the secret that `login` names.
        add_secrets: receives each secret and token, so that they can be removed from answers.

    Raises:
        SettingsError: the secret is missing.
    """
    try:
        secret = header_values.fill_variables(login.client_secret, environment)
    except header_values.VariableError as error:
        raise errors.SettingsError(tool_words.bad_setting(server.name, str(error))) from None
    logs.add_secrets([secret])
    add_secrets([secret])
    return client_credentials.ClientCredentialsOAuthProvider(
        server_url=server.url or "",
        storage=_TokensInMemory(add_secrets),
        client_id=login.client_id,
        client_secret=secret,
        issuer=login.issuer,
        scope=login.scope or None,
    )
