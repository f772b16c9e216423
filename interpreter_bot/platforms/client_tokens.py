"""The programs that may use the bot over HTTP ("clients"), each with a token.

A file has one line per client: its name and the digest of its token. The file is read again when it
has changed, so a removed client is refused at once.
"""

from __future__ import annotations

import pathlib
import re
import secrets
from typing import Final

from interpreter_bot import errors, private_files
from interpreter_bot.encryption import secret_digest
from interpreter_bot.wording import tool_words

MCP_FILE: Final = "mcp-clients"
"""The file of MCP clients in the data directory."""

API_FILE: Final = "api-clients"
"""The file of programs that use the HTTP interface."""

_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class ClientTokens:
    """Finds clients in the file by their tokens."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self._file_version: tuple[int, int] | None = None
        self._names_by_digest: dict[str, str] = {}

    def find_client(self, token: str) -> str | None:
        """Return the name of the client that has a token; None if none has it.

        Raises:
            SettingsError: the file cannot be read, or is readable by others.
        """
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return None
        if (version := (status.st_ino, status.st_mtime_ns)) != self._file_version:
            self._names_by_digest = {digest: name for name, digest in _load(self._file).items()}
            self._file_version = version
        # The lookup is by digest, so its duration reveals nothing about a token.
        return self._names_by_digest.get(secret_digest(token))


def list_names(file: pathlib.Path) -> tuple[str, ...]:
    """Return the names of all clients."""
    return tuple(sorted(_load(file)))


def add(file: pathlib.Path, name: str) -> str:
    """Add a client; return its token, of which only the digest is stored.

    Raises:
        SettingsError: the name is taken or cannot be used, or the file cannot be written.
    """
    if _NAME_PATTERN.fullmatch(name) is None:
        raise errors.SettingsError(tool_words.BAD_CLIENT_NAME)
    token = secrets.token_urlsafe(32)
    with private_files.locked_for_change(file):
        clients = _load(file)
        if name in clients:
            raise errors.SettingsError(tool_words.client_exists(name))
        _save(file, clients | {name: secret_digest(token)})
    return token


def remove(file: pathlib.Path, name: str) -> None:
    """Remove a client: its token is refused from now on.

    Raises:
        SettingsError: there is no client of that name.
    """
    if name not in _load(file):
        raise errors.SettingsError(tool_words.no_client(name))
    with private_files.locked_for_change(file):
        clients = _load(file)
        clients.pop(name, None)
        _save(file, clients)


def _load(file: pathlib.Path) -> dict[str, str]:
    lines = (line.split() for line in private_files.read(file).splitlines())
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


def _save(file: pathlib.Path, clients: dict[str, str]) -> None:
    private_files.replace(file, "\n".join(f"{name} {digest}" for name, digest in clients.items()))
