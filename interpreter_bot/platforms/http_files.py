"""Files over HTTP: streamed in pieces, in both directions, as fast as the other side goes."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.wording import page_words

_PIECE_BYTES: Final = 1024 * 1024
_PART_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 60.0
"""How long a client may stop reading."""


async def stream_file(
    request: web.Request,
    info: values.FileInfo,
    pieces: AsyncIterator[bytes],
    *,
    headers: dict[str, str],
    status: int = 200,
) -> web.StreamResponse:
    """Stream a file as fast as the client reads."""
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = bytes_left = info.size_bytes
    await response.prepare(request)
    async for piece in pieces:
        # The file may have grown: only the announced length is sent.
        await write_part(request, response, piece[:bytes_left])
        bytes_left -= len(piece)
        if bytes_left <= 0:
            break
    if bytes_left > 0:
        # The file shrank. Only a broken connection shows the browser that something is missing.
        response.force_close()
    return response


async def write_part(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Write a part of an answer as fast as the client reads.

    Raises:
        ConnectionError: the client is gone, or has read nothing for `STALL_SECONDS`.
    """
    # In small parts, each with its own time limit, so that slow clients do not count as stalled.
    for start in range(0, len(data), _PART_BYTES):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await response.write(data[start : start + _PART_BYTES])
        except TimeoutError as error:
            if request.transport is not None:
                # Closing would wait until the client has read what is buffered.
                request.transport.abort()
            raise ConnectionResetError("the client stopped reading") from error


def content_disposition(name: str) -> str:
    """Return a Content-Disposition for the last part of a name (RFC 6266)."""
    base_name = name.replace("\\", "/").rstrip("/").rpartition("/")[2].strip() or "file"
    ascii_name = "".join(
        character if character.isascii() and (character.isalnum() or character in " ._-") else "_"
        for character in base_name
    )
    quoted_name = urllib.parse.quote(base_name.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quoted_name}"


async def read_pieces(request: web.Request, limit_bytes: int) -> AsyncIterator[bytes]:
    """Read a request's body.

    Raises:
        WorkspaceError: it is longer than allowed, or broke off.
    """
    size = 0
    try:
        async for piece in request.content.iter_chunked(_PIECE_BYTES):
            size += len(piece)
            if size > limit_bytes:
                raise errors.FileTooLargeError(page_words.too_large(limit_bytes))
            yield piece
    except (ConnectionError, web.RequestPayloadError) as error:
        raise errors.WorkspaceError(page_words.UPLOAD_BROKE_OFF) from error
