"""Calls of tools. Each is handled in a session of its client, like the request of a person.

A handle finds a session only for the client that owns it. If a client cancels a call or
disconnects, the code of the call is stopped.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import mcp_types

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.mcp import replies, tool_definitions, tool_results
from interpreter_bot.sessions import requests, session_service, turn_log
from interpreter_bot.wording import mcp_words

PLATFORM: Final = "mcp"
Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Reports progress to a client: the amount done, the total and a text."""

_REPORT_SECONDS: Final = 1.0
_NO_CODE: Final = "pass"


class ToolCalls:
    """Calls of all clients."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service
        # After a call is cancelled, its turn runs on until it is recorded.
        self._turn_tasks: set[asyncio.Task[events.TurnEnded]] = set()

    async def call(
        self, client: str, name: str, arguments: dict[str, object] | None, *, report: Report
    ) -> mcp_types.CallToolResult:
        """Handle a call; an error becomes a result with a sentence."""
        try:
            match tool_definitions.parse_call(name, arguments):
                case tool_definitions.RunCode() as parameters:
                    return await self._run_code(client, parameters, report)
                case tool_definitions.ListFiles() as parameters:
                    return await self._list_files(client, parameters)
                case tool_definitions.GetFile() as parameters:
                    return await self._get_file(client, parameters)
                case tool_definitions.PutFile() as parameters:
                    return await self._put_file(client, parameters)
                case tool_definitions.Reset() as parameters:
                    return await self._reset(client, parameters)
        except errors.BotError as error:
            return tool_results.sentence_result(str(error), is_error=True)

    async def _find_key(self, client: str, handle: str) -> values.SessionKey:
        """Return the key of a client's session.

        Raises:
            BotError: the client has no such session.
        """
        key = values.SessionKey(PLATFORM, channel=client, thread=handle)
        if not (handle.isascii() and await self._service.queries.exists(key)):
            raise errors.BotError(mcp_words.NO_SESSION)
        return key

    async def _find_or_make_key(self, client: str, handle: str) -> values.SessionKey:
        """Return the key of a client's session, or of a new one if there is no handle."""
        if handle:
            return await self._find_key(client, handle)
        return values.SessionKey(PLATFORM, channel=client, thread=f"s-{secrets.token_hex(8)}")

    async def _run_code(
        self, client: str, parameters: tool_definitions.RunCode, report: Report
    ) -> mcp_types.CallToolResult:
        key = await self._find_or_make_key(client, parameters.session)
        log = await self._run_to_end(client, key, parameters.code, report)
        return tool_results.run_result(log, key.thread)

    async def _run_to_end(
        self, client: str, key: values.SessionKey, code: str, report: Report | None = None
    ) -> turn_log.TurnLog:
        """Run code in a session to its end."""
        request = requests.Request(
            key=key,
            person=requests.Person(client, client),
            text=code,
            is_code=True,
            id=secrets.token_hex(8),
            is_attended=False,
        )
        reply = replies.RunReply()
        # In a task of its own: after a cancellation, the SDK cancels each later await of the call,
        # too.
        turn_task = asyncio.create_task(self._service.handle(request, reply), name="mcp: a run")
        self._turn_tasks.add(turn_task)
        turn_task.add_done_callback(self._turn_tasks.discard)
        try:
            await _report_until_done(turn_task, reply, report)
        except asyncio.CancelledError:
            # Both ways to cancel return at once. The service does not know a run that has not
            # begun, so its task is cancelled.
            if not await self._service.cancel(request.key, request.id):
                turn_task.cancel()
            raise
        await turn_task
        return reply.log

    async def _list_files(
        self, client: str, parameters: tool_definitions.ListFiles
    ) -> mcp_types.CallToolResult:
        key = await self._find_key(client, parameters.session)
        return tool_results.file_list_result(await self._service.queries.files(key))

    async def _get_file(
        self, client: str, parameters: tool_definitions.GetFile
    ) -> mcp_types.CallToolResult:
        key = await self._find_key(client, parameters.session)
        data = b""
        open_file = self._service.queries.open_file(key, parameters.name, start=parameters.start)
        async with open_file as (info, pieces):
            async for piece in pieces:
                data += piece[: tool_results.MAX_FILE_BYTES - len(data)]
                if len(data) >= tool_results.MAX_FILE_BYTES:
                    break
        return tool_results.file_result(info, data, parameters.start)

    async def _put_file(
        self, client: str, parameters: tool_definitions.PutFile
    ) -> mcp_types.CallToolResult:
        if (parameters.text is None) is (parameters.base64 is None):
            raise errors.BotError(mcp_words.TEXT_OR_BASE64)
        if parameters.base64 is not None:
            try:
                data = base64.b64decode(parameters.base64, validate=True)
            except (binascii.Error, ValueError) as error:
                raise errors.BotError(mcp_words.NOT_BASE64) from error
        else:
            data = (parameters.text or "").encode("utf-8", "replace")
        key = await self._find_or_make_key(client, parameters.session)
        if not parameters.session:
            # A file can be put only into a recorded session with an owner; an empty run records
            # both.
            log = await self._run_to_end(client, key, _NO_CODE)
            if not log.cells and log.end is not None:
                raise errors.BotError(log.end.sentence)
        name = await self._service.put_file(key, requests.attachment(parameters.name, data))
        if not parameters.session:
            await self._service.rename(key, name)
        return tool_results.sentence_result(mcp_words.file_stored(name, key.thread))

    async def _reset(
        self, client: str, parameters: tool_definitions.Reset
    ) -> mcp_types.CallToolResult:
        key = await self._find_key(client, parameters.session)
        await self._service.reset(key, files=parameters.files)
        return tool_results.sentence_result(mcp_words.reset_done(files=parameters.files))


async def _report_until_done(
    turn_task: asyncio.Task[events.TurnEnded], reply: replies.RunReply, report: Report | None
) -> None:
    """Report the progress of a run until it ends."""
    start = time.monotonic()
    while True:
        await asyncio.wait({turn_task}, timeout=_REPORT_SECONDS)
        if turn_task.done():
            return
        if report is not None:
            await report(round(time.monotonic() - start, 1), None, reply.progress_text or None)
