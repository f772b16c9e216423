"""Answers to the client at standard input before the SDK is imported and the service is open.

Both take seconds, and a client waits for its first answer. This module answers the first requests
as the SDK would, which a test compares; all other requests wait for the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from importlib import metadata
from typing import Any, Final, TextIO

from interpreter_bot.platforms.mcp import tool_definitions

_log = logging.getLogger(__name__)

SERVER_NAME: Final = "interpreter-bot"
"""The name of the server."""

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The limit of a client's message."""

_CHUNK_BYTES: Final = 64 * 1024
# The SDK negotiates other versions.
_HANDSHAKE_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
_STATELESS_VERSION: Final = "2026-07-28"
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_CAPABILITIES: Final = {"tools": {"listChanged": False}}


class ClientLines:
    """Reads the client's lines from standard input, and answers the first of them.

    Iterate over it for the lines that the SDK has to answer, while `read` runs in the background.
    """

    def __init__(self, descriptor: int, output: TextIO, instructions: str) -> None:
        """Read nothing yet; `read` begins to.

        Args:
            descriptor: of standard input.
            output: where answers to the client are written.
            instructions: the description of all tools together, for clients.
        """
        self.output = output
        self._descriptor = descriptor
        self._instructions = instructions
        self._server_info = {"name": SERVER_NAME, "version": metadata.version(SERVER_NAME)}
        self._sdk_lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_sdk_reading = asyncio.Event()
        self._is_initialized = False
        self._answered_ids: list[object] = []

    async def read(self) -> None:
        """Read lines until the client closes them, and answer the first ones."""
        try:
            async for line in self._read_lines():
                answer = None if self._is_sdk_reading.is_set() else self._answer(line)
                if answer is not None:
                    self.output.write(json.dumps(answer, separators=(",", ":")) + "\n")
                    self.output.flush()
                else:
                    self._sdk_lines.put_nowait(line)
        finally:
            self._sdk_lines.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines for the SDK, which gets all further lines."""
        self._is_sdk_reading.set()
        while (line := await self._sdk_lines.get()) is not None:
            yield line

    def is_repeated(self, line: str) -> bool:
        """Return whether a line of the SDK repeats an answer that was already sent."""
        if not self._answered_ids:
            return False
        identifier = json.loads(line).get("id")
        is_repeated = identifier in self._answered_ids
        if is_repeated:
            self._answered_ids.remove(identifier)
        return is_repeated

    def _answer(self, line: str) -> dict[str, object] | None:
        """Return the answer to a request; None if the SDK has to answer it."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(request, dict) or not isinstance(request.get("id"), int | str):
            return None
        params = request.get("params") or {}
        if not isinstance(params, dict) or request.get("jsonrpc") != "2.0":
            return None
        result = self._make_result(request.get("method"), params)
        if result is None:
            return None
        if request["method"] == "initialize":
            # The SDK needs this request, too; `is_repeated` finds its answer, which is dropped.
            self._sdk_lines.put_nowait(line)
            self._answered_ids.append(request["id"])
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    def _make_result(self, method: object, params: Mapping[str, Any]) -> dict[str, object] | None:
        meta = params.get("_meta")
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if version == _STATELESS_VERSION and not self._is_initialized:
            envelope = {
                "cacheScope": "private",
                "resultType": "complete",
                "ttlMs": 0,
                "_meta": {_SERVER_KEY: self._server_info},
            }
            if method == "server/discover":
                return (
                    envelope | self._capability_fields | {"supportedVersions": [_STATELESS_VERSION]}
                )
            return envelope | _list_tools() if method == "tools/list" else None
        if version is not None:
            return None
        if method == "initialize" and not self._is_initialized:
            protocol = params.get("protocolVersion")
            if protocol not in _HANDSHAKE_VERSIONS:
                return None
            self._is_initialized = True
            return {
                "protocolVersion": protocol,
                "serverInfo": self._server_info,
            } | self._capability_fields
        if method == "tools/list" and self._is_initialized:
            return _list_tools()
        return {} if method == "ping" and self._is_initialized else None

    @property
    def _capability_fields(self) -> dict[str, object]:
        return {"capabilities": _CAPABILITIES, "instructions": self._instructions}

    async def _read_lines(self) -> AsyncIterator[str]:
        """Yield lines of a bounded length.

        The SDK would read them in a thread that cannot be stopped, so that the process would not
        end after a signal.
        """
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


def _list_tools() -> dict[str, object]:
    return {"tools": tool_definitions.describe_tools()}
