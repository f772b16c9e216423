"""Access control of the page: only a browser with the token, and only from our own page.

The token is made once and stored so that only the user of the bot can read it. A request is checked
in this order: the requested host (a foreign name that resolves to this machine is DNS rebinding),
the requesting page (browsers also send cookies for pages on other ports of this machine), the
token. A visitor of one conversation has a pass instead of the token, for the paths of
`_VISIT_PATHS` in that conversation.
"""

from __future__ import annotations

import hmac
import ipaddress
import pathlib
import re
import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from aiohttp import web

from interpreter_bot import errors, private_files
from interpreter_bot.sessions import share_links
from interpreter_bot.wording import page_words

_TOKEN_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{32,200}")

API_PREFIX: Final = "/v1/"
"""The prefix of paths for programs, which have tokens of their own."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HOST_PATTERN: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?")
_COOKIE_SECONDS: Final = 365 * 24 * 3600

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self';"
    " connect-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy of our pages: they run only our files, and connect only to us."""

_LOCKED_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " base-uri 'none'; frame-ancestors 'none'"
)
VISIT_KEY: Final = web.RequestKey("visit", share_links.Visit)
"""Where a request with a pass, which has no token, keeps its visit."""
_VISIT_PATHS: Final = frozenset(
    {"/picture", "/frame", "/output", "/download", "/notebook", "/media", "/archive", "/visited"}
)
_MAX_VISITS: Final = 8
_LINKABLE_PATHS: Final = frozenset({"/", "/visit"})
"""Paths to which other pages may link."""
_VISIT_ID_PATTERN: Final = re.compile(r"[0-9a-f]{32}")


WEBSOCKET_PROTOCOL: Final = "interpreter-bot"
"""The protocol of the page's websocket; the key comes after it."""
_SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-DNS-Prefetch-Control": "off",
    "X-Content-Type-Options": "nosniff",
}
_PAGE_TEMPLATE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>interpreter-bot</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
{head}<style>
body{{font:1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto;padding:0 1.5rem}}
</style></head><body>{body}</body></html>
"""
_LOCKED_PAGE: Final = _PAGE_TEMPLATE.format(
    head="",
    body="<h1>This page is locked</h1><p>Open the address that interpreter-bot printed when it"
    " started; it ends in a token. The browser then remembers it.</p>",
)
# SameSite withholds our cookies after a click on a foreign page; a refresh by our own sends them.
_RELOADING_PAGE: Final = _PAGE_TEMPLATE.format(
    head='<meta http-equiv="refresh" content="0;url=/?again">', body="<p>Opening…</p>"
)


def load_or_create_token(file: pathlib.Path) -> str:
    """Read the token, or create it if there is none. A restart logs nobody out.

    Raises:
        SettingsError: the file cannot be read or made, is no token, or is readable by others.
    """
    token = private_files.read_or_create(file, lambda: secrets.token_urlsafe(32))
    if _TOKEN_PATTERN.fullmatch(token) is None:
        raise errors.SettingsError(page_words.bad_token_file(file))
    return token


class Access:
    """Middleware that checks every request."""

    def __init__(
        self,
        token: str,
        *,
        allowed_hosts: Collection[str],
        public_url: str = "",
        open_paths: Collection[str] = (),
    ) -> None:
        """Check requests with a token; `open_paths`, which contain nobody's data, need none."""
        self._token = token
        self._public_url = public_url.lower()
        self._public_host = share_links.find_host(public_url)
        self._allowed_hosts = {*(name.lower() for name in allowed_hosts), self._public_host}
        self.visits: share_links.ShareLinks | None = None
        """Passes of visits, once the service is open; None without `public_url`."""
        self._open_paths = frozenset(open_paths)

    async def authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to its handler, or refuse it."""
        self._check_host(request)
        if not self._is_from_own_page(request):
            raise web.HTTPForbidden(text=page_words.OTHER_ORIGIN)
        if request.path == "/" and request.method == "GET" and "token" in request.query:
            return self._log_in(request)
        if self.visits is not None and await self._admit_visitor(request):
            return await handler(request)
        if not self.has_token(request):
            return _refuse(request)
        if request.path == "/" and "locked" in request.query:
            return _refuse(request)
        if not _is_read_only(request) and not _are_equal(
            _requested_page_key(request), self._page_key(request)
        ):
            raise web.HTTPForbidden(text=page_words.NO_TOKEN)
        return await handler(request)

    async def admit_program(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request of a program to its handler, which checks the program's token."""
        self._check_host(request)
        return await handler(request)

    async def _admit_visitor(self, request: web.Request) -> bool:
        """Return whether a visitor may send a request; store its visit in it, if it has one."""
        if (request.method, request.path) == ("POST", "/visit"):
            return True
        if not _is_read_only(request):
            return False
        if request.path in _VISIT_PATHS and (visit := await self.find_visit(request)) is not None:
            request[VISIT_KEY] = visit
            return True
        return request.path in self._open_paths

    async def find_visit(self, request: web.Request) -> share_links.Visit | None:
        """Return the visit that an address names, if the browser has the pass for it."""
        visit_id = request.query.get("thread", "")
        if self.visits is None or _VISIT_ID_PATTERN.fullmatch(visit_id) is None:
            return None
        proof = request.cookies.get(_visit_cookie_name(request, visit_id), "")
        return await self.visits.find(visit_id, proof)

    def set_visit_cookies(
        self,
        request: web.Request,
        response: web.StreamResponse,
        visit: share_links.Visit,
        proof: str,
    ) -> None:
        """Set the pass of a visit as a cookie; beyond `_MAX_VISITS` the oldest is deleted."""
        # Browsers send all cookies with each request, and servers limit the size of headers.
        names = [
            name for name in request.cookies if name.startswith(_visit_cookie_name(request, ""))
        ]
        for name in names[: -_MAX_VISITS + 1]:
            response.del_cookie(name)
        response.set_cookie(
            _visit_cookie_name(request, visit.id),
            proof,
            max_age=share_links.PASS_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=self._is_secure(request),
        )

    def _is_secure(self, request: web.Request) -> bool:
        """Return whether a browser uses TLS, by its proxy's header or the public URL."""
        is_forwarded_https = request.headers.get("X-Forwarded-Proto") == "https"
        is_public = request.headers.get("Host", "").lower() == self._public_host
        return is_forwarded_https or (is_public and self._public_url.startswith("https:"))

    def has_token(self, request: web.Request) -> bool:
        """Return whether a request has the cookie for the token."""
        return _are_equal(
            request.cookies.get(_cookie_name(request), ""), self._cookie_value(request)
        )

    def _check_host(self, request: web.Request) -> None:
        if not self._is_allowed_host(request):
            raise web.HTTPMisdirectedRequest(text=page_words.OTHER_ADDRESS)

    def _is_allowed_host(self, request: web.Request) -> bool:
        host = request.headers.get("Host", "").lower()
        match = _HOST_PATTERN.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").rstrip(".")
        return _is_loopback(name) or not self._allowed_hosts.isdisjoint((host, match[1]))

    def _is_from_own_page(self, request: web.Request) -> bool:
        """Return whether a request comes from our own page or a person, not from another page."""
        origin = request.headers.get("Origin")
        if origin is not None:
            return self._is_own_origin(request, origin)
        is_safe = _is_read_only(request)
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site in {"none", "same-origin"}:
            # Browsers send an Origin with all other requests; other clients can claim anything.
            return is_safe
        is_page_navigation = (
            request.headers.get("Sec-Fetch-Mode") == "navigate" and request.path in _LINKABLE_PATHS
        )
        return (
            is_safe and is_page_navigation and request.headers.get("Sec-Fetch-Dest") == "document"
        )

    def _is_own_origin(self, request: web.Request, origin: str) -> bool:
        scheme, _, host = origin.lower().partition("://")
        match = _HOST_PATTERN.fullmatch(host)
        if match is None or host != request.headers.get("Host", "").lower():
            return False
        if scheme == "https":
            # Proxies with TLS may send no header, but nobody needs TLS at loopback names.
            return self._is_secure(request) or not _is_loopback(match[1].strip("[]"))
        return scheme == "http" and not self._is_secure(request)

    def _cookie_value(self, request: web.Request) -> str:
        """Compute the cookie's value: valid at this address only, and never the token itself.

        Cookies ignore ports, so other servers on this host receive it, too. It only permits reading
        content by its unguessable name; lists and actions need the page key as well.
        """
        return self._derive_key(request, "")

    def _page_key(self, request: web.Request) -> str:
        """Compute the key that the page stores, visible only to its own origin and port."""
        return self._derive_key(request, "key of ")

    def _derive_key(self, request: web.Request, purpose: str) -> str:
        host = request.headers.get("Host", "").lower()
        return hmac.new(self._token.encode(), f"{purpose}{host}".encode(), "sha256").hexdigest()

    def _log_in(self, request: web.Request) -> web.StreamResponse:
        """Turn the token of an address into a cookie, and redirect to the address without it."""
        if not _are_equal(request.query.get("token", ""), self._token):
            return _refuse(request)
        # The part after the # stays in the browser, and the page removes it at once.
        location = f"/#key={self._page_key(request)}"
        response = web.Response(status=303, headers={"Location": location})
        response.set_cookie(
            _cookie_name(request),
            self._cookie_value(request),
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=self._is_secure(request),
        )
        return response


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that a response did not set itself."""
    for name, value in _SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "interpreter-bot"


def _are_equal(secret: str, expected: str) -> bool:
    return hmac.compare_digest(secret.encode("utf-8", "replace"), expected.encode())


def _requested_page_key(request: web.Request) -> str:
    """Return the page key that a request carries.

    It is in a header, or for a websocket, to which scripts cannot add headers, in the second
    protocol that the request offers.
    """
    offered_key = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")[2].strip()
    return request.headers.get("Interpreter-Bot-Key", offered_key)


def _is_read_only(request: web.Request) -> bool:
    return request.method in {"GET", "HEAD"} and "Upgrade" not in request.headers


def _cookie_name(request: web.Request) -> str:
    """Return the cookie's name. Cookies know no ports, and two bots may run on one machine."""
    host = request.headers.get("Host", "")
    return f"interpreter-bot-{host.rpartition(':')[2] if host[-1:].isdigit() else ''}"


def _visit_cookie_name(request: web.Request, visit_id: str) -> str:
    return f"{_cookie_name(request)}-visit-{visit_id}"


def _is_loopback(name: str) -> bool:
    """Return whether every resolver resolves a host name to this machine."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refuse(request: web.Request) -> web.Response:
    is_from_other_site = request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
    can_reload = is_from_other_site and request.path == "/" and not request.query
    return web.Response(
        status=200 if can_reload else 401,
        text=_RELOADING_PAGE if can_reload else _LOCKED_PAGE,
        content_type="text/html",
        headers={"Content-Security-Policy": _LOCKED_POLICY},
    )
