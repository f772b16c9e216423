"""Definitions of tools that an administrator accepted, and those that servers sent last.

Both lie in the data directory as they were sent. A tool is used while its definition is, to the
byte, the one that was accepted.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import pathlib
from typing import Final

from interpreter_bot import errors, private_files
from interpreter_bot.mcp_servers import definitions
from interpreter_bot.wording import tool_words

_log = logging.getLogger(__name__)

_DIRECTORY: Final = "mcp-servers"
_MAX_BYTES: Final = 16 * 1024 * 1024
_DIGEST_CHARACTERS: Final = 12
_NOTHING: Final = definitions.Listing()


class Standing(enum.StrEnum):
    """Whether a tool is used, or why not."""

    ON = "on"
    NEW = "new"
    """Nobody has accepted it."""
    CHANGED = "changed"
    """It is not what was accepted."""
    GONE = "gone"
    """The server does not offer it any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Accepted:
    """What of a server may be used.

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
        self._directory = data / _DIRECTORY
        self._read: dict[pathlib.Path, tuple[tuple[int, int], definitions.Listing]] = {}
        self._usable: dict[str, tuple[definitions.Listing, definitions.Listing, Accepted]] = {}

    def accepted(self, name: str) -> definitions.Listing:
        """Return what was accepted of a server; nothing if nothing was."""
        return self._listing(self._directory / "accepted" / f"{name}.json")

    def seen(self, name: str) -> definitions.Listing:
        """Return what a server sent last; nothing if it has not been asked."""
        return self._listing(self._directory / "seen" / f"{name}.json")

    def note(self, name: str, listing: definitions.Listing) -> None:
        """Remember what a server sent."""
        if listing != self.seen(name):
            self._write(self._directory / "seen" / f"{name}.json", listing)

    def accept(self, name: str, digest: str) -> definitions.Listing:
        """Accept what a server sent last.

        Args:
            name: of the server.
            digest: of what an administrator read; its first characters suffice.

        Raises:
            BotError: it is something else now, or nothing.
        """
        listing = self.seen(name)
        if not listing.tools:
            raise errors.BotError(tool_words.not_asked_yet(name))
        if len(digest) < _DIGEST_CHARACTERS or not listing.digest.startswith(digest):
            raise errors.BotError(tool_words.other_version(name, digest))
        self._write(self._directory / "accepted" / f"{name}.json", listing)
        return listing

    def refuse(self, name: str) -> None:
        """Take back what was accepted of a server."""
        (self._directory / "accepted" / f"{name}.json").unlink(missing_ok=True)

    def usable(self, name: str) -> Accepted:
        """Return what of a server may be used, of what it sent last."""
        accepted, seen = self.accepted(name), self.seen(name)
        known = self._usable.get(name)
        if known is None or known[0] is not accepted or known[1] is not seen:
            known = self._usable[name] = accepted, seen, compared(accepted, seen)
        return known[2]

    def _listing(self, file: pathlib.Path) -> definitions.Listing:
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_ino)
            known = self._read.get(file)
            if known is None or known[0] != version:
                if status.st_size > _MAX_BYTES:
                    raise ValueError("it is too long")
                read = json.loads(file.read_text("utf-8"))
                left_out = tuple(read.pop("left_out"))
                known = version, definitions.Listing(**read, left_out=left_out)
                self._read[file] = known
        except FileNotFoundError:
            return _NOTHING
        except (OSError, ValueError, TypeError, KeyError) as error:
            # Nothing of it is used then, which is safe.
            _log.error("%s cannot be used: %s", file, error)
            return _NOTHING
        return known[1]

    def _write(self, file: pathlib.Path, listing: definitions.Listing) -> None:
        private_files.replace(file, json.dumps(dataclasses.asdict(listing)))


def compared(accepted: definitions.Listing, seen: definitions.Listing) -> Accepted:
    """Return what may be used of what a server sent, after what was accepted of it."""
    digests = {one: definitions.digest(tool) for one, tool in accepted.tools.items()}
    standings: dict[str, Standing] = {}
    for one, tool in seen.tools.items():
        is_same = digests.get(one) == definitions.digest(tool)
        standings[one] = (
            Standing.ON if is_same else Standing.CHANGED if one in digests else Standing.NEW
        )
    standings |= {one: Standing.GONE for one in digests if one not in seen.tools}
    is_same = accepted.instructions == seen.instructions
    standings[""] = Standing.ON if is_same else Standing.CHANGED
    tools = tuple(
        definitions.read(seen.tools[one])
        for one, standing in standings.items()
        if one and standing is Standing.ON
    )
    return Accepted(accepted.instructions if is_same else "", tools, standings)
