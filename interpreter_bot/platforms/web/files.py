"""Routes for a session's files, streamed in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms import http_files
from interpreter_bot.platforms.web import access, session_slots, tab_contents, validation
from interpreter_bot.sessions import live_data_views, requests, session_service
from interpreter_bot.wording import page_words

# Browsers open six connections at a time.
_MAX_DOWNLOADS_PER_SESSION: Final = 8
_MEDIA_TYPES: Final = {
    "pdf": "application/pdf",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "webm": "video/webm",
}
# Browsers must not guess another type ("nosniff"), so no file is ever shown as a page.
_MEDIA_POLICY: Final = "default-src 'none'; base-uri 'none'; frame-ancestors 'self'"


class Files:
    """Routes of files."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service
        self._slots = session_slots.SessionSlots(_MAX_DOWNLOADS_PER_SESSION)

    async def upload(self, request: web.Request) -> web.Response:
        """Put the body into a workspace as a file; the response has its name there."""
        key, name = parse_session_and_name(request)
        limit = self._service.queries.limits.upload_bytes
        size = request.content_length
        if size is not None and size > limit:
            raise errors.FileTooLargeError(page_words.too_large(limit))
        attachment = requests.Attachment(
            name or "file", lambda: http_files.read_pieces(request, limit), size_bytes=size
        )
        return web.json_response({"name": await self._service.put_file(key, attachment)})

    async def send_download(self, request: web.Request) -> web.StreamResponse:
        """Serve a file of a workspace as a download, never inline."""
        with self._slots.hold(parse_session_and_name(request)[0], visit=visit_id(request)):
            return await self._send_download(request)

    async def _send_download(self, request: web.Request) -> web.StreamResponse:
        async with open_file(self._service, request) as (info, pieces):
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": http_files.content_disposition(info.name),
            }
            return await http_files.stream_file(request, info, pieces, headers=headers)

    async def send_media(self, request: web.Request) -> web.StreamResponse:
        """Serve a document, sound or film, or a range of it, for display by the browser."""
        _, name = parse_session_and_name(request)
        content_type = _MEDIA_TYPES.get(name.rpartition(".")[2].lower())
        if content_type is None:
            raise errors.FileNameError(page_words.NOT_SHOWN)
        try:
            byte_range = request.http_range
        except ValueError:
            byte_range = slice(None)
        headers = {
            "Content-Type": content_type,
            "Content-Security-Policy": _MEDIA_POLICY,
            "Accept-Ranges": "bytes",
        }
        with self._slots.hold(parse_session_and_name(request)[0], visit=visit_id(request)):
            return await self._send_media(request, byte_range, headers)

    async def _send_media(
        self, request: web.Request, byte_range: slice, headers: dict[str, str]
    ) -> web.StreamResponse:
        # Ranges that count from the end are not supported; they get the whole file.
        start = max(byte_range.start or 0, 0)
        async with open_file(self._service, request, start=start) as (info, pieces):
            stop = min(byte_range.stop or info.size_bytes, info.size_bytes)
            if byte_range.start is None or byte_range.start < 0:
                return await http_files.stream_file(request, info, pieces, headers=headers)
            if start >= stop:
                raise web.HTTPRequestRangeNotSatisfiable
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{info.size_bytes}"
            range_info = values.FileInfo(info.name, stop - start, info.modified_ns)
            return await http_files.stream_file(
                request, range_info, pieces, headers=headers, status=206
            )

    async def rename(self, request: web.Request) -> web.Response:
        """Rename a file; the response has its new name."""
        key, name = parse_session_and_name(request)
        new_name = validation.read_text(
            dict(request.query), "to", max_characters=validation.MAX_NAME_CHARACTERS
        )
        return web.json_response({"name": await self._service.files.rename(key, name, new_name)})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        await self._service.files.delete(*parse_session_and_name(request))
        return web.json_response({})

    async def open_table(self, request: web.Request) -> web.Response:
        """Let Python read a file as a table; the response has the handle to read its pages with."""
        sheet = validation.read_text(
            dict(request.query), "sheet", max_characters=validation.MAX_NAME_CHARACTERS
        )
        key, name = parse_session_and_name(request)
        try:
            table_info = await self._service.files.open_table(
                key, name, validation.PERSON, sheet=sheet
            )
        except live_data_views.PythonBusyError as error:
            return web.json_response(tab_contents.describe_problem(error))
        return web.json_response(table_info.model_dump(mode="json"))

    async def send_table(self, request: web.Request) -> web.StreamResponse:
        """Serve a whole table of Python, through a temporary file."""
        key, _ = parse_session_and_name(request)
        handle = validation.check_handle(request.query.get("table"))
        suffix = request.query.get("suffix", "csv")
        if suffix not in ("csv", "parquet"):
            raise validation.MalformedError
        name = await self._service.save_table(key, handle, validation.PERSON, suffix)
        try:
            async with self._service.queries.open_file(key, name) as (info, pieces):
                headers = {"Content-Type": "application/octet-stream"}
                return await http_files.stream_file(request, info, pieces, headers=headers)
        finally:
            with contextlib.suppress(errors.FileMissingError):
                await self._service.files.delete(key, name)

    async def send_notebook(self, request: web.Request) -> web.Response:
        """Serve a session as a notebook, a script or a page, as a download."""
        key, title = parse_session_and_name(request)
        queries, suffix = self._service.queries, request.query.get("suffix", "ipynb")
        match suffix:
            case "ipynb":
                data = await queries.export_notebook(key)
            case "py":
                data = await queries.export_script(key)
            case "html":
                data = await queries.export_page(key, title or "Conversation")
            case _:
                raise validation.MalformedError
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": http_files.content_disposition(export_name(title, suffix)),
        }
        return web.Response(body=data, headers=headers)


def visit_id(request: web.Request) -> str:
    """Return the id of a request's visit; empty for the owner."""
    visit = request.get(access.VISIT_KEY)
    return "" if visit is None else visit.id


def parse_session_and_name(request: web.Request) -> tuple[values.SessionKey, str]:
    """Parse the session and the name in a request's address; a visit is bound to its session.

    Raises:
        MalformedError: the address names no session.
    """
    name = validation.read_text(
        dict(request.query), "name", max_characters=validation.MAX_NAME_CHARACTERS
    )
    if (visit := request.get(access.VISIT_KEY)) is not None:
        return visit.key, name
    return validation.parse_key(request.query.get("thread")), name


@contextlib.asynccontextmanager
async def open_file(
    service: session_service.SessionService, request: web.Request, *, start: int = 0
) -> AsyncIterator[tuple[values.FileInfo, AsyncIterator[bytes]]]:
    """Open the file that a request names.

    Raises:
        WorkspaceError: there is no such file.
    """
    key, name = parse_session_and_name(request)
    async with service.queries.open_file(key, name, start=start) as content:
        yield content


def export_name(title: str, suffix: str) -> str:
    """Return the file name of an exported conversation."""
    return f"{title.replace('/', ' ') or 'conversation'}.{suffix}"
