"""Lines that a client writes to standard input.

The SDK would read them in a thread that cannot be stopped, so that the process would not end after
a signal, and without a limit on their length.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import Final

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The limit of a client's message."""

_CHUNK_BYTES: Final = 64 * 1024


class ClientLines:
    """Iterates over the lines until the client closes them, or one is too long."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        line = bytearray()
        while chunk := await self._read_chunk():
            *line_ends, incomplete_line = chunk.split(b"\n")
            for line_end in line_ends:
                line += line_end
                yield line.decode("utf-8", "replace")
                line.clear()
            line += incomplete_line
            if len(line) > MAX_MESSAGE_BYTES:
                _log.error("the client sent a message above %d bytes; that is the end", len(line))
                return

    async def _read_chunk(self) -> bytes:
        """Wait for input, and read it."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        # A regular file is always readable, and cannot be waited for.
        with contextlib.suppress(PermissionError):
            loop.add_reader(self._descriptor, event.set)
            try:
                await event.wait()
            finally:
                loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)
