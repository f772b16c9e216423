"""Files of a session for the page, in pieces: none is ever in memory as a whole."""

from __future__ import annotations

import contextlib
import io
import time
import urllib.parse
import zipfile
from collections.abc import AsyncIterator, Container
from typing import Any, Final

from aiohttp import web

from interpreter_bot import cancellation, errors, values
from interpreter_bot.platforms.web import access, event_json, validation
from interpreter_bot.sessions import live_tables, requests, session_service
from interpreter_bot.text import quantities

_PIECE_BYTES: Final = 1024 * 1024
_MOST_NAME_CHARACTERS: Final = 8192
_FIRST_SECOND: Final = 315_532_800
_LAST_SECOND: Final = 4_354_819_199
# What does not pack becomes larger by a little, and 2 GiB are the most without "zip64".
_LARGE_BYTES: Final = 2**30
_LEFT_OUT: Final = "left-out.txt"
_MEDIA: Final = {
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
# None of them is a page to any browser, whatever is in the file: its type is said, and not guessed.
_MEDIA_POLICY: Final = "default-src 'none'; base-uri 'none'; frame-ancestors 'self'"


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

    async def media(self, request: web.Request) -> web.StreamResponse:
        """Serve a document, a sound or a film, or a part of it, to be shown by the browser."""
        key, name = where(request)
        kind = _MEDIA.get(name.rpartition(".")[2].lower())
        if kind is None:
            raise errors.FileNameError("Files of that kind are not shown here.")
        try:
            part = request.http_range
        except ValueError:
            part = slice(None)
        # Of its last bytes nobody asks who does not know how many there are.
        start = max(part.start or 0, 0)
        headers = {
            "Content-Type": kind,
            "Content-Security-Policy": _MEDIA_POLICY,
            "Accept-Ranges": "bytes",
        }
        async with self._service.queries.reading(key, name, start=start) as (info, pieces):
            stop = min(part.stop or info.size_bytes, info.size_bytes)
            if part.start is None or part.start < 0:
                return await stream(request, info, pieces, headers=headers)
            if start >= stop:
                raise web.HTTPRequestRangeNotSatisfiable
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{info.size_bytes}"
            rest = values.FileInfo(info.name, stop - start, info.modified_ns)
            return await stream(request, rest, pieces, headers=headers, status=206)

    async def archive(self, request: web.Request) -> web.StreamResponse:
        """Serve all files of a session in one zip file, which is made as it is read."""
        key, title = where(request)
        infos = await self._service.queries.files(key)
        if not infos:
            raise errors.FileMissingError("There are no files yet.")
        headers = {
            "Content-Type": "application/zip",
            "Content-Disposition": disposition(_named(title, "zip")),
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        packed = _Packed()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            refused = []
            for info in infos:
                if problem := await self._pack(key, info, archive, packed, response):
                    refused.append(f"{info.name}: {problem}\n")
            if refused:
                archive.writestr(_free(_LEFT_OUT, archive.NameToInfo), "".join(refused))
        await response.write(packed.taken())
        return response

    async def _pack(
        self,
        key: values.SessionKey,
        info: values.FileInfo,
        archive: zipfile.ZipFile,
        packed: _Packed,
        response: web.StreamResponse,
    ) -> str:
        """Add a file to an archive, as large as it is when it is opened; return why not, if so."""
        # Code may give a file any time; archives know those of 1980 to 2107.
        seconds = min(max(info.modified_ns // 10**9, _FIRST_SECOND), _LAST_SECOND)
        entry = zipfile.ZipInfo(info.name, time.gmtime(seconds)[:6])
        entry.compress_type = zipfile.ZIP_DEFLATED
        async with contextlib.AsyncExitStack() as stack:
            reading = self._service.queries.reading(key, info.name)
            try:
                found, pieces = await stack.enter_async_context(reading)
            except errors.FileMissingError:
                # Code deleted it meanwhile.
                return ""
            except errors.WorkspaceError as error:
                return str(error)
            left = found.size_bytes
            is_large = left >= _LARGE_BYTES
            with archive.open(entry, "w", force_zip64=is_large) as opened:
                async for piece in pieces:
                    # What it has grown by meanwhile might be more than its header can tell.
                    await cancellation.in_thread(opened.write, piece[:left])
                    await response.write(packed.taken())
                    left -= len(piece)
                    if left <= 0:
                        break
        return ""

    async def rename(self, request: web.Request) -> web.Response:
        """Give a file another name; the response is the one it got."""
        key, name = where(request)
        wanted = validation.text(dict(request.query), "to", most=_MOST_NAME_CHARACTERS)
        return web.json_response({"name": await self._service.files.rename(key, name, wanted)})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        await self._service.files.delete(*where(request))
        return web.json_response({})

    async def open_table(self, request: web.Request) -> web.Response:
        """Let Python read a file as a table; the response says how it is looked at."""
        sheet = validation.text(dict(request.query), "sheet", most=_MOST_NAME_CHARACTERS)
        key, name = where(request)
        try:
            opened = await self._service.files.open_table(key, name, validation.PERSON, sheet=sheet)
        except live_tables.PythonBusyError as error:
            return web.json_response(event_json.problem(error))
        return web.json_response(opened.model_dump(mode="json"))

    async def notebook(self, request: web.Request) -> web.Response:
        """Serve a session as a notebook, a script or a page, as a download."""
        key, title = where(request)
        queries, suffix = self._service.queries, request.query.get("suffix", "ipynb")
        match suffix:
            case "ipynb":
                data = await queries.notebook(key)
            case "py":
                data = await queries.script(key)
            case "html":
                data = await queries.document(key, title or "Conversation")
            case _:
                raise validation.MalformedError
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": disposition(_named(title, suffix)),
        }
        return web.Response(body=data, headers=headers)


async def stream(
    request: web.Request,
    info: values.FileInfo,
    pieces: AsyncIterator[bytes],
    *,
    headers: dict[str, str],
    status: int = 200,
) -> web.StreamResponse:
    """Stream a file as fast as the client reads."""
    response = web.StreamResponse(status=status, headers=headers)
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
    """Parse a request's address: a session, and a file in it. A visit has its session only.

    Raises:
        MalformedError: it names none.
    """
    name = validation.text(dict(request.query), "name", most=_MOST_NAME_CHARACTERS)
    if (visit := request.get(access.VISIT)) is not None:
        return visit.key, name
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


class _Packed(io.RawIOBase):
    """What a zip file consists of so far, and nobody has taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self._made = bytearray()

    def writable(self) -> bool:
        """Say that it takes bytes; it cannot go back among them."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Take bytes."""
        self._made += data
        return len(data)

    def taken(self) -> bytes:
        """Return what was made since the last time."""
        made, self._made = bytes(self._made), bytearray()
        return made


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _named(title: str, suffix: str) -> str:
    return f"{title.replace('/', ' ') or 'conversation'}.{suffix}"


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
