"""Pages on which people log in at the servers whose tools their code calls.

A person opens the link that they alone were sent, reads whose account it is about, goes on to the
server's own login, comes back, and agrees. To open a link has no effect: networks do that for
previews. What a person came back with counts only in the browser that went on.
"""

from __future__ import annotations

import contextlib
import html
import logging
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from interpreter_bot import errors, settings
from interpreter_bot.platforms import http_runners
from interpreter_bot.text import safe_text
from interpreter_bot.wording import page_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service, tool_logins

_log = logging.getLogger(__name__)

PATH: Final = "/tool-logins"
_COOKIE: Final = "interpreter-bot-tool-login"
_SECONDS: Final = 600
_MAX_BYTES: Final = 64 * 1024
_CLOSING_SECONDS: Final = 3
_PLATFORMS: Final = {
    "slack": "Slack",
    "discord": "Discord",
    "web": "the bot's page",
    "console": "the terminal",
}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # No `form-action`: browsers apply it to where a form's answer leads, too.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    # With none at all, browsers do not say of our own forms where they are from.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>
body{{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.5rem}}
button{{font:inherit;padding:.5rem 1.25rem}}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""
_WHO: Final = (
    "<p>The bot will use <strong>{server}</strong>{issuer} when the code of <strong>{name}</strong>"
    " (<code>{person}</code> on {platform}) asks for it, with the account that you log in with.</p>"
    "<p>If that is not you, close this page; otherwise somebody else could act in your name.</p>"
)
_FORM: Final = '<form method="post" action="{action}">{fields}<button>{label}</button></form>'
_FIELD: Final = '<input type="hidden" name="{name}" value="{value}">'
_DONE: Final = (
    "<p>The bot can now use {server} for {name}. Go back to your conversation and ask "
    "again. To log out, write <code>disconnect {server}</code> there.</p>"
)
_RETURNED: Final = ("state", "code", "iss")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serve(
    service: session_service.SessionService, config: settings.ToolLogins
) -> AsyncIterator[str]:
    """Serve the pages; give their address.

    Raises:
        SettingsError: they cannot be served there.
    """
    pages = _LoginPages(service.logins)
    app = web.Application(middlewares=[_sentences], client_max_size=_MAX_BYTES)
    app.on_response_prepare.append(_headers)
    app.router.add_get(f"{PATH}/back/{{server}}", pages.back, allow_head=False)
    app.router.add_post(f"{PATH}/back/{{server}}", pages.finish)
    app.router.add_get(f"{PATH}/{{ticket}}", pages.begin, allow_head=False)
    app.router.add_post(f"{PATH}/{{ticket}}", pages.continue_login)
    runner = http_runners.runner(app, closing_seconds=_CLOSING_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise errors.SettingsError(
                page_words.not_served(
                    page_words.LOGIN_PAGE,
                    f"{config.host}:{config.port}",
                    error.strerror,
                    page_words.OTHER_LOGIN_PORT,
                )
            ) from error
        own = f"http://127.0.0.1:{runner.addresses[0][1]}"
        pages.address = config.public_url or own
        service.logins.serve_at(pages.address)
        yield pages.address
    finally:
        service.logins.serve_at("")
        await runner.cleanup()


class _LoginPages:
    def __init__(self, logins: tool_logins.ToolLogins) -> None:
        self._logins = logins
        self.address = ""

    async def begin(self, request: web.Request) -> web.StreamResponse:
        """Show what a link is for."""
        login = await self._logins.find_login(request.match_info["ticket"])
        form = _FORM.format(action=html.escape(request.path), fields="", label=page_words.GO_ON)
        return _page(page_words.log_in_at(login.account.server), _login_facts(login) + form)

    async def continue_login(self, request: web.Request) -> web.StreamResponse:
        """Use a link up, and lead to the login of the server."""
        self._check_origin(request)
        ticket = request.match_info["ticket"]
        server = (await self._logins.find_login(ticket)).account.server
        address, mark = await self._logins.continue_login(ticket)
        response = web.Response(status=303, headers={"Location": address})
        response.set_cookie(
            _COOKIE,
            mark,
            # Where it is wanted: somebody may log in at two servers in two tabs.
            path=f"{PATH}/back/{server}",
            max_age=_SECONDS,
            httponly=True,
            samesite="Lax",
            secure=self.address.startswith("https:"),
        )
        return response

    async def back(self, request: web.Request) -> web.StreamResponse:
        """Ask a person who comes back whether they agree."""
        server = request.match_info["server"]
        login = await self._logins.check_return(server, request.query, _mark(request))
        fields = "".join(
            _FIELD.format(name=name, value=html.escape(request.query[name]))
            for name in _RETURNED
            if name in request.query
        )
        form = _FORM.format(
            action=html.escape(request.path), fields=fields, label=page_words.LET_BOT_USE
        )
        return _page(page_words.let_bot_use(login.account.server), _login_facts(login) + form)

    async def finish(self, request: web.Request) -> web.StreamResponse:
        """Finish the login of a person who agreed."""
        self._check_origin(request)
        form = await http_runners.body(request.post())
        returned = {name: str(form[name]) for name in _RETURNED if name in form}
        login = await self._logins.finish(request.match_info["server"], returned, _mark(request))
        message = _DONE.format(server=login.account.server, name=_escape(login.name or "you"))
        response = _page(page_words.LOGGED_IN, message)
        response.del_cookie(_COOKIE, path=request.path)
        return response

    def _check_origin(self, request: web.Request) -> None:
        origin = urllib.parse.urlsplit(self.address)
        expected_origin = f"{origin.scheme}://{origin.netloc}"
        if request.headers.get("Origin", expected_origin) != expected_origin:
            raise web.HTTPForbidden(text=page_words.OTHER_PAGE)


def _mark(request: web.Request) -> str:
    return request.cookies.get(_COOKIE, "")


def _login_facts(login: tool_logins.Login) -> str:
    account = login.account
    place = f"{account.platform}/{account.workspace}" if account.workspace else account.platform
    return _WHO.format(
        server=_escape(account.server),
        issuer=f", by {_escape(login.issuer)}," if login.issuer else "",
        name=_escape(login.name or account.person),
        person=_escape(account.person),
        platform=_escape(_PLATFORMS.get(place, place)),
    )


def _escape(text: str) -> str:
    return html.escape(safe_text.harmless(text)[:200])


def _page(title: str, body: str, *, status: int = 200) -> web.Response:
    text = _PAGE.format(title=_escape(title), body=body)
    return web.Response(status=status, text=text, content_type="text/html")


async def _headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


@web.middleware
async def _sentences(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Show the sentence of an error."""
    try:
        return await handler(request)
    except errors.BotError as error:
        _log.info("a login was refused", exc_info=error)
        return _page("That did not work", f"<p>{_escape(str(error))}</p>", status=400)
