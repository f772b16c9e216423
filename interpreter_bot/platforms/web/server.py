"""The server of the page; it serves the page before the conversations are open."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import importlib.resources
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from aiohttp import web

from interpreter_bot import errors, settings
from interpreter_bot.platforms import http_runners
from interpreter_bot.platforms.web import access
from interpreter_bot.wording import page_words

if TYPE_CHECKING:
    from interpreter_bot.platforms.web import routes
    from interpreter_bot.sessions import session_service

_CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_CLOSING_SECONDS: Final = 5.0
_HEARTBEAT_SECONDS: Final = 20.0
_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_STARTING_MESSAGES: Final = '[{"kind":"starting"}]'
_TOKEN_FILE: Final = "web-token"  # noqa: S105


@contextlib.asynccontextmanager
async def serve(
    service: asyncio.Future[session_service.SessionService],
    config: settings.Web,
    data: pathlib.Path,
    *,
    open_api: routes.OpenApi | None = None,
) -> AsyncIterator[str]:
    """Serve the page; yield its address with the token.

    At the end the server accepts no request, disconnects all tabs, and cancels the running turns.

    Args:
        service: the conversations; until they are open, requests wait, and tabs show that.
        config: where to listen, and for whom.
        data: the directory of the token.
        open_api: opens the API for programs when the conversations are open.

    Raises:
        SettingsError: the address cannot be used.
    """
    token = access.load_or_create_token(data / _TOKEN_FILE)
    pages = _load_pages()
    gate = access.Access(
        token,
        allowed_hosts=config.allowed_hosts,
        public_url=config.public_url,
        open_paths=pages.keys() - {"/"},
    )
    with await _bind(config) as listener:
        port = listener.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            routes_task = tasks.create_task(
                _open_routes(service, config, gate, tasks, open_api), name="web"
            )
            front = _FrontApplication(routes_task, gate, has_visits=bool(config.public_url))
            runner = http_runners.make_runner(front.build(pages), closing_seconds=_CLOSING_SECONDS)
            await runner.setup()
            try:
                await web.SockSite(runner, listener).start()
                yield f"http://{_reachable_host(config.host)}:{port}/?token={token}"
            finally:
                await runner.cleanup()
                routes_task.cancel()
                if routes_task.done() and not routes_task.cancelled():
                    routes_task.result().cancel()


async def _open_routes(
    service: asyncio.Future[session_service.SessionService],
    config: settings.Web,
    gate: access.Access,
    tasks: asyncio.TaskGroup,
    open_api: routes.OpenApi | None,
) -> routes.Routes:
    conversations = await asyncio.shield(service)
    # The import takes a second, most of which the conversations have spent by now.
    from interpreter_bot.platforms.web import routes

    if config.public_url:
        gate.visits = conversations.visits
    return routes.Routes(conversations, config, gate, tasks, open_api)


class _FrontApplication:
    """Serves the page before the conversations are open, and forwards other requests."""

    def __init__(
        self, routes_task: asyncio.Task[routes.Routes], gate: access.Access, *, has_visits: bool
    ) -> None:
        self._routes_task = routes_task
        self._gate = gate
        self._has_visits = has_visits

    def build(self, pages: dict[str, access.Handler]) -> web.Application:
        """Return the application of the server."""

        @web.middleware
        async def check_access(request: web.Request, handler: access.Handler) -> web.StreamResponse:
            if request.path.startswith(access.API_PREFIX):
                return await self._gate.admit_program(request, handler)
            if self._has_visits and not self._gate.has_token(request):
                await asyncio.shield(self._routes_task)
            return await self._gate.authorize(request, handler)

        app = web.Application(middlewares=[check_access])
        app.on_response_prepare.append(access.add_headers)
        app.on_shutdown.append(self._close)
        for path, handler in pages.items():
            app.router.add_get(path, handler, allow_head=False)
        app.router.add_get("/live", self._serve_live, allow_head=False)
        app.router.add_post("/live", _confirm_key)
        app.router.add_route("*", "/{path}", self._forward)
        app.router.add_route("*", f"{access.API_PREFIX}{{path:.*}}", self._forward)
        return app

    async def _serve_live(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a tab until it disconnects."""
        tab = web.WebSocketResponse(
            protocols=(access.WEBSOCKET_PROTOCOL,),
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=_MAX_MESSAGE_BYTES,
            compress=False,
        )
        await tab.prepare(request)
        if not self._routes_task.done():
            await tab.send_str(_STARTING_MESSAGES)
        await (await asyncio.shield(self._routes_task)).serve_tab(tab)
        return tab

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        return await (await asyncio.shield(self._routes_task)).answer(request)

    async def _close(self, _: web.Application) -> None:
        """Cancel waiting requests, and disconnect every tab."""
        if self._routes_task.done():
            await self._routes_task.result().close()
        else:
            self._routes_task.cancel()


async def _confirm_key(_: web.Request) -> web.Response:
    """Answer a page that asks why its websocket did not open: its key was checked before."""
    return web.Response(status=204)


def _load_pages() -> dict[str, access.Handler]:
    """Read the static files of the page."""
    handlers: dict[str, access.Handler] = {}
    for file in importlib.resources.files(__package__).joinpath("pages").iterdir():
        content_type = _CONTENT_TYPES.get(pathlib.PurePath(file.name).suffix)
        if content_type is not None:
            handlers[f"/{file.name}"] = _file_handler(file.read_bytes(), content_type)
    handlers["/"] = handlers.pop("/index.html")
    handlers["/view"] = handlers.pop("/display_page.html")
    handlers["/visit"] = handlers.pop("/visit.html")
    return handlers


def _file_handler(body: bytes, content_type: str) -> access.Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        is_compressed = "gzip" in request.headers.get("Accept-Encoding", "")
        return web.Response(
            body=_compress(body) if is_compressed else body,
            content_type=content_type,
            charset="utf-8",
            headers={"Vary": "Accept-Encoding"}
            | ({"Content-Encoding": "gzip"} if is_compressed else {}),
        )

    return handler


# Files are compressed at the first request: all of them at the start would take 0.1 s.
_compress = functools.cache(gzip.compress)


async def _bind(config: settings.Web) -> socket.socket:
    """Return a socket bound to the configured address.

    Raises:
        SettingsError: the address cannot be bound.
    """
    host, port = config.host, config.port
    listener: socket.socket | None = None
    try:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise errors.SettingsError(
            page_words.not_served(
                "The web page", f"{host}:{port}", error.strerror or error, page_words.OTHER_PORT
            )
        ) from error
    return listener


def _reachable_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
