"""Programs that may use the bot over HTTP, and their tokens, of which only digests are stored.

The file has a line for each client: its name and the digest. It is read again when it has changed,
so that a client that was removed is refused at once.
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
"""That of the programs that use the HTTP interface."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class ClientTokens:
    """Finds clients in the file by their tokens."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self._file_version: tuple[int, int] | None = None
        self._names_by_digest: dict[str, str] = {}

    def client(self, token: str) -> str | None:
        """Return the name of the client that has a token, if any.

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


def names(file: pathlib.Path) -> tuple[str, ...]:
    """Return the names of all clients."""
    return tuple(sorted(_load(file)))


def add(file: pathlib.Path, name: str) -> str:
    """Add a client; return its token, which is not stored.

    Raises:
        SettingsError: the name is taken or cannot be used, or the file cannot be written.
    """
    if _NAME.fullmatch(name) is None:
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
