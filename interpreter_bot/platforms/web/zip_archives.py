"""All files of a session in one zip file, which is made while the browser downloads it."""

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

# Archives support times of 1980 to 2107.
_MIN_ZIP_SECONDS: Final = 315_532_800
_MAX_ZIP_SECONDS: Final = 4_354_819_199
# Members without "zip64" are limited to 2 GiB, and incompressible files become a little larger.
_MIN_ZIP64_BYTES: Final = 2**30
_OMISSIONS_FILE: Final = "left-out.txt"
_MAX_ARCHIVES_PER_SESSION: Final = 2
_MAX_COMPRESSIONS: Final = 1


class ZipArchives:
    """The route of archives."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service
        self._slots = session_slots.SessionSlots(_MAX_ARCHIVES_PER_SESSION)
        # All sessions share the threads and processors that reading and compressing take.
        self._compression_slots = asyncio.Semaphore(_MAX_COMPRESSIONS)

    async def send_archive(self, request: web.Request) -> web.StreamResponse:
        """Serve all files of a session in one zip file."""
        key, title = files.parse_session_and_name(request)
        with self._slots.hold(key, visit=files.visit_id(request)):
            return await self._send_archive(request, key, title)

    async def _send_archive(
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
            remaining_bytes = self._service.queries.limits.workspace_bytes
            for info in infos:
                if info.size_bytes > remaining_bytes:
                    omissions.append(f"{info.name}: {page_words.ARCHIVE_FULL}\n")
                    continue
                remaining_bytes -= info.size_bytes
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
        """Add a file to an archive; return why it is missing or incomplete, or an empty text.

        A file that grows meanwhile is added up to the size that it had when it was opened.
        """
        # Code may set any time.
        seconds = min(max(info.modified_ns // 10**9, _MIN_ZIP_SECONDS), _MAX_ZIP_SECONDS)
        entry = zipfile.ZipInfo(path, time.gmtime(seconds)[:6])
        entry.compress_type = zipfile.ZIP_DEFLATED
        async with contextlib.AsyncExitStack() as stack:
            # The holes of a sparse file take no room in a workspace, but they do in an archive.
            open_file = self._service.queries.open_file(key, info.name, may_be_sparse=False)
            try:
                opened_info, pieces = await stack.enter_async_context(open_file)
            except errors.FileMissingError:
                # Code deleted it meanwhile.
                return ""
            except errors.WorkspaceError as error:
                return str(error)
            remaining_bytes = opened_info.size_bytes
            is_large = remaining_bytes >= _MIN_ZIP64_BYTES
            with archive.open(entry, "w", force_zip64=is_large) as member:
                while remaining_bytes > 0:
                    async with self._compression_slots:
                        piece = await anext(pieces, b"")
                        # A file that has grown might exceed the limit of its header.
                        await cancellation.in_thread(member.write, piece[:remaining_bytes])
                    await write(buffer.take())
                    remaining_bytes -= len(piece)
                    if not piece:
                        break
        return page_words.FILE_SHRANK if remaining_bytes > 0 else ""


class _ArchiveBuffer(io.RawIOBase):
    """The bytes of a zip file that are not sent yet."""

    def __init__(self) -> None:
        super().__init__()
        self._unsent = bytearray()

    def writable(self) -> bool:
        """Return True: the buffer can be written to, but not sought."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Add bytes."""
        self._unsent += data
        return len(data)

    def take(self) -> bytes:
        """Return and forget the bytes since the last call."""
        data, self._unsent = bytes(self._unsent), bytearray()
        return data
