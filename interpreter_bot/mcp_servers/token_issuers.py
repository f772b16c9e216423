"""OAuth authorization servers of MCP servers: discovery, registration and tokens of people.

Metadata of authorization servers is not trusted; see `http_transports`. The SDK reads and writes
the messages. Its `OAuthClientProvider` is not used: it waits in one process until the person is
back, and cannot use tokens that another process obtained.
"""

from __future__ import annotations

import logging
import re
import time
import urllib.parse
from collections.abc import Mapping
from typing import Final

import httpx2
import pydantic
from mcp.client import auth as client_auth
from mcp.client.auth import oauth2, utils
from mcp.shared import auth, auth_utils

from interpreter_bot import errors, logs, settings
from interpreter_bot.mcp_servers import http_transports
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import tool_words

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 20.0
_REFUSAL_STATUSES: Final = frozenset({400, 401, 403})
_UNKNOWN_CLIENT: Final = "invalid_client"
_FINAL_ERRORS: Final = frozenset({"invalid_grant", _UNKNOWN_CLIENT})
_VALID_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")


class TokenRefusedError(errors.BotError):
    """The authorization server refuses a code or a token.

    Attributes:
        is_final: the token is no longer valid.
    """

    def __init__(self, sentence: str, *, is_final: bool) -> None:
        super().__init__(sentence)
        self.is_final = is_final


class _RefusalBody(pydantic.BaseModel):
    error: str = ""


class Issuer(pydantic.BaseModel):
    """An authorization server, and the bot's registration there; stored with the tokens.

    Attributes:
        metadata: the authorization server's metadata.
        client: the registration of the bot.
        resource: the resource that tokens are for.
        scope: the scope of tokens.
        redirect: the URL that people are sent back to.
    """

    metadata: auth.OAuthMetadata
    client: auth.OAuthClientInformationFull
    resource: str
    scope: str | None
    redirect: str

    def login_url(self, *, challenge: str, state: str) -> str:
        """Return the URL where a person logs in."""
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self.resource,
        }
        if self.scope:
            query["scope"] = self.scope
            if "offline_access" in self.scope.split():
                query["prompt"] = "consent"
        endpoint = str(self.metadata.authorization_endpoint)
        separator = "&" if urllib.parse.urlsplit(endpoint).query else "?"
        return f"{endpoint}{separator}{urllib.parse.urlencode(query)}"


class TokenRequests:
    """Requests to the authorization server of one MCP server."""

    def __init__(self, server: settings.McpServer, environment: Mapping[str, str]) -> None:
        """Prepare requests.

        Raises:
            SettingsError: a secret is missing.
        """
        self._server = server
        self._url = server.url or ""
        login = server.oauth
        try:
            self._secret = header_values.fill_variables(
                login.client_secret if login else "", environment
            )
        except header_values.VariableError as error:
            raise errors.SettingsError(tool_words.bad_setting(server.name, str(error))) from None
        logs.add_secrets([self._secret] if self._secret else [])
        self._trusted_urls = [self._url, *([login.issuer] if login else [])]
        self._registrations: dict[tuple[str, str], auth.OAuthClientInformationFull] = {}

    async def find(self, redirect: str) -> Issuer:
        """Find the authorization server, and register the bot there if necessary.

        It sends people back to the URL `redirect`.

        Raises:
            BotError: the authorization server cannot be found or used.
        """
        async with self._http_client() as http:
            try:
                probe = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                headers = {"Accept": "application/json, text/event-stream"}
                challenge = await http.post(self._url, json=probe, headers=headers)
                resource = await self._fetch_resource_metadata(http, challenge)
                metadata = await self._fetch_metadata(http, resource)
                login = self._server.oauth
                scope = (login.scope if login else "") or utils.get_client_metadata_scopes(
                    utils.extract_scope_from_www_auth(challenge),
                    resource,
                    metadata,
                    list(auth.DEFAULT_GRANT_TYPES),
                )
                client = await self._find_registration(http, metadata, redirect, scope)
            except (httpx2.HTTPError, OSError, httpx2.InvalidURL) as error:
                _log.info("no login of %s", self._server.name, exc_info=error)
                raise errors.BotError(tool_words.login_unreachable(self._server.name)) from error
            except (client_auth.OAuthFlowError, ValueError) as error:
                # The error's text may quote secrets.
                _log.warning("no login of %s: %s", self._server.name, type(error).__name__)
                raise self._unusable_error(tool_words.MISSING_LOGIN_SERVER) from None
        server_resource_url = auth_utils.resource_url_from_server_url(self._url)
        resource_url = str(resource.resource) if resource else server_resource_url
        return Issuer(
            metadata=metadata, client=client, resource=resource_url, scope=scope, redirect=redirect
        )

    async def exchange_code(self, issuer: Issuer, code: str, verifier: str) -> auth.OAuthToken:
        """Exchange the code of a person who came back for tokens.

        Raises:
            BotError: the server gave no tokens.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": issuer.redirect,
            "code_verifier": verifier,
        }
        token = await self._request_tokens(issuer, form)
        if not (self._server.oauth and self._server.oauth.client_id):
            self._registrations[str(issuer.metadata.issuer), issuer.redirect] = issuer.client
        return token

    async def refresh(self, issuer: Issuer, token: auth.OAuthToken) -> auth.OAuthToken:
        """Exchange tokens for new ones.

        Raises:
            TokenRefusedError: the authorization server refuses these tokens.
            BotError: it gives no new tokens now.
        """
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token or ""}
        new_token = await self._request_tokens(issuer, form)
        return new_token.model_copy(
            update={"refresh_token": new_token.refresh_token or token.refresh_token}
        )

    async def revoke(self, issuer: Issuer, token: auth.OAuthToken) -> None:
        """Revoke tokens if the authorization server can; failures are only logged."""
        endpoint = issuer.metadata.revocation_endpoint
        if endpoint is None:
            return
        async with self._http_client() as http:
            try:
                form = {"token": token.refresh_token or token.access_token}
                await self._post_form(http, issuer, str(endpoint), form)
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                _log.info("a token of %s was not revoked: %r", self._server.name, error)

    def _http_client(self) -> httpx2.AsyncClient:
        transport = http_transports.PublicAddressTransport(self._trusted_urls)
        return httpx2.AsyncClient(transport=transport, timeout=_TIMEOUT_SECONDS, trust_env=False)

    def _unusable_error(self, reason: str) -> errors.BotError:
        return errors.BotError(tool_words.login_unusable(self._server.name, reason))

    async def _fetch_resource_metadata(
        self, http: httpx2.AsyncClient, challenge: httpx2.Response
    ) -> auth.ProtectedResourceMetadata | None:
        """Return the metadata of the MCP server; None if it has none, like older servers.

        Raises:
            BotError: the metadata is that of another server.
        """
        metadata_url = utils.extract_resource_metadata_from_www_auth(challenge)
        own_origin = http_transports.origin(httpx2.URL(self._url))
        for url in utils.build_protected_resource_metadata_discovery_urls(metadata_url, self._url):
            if http_transports.origin(httpx2.URL(url)) != own_origin:
                continue
            answer = await http.send(utils.create_oauth_metadata_request(url))
            metadata = await utils.handle_protected_resource_response(answer)
            if metadata is not None:
                requested = auth_utils.resource_url_from_server_url(self._url)
                if not auth_utils.check_resource_allowed(requested, str(metadata.resource)):
                    raise self._unusable_error(tool_words.OTHER_RESOURCE)
                return metadata
        return None

    async def _fetch_metadata(
        self, http: httpx2.AsyncClient, resource: auth.ProtectedResourceMetadata | None
    ) -> auth.OAuthMetadata:
        """Return the metadata of the authorization server.

        Raises:
            BotError: the authorization server cannot be used.
        """
        issuers = [str(url) for url in resource.authorization_servers] if resource else []
        if self._server.oauth is not None:
            issuer = self._server.oauth.issuer
            if issuers and not any(utils.issuers_match(issuer, other) for other in issuers):
                raise self._unusable_error(tool_words.OTHER_LOGIN_SERVER)
        elif issuers:
            issuer = issuers[0]
        else:
            parts = urllib.parse.urlsplit(self._url)
            issuer = f"{parts.scheme}://{parts.netloc}"
        urls = utils.build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url)
        for url in urls:
            answer = await http.send(utils.create_oauth_metadata_request(url))
            _, metadata = await utils.handle_auth_metadata_response(answer)
            if metadata is not None and utils.issuers_match(str(metadata.issuer), issuer):
                return self._check_metadata(metadata)
        raise self._unusable_error(tool_words.MISSING_LOGIN_SERVER)

    def _check_metadata(self, metadata: auth.OAuthMetadata) -> auth.OAuthMetadata:
        transport = http_transports.PublicAddressTransport(self._trusted_urls)
        endpoints = (
            *(metadata.authorization_endpoint, metadata.token_endpoint),
            *(metadata.registration_endpoint, metadata.revocation_endpoint),
        )
        if not all(transport.is_safe(str(url)) for url in endpoints if url is not None):
            raise self._unusable_error(tool_words.UNSAFE_ADDRESS)
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise self._unusable_error(tool_words.NO_PKCE)
        return metadata

    async def _find_registration(
        self,
        http: httpx2.AsyncClient,
        metadata: auth.OAuthMetadata,
        redirect: str,
        scope: str | None,
    ) -> auth.OAuthClientInformationFull:
        """Return the registration of the bot: from the settings, or a new one.

        Raises:
            BotError: the bot cannot be registered.
        """
        login = self._server.oauth
        methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        if login is not None and login.client_id:
            needs_post = "client_secret_basic" not in methods
            method = "client_secret_post" if needs_post else "client_secret_basic"
            return auth.OAuthClientInformationFull(
                client_id=login.client_id,
                client_secret=self._secret or None,
                token_endpoint_auth_method=method if self._secret else "none",
            )
        if metadata.registration_endpoint is None:
            raise self._unusable_error(tool_words.REGISTER_BY_HAND)
        # A registration is used again only after a login with it succeeded. If the server forgot
        # it, only the person's browser shows that, and the next login registers the bot again.
        known_registration = self._registrations.pop((str(metadata.issuer), redirect), None)
        if (
            known_registration is not None
            and (known_registration.client_secret_expires_at or 2 * time.time()) > time.time()
        ):
            return known_registration
        request = auth.OAuthClientMetadata(
            client_name="interpreter-bot",
            redirect_uris=[pydantic.AnyUrl(redirect)],
            application_type="web" if redirect.startswith("https:") else "native",
            token_endpoint_auth_method="none" if "none" in methods else None,
            scope=scope,
        )
        answer = await http.send(
            utils.create_client_registration_request(metadata, request, self._url)
        )
        if answer.status_code not in (200, 201):
            _log.warning("%s refused to register the bot: %d", metadata.issuer, answer.status_code)
            raise self._unusable_error(tool_words.BOT_REFUSED)
        registration = await utils.handle_registration_response(answer)
        oauth2.check_registration_usable(registration)
        logs.add_secrets([registration.client_secret] if registration.client_secret else [])
        return registration

    async def _request_tokens(self, issuer: Issuer, form: dict[str, str]) -> auth.OAuthToken:
        async with self._http_client() as http:
            try:
                form |= {"resource": issuer.resource}
                endpoint = str(issuer.metadata.token_endpoint)
                answer = await self._post_form(http, issuer, endpoint, form)
                if answer.status_code in _REFUSAL_STATUSES:
                    error_code = _read_error_code(answer)
                    _log.info("no token for %s: %d", self._server.name, answer.status_code)
                    if error_code == _UNKNOWN_CLIENT:
                        registration_key = str(issuer.metadata.issuer), issuer.redirect
                        self._registrations.pop(registration_key, None)
                    sentence = str(self._unusable_error(tool_words.BOT_REFUSED))
                    raise TokenRefusedError(sentence, is_final=error_code in _FINAL_ERRORS)
                answer.raise_for_status()
                token = await utils.handle_token_response_scopes(answer)
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                _log.info("no token for %s: %s", self._server.name, type(error).__name__)
                raise errors.BotError(tool_words.login_unreachable(self._server.name)) from None
            except (client_auth.OAuthFlowError, ValueError):
                # The error would quote the tokens.
                raise self._unusable_error(tool_words.BOT_REFUSED) from None
        secrets = [token.access_token, *filter(None, [token.refresh_token])]
        if not all(map(_VALID_TOKEN.fullmatch, secrets)):
            raise self._unusable_error(tool_words.BOT_REFUSED)
        logs.add_secrets(secrets, are_short_lived=True)
        return token

    async def _post_form(
        self, http: httpx2.AsyncClient, issuer: Issuer, url: str, parameters: dict[str, str]
    ) -> httpx2.Response:
        """Send a form, authenticated by the registration of the bot."""
        context = oauth2.OAuthContext(
            server_url=self._url,
            client_metadata=auth.OAuthClientMetadata(redirect_uris=None),
            # Preparing a request needs no storage.
            storage=None,  # type: ignore[arg-type]
            redirect_handler=None,
            callback_handler=None,
            client_info=issuer.client,
        )
        form = parameters | {"client_id": issuer.client.client_id}
        form, headers = context.prepare_token_auth(form, {"Accept": "application/json"})
        return await http.post(url, data=form, headers=headers)


def _read_error_code(answer: httpx2.Response) -> str:
    """Return the error code of a refused request; empty if there is none."""
    try:
        return _RefusalBody.model_validate_json(answer.content).error
    except pydantic.ValidationError:
        return ""
