"""Routes of the page that need the conversations: tabs, files, visits and notebooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from aiohttp import web

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.web import (
    access,
    files,
    model_forms,
    notebook_runs,
    sandboxed_displays,
    shared_sessions,
    tab_contents,
    tab_hub,
    websocket_actions,
    zip_archives,
)
from interpreter_bot.sessions import schedules, session_service
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

_STATUSES: Final[dict[type[Exception], int]] = {
    errors.FileTooLargeError: 413,
    errors.FileMissingError: 404,
    errors.BotError: 400,
}

OpenApi: TypeAlias = Callable[[session_service.SessionService], access.Handler]
"""Opens the API for programs; returns the handler of its requests."""


async def _find_owner_refusal(_: values.SessionKey, __: str) -> str:
    """Refuse nobody: the person with the token owns all schedules."""
    return ""


class Routes:
    """All tabs, and the handlers of requests; without `open_api`, programs have no API."""

    def __init__(
        self,
        service: session_service.SessionService,
        config: settings.Web,
        gate: access.Access,
        tasks: asyncio.TaskGroup,
        open_api: OpenApi | None = None,
    ) -> None:
        self._answer_program = open_api(service) if open_api is not None else None
        hub = tab_hub.Hub()

        async def notify(key: values.SessionKey, text: str) -> None:
            hub.notify(key.thread, text)
            # The session's Python may have ended, which the list shows.
            hub.sessions_changed.set()

        tabs = websocket_actions.TabConnections(service, hub, tasks)
        service.notify_through("web", notify, go_on=tabs.run_request)
        service.schedules.open_platform(
            "web", schedules.Platform(tabs.run_request, _find_owner_refusal)
        )
        service.events.open_platform("web", tabs.handle_lost_event)
        self._tabs = tabs
        self._listing_task = tasks.create_task(
            tab_contents.send_listings(service, hub), name="web: lists"
        )
        displays = sandboxed_displays.Displays(service, hub, has_scripts=config.page_scripts)
        visits = shared_sessions.SharedSessions(service, gate, hub)
        notebooks = notebook_runs.NotebookRuns(service, tabs)
        stored_files = files.Files(service)
        model_form = model_forms.ModelForms(service)
        self._handlers: dict[tuple[str, str], access.Handler] = {
            ("GET", "/picture"): displays.send_picture,
            ("GET", "/frame"): displays.send_page,
            ("GET", "/output"): displays.send_download,
            ("GET", "/download"): stored_files.send_download,
            ("GET", "/notebook"): stored_files.send_notebook,
            ("GET", "/media"): stored_files.send_media,
            ("GET", "/archive"): zip_archives.ZipArchives(service).send_archive,
            ("GET", "/visited"): visits.send_conversation,
            ("POST", "/model"): model_form.choose,
            ("POST", "/model-servers"): model_form.list_servers,
            ("POST", "/upload"): stored_files.upload,
            ("POST", "/rename"): stored_files.rename,
            ("POST", "/delete"): stored_files.delete,
            ("POST", "/open"): stored_files.open_table,
            ("POST", "/table"): stored_files.send_table,
            ("POST", "/visit"): visits.open_visit,
            ("POST", "/continue"): visits.copy_to_page,
            ("POST", "/run-notebook"): notebooks.begin,
        }

    async def serve_tab(self, socket: web.WebSocketResponse) -> None:
        """Serve a tab until it goes."""
        await self._tabs.serve_tab(socket)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, or turn any error into a response with a sentence."""
        if request.path.startswith(access.API_PREFIX) and self._answer_program is not None:
            return await self._answer_program(request)
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            methods = [method for method, path in self._handlers if path == request.path]
            raise web.HTTPMethodNotAllowed(request.method, methods) if methods else web.HTTPNotFound
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            if not isinstance(error, errors.BotError):
                _log.exception("a request ended in an error")
            if request.writer.output_size:
                raise ConnectionError("a response that has begun can only break off") from error
            status = next(
                (status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500
            )
            return web.Response(status=status, text=run_words.error_sentence(error))

    async def close(self) -> None:
        """Disconnect every tab; they reconnect when a server listens again."""
        await self._tabs.close()

    def cancel(self) -> None:
        """Cancel every turn that waits or runs."""
        self._tabs.cancel()
        self._listing_task.cancel()
