"""Who gives tokens, on loopback, as strict as the standards: PKCE, exact redirects, one use a code.

It guards a `tool_servers.ToolServer` too: only requests with a token of one of its people, made for
that server, get through.
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
    """A server that gives tokens.

    Attributes:
        url: of it, its issuer.
        person: who is logged in there, in the browser that comes.
        metadata: of it, to be changed by a test that wants a lie.
        resource: metadata of the guarded server, likewise.
        clients: that registered, by id.
        codes: that were given and not yet used.
        tokens: access tokens that are good, with whose they are.
        renewable: refresh tokens that are good, likewise.
        asked: forms that came to the token endpoint.
        visited: paths that were asked for.
        seconds: that an access token is good for.
        renewed: set once a refresh token was used.
        may_renew: the answer to that waits for it.
        issues_iss: whether it names itself when it sends people back.
    """

    def __init__(self):
        self.url = ""
        self.person = "anna"
        self.metadata = {}
        self.resource = {}
        self.clients = {}
        self.codes = {}
        self.tokens = {}
        self.renewable = {}
        self.asked = []
        self.visited = []
        self.seconds = 3600
        self.issues_iss = True
        self.renewed, self.may_renew = asyncio.Event(), asyncio.Event()
        self.may_renew.set()
        self.mcp = None

    @contextlib.asynccontextmanager
    async def serving(self):
        """Serve on loopback."""
        app = web.Application(middlewares=[self._noted])
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
        """Serve a tool server that this one guards."""
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
        described = "/.well-known/oauth-protected-resource/mcp"
        if scope["path"] == described:
            return await tool_servers.body(json.dumps(self.resource).encode())(scope, receive, send)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        if headers.get("authorization", "").removeprefix("Bearer ") in self.tokens:
            return await self.mcp.by_the_sdk(scope, receive, send)
        place = self.mcp.url.replace("/mcp", described)
        refused = tool_servers.body(
            b"{}", status=401, www_authenticate=f'Bearer resource_metadata="{place}"'
        )
        return await refused(scope, receive, send)

    @web.middleware
    async def _noted(self, request, handler):
        self.visited.append(request.path)
        return await handler(request)

    async def _metadata(self, request):
        return web.json_response(self.metadata)

    async def _register(self, request):
        told = await request.json()
        if len(told["redirect_uris"]) != 1 or "authorization_code" not in told["grant_types"]:
            return web.json_response({"error": "invalid_client_metadata"}, status=400)
        name = f"client-{len(self.clients)}"
        self.clients[name] = told
        return web.json_response(told | {"client_id": name}, status=201)

    async def _authorize(self, request):
        asked = request.query
        client = self.clients.get(asked.get("client_id"))
        if client is None or asked.get("redirect_uri") not in client["redirect_uris"]:
            return web.Response(status=400, text="unknown client or redirect")
        is_good = (
            asked.get("response_type") == "code"
            and asked.get("code_challenge_method") == "S256"
            and len(asked.get("code_challenge", "")) == 43
            and len(asked.get("state", "")) >= 20
            and asked.get("resource") == self.mcp.url
        )
        if not is_good:
            return web.Response(status=400, text="not as the standards want it")
        code = secrets.token_urlsafe(24)
        self.codes[code] = dict(asked) | {"person": self.person}
        back = {"code": code, "state": asked["state"]}
        if self.issues_iss:
            back["iss"] = self.metadata["issuer"]
        address = f"{asked['redirect_uri']}?{urllib.parse.urlencode(back)}"
        return web.Response(status=302, headers={"Location": address})

    async def _token(self, request):
        form = dict(await request.post())
        self.asked.append(form)
        if form.get("client_id") not in self.clients:
            return web.json_response({"error": "invalid_client"}, status=401)
        if form.get("resource") != self.mcp.url:
            return web.json_response({"error": "invalid_request"}, status=400)
        if form["grant_type"] == "refresh_token":
            person = self.renewable.pop(form["refresh_token"], None)
            if person is None:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.renewed.set()
            await self.may_renew.wait()
            return self._given(person)
        asked = self.codes.pop(form.get("code"), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_good = (
            asked is not None
            and form["grant_type"] == "authorization_code"
            and challenge == asked["code_challenge"]
            and form.get("redirect_uri") == asked["redirect_uri"]
            and form["client_id"] == asked["client_id"]
        )
        if not is_good:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._given(asked["person"])

    def _given(self, person):
        token, renewing = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.tokens[token] = person
        self.renewable[renewing] = person
        return web.json_response(
            {
                "access_token": token,
                "token_type": "bearer",
                "expires_in": self.seconds,
                "refresh_token": renewing,
            }
        )

    async def _revoke(self, request):
        form = await request.post()
        person = self.renewable.pop(form["token"], None)
        self.tokens = {token: one for token, one in self.tokens.items() if one != person}
        return web.Response()


class Browser:
    """A browser, with its cookies."""

    def __init__(self, session):
        self.session = session
        self.text = ""

    async def get(self, address, **more):
        async with self.session.get(address, **more) as answer:
            self.text = await answer.text()
            return answer

    async def post(self, address, data=None, **more):
        async with self.session.post(address, data=data, **more) as answer:
            self.text = await answer.text()
            return answer

    async def go_on(self, link):
        """Open a link, and press its button; return where the browser is led."""
        assert (await self.get(link)).status == 200
        answer = await self.post(link, allow_redirects=False)
        assert answer.status == 303, self.text
        return answer.headers["Location"]

    async def come_back(self, link):
        """Go on, log in, and return the address to which the giver leads back."""
        answer = await self.get(await self.go_on(link), allow_redirects=False)
        assert answer.status == 302, self.text
        return answer.headers["Location"]

    async def agree(self, back):
        """Open what the giver leads back to, press its button; return the page then."""
        answer = await self.get(back)
        if answer.status == 200:
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', self.text))
            await self.post(back.partition("?")[0], fields)
        return self.text


@contextlib.asynccontextmanager
async def browser():
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False) as session:
        yield Browser(session)
