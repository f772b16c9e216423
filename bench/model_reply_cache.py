"""A proxy before a model's server that never asks it the same thing twice.

A reply is kept in a file by the hash of what decides it, and given again as it came. With it a run
of an evaluation that broke off goes on where it was, and what no change touched costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web

# What of a request decides about the reply, in a server that draws no lots.
_DECISIVE: Final = ("model", "messages", "temperature", "max_tokens", "tools", "tool_choice")
_END: Final = (
    b'\n\ndata: {"choices":[{"index":0,"delta":{"content":"\\n"},"finish_reason":"stop"}],'
    b'"object":"chat.completion.chunk","id":"kept","created":0,"model":"kept"}\n\ndata: [DONE]\n\n'
)
_MAX_BODY_BYTES: Final = 16_000_000


class _Proxy:
    """Answers from files, or asks.

    Attributes:
        asked: how many requests went to the server.
        known: how many did not.
    """

    def __init__(
        self, base_url: str, folder: pathlib.Path, session: aiohttp.ClientSession, api_key: str
    ) -> None:
        self.asked = 0
        self.known = 0
        self._base_url = base_url
        self._folder = folder
        self._session = session
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = self._folder / f"{_key(body)}.sse"
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        whole = _cached(path)
        if whole:
            self.known += 1
            await response.prepare(request)
            await response.write(whole)
            return response
        self.asked += 1
        return await self._forward(request, response, body, path)

    async def _forward(
        self, request: web.Request, response: web.StreamResponse, body: bytes, path: pathlib.Path
    ) -> web.StreamResponse:
        url = f"{self._base_url}/chat/completions"
        async with self._session.post(url, data=body, headers=self._headers) as source:
            if source.status != 200:
                return web.Response(
                    status=source.status,
                    body=await source.read(),
                    content_type=source.content_type,
                )
            await response.prepare(request)
            parts: list[bytes] = []
            try:
                async for part in source.content.iter_any():
                    parts.append(part)
                    await response.write(part)
            except (ConnectionResetError, asyncio.CancelledError):
                # Who hangs up has the block of code that was wanted.
                _keep(path, b"".join(parts).rpartition(b"\n\n")[0] + _END)
                raise
            _keep(path, b"".join(parts))
        return response


def _key(body: bytes) -> str:
    # 0 is 0.0.
    request = json.loads(body, parse_int=float)
    decisive = [request.get(name) for name in _DECISIVE]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def _cached(path: pathlib.Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _keep(path: pathlib.Path, reply: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(reply)


@contextlib.asynccontextmanager
async def serving(
    base_url: str, folder: pathlib.Path, *, api_key: str = "none"
) -> AsyncIterator[str]:
    """Put a proxy before a server, and give its address.

    Args:
        base_url: of the server, such as `http://127.0.0.1:8911/v1`.
        folder: where replies are kept.
        api_key: what the server wants to see.
    """
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        proxy = _Proxy(base_url.rstrip("/"), folder, session, api_key)
        application = web.Application(client_max_size=_MAX_BODY_BYTES)
        application.router.add_post("/v1/chat/completions", proxy.answer)
        runner = web.AppRunner(application, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()
            print(f"Asked {proxy.asked}, known {proxy.known}.", flush=True)
