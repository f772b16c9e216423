"""The tools of all MCP servers: what of them a conversation may use, and their calls."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from mcp.shared import dispatcher

from interpreter_bot import errors, schedules, settings, values
from interpreter_bot.mcp_servers import (
    accepted_definitions,
    call_results,
    definitions,
    server_connections,
)

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 300.0
_INSTRUCTIONS_CHARACTERS: Final = 4_000
_NO_SERVER: Final = "There is no server {name!r} whose tools may be used here."
_NO_TOOL: Final = "{server} has no tool {tool!r} that may be used here."
_NOT_ACCEPTED: Final = (
    "The tool {tool} of {server} is off: it is new, or was changed, and whoever runs the bot has "
    "not accepted it as it is now."
)
_OFF: Final = "The tool {tool} of {server} is off, by the settings of the bot."


@dataclasses.dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server whose tools a conversation may use.

    Attributes:
        server: as the settings say.
        instructions: of the server, harmless.
        tools: those that may be called.
        off_count: how many others there are, new, changed or turned off.
    """

    server: settings.McpServer
    instructions: str
    tools: Sequence[definitions.Definition]
    off_count: int = 0


class ToolBroker:
    """Knows all servers, and calls their tools. Use `opened`."""

    def __init__(
        self,
        servers: Sequence[settings.McpServer],
        environment: Mapping[str, str],
        data: pathlib.Path,
    ) -> None:
        """Connect to nothing yet.

        Args:
            servers: as the settings list them.
            environment: holds what their headers name.
            data: the directory with what was accepted.

        Raises:
            SettingsError: one cannot be used.
        """
        names = [server.name for server in servers]
        if twice := {name for name in names if names.count(name) > 1}:
            raise errors.SettingsError(f"mcp_servers: two are called {', '.join(sorted(twice))}.")
        self._servers = {server.name: server for server in servers}
        self._connections = {
            server.name: server_connections.ServerConnection(server, environment)
            for server in servers
        }
        self.definitions = accepted_definitions.AcceptedDefinitions(data)

    def offered(self, key: values.SessionKey) -> tuple[OfferedServer, ...]:
        """Return what a conversation may use. Nobody is asked for it."""
        place = (key.platform, key.workspace, key.channel, key.thread)
        return tuple(
            self._offered(server) for server in self._servers.values() if server.is_in(*place)
        )

    def _offered(self, server: settings.McpServer) -> OfferedServer:
        usable = self.definitions.usable(server.name)
        tools = [
            tool
            for tool in usable.tools
            if server.approval_of(tool.name, is_read_only=tool.is_read_only) != "off"
        ]
        offered = [name for name in usable.standings if name]
        said = definitions.readable(usable.instructions, _INSTRUCTIONS_CHARACTERS)
        return OfferedServer(server, said, tools, len(offered) - len(tools))

    async def find(
        self, key: values.SessionKey, server: str, tool: str
    ) -> tuple[settings.McpServer, definitions.Definition]:
        """Return a tool that a conversation may call, once it was seen to be what was accepted.

        Raises:
            BotError: there is none; the sentence says why.
        """
        found = self._servers.get(server)
        if found is None or not found.is_in(key.platform, key.workspace, key.channel, key.thread):
            raise errors.BotError(_NO_SERVER.format(name=server))
        await self.look(server)
        usable = await asyncio.to_thread(self.definitions.usable, server)
        standing = usable.standings.get(tool) if tool else None
        if standing is None or standing is accepted_definitions.Standing.GONE:
            raise errors.BotError(_NO_TOOL.format(server=server, tool=tool))
        definition = next((one for one in usable.tools if one.name == tool), None)
        if definition is None:
            raise errors.BotError(_NOT_ACCEPTED.format(server=server, tool=tool))
        if found.approval_of(tool, is_read_only=definition.is_read_only) == "off":
            raise errors.BotError(_OFF.format(server=server, tool=tool))
        return found, definition

    async def call(
        self,
        server: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        progress: dispatcher.ProgressFnT,
    ) -> dict[str, Any]:
        """Call a tool that `find` returned; see `call_results.read`.

        Raises:
            BotError: it could not be done.
        """
        connection = self._connections[server]
        result = await connection.call(tool, arguments, progress=progress)
        return await asyncio.to_thread(call_results.read, result, connection.secrets)

    async def look(self, server: str) -> definitions.Listing:
        """Look at what a server offers now, unless that was done a moment ago.

        Raises:
            BotError: it cannot be reached.
        """
        listing = await self._connections[server].listing()
        await asyncio.to_thread(self.definitions.note, server, listing)
        return listing

    async def look_at_all(self) -> None:
        """Look at all servers; one that cannot be reached is looked at the next time.

        One that is a program is not started for that, and ended if nobody uses it.
        """
        for name, server in self._servers.items():
            try:
                if server.command:
                    await self._connections[name].rest()
                else:
                    await self.look(name)
            except errors.BotError as error:
                _log.warning("%s", error)

    def jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return its periodic jobs."""
        return (schedules.PeriodicJob("look at MCP servers", _LOOK_SECONDS, self.look_at_all),)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.close() for one in self._connections.values()))


@contextlib.asynccontextmanager
async def opened(
    config: settings.Settings, environment: Mapping[str, str]
) -> AsyncIterator[ToolBroker]:
    """Open the tools of the settings.

    Raises:
        SettingsError: a server cannot be used.
    """
    broker = ToolBroker(config.mcp_servers, environment, config.paths.data)
    try:
        yield broker
    finally:
        await broker.close()
