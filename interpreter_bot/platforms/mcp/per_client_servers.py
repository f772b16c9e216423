"""MCP server applications, one for each client, so that clients do not share the SDK's limits.

The SDK limits the protocol sessions of an application: in a shared one, a client that opens many
would leave none to others. Each application still verifies the token itself. What the bodies of
unanswered requests take is limited as for the HTTP interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette import exceptions

from interpreter_bot.platforms import request_limits

if TYPE_CHECKING:
    # The framework of the SDK's applications.
    from starlette import applications, types

_SCHEME: Final = "bearer "
_UNKNOWN_CLIENT: Final = ""


class ClientApps:
    """An ASGI application that passes requests to an application for each client.

    An application is made at the first request of its client. One more application refuses requests
    without a valid token. `close` ends them all.
    """

    def __init__(
        self,
        make_app: Callable[[], applications.Starlette],
        find_client: Callable[[str], str | None],
        limits: request_limits.Limits,
    ) -> None:
        """Begin without applications; `find_client` returns the client that a token belongs to."""
        self._make_app = make_app
        self._body_memory = request_limits.BodyMemory(limits)
        self._find_client = find_client
        self._apps: dict[str, _RunningApp] = {}

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Pass a request to the application of its client."""
        # The application uses the first of several headers, so the client must be found by it, too.
        headers = (value for name, value in scope["headers"] if name == b"authorization")
        header = next(headers, b"").decode("latin-1")
        token = header[len(_SCHEME) :] if header.lower().startswith(_SCHEME) else ""
        client = self._find_client(token) or _UNKNOWN_CLIENT
        if client not in self._apps:
            self._apps[client] = _RunningApp(self._make_app())
        # Charged until the answer, as the SDK keeps the body while it carries out a call.
        with self._body_memory.open_account(client) as charge:
            await self._apps[client].answer(scope, _charge_body(receive, charge), send)

    async def close(self) -> None:
        """End all applications and their sessions."""
        for app in self._apps.values():
            app.task.cancel()
        await asyncio.gather(*(app.task for app in self._apps.values()), return_exceptions=True)


def _charge_body(receive: types.Receive, charge: Callable[[int], None]) -> types.Receive:
    """Wrap a function that receives a request, so that the bytes of its body are charged.

    If they exceed a limit, the wrapper raises what the framework answers as a refusal.
    """

    async def receive_and_charge() -> types.Message:
        message = await receive()
        try:
            charge(len(message.get("body", b"")))
        except request_limits.ClientBusyError as error:
            raise exceptions.HTTPException(429, str(error)) from error
        except request_limits.ServerBusyError as error:
            raise exceptions.HTTPException(503, str(error)) from error
        return message

    return receive_and_charge


class _RunningApp:
    """One application; a task starts and ends it, as the SDK requires both to be in one task."""

    def __init__(self, app: applications.Starlette) -> None:
        self._app = app
        self._is_started = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="mcp: sessions of a client")

    async def _run(self) -> None:
        try:
            async with self._app.router.lifespan_context(self._app):
                self._is_started.set()
                await asyncio.Event().wait()
        finally:
            # Also after a failed start, so that requests are refused and do not wait for ever.
            self._is_started.set()

    async def answer(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Answer a request."""
        await self._is_started.wait()
        await self._app(scope, receive, send)
