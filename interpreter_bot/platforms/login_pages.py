"""Pages on which people log in at the servers whose tools their code calls.

A person opens a link that was sent to them alone, reads for whom the account will be used, goes on
to the server's own login, comes back, and agrees. Opening the link has no effect, because networks
open links for previews. The login counts only in the browser in which it was begun.
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
_COOKIE_SECONDS: Final = 600
_MAX_REQUEST_BYTES: Final = 64 * 1024
_CLOSING_SECONDS: Final = 3
_PLATFORM_NAMES: Final = {
    "slack": "Slack",
    "discord": "Discord",
    "web": "the bot's page",
    "console": "the terminal",
}
_SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    # No `form-action`: browsers would also apply it to the redirect that answers a form.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    # With `no-referrer`, browsers would send no origin with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}
_PAGE_HTML: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>
body{{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.5rem}}
button{{font:inherit;padding:.5rem 1.25rem}}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""
_ACCOUNT_TEXT: Final = (
    "<p>The bot will use <strong>{server}</strong>{issuer} when the code of <strong>{name}</strong>"
    " (<code>{person}</code> on {platform}) asks for it, with the account that you log in with.</p>"
    "<p>If that is not you, close this page; otherwise somebody else could act in your name.</p>"
)
_FORM_HTML: Final = '<form method="post" action="{action}">{fields}<button>{label}</button></form>'
_FIELD_HTML: Final = '<input type="hidden" name="{name}" value="{value}">'
_DONE_TEXT: Final = (
    "<p>The bot can now use {server} for {name}. Go back to your conversation and ask "
    "again. To log out, write <code>disconnect {server}</code> there.</p>"
)
_RETURN_PARAMETERS: Final = ("state", "code", "iss")

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
    app = web.Application(middlewares=[_show_errors], client_max_size=_MAX_REQUEST_BYTES)
    app.on_response_prepare.append(_add_headers)
    app.router.add_get(f"{PATH}/back/{{server}}", pages.ask_agreement, allow_head=False)
    app.router.add_post(f"{PATH}/back/{{server}}", pages.finish)
    app.router.add_get(f"{PATH}/{{ticket}}", pages.show_login, allow_head=False)
    app.router.add_post(f"{PATH}/{{ticket}}", pages.continue_login)
    runner = http_runners.make_runner(app, closing_seconds=_CLOSING_SECONDS)
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
        local_address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        pages.address = config.public_url or local_address
        service.logins.person_logins.address = pages.address
        yield pages.address
    finally:
        service.logins.person_logins.address = ""
        await runner.cleanup()


class _LoginPages:
    def __init__(self, logins: tool_logins.ToolLogins) -> None:
        self._logins = logins
        self.address = ""

    async def show_login(self, request: web.Request) -> web.StreamResponse:
        """Show for whom the account will be used."""
        login = await self._logins.person_logins.find_login(request.match_info["ticket"])
        form = _FORM_HTML.format(
            action=html.escape(request.path), fields="", label=page_words.LOGIN_BUTTON
        )
        return _make_page(page_words.log_in_at(login.account.server), _describe_login(login) + form)

    async def continue_login(self, request: web.Request) -> web.StreamResponse:
        """Use the link up, and redirect to the login of the server."""
        self._check_origin(request)
        ticket = request.match_info["ticket"]
        server = (await self._logins.person_logins.find_login(ticket)).account.server
        address, mark = await self._logins.person_logins.continue_login(ticket)
        response = web.Response(status=303, headers={"Location": address})
        response.set_cookie(
            _COOKIE,
            mark,
            # One cookie a server: somebody may log in at two servers in two tabs.
            path=f"{PATH}/back/{server}",
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="Lax",
            secure=self.address.startswith("https:"),
        )
        return response

    async def ask_agreement(self, request: web.Request) -> web.StreamResponse:
        """Ask the person, who comes back from the server, whether they agree."""
        server = request.match_info["server"]
        login = await self._logins.person_logins.check_return(
            server, request.query, _browser_mark(request)
        )
        fields = "".join(
            _FIELD_HTML.format(name=name, value=html.escape(request.query[name]))
            for name in _RETURN_PARAMETERS
            if name in request.query
        )
        form = _FORM_HTML.format(
            action=html.escape(request.path), fields=fields, label=page_words.AGREE_BUTTON
        )
        return _make_page(
            page_words.agree_question(login.account.server), _describe_login(login) + form
        )

    async def finish(self, request: web.Request) -> web.StreamResponse:
        """Finish the login of a person who agreed."""
        self._check_origin(request)
        form = await http_runners.read_body(request.post())
        returned = {name: str(form[name]) for name in _RETURN_PARAMETERS if name in form}
        login = await self._logins.finish(
            request.match_info["server"], returned, _browser_mark(request)
        )
        message = _DONE_TEXT.format(
            server=login.account.server, name=_make_harmless(login.name or "you")
        )
        response = _make_page(page_words.LOGGED_IN, message)
        response.del_cookie(_COOKIE, path=request.path)
        return response

    def _check_origin(self, request: web.Request) -> None:
        origin = urllib.parse.urlsplit(self.address)
        expected_origin = f"{origin.scheme}://{origin.netloc}"
        if request.headers.get("Origin", expected_origin) != expected_origin:
            raise web.HTTPForbidden(text=page_words.FROM_OTHER_PAGE)


def _browser_mark(request: web.Request) -> str:
    return request.cookies.get(_COOKIE, "")


def _describe_login(login: tool_logins.Login) -> str:
    account = login.account
    place = f"{account.platform}/{account.workspace}" if account.workspace else account.platform
    return _ACCOUNT_TEXT.format(
        server=_make_harmless(account.server),
        issuer=f", by {_make_harmless(login.issuer)}," if login.issuer else "",
        name=_make_harmless(login.name or account.person),
        person=_make_harmless(account.person),
        platform=_make_harmless(_PLATFORM_NAMES.get(place, place)),
    )


def _make_harmless(text: str) -> str:
    return html.escape(safe_text.sanitize(text)[:200])


def _make_page(title: str, body: str, *, status: int = 200) -> web.Response:
    text = _PAGE_HTML.format(title=_make_harmless(title), body=body)
    return web.Response(status=status, text=text, content_type="text/html")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_SECURITY_HEADERS)


@web.middleware
async def _show_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Show the sentence of an error as a page."""
    try:
        return await handler(request)
    except errors.BotError as error:
        _log.info("a login was refused", exc_info=error)
        return _make_page("That did not work", f"<p>{_make_harmless(str(error))}</p>", status=400)
