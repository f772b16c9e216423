"""MCP server applications, one for each client, so that the SDK's bounds are that client's.

The SDK bounds the sessions of its protocol for all clients together: one that opens many would
leave others none. Each application still asks for the token itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # What the SDK's applications are made of.
    from starlette import applications, types

_SCHEME: Final = "bearer "
_NOBODY: Final = ""


class ClientApps:
    """Applications by client, made when one comes first; one for those who are nobody refuses them.

    An ASGI application itself, but for its end: `close`.
    """

    def __init__(
        self,
        make: Callable[[], applications.Starlette],
        client_of: Callable[[str], str | None],
    ) -> None:
        """Make none yet.

        Args:
            make: an application for one client.
            client_of: says whose a token is.
        """
        self._make = make
        self._client_of = client_of
        self._apps: dict[str, _RunningApp] = {}

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Let a client's own application answer."""
        # The first, as the application takes it: of two, another may be somebody else's.
        headers = (value for name, value in scope["headers"] if name == b"authorization")
        header = next(headers, b"").decode("latin-1")
        token = header[len(_SCHEME) :] if header.lower().startswith(_SCHEME) else ""
        client = self._client_of(token) or _NOBODY
        if client not in self._apps:
            self._apps[client] = _RunningApp(self._make())
        await self._apps[client].answer(scope, receive, send)

    async def close(self) -> None:
        """End all of them, with their sessions."""
        for server in self._apps.values():
            server.running.cancel()
        await asyncio.gather(
            *(server.running for server in self._apps.values()), return_exceptions=True
        )


class _RunningApp:
    """One application, between its beginning and its end, which are of one task."""

    def __init__(self, app: applications.Starlette) -> None:
        self._app = app
        self._has_begun = asyncio.Event()
        self.running = asyncio.create_task(self._run(), name="mcp: sessions of a client")

    async def _run(self) -> None:
        try:
            async with self._app.router.lifespan_context(self._app):
                self._has_begun.set()
                await asyncio.Event().wait()
        finally:
            # Where it could not begin, it refuses; nobody waits for it in vain.
            self._has_begun.set()

    async def answer(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Answer a request."""
        await self._has_begun.wait()
        await self._app(scope, receive, send)
