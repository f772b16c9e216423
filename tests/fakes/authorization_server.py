"""An OAuth server on loopback, as strict as the standards: PKCE, exact redirects, codes used once.

It can also guard a `tool_servers.ToolServer`, which then answers only requests with one of this
server's access tokens.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import secrets
import urllib.parse

import aiohttp
from aiohttp import web

from tests.fakes import tool_servers


class AuthorizationServer:
    """A server that issues tokens.

    Attributes:
        url: the server's address, which is also its issuer.
        person: the person who is logged in at this server, in any browser.
        metadata: the server's metadata; a test may change it to false statements.
        resource: the metadata of the guarded server; a test may change it too.
        clients: metadata of registered clients, by id.
        codes: authorization codes that were issued and not used yet, with their requests.
        tokens: valid access tokens, each with its person.
        refresh_tokens: valid refresh tokens, each with its person.
        token_requests: forms sent to the token endpoint.
        requested_paths: paths of all requests.
        seconds: lifetime of an access token.
        renewed: set once a refresh token was used.
        may_renew: the answer to a refresh waits until this is set.
        sends_issuer: whether a redirect back to the client has the parameter `iss`.
    """

    def __init__(self):
        self.url = ""
        self.person = "anna"
        self.metadata = {}
        self.resource = {}
        self.clients = {}
        self.codes = {}
        self.tokens = {}
        self.refresh_tokens = {}
        self.token_requests = []
        self.requested_paths = []
        self.seconds = 3600
        self.sends_issuer = True
        self.renewed, self.may_renew = asyncio.Event(), asyncio.Event()
        self.may_renew.set()
        self.mcp = None

    @contextlib.asynccontextmanager
    async def serving(self):
        """Serve on loopback."""
        app = web.Application(middlewares=[self._record_path])
        for path in ("/.well-known/oauth-authorization-server",):
            app.router.add_get(path, self._metadata)
        app.router.add_post("/register", self._register)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/revoke", self._revoke)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }
        try:
            yield self
        finally:
            await runner.cleanup()

    @contextlib.asynccontextmanager
    async def guarding(self, *tools):
        """Serve a tool server that requires this server's tokens."""
        server = tool_servers.ToolServer(*tools)
        async with server.serving():
            self.mcp = server
            self.resource = {
                "resource": server.url,
                "authorization_servers": [self.url],
                "scopes_supported": ["read"],
            }
            server.raw = self._guard
            yield server

    async def _guard(self, scope, receive, send):
        metadata_path = "/.well-known/oauth-protected-resource/mcp"
        if scope["path"] == metadata_path:
            return await tool_servers.fixed_response(json.dumps(self.resource).encode())(
                scope, receive, send
            )
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        if headers.get("authorization", "").removeprefix("Bearer ") in self.tokens:
            return await self.mcp.answer_by_sdk(scope, receive, send)
        address = self.mcp.url.replace("/mcp", metadata_path)
        refuse = tool_servers.fixed_response(
            b"{}", status=401, www_authenticate=f'Bearer resource_metadata="{address}"'
        )
        return await refuse(scope, receive, send)

    @web.middleware
    async def _record_path(self, request, handler):
        self.requested_paths.append(request.path)
        return await handler(request)

    async def _metadata(self, request):
        return web.json_response(self.metadata)

    async def _register(self, request):
        metadata = await request.json()
        if (
            len(metadata["redirect_uris"]) != 1
            or "authorization_code" not in metadata["grant_types"]
        ):
            return web.json_response({"error": "invalid_client_metadata"}, status=400)
        name = f"client-{len(self.clients)}"
        self.clients[name] = metadata
        return web.json_response(metadata | {"client_id": name}, status=201)

    async def _authorize(self, request):
        query = request.query
        client = self.clients.get(query.get("client_id"))
        if client is None or query.get("redirect_uri") not in client["redirect_uris"]:
            return web.Response(status=400, text="unknown client or redirect")
        is_valid = (
            query.get("response_type") == "code"
            and query.get("code_challenge_method") == "S256"
            and len(query.get("code_challenge", "")) == 43
            and len(query.get("state", "")) >= 20
            and query.get("resource") == self.mcp.url
        )
        if not is_valid:
            return web.Response(status=400, text="not as the standards want it")
        code = secrets.token_urlsafe(24)
        self.codes[code] = dict(query) | {"person": self.person}
        answer = {"code": code, "state": query["state"]}
        if self.sends_issuer:
            answer["iss"] = self.metadata["issuer"]
        address = f"{query['redirect_uri']}?{urllib.parse.urlencode(answer)}"
        return web.Response(status=302, headers={"Location": address})

    async def _token(self, request):
        form = dict(await request.post())
        self.token_requests.append(form)
        if form.get("client_id") not in self.clients:
            return web.json_response({"error": "invalid_client"}, status=401)
        if form.get("resource") != self.mcp.url:
            return web.json_response({"error": "invalid_request"}, status=400)
        if form["grant_type"] == "refresh_token":
            person = self.refresh_tokens.pop(form["refresh_token"], None)
            if person is None:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.renewed.set()
            await self.may_renew.wait()
            return self._issue_tokens(person)
        authorization = self.codes.pop(form.get("code"), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_valid = (
            authorization is not None
            and form["grant_type"] == "authorization_code"
            and challenge == authorization["code_challenge"]
            and form.get("redirect_uri") == authorization["redirect_uri"]
            and form["client_id"] == authorization["client_id"]
        )
        if not is_valid:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._issue_tokens(authorization["person"])

    def _issue_tokens(self, person):
        token, refresh_token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.tokens[token] = person
        self.refresh_tokens[refresh_token] = person
        return web.json_response(
            {
                "access_token": token,
                "token_type": "bearer",
                "expires_in": self.seconds,
                "refresh_token": refresh_token,
            }
        )

    async def _revoke(self, request):
        form = await request.post()
        person = self.refresh_tokens.pop(form["token"], None)
        self.tokens = {token: owner for token, owner in self.tokens.items() if owner != person}
        return web.Response()


class Browser:
    """A browser, with its cookies."""

    def __init__(self, session):
        self.session = session
        self.text = ""

    async def get(self, address, **options):
        async with self.session.get(address, **options) as answer:
            self.text = await answer.text()
            return answer

    async def post(self, address, data=None, **options):
        async with self.session.post(address, data=data, **options) as answer:
            self.text = await answer.text()
            return answer

    async def go_on(self, link):
        """Open a link, and press the page's button; returns the address of the redirect."""
        assert (await self.get(link)).status == 200
        answer = await self.post(link, allow_redirects=False)
        assert answer.status == 303, self.text
        return answer.headers["Location"]

    async def come_back(self, link):
        """Open a link and log in; returns the address to which the server redirects back."""
        answer = await self.get(await self.go_on(link), allow_redirects=False)
        assert answer.status == 302, self.text
        return answer.headers["Location"]

    async def agree(self, address):
        """Open the redirect's address, and press the page's button; returns the page's text."""
        answer = await self.get(address)
        if answer.status == 200:
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', self.text))
            await self.post(address.partition("?")[0], fields)
        return self.text


@contextlib.asynccontextmanager
async def browser():
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False) as session:
        yield Browser(session)
