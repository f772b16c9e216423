"""Upload and download of files, in pieces: none is ever in memory as a whole."""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import validation
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.text import quantities

_PIECE_BYTES: Final = 1024 * 1024
_MOST_NAME_CHARACTERS: Final = 8192


class Files:
    """Routes of files."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service

    async def upload(self, request: web.Request) -> web.Response:
        """Put a file into a workspace; the body is the file. The response is its name there."""
        key, name = where(request)
        limit = self._service.queries.limits.upload_bytes
        size = request.content_length
        if size is not None and size > limit:
            raise errors.FileTooLargeError(too_large(limit))
        attachment = requests.Attachment(
            name or "file", lambda: _pieces(request, limit), size_bytes=size
        )
        return web.json_response({"name": await self._service.put(key, attachment)})

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Serve a file of a workspace as a download, never inline."""
        key, name = where(request)
        async with self._service.queries.reading(key, name) as (info, pieces):
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": disposition(name),
            }
            return await stream(request, info, pieces, headers=headers)

    async def notebook(self, request: web.Request) -> web.Response:
        """Serve a session as a notebook."""
        key, title = where(request)
        data = await self._service.queries.notebook(key)
        headers = {
            "Content-Type": "application/x-ipynb+json",
            "Content-Disposition": disposition(
                f"{title.replace('/', ' ') or 'conversation'}.ipynb"
            ),
        }
        return web.Response(body=data, headers=headers)


async def stream(
    request: web.Request,
    info: values.FileInfo,
    pieces: AsyncIterator[bytes],
    *,
    headers: dict[str, str],
) -> web.StreamResponse:
    """Stream a file as fast as the client reads."""
    response = web.StreamResponse(headers=headers)
    response.content_length = left = info.size_bytes
    await response.prepare(request)
    async for piece in pieces:
        # It may have grown; more than what was announced is no longer the file.
        await response.write(piece[:left])
        left -= len(piece)
        if left <= 0:
            break
    if left > 0:
        # It shrank. Only a broken connection tells the browser that something is missing.
        response.force_close()
    return response


def where(request: web.Request) -> tuple[values.SessionKey, str]:
    """Parse a request's address: a session, and a file in it.

    Raises:
        MalformedError: it names none.
    """
    name = validation.text(dict(request.query), "name", most=_MOST_NAME_CHARACTERS)
    return validation.key(request.query.get("thread")), name


def too_large(limit_bytes: int) -> str:
    """Return the sentence for a file over the limit."""
    return f"The file is too large: {quantities.size(limit_bytes)} is the most."


def disposition(name: str) -> str:
    """Return a Content-Disposition that lets a browser save a file under any name at all.

    The last part of the name counts. Old clients get one of plain letters (RFC 6266).
    """
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].strip() or "file"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in " ._-") else "_" for c in last)
    quoted = urllib.parse.quote(last.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quoted}"


async def _pieces(request: web.Request, limit_bytes: int) -> AsyncIterator[bytes]:
    """Read a body as it comes.

    Raises:
        WorkspaceError: there is more of it than allowed, or it broke off.
    """
    size = 0
    try:
        async for piece in request.content.iter_chunked(_PIECE_BYTES):
            size += len(piece)
            if size > limit_bytes:
                raise errors.FileTooLargeError(too_large(limit_bytes))
            yield piece
    except (ConnectionError, web.RequestPayloadError) as error:
        raise errors.WorkspaceError("The upload broke off.") from error
