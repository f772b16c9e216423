"""The MCP servers: one over standard input and output, one over HTTP for clients with tokens.

We use the SDK's low-level server, because its decorators add their own words to errors and
configure logging for the whole process.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TextIO

import anyio
import mcp_types
import pydantic
import uvicorn
from mcp.server import context, lowlevel, stdio, transport_security
from mcp.server.auth import provider
from mcp.server.auth import settings as auth_settings
from mcp.server.auth.middleware import bearer_auth
from mcp.shared import exceptions
from uvicorn.protocols.http import h11_impl

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms import client_tokens, request_limits
from interpreter_bot.platforms.mcp import (
    client_lines,
    per_client_servers,
    tool_calls,
    tool_definitions,
)
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import page_words, tool_words

if TYPE_CHECKING:
    from starlette.applications import Starlette


_SERVER_NAME: Final = "interpreter-bot"
_PATH: Final = "/mcp"
_LOCAL_CLIENT: Final = "stdio"
_MAX_CONNECTIONS: Final = 256
_MAX_CLIENT_SESSIONS: Final = 32
_CLOSING_SECONDS: Final = 5
_FIRST_REQUEST_SECONDS: Final = 20.0
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_NO_CLIENTS_NOTICE: Final = "; no client may use it yet: interpreter-bot mcp add NAME"

_Context = context.ServerRequestContext[dict[str, Any], Any]


async def serve_stdio(
    service: asyncio.Future[session_service.SessionService], output: TextIO, instructions: str
) -> None:
    """Serve the client at standard input and output, until it closes them.

    Calls of tools wait until the service is open; all else is answered before.
    """
    calls: tool_calls.ToolCalls | None = None

    async def find_calls() -> tool_calls.ToolCalls:
        nonlocal calls
        open_service = await asyncio.shield(service)
        calls = calls or tool_calls.ToolCalls(open_service)
        return calls

    server = _make_server(find_calls, instructions, lambda _: _LOCAL_CLIENT)
    stdin: Any = client_lines.ClientLines(sys.stdin.fileno())
    async with stdio.stdio_server(stdin, anyio.wrap_file(output)) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@contextlib.asynccontextmanager
async def serve(
    service: session_service.SessionService,
    config: settings.Mcp,
    data: pathlib.Path,
    limits: request_limits.Limits = request_limits.DEFAULT_LIMITS,
) -> AsyncIterator[str]:
    """Serve clients over HTTP, whose file is in the directory `data`; yield the address.

    Raises:
        SettingsError: the address cannot be used.
    """
    file = data / client_tokens.MCP_FILE
    notice = "" if client_tokens.list_names(file) else _NO_CLIENTS_NOTICE

    async def notify(key: values.SessionKey, text: str) -> None:
        """Do nothing: a client learns of its session with its next call."""

    service.notify_through(tool_calls.PLATFORM, notify)
    with _bind(config) as listener:
        port = listener.getsockname()[1]
        host = f"[{config.host}]" if ":" in config.host else config.host
        address = f"http://{host}:{port}{_PATH}"
        tokens = client_tokens.ClientTokens(file)

        calls = tool_calls.ToolCalls(service)

        async def find_calls() -> tool_calls.ToolCalls:
            return calls

        reach = service.queries.reach(values.SessionKey(tool_calls.PLATFORM))
        instructions = tool_definitions.write_instructions(service.queries.limits, reach)

        def make_app() -> Starlette:
            return _make_server(find_calls, instructions, _authenticate).streamable_http_app(
                streamable_http_path=_PATH,
                max_request_body_size=client_lines.MAX_MESSAGE_BYTES,
                max_sessions=_MAX_CLIENT_SESSIONS,
                transport_security=_make_security_settings(config),
                auth=auth_settings.AuthSettings(
                    issuer_url=pydantic.AnyHttpUrl(address), resource_server_url=None
                ),
                token_verifier=_TokenVerifier(tokens),
            )

        apps = per_client_servers.ClientApps(make_app, tokens.find_client, limits)
        server = _HttpServer(
            uvicorn.Config(
                apps,
                http=_HttpProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_CLOSING_SECONDS,
            )
        )
        serve_task = asyncio.create_task(_serve(server, listener, apps), name="mcp: HTTP")
        try:
            await server.ready.wait()
            yield address + notice
        finally:
            server.should_exit = True
            await serve_task


async def _serve(
    server: uvicorn.Server, listener: socket.socket, apps: per_client_servers.ClientApps
) -> None:
    """Serve until the server should exit, then close the applications of clients."""
    try:
        await server.serve(sockets=[listener])
    finally:
        await apps.close()


class _HttpProtocol(h11_impl.H11Protocol):
    """A connection that is closed if no request arrives; the library would wait for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection."""
        super().connection_made(transport)
        self.loop.call_later(_FIRST_REQUEST_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _HttpServer(uvicorn.Server):
    """A server that leaves signals to the process.

    Attributes:
        ready: set once the server accepts connections.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class _TokenVerifier:
    """Verifies tokens; implements the SDK's `TokenVerifier`."""

    def __init__(self, tokens: client_tokens.ClientTokens) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> provider.AccessToken | None:
        """Return the client of a token; None if no client has it."""
        client = self._tokens.find_client(token)
        if client is None:
            return None
        return provider.AccessToken(token=token, client_id=client, scopes=[])


def _make_server(
    find_calls: Callable[[], Awaitable[tool_calls.ToolCalls]],
    instructions: str,
    find_client: Callable[[_Context], str],
) -> lowlevel.Server[dict[str, Any]]:
    """Make the server; `find_client` returns the client of a call."""

    async def list_tools(
        _: _Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=tool_definitions.describe_tools())

    async def call_tool(
        call: _Context, parameters: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        client = find_client(call)
        report = call.session.report_progress
        calls = await find_calls()
        return await calls.call(client, parameters.name, parameters.arguments, report=report)

    return lowlevel.Server(
        _SERVER_NAME,
        version=metadata.version(_SERVER_NAME),
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _authenticate(call: _Context) -> str:
    """Return the client whose token came with the HTTP request of a call."""
    user = call.request.scope["user"] if call.request is not None else None
    # The middleware guarantees a user; fail closed if that changes.
    if not isinstance(user, bearer_auth.AuthenticatedUser):
        raise exceptions.MCPError(code=mcp_types.INVALID_REQUEST, message=tool_words.TOKEN_NEEDED)
    return user.access_token.client_id


def _make_security_settings(config: settings.Mcp) -> transport_security.TransportSecuritySettings:
    """Return settings that allow only our own host names; others would be DNS rebinding."""
    hosts = [*_LOOPBACK_NAMES, *config.allowed_hosts]
    return transport_security.TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
        allowed_origins=[
            *(f"http://{host}:*" for host in _LOOPBACK_NAMES),
            *(f"https://{host}" for host in config.allowed_hosts),
        ],
    )


def _bind(config: settings.Mcp) -> socket.socket:
    """Return a socket bound to the configured address.

    Raises:
        SettingsError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        address, reason = f"{config.host}:{config.port}", error.strerror or error
        raise errors.SettingsError(
            page_words.not_served("MCP", address, reason, tool_words.OTHER_MCP_PORT)
        ) from error
