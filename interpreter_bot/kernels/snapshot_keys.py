"""Key of snapshots: it signs which of them count and, where a key ring is named, encrypts them.

It is made once, lies in the data directory and, with a key ring, is encrypted by that one: so a
new key of the ring encrypts a line anew and no snapshot. What encrypts a session's variables is
derived from it, for each session that was begun anew. Its kernel gets that to write and read them,
and nothing else that is secret; the rest of a snapshot's bytes never is on a disk in the clear.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import logging
import secrets
from typing import Final

from interpreter_bot import errors, private_files, settings

_log = logging.getLogger(__name__)

_FILE: Final = "snapshot-key"
_SEALED: Final = "fernet:"
_MISSING: Final = "They are encrypted, and the key for that is missing."
_NO_RING: Final = "saved variables are encrypted, and snapshots.key_file names no keys"


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key of all snapshots of a data directory.

    Attributes:
        secret: empty where nothing is saved.
        encrypts: whether what is saved from now on is encrypted.
        fault: a sentence why there is none although there should be; mostly empty.
    """

    secret: bytes = dataclasses.field(default=b"", repr=False)
    encrypts: bool = False
    fault: str = ""

    def sign(self, name: str, content: str) -> str:
        """Sign what is noted of a workspace.

        Raises:
            SettingsError: the key is missing.
        """
        if self.fault:
            raise errors.SettingsError(self.fault)
        return hmac.new(self.secret, f"{name} {content}".encode(), hashlib.sha256).hexdigest()

    def data_key(self, seal: str) -> str:
        """Return what encrypts the variables of one seal; empty where they are not encrypted."""
        if not seal:
            return ""
        return hmac.new(self.secret, f"seal {seal}".encode(), hashlib.sha256).hexdigest()

    def new_seal(self) -> str:
        """Choose the seal of a session that is saved for the first time; empty for none."""
        return secrets.token_hex(16) if self.encrypts else ""


def load(config: settings.Settings) -> SnapshotKey:
    """Read the key, or make it; with a key ring, let that encrypt it. Blocks.

    Raises:
        SettingsError: a file cannot be used.
    """
    file = config.paths.data / _FILE
    if config.snapshots.key_file is None:
        text = private_files.read_or_create(file, _new)
        if text.startswith(_SEALED):
            _log.error(_NO_RING)
            return SnapshotKey(fault=_MISSING)
        return SnapshotKey(text.encode())
    # Imported here: where nothing is encrypted, no kernel waits for it.
    from interpreter_bot import encryption

    ring = encryption.KeyRing("", config.snapshots.key_file)
    text = private_files.read_or_create(file, lambda: ring.encrypt(_new()))
    try:
        secret = ring.decrypt(text)
    except errors.SettingsError:
        # The bot does without: what is saved is kept, until it is put right or too old.
        _log.exception("saved variables cannot be decrypted")
        return SnapshotKey(fault=_MISSING)
    if not ring.is_current(text):
        private_files.replace(file, ring.encrypt(secret))
    return SnapshotKey(secret.encode(), encrypts=True)


def stored_or_new(config: settings.Settings) -> str:
    """Return the key as it lies on disk, encrypted where it is; or a new one, which lies nowhere.

    Blocks.

    Raises:
        SettingsError: it cannot be used.
    """
    file = config.paths.data / _FILE
    if private_files.read(file):
        opened = load(config)
        if opened.fault:
            raise errors.SettingsError(opened.fault)
        return private_files.read(file)
    if config.snapshots.key_file is None:
        return _new()
    from interpreter_bot import encryption

    return encryption.KeyRing("", config.snapshots.key_file).encrypt(_new())


def is_same(text: str, other: str, config: settings.Settings) -> bool:
    """Say whether two keys are one, as they lie on disk, encrypted or not. Blocks.

    Raises:
        SettingsError: a file cannot be used.
    """
    if text == other:
        return True
    if config.snapshots.key_file is None:
        return False
    from interpreter_bot import encryption

    ring = encryption.KeyRing("", config.snapshots.key_file)
    return ring.decrypt(text) == ring.decrypt(other)


def renewed(text: str, config: settings.Settings) -> str:
    """Return a key as it lies on disk, encrypted with the present key of the ring, if any. Blocks.

    Raises:
        SettingsError: a file cannot be used.
    """
    if config.snapshots.key_file is None:
        return text
    from interpreter_bot import encryption

    ring = encryption.KeyRing("", config.snapshots.key_file)
    return text if ring.is_current(text) else ring.encrypt(ring.decrypt(text))


def rotate(config: settings.Settings) -> bool:
    """Encrypt the key with a new one of its ring; False where nothing is encrypted. Blocks.

    Raises:
        SettingsError: the present key is missing, or a file cannot be used.
    """
    if config.snapshots.key_file is None:
        return False
    opened = load(config)
    if opened.fault:
        raise errors.SettingsError(opened.fault)
    from interpreter_bot import encryption

    ring = encryption.KeyRing("", config.snapshots.key_file)
    ring.add_key()
    private_files.replace(config.paths.data / _FILE, ring.encrypt(opened.secret.decode()))
    return True


def _new() -> str:
    return secrets.token_hex(32)
