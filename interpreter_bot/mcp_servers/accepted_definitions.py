"""Definitions of tools that an administrator accepted, and those that servers sent last."""

from __future__ import annotations

import dataclasses
import pathlib

from interpreter_bot import acceptance, errors
from interpreter_bot.acceptance import Standing
from interpreter_bot.mcp_servers import definitions
from interpreter_bot.wording import tool_words

_EMPTY = definitions.Listing()


@dataclasses.dataclass(frozen=True, slots=True)
class UsableDefinitions:
    """The definitions of a server that may be used, as they equal the accepted ones.

    Attributes:
        instructions: of the server; empty if they have changed.
        tools: unchanged tools.
        standings: of all tools, by name; the empty name stands for the instructions.
    """

    instructions: str
    tools: tuple[definitions.Definition, ...]
    standings: dict[str, Standing]


class AcceptedDefinitions:
    """The accepted and the latest definitions of all servers. Methods block for a short time."""

    def __init__(self, data: pathlib.Path) -> None:
        self._accepted = acceptance.Records(data, "tools", definitions.Listing)
        self._latest = acceptance.Records(data, "seen-tools", definitions.Listing)
        self._usable_by_server: dict[
            str, tuple[definitions.Listing, definitions.Listing, UsableDefinitions]
        ] = {}

    def accepted(self, server: str) -> definitions.Listing:
        """Return the accepted definitions of a server, or an empty listing."""
        return self._accepted.read(server) or _EMPTY

    def latest(self, server: str) -> definitions.Listing:
        """Return the latest listing that a server sent, or an empty one."""
        return self._latest.read(server) or _EMPTY

    def record_latest(self, server: str, listing: definitions.Listing) -> None:
        """Store a listing that a server sent, if it differs from the one before."""
        if listing != self.latest(server):
            self._latest.write(server, listing)

    def accept(self, server: str, digest: str) -> definitions.Listing:
        """Accept the latest listing of a server if it has this digest.

        Raises:
            BotError: there is no listing, or it has another digest; see
                `acceptance.check_version`.
        """
        listing = self.latest(server)
        if not listing.tools:
            raise errors.BotError(tool_words.not_listed_yet(server))
        acceptance.check_version(server, digest, listing.digest)
        self._accepted.write(server, listing)
        return listing

    def refuse(self, server: str) -> None:
        """Revoke the acceptance of a server's definitions."""
        self._accepted.remove(server)

    def usable(self, server: str) -> UsableDefinitions:
        """Return the usable part of a server's latest listing."""
        accepted, latest = self.accepted(server), self.latest(server)
        cached = self._usable_by_server.get(server)
        if cached is None or cached[0] is not accepted or cached[1] is not latest:
            cached = self._usable_by_server[server] = accepted, latest, compare(accepted, latest)
        return cached[2]


def compare(accepted: definitions.Listing, latest: definitions.Listing) -> UsableDefinitions:
    """Compare a server's latest listing with the accepted one."""
    digests = {name: definitions.digest(tool) for name, tool in accepted.tools.items()}
    standings = {
        name: acceptance.find_standing(digests.get(name), definitions.digest(tool))
        for name, tool in latest.tools.items()
    }
    tools = tuple(
        definitions.read_tool(latest.tools[name])
        for name, standing in standings.items()
        if standing is Standing.ON
    )
    standings |= {name: Standing.GONE for name in digests if name not in latest.tools}
    standings[""] = acceptance.find_standing(accepted.instructions, latest.instructions)
    is_same = standings[""] is Standing.ON
    return UsableDefinitions(accepted.instructions if is_same else "", tools, standings)
