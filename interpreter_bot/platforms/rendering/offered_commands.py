"""Commands of use only if something is set up: those that are, for the help of each platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot import values
    from interpreter_bot.sessions import requests, session_service


async def switches(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> dict[str, bool]:
    """Return by its name whether each of them does something for a person in a session."""
    reach = service.queries.reach(key)
    servers = await service.queries.tools(key, person)
    has_logins = any(server.is_logged_in is not None for server in servers)
    return {
        "model": bool(service.queries.models),
        "network": bool(reach.hosts or reach.offers),
        "tools": bool(servers),
        "connect": has_logins,
        "disconnect": has_logins,
        "page": service.visits.is_on,
    }


async def offered(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> tuple[str, ...]:
    """Return the names of those that do something for a person in a session."""
    by_name = await switches(service, key, person)
    return tuple(name for name, is_on in by_name.items() if is_on)
