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
        free: names of the functions that need no approval.
        asked: names of the functions whose calls need approval.
        allowed: names of those functions that the person approved until the session's Python ends.
        off_count: number of functions that are switched off.
        is_logged_in: whether the person has logged in there; None if the server has no logins.
    """

    server: str
    free: tuple[str, ...]
    asked: tuple[str, ...]
    allowed: tuple[str, ...]
    off_count: int
    is_logged_in: bool | None = None


def grant_name(server: str, function: str) -> str:
    """Return the name of a grant for a tool."""
    return f"{server}.{function}"


async def listed(
    services: session_dependencies.SessionDependencies, key: values.SessionKey, person: str
) -> tuple[ServerTools, ...]:
    """Return the tools that a session's code may call, as one person sees them."""
    address = values.format_key(key)
    status = (await services.hosts.statuses({address})).get(address)
    session = await services.database.sessions.find(key)
    grants = (
        await services.database.grants.list_for_kernel(session.id, status.kernel_id)
        if session is not None and status is not None
        else ()
    )
    granted = {grant.name for grant in grants if grant.person == person}
    listings = []
    for server_tools in services.tools.find_offered(key) if services.tools is not None else ():
        free = {
            tool.function
            for tool in server_tools.tools
            if server_tools.server.approval_of(tool.name, is_read_only=tool.is_read_only) == "never"
        }
        asking = {tool.function for tool in server_tools.tools} - free
        allowed = {
            function
            for function in asking
            if grant_name(server_tools.server.name, function) in granted
        }
        listings.append(
            ServerTools(
                server_tools.server.name,
                free=tuple(sorted(free)),
                asked=tuple(sorted(asking)),
                allowed=tuple(sorted(allowed)),
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
    return await services.tools.logins.has_login(tool_logins.account(key, person, server.name))
