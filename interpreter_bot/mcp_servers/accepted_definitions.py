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
class Accepted:
    """The part of a server's offer that may be used.

    Attributes:
        instructions: the server's, if they are as they were accepted.
        tools: whose definitions are.
        standings: of all tools, by name; of the instructions, by an empty one.
    """

    instructions: str
    tools: tuple[definitions.Definition, ...]
    standings: dict[str, Standing]


class AcceptedDefinitions:
    """The definitions of one bot. Methods block, shortly."""

    def __init__(self, data: pathlib.Path) -> None:
        self._accepted = acceptance.Records(data, "tools", definitions.Listing)
        self._seen = acceptance.Records(data, "seen-tools", definitions.Listing)
        self._usable: dict[str, tuple[definitions.Listing, definitions.Listing, Accepted]] = {}

    def accepted(self, server: str) -> definitions.Listing:
        """Return what was accepted of a server; nothing if nothing was."""
        return self._accepted.read(server) or _EMPTY

    def seen(self, server: str) -> definitions.Listing:
        """Return what a server sent last; nothing if it has not been asked."""
        return self._seen.read(server) or _EMPTY

    def note(self, server: str, listing: definitions.Listing) -> None:
        """Remember what a server sent."""
        if listing != self.seen(server):
            self._seen.write(server, listing)

    def accept(self, server: str, digest: str) -> definitions.Listing:
        """Accept what a server sent last, if `digest` names it; see `acceptance.check_version`.

        Raises:
            BotError: it is something else now, or nothing.
        """
        listing = self.seen(server)
        if not listing.tools:
            raise errors.BotError(tool_words.not_listed_yet(server))
        acceptance.check_version(server, digest, listing.digest)
        self._accepted.write(server, listing)
        return listing

    def refuse(self, server: str) -> None:
        """Withdraw what was accepted of a server."""
        self._accepted.remove(server)

    def usable(self, server: str) -> Accepted:
        """Return the usable part of what a server sent last."""
        accepted, seen = self.accepted(server), self.seen(server)
        cached = self._usable.get(server)
        if cached is None or cached[0] is not accepted or cached[1] is not seen:
            cached = self._usable[server] = accepted, seen, compare(accepted, seen)
        return cached[2]


def compare(accepted: definitions.Listing, seen: definitions.Listing) -> Accepted:
    """Compare what a server sent with what was accepted of it."""
    digests = {name: definitions.digest(tool) for name, tool in accepted.tools.items()}
    standings = {
        name: acceptance.find_standing(digests.get(name), definitions.digest(tool))
        for name, tool in seen.tools.items()
    }
    tools = tuple(
        definitions.read_tool(seen.tools[name])
        for name, standing in standings.items()
        if standing is Standing.ON
    )
    standings |= {name: Standing.GONE for name in digests if name not in seen.tools}
    standings[""] = acceptance.find_standing(accepted.instructions, seen.instructions)
    is_same = standings[""] is Standing.ON
    return Accepted(accepted.instructions if is_same else "", tools, standings)
