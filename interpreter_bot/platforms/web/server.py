"""Start and stop the web server of the page."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import importlib.resources
import logging
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms import http_runners
from interpreter_bot.platforms.rendering import status_sentences
from interpreter_bot.platforms.web import (
    access,
    files,
    notebook_runs,
    sandboxed_displays,
    shared_sessions,
    tab_contents,
    tab_hub,
    websocket_actions,
    zip_archives,
)
from interpreter_bot.sessions import session_service, share_links

_log = logging.getLogger(__name__)

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATUSES: Final[dict[type[Exception], int]] = {
    errors.FileTooLargeError: 413,
    errors.FileMissingError: 404,
    errors.BotError: 400,
}
_CLOSING_SECONDS: Final = 5.0
_TOKEN_FILE: Final = "web-token"  # noqa: S105


@contextlib.asynccontextmanager
async def serve(
    service: session_service.SessionService, config: settings.Web, data: pathlib.Path
) -> AsyncIterator[str]:
    """Serve the page; give its address, with the token in it.

    At the end no new request is accepted, tabs are disconnected, and turns that still run are
    cancelled.

    Args:
        service: the conversations.
        config: where to listen, and for whom.
        data: the directory that the token is kept in.

    Raises:
        SettingsError: it cannot be served there.
    """
    token = access.load_or_create(config.token_file or data / _TOKEN_FILE)
    allowed = (*config.allowed_hosts, share_links.host_of(config.public_url))
    open_paths = _pages().keys() - {"/"}
    gate = access.Access(token, allowed_hosts=allowed, visits=service.visits, open_paths=open_paths)
    hub = tab_hub.Hub()

    async def notify(key: values.SessionKey, text: str) -> None:
        hub.notify(key.thread, text)
        # Often its Python was ended, which the list says.
        hub.is_changed.set()

    with await _bound(config) as door:
        port = door.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            listener = websocket_actions.TabConnection(
                service, hub, tasks, approval=config.approval
            )
            service.notify_through("web", notify, go_on=listener.go_on)
            service.events.open_platform("web", listener.take_again)
            lists = tasks.create_task(tab_contents.keep_listed(service, hub), name="web: lists")
            shown = sandboxed_displays.Displays(service, hub, has_scripts=config.page_scripts)
            visited = shared_sessions.SharedSessions(service, gate, hub)
            notebooks = notebook_runs.NotebookRuns(service, listener, hub)
            app = _application(service, gate, shown, listener, visited, notebooks)
            runner = http_runners.runner(app, closing_seconds=_CLOSING_SECONDS)
            await runner.setup()
            try:
                await web.SockSite(runner, door).start()
                yield f"http://{_address_host(config.host)}:{port}/?token={token}"
            finally:
                await runner.cleanup()
                listener.cancel()
                lists.cancel()


def _application(
    service: session_service.SessionService,
    gate: access.Access,
    shown: sandboxed_displays.Displays,
    listener: websocket_actions.TabConnection,
    visited: shared_sessions.SharedSessions,
    notebooks: notebook_runs.NotebookRuns,
) -> web.Application:
    @web.middleware
    async def gated(request: web.Request, handler: access.Handler) -> web.StreamResponse:
        return await gate.passed(request, handler)

    app = web.Application(middlewares=[gated, _sentences])
    app.on_response_prepare.append(access.headers)
    app.on_shutdown.append(listener.close)
    stored = files.Files(service)
    routes: dict[str, access.Handler] = {
        "/live": listener.websocket,
        "/picture": shown.picture,
        "/frame": shown.frame,
        "/output": shown.saved,
        "/download": stored.download,
        "/notebook": stored.notebook,
        "/media": stored.media,
        "/versions": stored.versions,
        "/archive": zip_archives.ZipArchives(service).archive,
        "/visited": visited.conversation,
    }
    for path, handler in (routes | _pages()).items():
        app.router.add_get(path, handler, allow_head=False)
    for path, handler in {
        "/upload": stored.upload,
        "/rename": stored.rename,
        "/delete": stored.delete,
        "/bring-back": stored.bring_back,
        "/open": stored.open_table,
        "/table": stored.table,
        "/visit": visited.enter,
        "/continue": visited.go_on,
        "/run-notebook": notebooks.begin,
    }.items():
        app.router.add_post(path, handler)
    return app


def _pages() -> dict[str, access.Handler]:
    """Read the static files of the page."""
    found: dict[str, access.Handler] = {}
    for file in importlib.resources.files(__package__).joinpath("pages").iterdir():
        content_type = _TYPES.get(pathlib.PurePath(file.name).suffix)
        if content_type is not None:
            found[f"/{file.name}"] = _file_handler(file.read_bytes(), content_type)
    found["/"] = found.pop("/index.html")
    found["/view"] = found.pop("/display_page.html")
    found["/visit"] = found.pop("/visit.html")
    return found


def _file_handler(body: bytes, content_type: str) -> access.Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
        return web.Response(
            body=_packed(body) if is_packed else body,
            content_type=content_type,
            charset="utf-8",
            headers={"Vary": "Accept-Encoding"}
            | ({"Content-Encoding": "gzip"} if is_packed else {}),
        )

    return handler


# All of them take a tenth of a second, in which nobody else would be served.
_packed = functools.cache(gzip.compress)


@web.middleware
async def _sentences(request: web.Request, handler: access.Handler) -> web.StreamResponse:
    """Respond with the sentence of an error; the last net of a request."""
    try:
        return await handler(request)
    except (web.HTTPException, ConnectionError):
        raise
    except Exception as error:
        if not isinstance(error, errors.BotError):
            _log.exception("a request ended in an error")
        if request.writer.output_size:
            raise ConnectionError("A response that has begun can only break off.") from error
        status = next(
            (status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500
        )
        return web.Response(status=status, text=status_sentences.error_sentence(error))


async def _bound(config: settings.Web) -> socket.socket:
    """Bind the port.

    Raises:
        SettingsError: it cannot be had.
    """
    host, port = config.host, config.port
    door: socket.socket | None = None
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        door = socket.socket(family, kind, protocol)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
    except OSError as error:
        if door is not None:
            door.close()
        raise errors.SettingsError(
            f"The web page cannot be served at {host}:{port}: {error.strerror or error}."
            " Is another bot running? Otherwise set another port."
        ) from error
    return door


def _address_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
