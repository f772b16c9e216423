"""Logins of people at tool servers: links, login pages, and logout."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from interpreter_bot import errors, values
from interpreter_bot.sessions import requests
from interpreter_bot.store import records
from interpreter_bot.wording import tool_words

if TYPE_CHECKING:
    # Without servers nothing of their protocol is imported.
    from interpreter_bot.mcp_servers.person_logins import Login as Login
    from interpreter_bot.mcp_servers.person_logins import PersonLogins
    from interpreter_bot.mcp_servers.tool_broker import ToolBroker
    from interpreter_bot.sessions import session_dependencies

_log = logging.getLogger(__name__)


def make_account(key: values.SessionKey, person: str, server: str) -> records.Account:
    """Return the account of a person of a conversation at a server."""
    return records.Account(key.platform, key.workspace, person, server)


async def create_link_sentence(
    broker: ToolBroker, key: values.SessionKey, person: requests.Person, server: str
) -> str:
    """Return a sentence with a link to log in, which only that person may see.

    Raises:
        BotError: the server has no logins of people.
    """
    if broker.logins is None or broker.server(key, server).authorization != "person":
        raise errors.BotError(tool_words.no_logins(server))
    address = await broker.logins.create_link(make_account(key, person.id, server), person.name)
    return tool_words.login_link(server, address)


class ToolLogins:
    """Logins of people, as platforms use them."""

    def __init__(self, services: session_dependencies.SessionDependencies) -> None:
        self._broker = services.tools

    @property
    def has_login_servers(self) -> bool:
        """Whether there is a server at which people log in."""
        return self._broker is not None and self._broker.logins is not None

    @property
    def person_logins(self) -> PersonLogins:
        """Links, login pages and tokens of people.

        Raises:
            BotError: there is no server at which people log in.
        """
        if self._broker is None or self._broker.logins is None:
            raise errors.BotError(tool_words.no_logins(""))
        return self._broker.logins

    async def create_link_sentence(
        self, key: values.SessionKey, person: requests.Person, server: str
    ) -> str:
        """Return a sentence with a link to log in, which only that person may see.

        Raises:
            BotError: the server has no logins of people.
        """
        if self._broker is None:
            raise errors.BotError(tool_words.no_logins(server))
        return await create_link_sentence(self._broker, key, person, server)

    async def log_out(self, key: values.SessionKey, person: str, server: str) -> str:
        """Delete a person's tokens at a server, and return a sentence about it."""
        was_logged_in = self._broker is not None and await self._broker.log_out(
            make_account(key, person, server)
        )
        return tool_words.logged_out(server, was_logged_in=was_logged_in)

    async def finish(self, server: str, query: Mapping[str, str], browser_secret: str) -> Login:
        """Finish a login; see `PersonLogins.finish`."""
        login = await self.person_logins.finish(server, query, browser_secret)
        if self._broker is not None:
            # Open connections may use another account of the person.
            await self._broker.disconnect(login.account)
            try:
                # From the first login on, an administrator can see the tools to be accepted.
                await self._broker.fetch_listing(server, login.account)
            except errors.BotError:
                _log.warning("tools of %s not listed after a login", server, exc_info=True)
        return login
