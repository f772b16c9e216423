"""All files of a session in one zip file, which is made while it is read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import time
import zipfile
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from interpreter_bot import cancellation, errors, values
from interpreter_bot.platforms import http_files
from interpreter_bot.platforms.web import files, session_slots
from interpreter_bot.sessions import session_service
from interpreter_bot.text import file_names
from interpreter_bot.wording import page_words

_FIRST_SECOND: Final = 315_532_800
_LAST_SECOND: Final = 4_354_819_199
# Incompressible files become a little larger, and members without "zip64" are limited to 2 GiB.
_LARGE_BYTES: Final = 2**30
_OMISSIONS_FILE: Final = "left-out.txt"
_MAX_SESSION_ARCHIVES: Final = 2
_MAX_COMPRESSING: Final = 1


class ZipArchives:
    """The route of archives."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service
        self._slots = session_slots.SessionSlots(_MAX_SESSION_ARCHIVES)
        # Reading and compressing takes threads and processors that others share.
        self._compressing = asyncio.Semaphore(_MAX_COMPRESSING)

    async def archive(self, request: web.Request) -> web.StreamResponse:
        """Serve all files of a session in one zip file, which is made while it is read."""
        key, title = files.session_and_name(request)
        with self._slots.hold(key, visit=files.visit_id(request)):
            return await self._archive(request, key, title)

    async def _archive(
        self, request: web.Request, key: values.SessionKey, title: str
    ) -> web.StreamResponse:
        infos = await self._service.queries.files(key)
        if not infos:
            raise errors.FileMissingError(page_words.NO_FILES_YET)
        headers = {
            "Content-Type": "application/zip",
            "Content-Disposition": http_files.content_disposition(files.export_name(title, "zip")),
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        buffer = _ArchiveBuffer()
        write = functools.partial(http_files.write_part, request, response)
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            omissions = []
            paths = file_names.PortablePaths()
            left_bytes = self._service.queries.limits.workspace_bytes
            for info in infos:
                if info.size_bytes > left_bytes:
                    omissions.append(f"{info.name}: {page_words.ARCHIVE_FULL}\n")
                    continue
                left_bytes -= info.size_bytes
                path = paths.path(info.name)
                if problem := await self._add_file(key, info, path, archive, buffer, write):
                    omissions.append(f"{info.name}: {problem}\n")
            if omissions:
                archive.writestr(paths.path(_OMISSIONS_FILE), "".join(omissions))
        await write(buffer.take())
        return response

    async def _add_file(
        self,
        key: values.SessionKey,
        info: values.FileInfo,
        path: str,
        archive: zipfile.ZipFile,
        buffer: _ArchiveBuffer,
        write: Callable[[bytes], Awaitable[None]],
    ) -> str:
        """Add a file to an archive, at its size when it is opened; return a problem, if any."""
        # Code may set any time; archives support those of 1980 to 2107.
        seconds = min(max(info.modified_ns // 10**9, _FIRST_SECOND), _LAST_SECOND)
        entry = zipfile.ZipInfo(path, time.gmtime(seconds)[:6])
        entry.compress_type = zipfile.ZIP_DEFLATED
        async with contextlib.AsyncExitStack() as stack:
            # Holes take no room in a workspace, but they do in an archive.
            reading = self._service.queries.reading(key, info.name, may_be_sparse=False)
            try:
                current, pieces = await stack.enter_async_context(reading)
            except errors.FileMissingError:
                # Code deleted it meanwhile.
                return ""
            except errors.WorkspaceError as error:
                return str(error)
            bytes_left = current.size_bytes
            is_large = bytes_left >= _LARGE_BYTES
            with archive.open(entry, "w", force_zip64=is_large) as member:
                while bytes_left > 0:
                    async with self._compressing:
                        piece = await anext(pieces, b"")
                        # A file that has grown might exceed the limit of its header.
                        await cancellation.in_thread(member.write, piece[:bytes_left])
                    await write(buffer.take())
                    bytes_left -= len(piece)
                    if not piece:
                        break
        return page_words.FILE_SHRANK if bytes_left > 0 else ""


class _ArchiveBuffer(io.RawIOBase):
    """The bytes of a zip file that are not sent yet."""

    def __init__(self) -> None:
        super().__init__()
        self._unread = bytearray()

    def writable(self) -> bool:
        """Return that it is writable; it cannot seek."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Add bytes."""
        self._unread += data
        return len(data)

    def take(self) -> bytes:
        """Return and forget the bytes since the last call."""
        data, self._unread = bytes(self._unread), bytearray()
        return data
