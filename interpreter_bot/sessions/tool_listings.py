"""Lists, for people, the tools of servers that a session's code may call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from interpreter_bot import settings, values
from interpreter_bot.sessions import tool_logins

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_dependencies


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of a server that a session's code may call, for display.

    Attributes:
        server: its name.
        functions_without_approval: names of the functions that need no approval.
        functions_with_approval: names of the functions whose calls need approval.
        granted_functions: functions with approval that the person has approved until the session's
            Python ends.
        off_count: number of functions that are switched off.
        is_logged_in: whether the person has logged in there; None if the server has no logins.
    """

    server: str
    functions_without_approval: tuple[str, ...]
    functions_with_approval: tuple[str, ...]
    granted_functions: tuple[str, ...]
    off_count: int
    is_logged_in: bool | None = None


def grant_name(server: str, function: str) -> str:
    """Return the name of a grant for a tool."""
    return f"{server}.{function}"


async def list_tools(
    services: session_dependencies.SessionDependencies, key: values.SessionKey, person: str
) -> tuple[ServerTools, ...]:
    """Return the tools that a session's code may call, as one person sees them."""
    key_text = values.format_key(key)
    status = (await services.hosts.statuses({key_text})).get(key_text)
    session = await services.database.sessions.find(key)
    grants = (
        await services.database.grants.list_for_kernel(session.id, status.kernel_id)
        if session is not None and status is not None
        else ()
    )
    grant_names = {grant.name for grant in grants if grant.person == person}
    listings = []
    for server_tools in services.tools.find_offered(key) if services.tools is not None else ():
        functions_without_approval = {
            tool.function
            for tool in server_tools.tools
            if server_tools.server.approval_of(tool.name, is_read_only=tool.is_read_only) == "never"
        }
        functions_with_approval = {
            tool.function for tool in server_tools.tools
        } - functions_without_approval
        granted_functions = {
            function
            for function in functions_with_approval
            if grant_name(server_tools.server.name, function) in grant_names
        }
        listings.append(
            ServerTools(
                server_tools.server.name,
                functions_without_approval=tuple(sorted(functions_without_approval)),
                functions_with_approval=tuple(sorted(functions_with_approval)),
                granted_functions=tuple(sorted(granted_functions)),
                off_count=server_tools.off_count,
                is_logged_in=await _is_logged_in(services, key, person, server_tools.server),
            )
        )
    return tuple(listings)


async def _is_logged_in(
    services: session_dependencies.SessionDependencies,
    key: values.SessionKey,
    person: str,
    server: settings.McpServer,
) -> bool | None:
    if server.authorization == "bot" or services.tools is None or services.tools.logins is None:
        return None
    return await services.tools.logins.has_login(tool_logins.make_account(key, person, server.name))
