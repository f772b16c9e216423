"""Key of snapshots, made once in the data directory: it signs which of them count."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets
from typing import Final

from interpreter_bot import private_files, settings

_FILE: Final = "snapshot-key"


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key of all snapshots of a data directory; empty where nothing is saved."""

    secret: bytes = dataclasses.field(default=b"", repr=False)

    def sign(self, name: str, content: str) -> str:
        """Sign what is noted of a workspace."""
        return hmac.new(self.secret, f"{name} {content}".encode(), hashlib.sha256).hexdigest()


def load(config: settings.Settings) -> SnapshotKey:
    """Read the key, or make it. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return SnapshotKey(private_files.read_or_create(config.paths.data / _FILE, _new).encode())


def stored_or_new(config: settings.Settings) -> str:
    """Return the key as it lies on disk, or a new one, which lies nowhere. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return private_files.read(config.paths.data / _FILE) or _new()


def _new() -> str:
    return secrets.token_hex(32)
