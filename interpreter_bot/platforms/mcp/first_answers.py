"""Answers to the client at standard input before the SDK is imported and the service is open.

Both take seconds, and a client waits for its first answer. What clients ask at first is answered
here, as the SDK would, which a test compares; everything else waits for it.
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

NAME: Final = "interpreter-bot"
"""What the server is called."""

MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Longest message of a client."""

_CHUNK_BYTES: Final = 64 * 1024
# Of the others the SDK decides.
_HANDSHAKE_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
_STATELESS_VERSION: Final = "2026-07-28"
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_CAPABILITIES: Final = {"tools": {"listChanged": False}}


class ClientLines:
    """Lines of the client at standard input, of which the first are answered here.

    Iterate over it for those that are left to the SDK; `read` goes on in the background.
    """

    def __init__(self, descriptor: int, output: TextIO, instructions: str) -> None:
        """Read nothing yet.

        Args:
            descriptor: of standard input.
            output: leads to the client.
            instructions: what clients are told of all tools together.
        """
        self.output = output
        self._descriptor = descriptor
        self._instructions = instructions
        self._server = {"name": NAME, "version": metadata.version(NAME)}
        self._rest: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_over = asyncio.Event()
        self._has_begun = False
        self._repeated: list[object] = []

    async def read(self) -> None:
        """Read lines until the client closes them, and answer the first ones."""
        try:
            async for line in self._lines():
                answer = None if self._is_over.is_set() else self._answer(line)
                if answer is not None:
                    self.output.write(json.dumps(answer, separators=(",", ":")) + "\n")
                    self.output.flush()
                else:
                    self._rest.put_nowait(line)
        finally:
            self._rest.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines that are left, and answer none from now on."""
        self._is_over.set()
        while (line := await self._rest.get()) is not None:
            yield line

    def is_repeated(self, line: str) -> bool:
        """Return whether the SDK's answer is one that was given here already."""
        if not self._repeated:
            return False
        identifier = json.loads(line).get("id")
        is_repeated = identifier in self._repeated
        if is_repeated:
            self._repeated.remove(identifier)
        return is_repeated

    def _answer(self, line: str) -> dict[str, object] | None:
        """Return the answer to a request; None leaves it to the SDK."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(request, dict) or not isinstance(request.get("id"), int | str):
            return None
        params = request.get("params") or {}
        if not isinstance(params, dict) or request.get("jsonrpc") != "2.0":
            return None
        result = self._result(request.get("method"), params)
        if result is None:
            return None
        if request["method"] == "initialize":
            # The SDK has to know of it, too.
            self._rest.put_nowait(line)
            self._repeated.append(request["id"])
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    def _result(self, method: object, params: Mapping[str, Any]) -> dict[str, object] | None:
        about = params.get("_meta")
        version = about.get(_VERSION_KEY) if isinstance(about, dict) else None
        if version == _STATELESS_VERSION and not self._has_begun:
            envelope = {
                "cacheScope": "private",
                "resultType": "complete",
                "ttlMs": 0,
                "_meta": {_SERVER_KEY: self._server},
            }
            if method == "server/discover":
                return envelope | self._description | {"supportedVersions": [_STATELESS_VERSION]}
            return envelope | _tools() if method == "tools/list" else None
        if version is not None:
            return None
        if method == "initialize" and not self._has_begun:
            protocol = params.get("protocolVersion")
            if protocol not in _HANDSHAKE_VERSIONS:
                return None
            self._has_begun = True
            return {"protocolVersion": protocol, "serverInfo": self._server} | self._description
        if method == "tools/list" and self._has_begun:
            return _tools()
        return {} if method == "ping" and self._has_begun else None

    @property
    def _description(self) -> dict[str, object]:
        return {"capabilities": _CAPABILITIES, "instructions": self._instructions}

    async def _lines(self) -> AsyncIterator[str]:
        """Yield lines, each bounded.

        The SDK's own reading thread could not be told to stop, and would keep a signal from ending
        us.
        """
        line = bytearray()
        while chunk := await self._chunk():
            *ended, rest = chunk.split(b"\n")
            for end in ended:
                line += end
                yield line.decode("utf-8", "replace")
                line.clear()
            line += rest
            if len(line) > MESSAGE_BYTES:
                _log.error("the client sent a message above %d bytes; that is the end", len(line))
                return

    async def _chunk(self) -> bytes:
        """Read what is there, once something is."""
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


def _tools() -> dict[str, object]:
    return {"tools": tool_definitions.tools()}
