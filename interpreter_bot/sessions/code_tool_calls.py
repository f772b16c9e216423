"""Requests of running code to list tools, or to call one.

The code is hostile: its server and tool names are looked up, its arguments are shown as data, and
nothing in a request replaces an approval. If several people ran code in a kernel, each call with a
person's account needs approval. All their code shares one interpreter, so threads, functions and
files of one person can change the code of another, and the bot cannot tell whose code makes a call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import pydantic

from interpreter_bot import cancellation, code_activity, errors, events, settings, values
from interpreter_bot.sessions import (
    approvals,
    requests,
    tool_listings,
    tool_logins,
    turn_streams,
    variable_losses,
)
from interpreter_bot.store import records
from interpreter_bot.wording import tool_words

if TYPE_CHECKING:
    # Without servers their protocol is not imported, without records no database.
    from interpreter_bot.mcp_servers.definitions import Definition
    from interpreter_bot.mcp_servers.tool_broker import ToolBroker
    from interpreter_bot.sessions import session_dependencies
    from interpreter_bot.store.activities import Activities

_log = logging.getLogger(__name__)

_AUDIT_CHARACTERS: Final = 4_000
_MAX_CALLS: Final = 500


class _List(pydantic.BaseModel):
    do: Literal["list"]


class _Call(pydantic.BaseModel):
    do: Literal["call"]
    id: Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{32}$")]
    server: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
    tool: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
    arguments: dict[str, Any]


_CodeRequest = Annotated[_List | _Call, pydantic.Field(discriminator="do")]
_CODE_REQUEST: Final[pydantic.TypeAdapter[_List | _Call]] = pydantic.TypeAdapter(_CodeRequest)


class ToolRequests:
    """Answers the tool requests of one turn's code."""

    def __init__(
        self,
        broker: ToolBroker,
        audit: Activities,
        request: requests.Request,
        stream: turn_streams.TurnStream,
        *,
        all_approvals: approvals.Approvals,
        find_others: Callable[[], Awaitable[frozenset[str]]],
    ) -> None:
        """Answer for one request.

        Args:
            all_approvals: asks a person whether a call may be made, unless that was granted.
            find_others: returns the other people whose code may still run in the conversation.
        """
        self._broker = broker
        self._audit = audit
        self._key = request.key
        self._person = request.person
        self._stream = stream
        self._approvals = all_approvals
        self._find_others = find_others
        self._call_count = 0
        self._login_notices: dict[str, str] = {}

    def prompt(self) -> str:
        """Describe the tools for a model's prompt; empty if there are none here."""
        # The SDK is installed if there are servers.
        from interpreter_bot.mcp_servers import model_tool_listings

        return model_tool_listings.describe_servers(self._broker.find_offered(self._key))

    async def answer(self, request: values.InputRequested, kernel_id: str) -> str:
        """Answer a hostile request of code in a kernel, as JSON."""
        try:
            message = _CODE_REQUEST.validate_json(request.tool_request)
        except pydantic.ValidationError:
            return json.dumps({"error": tool_words.CALL_MALFORMED})
        self._call_count += 1
        if self._call_count > _MAX_CALLS:
            return json.dumps({"error": tool_words.too_many_calls(_MAX_CALLS)})
        try:
            if isinstance(message, _List):
                # In a thread: the list may be long.
                answer = await asyncio.to_thread(self._list_tools)
            else:
                answer = await self._call_tool(message, request.number, kernel_id)
        except errors.LoginNeededError:
            server = message.server if isinstance(message, _Call) else ""
            answer = {"error": await self._offer_login(server)}
        except errors.BotError as error:
            answer = {"error": str(error)}
        # In a thread: a result may be large.
        return await asyncio.to_thread(json.dumps, answer)

    def _list_tools(self) -> dict[str, Any]:
        return {
            "servers": {
                server_tools.server.name: {
                    "instructions": server_tools.instructions,
                    "tools": [dataclasses.asdict(tool) for tool in server_tools.tools],
                }
                for server_tools in self._broker.find_offered(self._key)
                if server_tools.tools
            }
        }

    async def _offer_login(self, server: str) -> str:
        """Send the person a login link, once a turn; return the error message for the code."""
        if server not in self._login_notices:
            try:
                link = await tool_logins.create_link_sentence(
                    self._broker, self._key, self._person, server
                )
                self._stream.emit(events.PrivateNotice(link))
                self._login_notices[server] = tool_words.login_needed(server)
            except errors.BotError as error:
                self._login_notices[server] = str(error)
        return self._login_notices[server]

    async def _call_tool(self, call_request: _Call, number: int, kernel_id: str) -> dict[str, Any]:
        """Call a tool if that is allowed, and record the call.

        Raises:
            BotError: the call was refused, or failed.
        """
        arguments = json.dumps(call_request.arguments)
        call = code_activity.ToolCall(
            key=values.format_key(self._key),
            person=self._person.id,
            call_id=call_request.id,
            server=call_request.server,
            tool=call_request.tool,
            arguments=arguments[:_AUDIT_CHARACTERS],
            sent_bytes=len(arguments),
        )
        try:
            server, definition, was_asked = await self._authorize(call_request, number, kernel_id)
        except errors.StoreError:
            raise
        except errors.BotError as error:
            # The code may have used its id before, under which no other call can be recorded.
            fresh_id = secrets.token_hex(16)
            refused = dataclasses.replace(
                call, outcome="refused", reason=str(error), call_id=fresh_id
            )
            await self._audit.begin(refused)
            raise
        call = dataclasses.replace(call, was_approved=was_asked)
        # Recorded before it is made, so that no call is missing from the record.
        if not await self._audit.begin(call):
            raise errors.BotError(tool_words.CALL_CUT_BY_RESTART)
        return await self._make_call(call_request, call, server=server, definition=definition)

    async def _authorize(
        self, call_request: _Call, number: int, kernel_id: str
    ) -> tuple[settings.McpServer, Definition, bool]:
        """Find a tool, and obtain approval if it needs one; the last value is whether it did.

        Raises:
            BotError: the tool may not be called.
        """
        account = tool_logins.make_account(self._key, self._person.id, call_request.server)
        server, definition = await self._broker.find(self._key, account, call_request.tool)
        approval = server.approval_of(definition.name, is_read_only=definition.is_read_only)
        # Code that other people left in this interpreter may make the call.
        other_people = await self._find_others()
        is_account_shared = server.authorization == "person" and bool(other_people)
        if approval == "never" and not is_account_shared:
            return server, definition, False
        text = _draw_call(
            server, definition, call_request.arguments, others_ran_code=bool(other_people)
        )
        answer = await self._approvals.obtain(
            "tool",
            text,
            request_number=number,
            kernel_id=kernel_id,
            grant=records.Grant(
                person=self._person.id,
                subject="tool",
                name=tool_listings.grant_name(server.name, definition.function),
                digest=_digest(server, definition.digest, other_people),
            ),
            is_personal=server.authorization == "person",
        )
        if answer is None:
            raise errors.BotError(tool_words.not_approved(server.name, definition.name))
        if answer.edited is not None:
            raise errors.BotError(tool_words.edited_by_person(code=answer.edited))
        return server, definition, True

    async def _make_call(
        self,
        call_request: _Call,
        call: code_activity.ToolCall,
        *,
        server: settings.McpServer,
        definition: Definition,
    ) -> dict[str, Any]:
        """Call a tool, and record its result."""
        title = f"{server.name}: {definition.function}"

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = progress / total if total else math.nan
            # A server may send 1e999 of 1e999, whose share is NaN: no JSON that browsers read.
            is_known = not math.isnan(share)
            self._stream.emit(
                events.ProgressChanged(title, min(max(share, 0.0), 1.0) if is_known else None)
            )

        started_at = time.monotonic()
        outcome: Literal["done", "failed"] = "failed"
        reason, size_bytes = tool_words.CALL_STOPPED, 0
        try:
            result = await self._broker.call(
                tool_logins.make_account(self._key, self._person.id, server.name),
                definition.name,
                call_request.arguments,
                progress=report,
            )
            reason, size_bytes = "", result.pop("size_bytes")
            if not result["is_error"]:
                outcome = "done"
        except errors.BotError as error:
            reason = str(error)
            raise
        finally:
            self._stream.emit(events.ProgressChanged(""))
            finished_call = dataclasses.replace(
                call,
                outcome=outcome,
                reason=reason,
                received_bytes=size_bytes,
                seconds=time.monotonic() - started_at,
            )
            # Recorded even if the call is stopped.
            await cancellation.shielded(self._record_end(finished_call))
        return result

    async def _record_end(self, call: code_activity.ToolCall) -> None:
        try:
            await self._audit.end(call)
        except errors.StoreError:
            # The call was made, and its result is worth more than a complete record.
            _log.exception("the end of a tool call is not recorded")


def make_tool_requests(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    stream: turn_streams.TurnStream,
    variables: variable_losses.KernelVariables,
    all_approvals: approvals.Approvals,
) -> ToolRequests | None:
    """Return the tool requests of a turn; None if there are no tools."""
    if services.tools is None:
        return None
    database = services.database

    async def find_others() -> frozenset[str]:
        # Everyone with a turn counts, as a file that their code wrote may be imported. The code and
        # files of a schedule come from the session in which it was set up.
        people = variables.people
        for key in {request.key, request.key.place}:
            if (session := await database.sessions.find(key)) is not None:
                people |= await database.turns.list_people(session.id)
        return people - {request.person.id, ""}

    return ToolRequests(
        services.tools,
        services.database.activities,
        request,
        stream,
        all_approvals=all_approvals,
        find_others=find_others,
    )


def _digest(server: settings.McpServer, definition: str, other_people: Iterable[str]) -> str:
    """Return the digest under which a tool is granted.

    It covers the people whose code could make such a call; and the definition, the server and the
    account, which settings may change while the kernel lives.
    """
    address = [server.authorization, server.url, *server.command]
    identity = json.dumps([definition, address, *sorted(other_people)])
    return hashlib.sha256(identity.encode()).hexdigest()


def _draw_call(
    server: settings.McpServer,
    definition: Definition,
    arguments: dict[str, Any],
    *,
    others_ran_code: bool,
) -> str:
    """Draw a whole call for its approval, with nothing hidden."""
    lines = [f"    {name!a}: {value!a}," for name, value in arguments.items()]
    head = [tool_words.approval_heading(definition.name, server.name)]
    if server.authorization == "person":
        head.append(
            tool_words.WITH_YOUR_ACCOUNT + (tool_words.OTHERS_RAN_CODE if others_ran_code else "")
        )
    return "\n".join([*head, f"tools.{server.name}.{definition.function}(**{{", *lines, "})"])
