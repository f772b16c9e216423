"""Logins of people at MCP servers, from the link to the tokens.

A login has three secrets, stored only as digests or encrypted: the ticket in the link that the
person gets, a cookie of the browser that opened the link, and OAuth's `state`, with which that
browser comes back. Each is used once, within ten minutes. The tokens of a person are only used for
calls of that person.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import hmac
import json
import secrets
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import httpx2
import pydantic
from mcp.client import auth as client_auth
from mcp.client.auth import utils
from mcp.shared import auth

from interpreter_bot import cancellation, encryption, errors, logs, settings
from interpreter_bot.encryption import secret_digest
from interpreter_bot.mcp_servers import token_issuers
from interpreter_bot.store import accounts, records
from interpreter_bot.wording import tool_words

URL_PATH: Final = "/tool-logins"
_MAX_LOGIN_AGE: Final = datetime.timedelta(minutes=10)
_REFRESH_EARLY_SECONDS: Final = 60.0
_MAX_TOKEN_SECONDS: Final = 10**9


class _StartedLogin(pydantic.BaseModel):
    """A login that has begun; the optional fields are set once the person opened the link.

    Attributes:
        name: the display name of the person.
        issuer: where the person logs in.
        verifier: of PKCE.
        browser_digest: digest of the browser's secret.
    """

    name: str
    issuer: token_issuers.Issuer | None = None
    verifier: str = ""
    browser_digest: str = ""


class _StoredTokens(pydantic.BaseModel):
    """The tokens of an account, as they are encrypted and stored."""

    issuer: token_issuers.Issuer
    token: auth.OAuthToken
    ends_at: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """A login, for display.

    Attributes:
        account: the account that it leads to.
        name: the display name of the person.
        issuer: the host where the person logs in; empty before the link was opened.
    """

    account: records.Account
    name: str
    issuer: str = ""


class PersonLogins:
    """Logins and tokens of people at all servers where people log in.

    Attributes:
        address: URL of the page for logins; empty while there is no page.
    """

    def __init__(
        self,
        servers: Sequence[settings.McpServer],
        environment: Mapping[str, str],
        store: accounts.Accounts,
        keys: encryption.KeyRing,
    ) -> None:
        """Prepare logins at the servers whose `authorization` is `person`.

        Raises:
            SettingsError: a secret is missing.
        """
        self.address = ""
        self._requests = {
            server.name: token_issuers.TokenRequests(server, environment)
            for server in servers
            if server.authorization == "person"
        }
        self._store = store
        self._keys = keys
        self._refresh_locks: collections.defaultdict[records.Account, asyncio.Lock]
        self._refresh_locks = collections.defaultdict(asyncio.Lock)
        # Digests of stored tokens that a server refused. Such tokens are not deleted, because
        # another process may be about to replace them.
        self._refused_digests: dict[records.Account, str] = {}

    async def create_link(self, account: records.Account, name: str) -> str:
        """Create the link by which one person logs in; an earlier link becomes invalid.

        Raises:
            BotError: logins are not possible.
        """
        if not self.address:
            raise errors.BotError(tool_words.no_login_page(account.server))
        self._requests_for(account)
        # Hexadecimal, because chats leave a trailing `_` or `-` out of links.
        ticket = secrets.token_hex(32)
        ciphertext = await self._encrypt(account, _StartedLogin(name=name))
        await self._store.begin_login(account, secret_digest(ticket), ciphertext)
        return f"{self.address}{URL_PATH}/{ticket}"

    async def find_login(self, ticket: str) -> Login:
        """Return the login of a link without consuming the link.

        Raises:
            BotError: there is no such login.
        """
        account, login = await self._find_started_login(ticket)
        return Login(account, login.name)

    async def continue_login(self, ticket: str) -> tuple[str, str]:
        """Consume a link; return the URL where the person logs in, and a secret for the browser.

        Raises:
            BotError: the link cannot be used.
        """
        account, login = await self._find_started_login(ticket, consumes=True)
        redirect = f"{self.address}{URL_PATH}/back/{account.server}"
        issuer = await self._requests_for(account).find(redirect)
        pkce = client_auth.PKCEParameters.generate()
        state, browser_secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login.issuer, login.verifier, login.browser_digest = (
            issuer,
            pkce.code_verifier,
            secret_digest(browser_secret),
        )
        ciphertext = await self._encrypt(account, login)
        await self._store.begin_login(account, secret_digest(state), ciphertext)
        return issuer.login_url(challenge=pkce.code_challenge, state=state), browser_secret

    async def check_return(
        self, server: str, query: Mapping[str, str], browser_secret: str
    ) -> Login:
        """Check the request with which a browser came back; return its login, and store nothing.

        Args:
            server: the server whose login page sent the browser back.
            query: the parameters `state`, `code`, `iss` and `error` of the browser's request.
            browser_secret: the secret of the browser in which the login began.

        Raises:
            BotError: the login is another browser's, has expired, or was cancelled.
        """
        account, login, issuer = await self._check_return(server, query, browser_secret)
        host = urllib.parse.urlsplit(str(issuer.metadata.issuer)).hostname or ""
        return Login(account, login.name, host)

    async def finish(self, server: str, query: Mapping[str, str], browser_secret: str) -> Login:
        """Exchange the code for tokens, once the person agreed, and store them.

        The arguments are those of `check_return`.

        Raises:
            BotError: the server gave no tokens.
        """
        await self._check_return(server, query, browser_secret)
        account, login, issuer = await self._check_return(
            server, query, browser_secret, consumes=True
        )
        requests = self._requests_for(account)
        token = await requests.exchange_code(issuer, query.get("code", ""), login.verifier)
        await self._store.put(account, await self._encrypt(account, _stored_tokens(issuer, token)))
        return Login(account, login.name)

    async def has_login(self, account: records.Account) -> bool:
        """Return whether a person has logged in and no server has refused the tokens since."""
        ciphertext = await self._store.find(account)
        return ciphertext is not None and self._refused_digests.get(account) != secret_digest(
            ciphertext
        )

    async def require_login(self, account: records.Account) -> None:
        """Raise LoginNeededError if a person has not logged in."""
        if not await self.has_login(account):
            raise _login_needed(account)

    async def delete_tokens(self, account: records.Account) -> bool:
        """Delete and revoke a person's tokens; return whether there were any."""
        ciphertext = await self._store.remove(account)
        if ciphertext is None:
            return False
        tokens = _StoredTokens.model_validate(await self._decrypt(account, ciphertext))
        await self._requests_for(account).revoke(tokens.issuer, tokens.token)
        return True

    def create_bearer(
        self, account: records.Account, add_secrets: Callable[[Iterable[str]], None]
    ) -> PersonBearer:
        """Create the authenticator that adds a person's tokens to requests.

        `add_secrets` receives each token, so that it can be removed from answers.
        """
        return PersonBearer(self, account, add_secrets)

    async def get_token(self, account: records.Account, *, refused_token: str = "") -> str | None:
        """Return a person's token, refreshed if necessary; None if the person has to log in.

        Args:
            account: of the person.
            refused_token: a token that the server refused, so that another one is needed.

        Raises:
            BotError: the authorization server is unreachable.
        """
        # One refresh at a time, so that a second caller finds the new token.
        async with self._refresh_locks[account]:
            ciphertext = await self._store.find(account)
            if ciphertext is None:
                return None
            tokens = _StoredTokens.model_validate(await self._decrypt(account, ciphertext))
            is_old = tokens.ends_at is not None and time.time() > tokens.ends_at
            if not is_old and tokens.token.access_token != refused_token:
                return tokens.token.access_token
            if not tokens.token.refresh_token:
                self._refused_digests[account] = secret_digest(ciphertext)
                return None
            # A refresh consumes the old token, so it is finished even if the caller is cancelled.
            return await cancellation.shielded(self._refresh(account, tokens, ciphertext))

    async def _refresh(
        self, account: records.Account, tokens: _StoredTokens, ciphertext: str
    ) -> str | None:
        try:
            token = await self._requests_for(account).refresh(tokens.issuer, tokens.token)
        except token_issuers.TokenRefusedError as error:
            # Another process of the bot may have refreshed first.
            stored_ciphertext = await self._store.find(account)
            if stored_ciphertext is None or stored_ciphertext == ciphertext:
                if error.is_final:
                    self._refused_digests[account] = secret_digest(ciphertext)
                return None
            tokens = _StoredTokens.model_validate(await self._decrypt(account, stored_ciphertext))
            return tokens.token.access_token
        new_ciphertext = await self._encrypt(account, _stored_tokens(tokens.issuer, token))
        # If the person logged out meanwhile, nothing is stored.
        if await self._store.replace(account, new_ciphertext, expected=ciphertext):
            return token.access_token
        return None

    def _requests_for(self, account: records.Account) -> token_issuers.TokenRequests:
        requests = self._requests.get(account.server)
        if requests is None:
            raise errors.BotError(tool_words.no_longer_set_up(account.server))
        return requests

    async def _find_started_login(
        self, secret: str, *, consumes: bool = False
    ) -> tuple[records.Account, _StartedLogin]:
        """Find a login that has begun, by its ticket or state; with `consumes`, delete it."""
        find = self._store.take_login if consumes else self._store.find_login
        entry = await find(secret_digest(secret), _MAX_LOGIN_AGE)
        if entry is None:
            raise errors.BotError(tool_words.LINK_EXPIRED)
        account, ciphertext = entry
        login = _StartedLogin.model_validate(await self._decrypt(account, ciphertext))
        self._requests_for(account)
        return account, login

    async def _check_return(
        self, server: str, query: Mapping[str, str], browser_secret: str, *, consumes: bool = False
    ) -> tuple[records.Account, _StartedLogin, token_issuers.Issuer]:
        account, login = await self._find_started_login(query.get("state", ""), consumes=consumes)
        # A link's login has no issuer yet, so a link cannot be used as a state.
        if login.issuer is None or not hmac.compare_digest(
            login.browser_digest, secret_digest(browser_secret)
        ):
            raise errors.BotError(tool_words.LINK_EXPIRED)
        if account.server != server:
            raise errors.BotError(tool_words.OTHER_SERVERS_ANSWER)
        try:
            utils.validate_authorization_response_iss(query.get("iss"), login.issuer.metadata)
        except client_auth.OAuthFlowError:
            raise errors.BotError(tool_words.OTHER_SERVERS_ANSWER) from None
        if not query.get("code"):
            raise errors.BotError(tool_words.login_cancelled(account.server))
        return account, login, login.issuer

    async def _encrypt(self, account: records.Account, value: pydantic.BaseModel) -> str:
        content = {"of": dataclasses.astuple(account), "kept": value.model_dump(mode="json")}
        return await asyncio.to_thread(self._keys.encrypt, json.dumps(content))

    async def _decrypt(self, account: records.Account, ciphertext: str) -> Any:  # noqa: ANN401
        """Decrypt a value of an account; that of another account is refused."""
        content = json.loads(await asyncio.to_thread(self._keys.decrypt, ciphertext))
        if content["of"] != list(dataclasses.astuple(account)):
            raise errors.StoreError
        return content["kept"]


class PersonBearer(httpx2.Auth):
    """Adds a person's token to requests.

    Attributes:
        is_refused: the last request had no token that the server accepted.
    """

    requires_request_body = True

    def __init__(
        self,
        logins: PersonLogins,
        account: records.Account,
        add_secrets: Callable[[Iterable[str]], None],
    ) -> None:
        self._logins = logins
        self._account = account
        self._add_secrets = add_secrets
        self.is_refused = False

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a token; if the server refuses it, send it with a new token."""
        token, self.is_refused = "", False
        for _ in range(2):
            try:
                next_token = await self._logins.get_token(self._account, refused_token=token)
            except errors.BotError as error:
                raise httpx2.ConnectError(str(error), request=request) from error
            if next_token is None:
                # The request is sent once without a token, so that the server refuses it.
                self.is_refused = True
                if not token:
                    yield request
                return
            token = next_token
            logs.add_secrets([token], are_short_lived=True)
            self._add_secrets([token])
            request.headers["Authorization"] = f"Bearer {token}"
            self.is_refused = (yield request).status_code == httpx2.codes.UNAUTHORIZED
            if not self.is_refused:
                return

    def require_login(self) -> None:
        """Raise LoginNeededError if the server refused the token."""
        if self.is_refused:
            raise _login_needed(self._account)


def _login_needed(account: records.Account) -> errors.LoginNeededError:
    """Return the error that asks a person to log in."""
    return errors.LoginNeededError(tool_words.needs_login(account.server))


def _stored_tokens(issuer: token_issuers.Issuer, token: auth.OAuthToken) -> _StoredTokens:
    ends_at = None
    if token.expires_in is not None:
        seconds = min(token.expires_in, _MAX_TOKEN_SECONDS)
        # The token is refreshed early, so that it does not expire during a request.
        ends_at = time.time() + seconds - min(_REFRESH_EARLY_SECONDS, seconds / 4)
    return _StoredTokens(issuer=issuer, token=token, ends_at=ends_at)
