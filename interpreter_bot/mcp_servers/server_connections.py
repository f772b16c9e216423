"""A connection to one MCP server, opened on demand, and again after it broke."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import string
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import anyio
import httpx2
import mcp
import mcp_types
import pydantic
from mcp.client import streamable_http
from mcp.shared import dispatcher, exceptions

from interpreter_bot import errors, logs, private_files, redaction, settings
from interpreter_bot.mcp_servers import (
    bot_logins,
    definitions,
    http_transports,
    person_logins,
    program_cgroups,
    program_transport,
)
from interpreter_bot.setting_groups import header_values
from interpreter_bot.store import records
from interpreter_bot.wording import tool_words

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 20.0
_MAX_PROBE_SECONDS: Final = 5.0
_MAX_LISTING_AGE_SECONDS: Final = 300.0
_IDLE_SECONDS: Final = 300.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_MAX_PAUSE_SECONDS: Final = 60.0
_MAX_PAGES: Final = 20
_SESSION_TERMINATED: Final = "Session terminated"
_CONNECTION_ERRORS: Final = (
    *(httpx2.HTTPError, pydantic.ValidationError, RuntimeError, OSError),
    *(anyio.ClosedResourceError, anyio.BrokenResourceError),
)
_MAX_REFUSAL_CHARACTERS: Final = 500
_MIN_SECRET_CHARACTERS: Final = 8


class McpServerError(errors.BotError):
    """A server cannot be used, or refuses a call."""


class _SlowError(McpServerError):
    """A call exceeded its time limit."""


class ServerConnection:
    """A connection to a server. One task owns the SDK's client, as the SDK demands.

    Attributes:
        secrets: all secrets that are sent to the server or to its authorization server. A larger
            set replaces this one when another is added.
    """

    def __init__(
        self,
        server: settings.McpServer,
        environment: Mapping[str, str],
        groups: program_cgroups.ProgramGroups,
        *,
        account: records.Account | None = None,
        logins: person_logins.PersonLogins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a connection, which the first call opens.

        Args:
            server: its settings.
            environment: holds the secrets that the settings name.
            groups: limits the server if it is a program.
            account: of the person, if each person has a connection of their own.
            logins: has the tokens of that person.
            clock: for pauses and idle time.

        Raises:
            SettingsError: a secret is missing.
        """
        self._server = server
        self._groups = groups
        self._clock = clock
        self.secrets: frozenset[str] = frozenset()
        self._headers = {
            name: _fill_variables(server.name, name, text, environment, is_header=True)
            for name, text in server.headers.items()
        }
        self._environment = {
            name: _fill_variables(server.name, name, text, environment, is_header=False)
            for name, text in server.environment.items()
        }
        self._add_secrets(self._headers.values())
        # A variable of a program is a secret only if its value refers to a variable of the bot.
        secret_names = (name for name, text in server.environment.items() if "$" in text)
        self._add_secrets(self._environment[name] for name in secret_names)
        # A server may send back a secret without the rest of the header.
        texts = (*server.headers.values(), *server.environment.values())
        templates = map(string.Template, texts)
        self._add_secrets(
            environment[name] for template in templates for name in template.get_identifiers()
        )
        self._bearer: person_logins.PersonBearer | None = None
        self._authenticator: httpx2.Auth | None = None
        if account is not None and logins is not None:
            self._authenticator = self._bearer = logins.create_bearer(account, self._add_secrets)
        elif server.oauth is not None:
            self._authenticator = bot_logins.create_authenticator(
                server, server.oauth, environment, add_secrets=self._add_secrets
            )
        self._lock = asyncio.Lock()
        self._serve_task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._client: mcp.Client | None = None
        self._listing: definitions.Listing | None = None
        self._listed_at = 0.0
        self._pause_seconds = 0.0
        self._failed_at = 0.0
        self._running_calls = 0
        self._last_used_at = 0.0

    async def listing(self) -> definitions.Listing:
        """Return the listing of the server, at most some minutes old.

        Raises:
            McpServerError: the server cannot be reached.
        """
        async with self._lock:
            age = self._clock() - self._listed_at
            if self._listing is None or age > _MAX_LISTING_AGE_SECONDS or not self._is_open:
                client = await self._connect()
                with self._translate_errors(_CONNECT_SECONDS):
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        self._listing = await _list_tools(client)
                self._listed_at = self._clock()
            return self._listing

    async def call(
        self, tool: str, arguments: dict[str, Any], *, progress: dispatcher.ProgressFnT
    ) -> mcp_types.CallToolResult:
        """Call a tool. Cancelling also cancels it at the server.

        Raises:
            McpServerError: the call failed, or its outcome is unknown.
        """
        self._running_calls += 1
        try:
            return await self._call_tool(tool, arguments, progress)
        finally:
            self._running_calls -= 1
            self._last_used_at = self._clock()

    async def _call_tool(
        self, tool: str, arguments: dict[str, Any], progress: dispatcher.ProgressFnT
    ) -> mcp_types.CallToolResult:
        seconds = self._server.call_seconds
        for is_retry in (False, True):
            async with self._lock:
                client = await self._connect()
            try:
                with self._translate_errors(seconds):
                    async with asyncio.timeout(seconds):
                        result = await client.call_tool(
                            tool,
                            arguments,
                            read_timeout_seconds=seconds,
                            progress_callback=progress,
                        )
                self._pause_seconds = 0.0
                return result
            except McpServerError as error:
                if self._server.command and isinstance(error, _SlowError):
                    await self._end_if_hung(client)
                # If the server forgot the session, the call has not begun and is repeated.
                is_session_lost = _SESSION_TERMINATED in str(error.__cause__)
                if is_retry or not is_session_lost:
                    raise
                async with self._lock:
                    # Another call may have connected again already.
                    if self._client is client:
                        await self._disconnect()
        raise AssertionError("unreachable")

    async def _end_if_hung(self, client: mcp.Client) -> None:
        """End a program if it no longer answers, so that the next call starts it again."""
        try:
            async with asyncio.timeout(min(_MAX_PROBE_SECONDS, self._server.call_seconds)):
                await client.list_tools()
        except (TimeoutError, exceptions.MCPError, *_CONNECTION_ERRORS):
            _log.warning("the MCP server %s hangs, and is ended", self._server.name)
            async with self._lock:
                # Another call may have ended it already.
                if self._client is client:
                    self._note_failure()
                    await self._disconnect()

    @property
    def is_idle(self) -> bool:
        """Whether no call has used the connection for a while."""
        return not self._running_calls and self._clock() - self._last_used_at > _IDLE_SECONDS

    async def end_if_idle(self) -> None:
        """End a program that no call has used for a while; the next call starts it again."""
        async with self._lock:
            if self._server.command and self.is_idle:
                await self._disconnect()

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        async with self._lock:
            await self._disconnect()

    async def _disconnect(self) -> None:
        if self._serve_task is not None:
            self._closing.set()
            await asyncio.wait({self._serve_task}, timeout=_CONNECT_SECONDS)
            self._serve_task.cancel()
            self._serve_task = self._client = None

    def _add_secrets(self, texts: Iterable[str]) -> None:
        secrets = {text.removeprefix("Bearer ") for text in texts}
        # Shorter secrets are not removed from texts, as they may occur anywhere.
        secrets = {text for text in secrets if len(text) >= _MIN_SECRET_CHARACTERS}
        self.secrets |= secrets
        logs.add_secrets(secrets, are_short_lived=True)

    @property
    def _is_open(self) -> bool:
        is_running = self._serve_task is not None and not self._serve_task.done()
        return is_running and not self._closing.is_set()

    async def _connect(self) -> mcp.Client:
        """Return the client, connected if necessary."""
        if self._is_open and self._client is not None:
            return self._client
        if self._clock() < self._failed_at + self._pause_seconds:
            raise McpServerError(tool_words.unreachable(self._server.name))
        await self._disconnect()
        ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._serve_task = asyncio.create_task(
            self._serve(ready), name=f"MCP server {self._server.name}"
        )
        self._client = None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                awaitables: set[asyncio.Future[Any]] = {ready, self._serve_task}
                await asyncio.wait(awaitables, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._serve_task.cancel()
        if ready.done():
            self._client = ready.result()
            if not self._server.command:
                self._pause_seconds = 0.0
            return self._client
        self._check_login()
        self._note_failure()
        name = self._server.name
        if self._server.command and (
            reason := await program_transport.find_refusal(self._server, self._groups)
        ):
            sentence = tool_words.no_program_sandbox(name, reason)
            _log.warning("%s", sentence)
            raise McpServerError(sentence)
        raise McpServerError(tool_words.unreachable(name))

    def _note_failure(self) -> None:
        """Set the pause before the next attempt, which doubles until a call succeeds."""
        self._failed_at = self._clock()
        doubled_seconds = max(_FIRST_PAUSE_SECONDS, 2 * self._pause_seconds)
        self._pause_seconds = min(doubled_seconds, _MAX_PAUSE_SECONDS)

    async def _serve(self, ready: asyncio.Future[mcp.Client]) -> None:
        """Keep the connection open until `_closing` is set or the connection breaks."""
        server, closing = self._server, self._closing

        def on_program_end() -> None:
            # If the program ended by itself, the next call starts another one.
            if not closing.is_set():
                # Before the client is ready, the waiting caller records the failure.
                if ready.done():
                    self._note_failure()
                closing.set()

        try:
            async with contextlib.AsyncExitStack() as stack:
                streams: Any
                if server.url is None:
                    streams = program_transport.start_program(
                        server, self._environment, groups=self._groups, on_end=on_program_end
                    )
                else:
                    http = await stack.enter_async_context(await self._http_client(server.url))
                    streams = streamable_http.streamable_http_client(
                        server.url,
                        http_client=http,
                        max_sse_event_size=http_transports.MAX_ANSWER_BYTES,
                    )
                client = mcp.Client(streams, read_timeout_seconds=_CONNECT_SECONDS, cache=None)
                ready.set_result(await stack.enter_async_context(client))
                await closing.wait()
        # A defect of a server or of the SDK must not end the bot. The next call connects again.
        except Exception as error:
            # Of other errors only the type, as their messages may quote the server.
            is_about_settings = isinstance(error, errors.SettingsError)
            reason = str(error) if is_about_settings else type(error).__name__
            _log.warning("lost the MCP server %s: %s", server.name, reason)
            _log.debug("the error of the MCP server %s", server.name, exc_info=error)

    async def _http_client(self, url: str) -> httpx2.AsyncClient:
        """Create the HTTP client for the server, with its headers and login."""
        server, headers = self._server, dict(self._headers)
        if server.token_file is not None:
            token = await asyncio.to_thread(private_files.read, server.token_file)
            self._add_secrets([token])
            if fault := header_values.key_fault(token):
                flaw = tool_words.bad_token(server.token_file, fault)
                raise errors.SettingsError(tool_words.bad_setting(server.name, flaw))
            headers["Authorization"] = f"Bearer {token}"
        urls = [url, *([server.oauth.issuer] if server.oauth else [])]
        return httpx2.AsyncClient(
            transport=http_transports.BoundedTransport(urls),
            headers=headers,
            auth=self._authenticator,
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=server.call_seconds),
            trust_env=False,
        )

    def _check_login(self) -> None:
        """Raise LoginNeededError if a failure is due to a missing login."""
        if self._bearer is not None:
            self._bearer.require_login()

    @contextlib.contextmanager
    def _translate_errors(self, seconds: float) -> Iterator[None]:
        # Bound now, as another connection may be open by the time that this call fails.
        name, closing = self._server.name, self._closing
        try:
            yield
        except TimeoutError as error:
            raise _SlowError(tool_words.call_too_slow(name, seconds)) from error
        except exceptions.MCPError as error:
            if error.code == mcp_types.REQUEST_TIMEOUT:
                raise _SlowError(tool_words.call_too_slow(name, seconds)) from error
            if error.code == mcp_types.CONNECTION_CLOSED:
                closing.set()
                raise McpServerError(tool_words.connection_broke_off(name)) from error
            self._check_login()
            message = definitions.clean_text(error.message, _MAX_REFUSAL_CHARACTERS)
            message = redaction.redact(message, self.secrets)
            raise McpServerError(tool_words.call_refused(name, message)) from error
        except _CONNECTION_ERRORS as error:
            self._check_login()
            _log.info("a call of the MCP server %s failed", name, exc_info=error)
            raise McpServerError(tool_words.connection_broke_off(name)) from error


async def _list_tools(client: mcp.Client) -> definitions.Listing:
    """Read the tools of a server."""
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            break
    return definitions.read_listing(client.instructions or "", tools)


def _fill_variables(
    server: str, name: str, text: str, environment: Mapping[str, str], *, is_header: bool
) -> str:
    """Return the value of a header or of a program's variable."""
    try:
        value = header_values.fill_variables(text, environment)
    except header_values.VariableError as error:
        raise errors.SettingsError(tool_words.bad_setting(server, str(error))) from None
    if is_header and (fault := header_values.header_fault(value)):
        flaw = tool_words.bad_header(name, fault)
        raise errors.SettingsError(tool_words.bad_setting(server, flaw))
    return value
