"""The tools of all MCP servers: which a conversation may use, and calls of them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from mcp.shared import dispatcher

from interpreter_bot import acceptance, encryption, errors, schedules, settings, values
from interpreter_bot.mcp_servers import (
    accepted_definitions,
    call_results,
    definitions,
    person_logins,
    program_cgroups,
    server_connections,
)
from interpreter_bot.store import accounts, records
from interpreter_bot.wording import tool_words

_log = logging.getLogger(__name__)

_REFRESH_SECONDS: Final = 300.0
_MAX_INSTRUCTIONS_CHARACTERS: Final = 4_000
_MAX_PERSONAL_CONNECTIONS: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server whose tools a conversation may use.

    Attributes:
        server: its settings.
        instructions: of the server, without hidden characters.
        tools: the tools that may be called.
        off_count: the number of other tools, which are new, changed or turned off.
    """

    server: settings.McpServer
    instructions: str
    tools: Sequence[definitions.Definition]
    off_count: int = 0


class ToolBroker:
    """Knows all servers, and calls their tools. Use `open_broker`.

    Attributes:
        definitions: the accepted and the latest definitions of all servers.
        logins: logins of people; None if they cannot be stored.
    """

    def __init__(
        self,
        servers: Sequence[settings.McpServer],
        environment: Mapping[str, str],
        data: pathlib.Path,
        logins: person_logins.PersonLogins | None = None,
        groups: program_cgroups.ProgramGroups | None = None,
    ) -> None:
        """Prepare connections, which the first calls open.

        Args:
            servers: the settings of all servers.
            environment: holds the secrets that they name.
            data: the directory with the accepted definitions.
            logins: logins of people; None if nobody can log in.
            groups: limits programs; without it, only the memory of programs is measured.

        Raises:
            SettingsError: a server cannot be used.
        """
        names = [server.name for server in servers]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise errors.SettingsError(tool_words.same_servers(", ".join(sorted(duplicates))))
        self._servers = {server.name: server for server in servers}
        self._groups = groups or program_cgroups.ProgramGroups(
            settings.Sandbox().without_cgroups(), servers
        )
        self._connections = {
            server.name: server_connections.ServerConnection(server, environment, self._groups)
            for server in servers
            if server.authorization == "bot"
        }
        self._personal_connections: collections.OrderedDict[
            records.Account, server_connections.ServerConnection
        ] = collections.OrderedDict()
        self._environment = environment
        self.logins = logins
        self.definitions = accepted_definitions.AcceptedDefinitions(data)

    def find_offered(self, key: values.SessionKey) -> tuple[OfferedServer, ...]:
        """Return the servers that a conversation may use, without asking them for their tools."""
        return tuple(
            self._make_offered_server(server)
            for server in self._servers.values()
            if key.is_in(server.places)
        )

    def _make_offered_server(self, server: settings.McpServer) -> OfferedServer:
        accepted = self.definitions.usable(server.name)
        tools = [
            tool
            for tool in accepted.tools
            if server.approval_of(tool.name, is_read_only=tool.is_read_only) != "off"
        ]
        tool_names = [name for name in accepted.standings if name]
        instructions = definitions.clean_text(accepted.instructions, _MAX_INSTRUCTIONS_CHARACTERS)
        return OfferedServer(server, instructions, tools, len(tool_names) - len(tools))

    def server(self, key: values.SessionKey, name: str) -> settings.McpServer:
        """Return a server that a conversation may use.

        Raises:
            BotError: there is no such server.
        """
        server = self._servers.get(name)
        if server is None or not key.is_in(server.places):
            raise errors.BotError(tool_words.no_server(name))
        return server

    async def find(
        self, key: values.SessionKey, account: records.Account, tool: str
    ) -> tuple[settings.McpServer, definitions.Definition]:
        """Return a tool that a conversation may call, if the accepted version is still offered.

        `account` is that of the person at the server.

        Raises:
            LoginNeededError: the person has to log in there.
            BotError: the tool cannot be called.
        """
        server_name = account.server
        server = self.server(key, server_name)
        listing = await self.fetch_listing(server_name, account)
        # Compared with this person's tools, as a server may offer each person others.
        accepted = await asyncio.to_thread(self.definitions.accepted, server_name)
        usable = await asyncio.to_thread(accepted_definitions.compare, accepted, listing)
        standing = usable.standings.get(tool) if tool else None
        if standing is None or standing is acceptance.Standing.GONE:
            raise errors.BotError(tool_words.no_tool(server_name, tool))
        definition = next((candidate for candidate in usable.tools if candidate.name == tool), None)
        if definition is None:
            raise errors.BotError(tool_words.not_accepted(server_name, tool))
        if server.approval_of(tool, is_read_only=definition.is_read_only) == "off":
            raise errors.BotError(tool_words.tool_switched_off(server_name, tool))
        return server, definition

    async def call(
        self,
        account: records.Account,
        tool: str,
        arguments: dict[str, Any],
        *,
        progress: dispatcher.ProgressFnT,
    ) -> dict[str, Any]:
        """Call a tool that `find` returned, for a person; see `call_results.as_json`.

        Raises:
            LoginNeededError: the person has to log in there.
            BotError: the call failed.
        """
        connection = await self._connection(account.server, account)
        result = await connection.call(tool, arguments, progress=progress)
        return await asyncio.to_thread(call_results.as_json, result, connection.secrets)

    async def _connection(
        self, server: str, account: records.Account | None
    ) -> server_connections.ServerConnection:
        """Return the connection to a server, or the person's if each person has one.

        Raises:
            LoginNeededError: the person has to log in there.
            BotError: people cannot log in.
        """
        if server in self._connections:
            return self._connections[server]
        if account is None or self.logins is None:
            raise errors.BotError(tool_words.not_listed(server))
        await self.logins.require_login(account)
        if account not in self._personal_connections:
            if len(self._personal_connections) >= _MAX_PERSONAL_CONNECTIONS:
                await self._close_idle_personal_connections()
            if len(self._personal_connections) >= _MAX_PERSONAL_CONNECTIONS:
                raise errors.BotError(tool_words.TOO_MANY_PEOPLE)
            self._personal_connections[account] = server_connections.ServerConnection(
                *(self._servers[server], self._environment, self._groups),
                account=account,
                logins=self.logins,
            )
        return self._personal_connections[account]

    async def _close_idle_personal_connections(self) -> None:
        """Close connections of people that no call has used for a while."""
        for account, connection in list(self._personal_connections.items()):
            # The person may have logged out, and in again, while another connection was closed.
            is_current = self._personal_connections.get(account) is connection
            if is_current and connection.is_idle:
                del self._personal_connections[account]
                await connection.close()

    async def log_out(self, account: records.Account) -> bool:
        """Delete the login of a person; return whether there was one."""
        if self.logins is None:
            return False
        try:
            return await self.logins.delete_tokens(account)
        finally:
            await self.disconnect(account)

    async def disconnect(self, account: records.Account) -> None:
        """Close the connection of a person, and drop the listing that it holds."""
        if (connection := self._personal_connections.pop(account, None)) is not None:
            await connection.close()

    async def fetch_listing(
        self, server: str, account: records.Account | None = None
    ) -> definitions.Listing:
        """Return the tools that a server offers to a person; they are at most some minutes old.

        Raises:
            LoginNeededError: the person has to log in there.
            BotError: the server cannot be reached.
        """
        listing = await (await self._connection(server, account)).listing()
        combined = listing
        if server not in self._connections:
            # Administrators accept the tools of all people together.
            tools = {**self.definitions.latest(server).tools, **listing.tools}
            combined = dataclasses.replace(listing, tools=tools)
        await asyncio.to_thread(self.definitions.record_latest, server, combined)
        return listing

    async def refresh_all(self) -> None:
        """Fetch the listings of servers, and close what is idle; failures are only logged.

        Programs are not started for this, but ended if they are idle. Servers at which people log
        in are asked only when a person uses them.
        """
        await self._close_idle_personal_connections()
        for name, connection in self._connections.items():
            try:
                if self._servers[name].command:
                    await connection.end_if_idle()
                else:
                    await self.fetch_listing(name)
            except errors.BotError as error:
                _log.warning("%s", error)

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return the periodic jobs."""
        return (schedules.PeriodicJob("refresh MCP servers", _REFRESH_SECONDS, self.refresh_all),)

    async def close(self) -> None:
        """Close all connections."""
        connections = (*self._connections.values(), *self._personal_connections.values())
        await asyncio.gather(*(connection.close() for connection in connections))
        await self._groups.close()


@contextlib.asynccontextmanager
async def open_broker(
    config: settings.Settings,
    environment: Mapping[str, str],
    store: accounts.Accounts | None = None,
    keys: encryption.KeyRing | None = None,
) -> AsyncIterator[ToolBroker]:
    """Open the servers of the settings.

    Args:
        config: the settings in effect.
        environment: holds the secrets that they name.
        store: stores accounts of people; without it, nobody can log in.
        keys: encrypts the stored tokens.

    Raises:
        SettingsError: a server cannot be used.
    """
    servers, logins = config.mcp_servers, None
    if store is not None and any(server.authorization == "person" for server in servers):
        keys = keys or encryption.KeyRing.from_settings(config)
        logins = person_logins.PersonLogins(servers, environment, store, keys)
    groups = program_cgroups.ProgramGroups(config.sandbox, servers)
    broker = ToolBroker(servers, environment, config.paths.data, logins, groups)
    try:
        yield broker
    finally:
        await broker.close()
