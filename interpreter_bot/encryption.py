"""Encryption of stored secrets with Fernet (AES-128-CBC and HMAC-SHA-256).

The first key of a ring encrypts, and the others still decrypt.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Final

from cryptography import fernet

from interpreter_bot import errors, logs, private_files, settings
from interpreter_bot.wording import storage_words

ENCRYPTED_PREFIX: Final = "fernet:"
"""Prefix of encrypted text."""


def secret_digest(secret: str) -> str:
    """Return the digest that is stored instead of a random secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class KeyRing:
    """Keys from the environment, or else from a file that is created with the first key.

    Args:
        keys: from the environment, separated by white space or commas. If there are any, the file
            is ignored.
        file: holds one key on each line.

    Raises:
        SettingsError: the keys are not valid.
    """

    def __init__(self, keys: str, file: pathlib.Path) -> None:
        self._file = None if keys else file
        self.location = "encryption.keys" if keys else str(file)
        """The setting or the file that holds the keys, for messages."""
        self._fernets = self._parse_keys(keys.replace(",", " "))
        if keys:
            self._require_key()

    @classmethod
    def from_settings(cls, config: settings.Settings) -> KeyRing:
        """Return the key ring that the settings name."""
        return cls(config.encryption.keys.get_secret_value(), config.paths.data / "keys")

    def encrypt(self, text: str) -> str:
        """Encrypt a text with the first key, which is created if there is none.

        Raises:
            SettingsError: the keys cannot be used.
        """
        if not self._fernets and self._file is not None:
            self._fernets = self._parse_keys(private_files.read_or_create(self._file, new_key))
        self._require_key()
        return ENCRYPTED_PREFIX + self._fernets[0].encrypt(text.encode()).decode("ascii")

    def decrypt(self, text: str) -> str:
        """Decrypt a text; a text in clear is returned unchanged.

        Raises:
            SettingsError: its key is missing.
        """
        if not text.startswith(ENCRYPTED_PREFIX):
            return text
        decrypted = self._try_decrypt(text)
        if decrypted is None:
            # The key may have been added to the file since.
            self._read_file()
            decrypted = self._try_decrypt(text)
        if decrypted is None:
            raise errors.SettingsError(storage_words.unknown_key(self.location))
        return decrypted

    def is_current(self, text: str) -> bool:
        """Return whether a text is encrypted with the first key."""
        if not self._fernets:
            self._read_file()
        return text.startswith(ENCRYPTED_PREFIX) and self._try_decrypt(text, max_keys=1) is not None

    def add_key(self) -> bool:
        """Put a new key before all others in the file; return False if the keys are not in a file.

        Raises:
            SettingsError: the file cannot be used.
        """
        if self._file is None:
            return False
        with private_files.locked_for_change(self._file):
            keys = "\n".join(filter(None, [new_key(), private_files.read(self._file)]))
            private_files.replace(self._file, keys)
        self._fernets = self._parse_keys(keys)
        return True

    def _read_file(self) -> None:
        if self._file is not None:
            self._fernets = self._parse_keys(private_files.read(self._file))

    def _require_key(self) -> None:
        if not self._fernets:
            raise errors.SettingsError(storage_words.no_key(self.location))

    def _parse_keys(self, keys: str) -> Sequence[fernet.Fernet]:
        logs.add_secrets(keys.split())
        try:
            return [fernet.Fernet(key) for key in keys.split()]
        except ValueError as error:
            raise errors.SettingsError(storage_words.not_keys(self.location)) from error

    def _try_decrypt(self, text: str, *, max_keys: int | None = None) -> str | None:
        for key in self._fernets[:max_keys]:
            with contextlib.suppress(fernet.InvalidToken):
                return key.decrypt(text.removeprefix(ENCRYPTED_PREFIX)).decode()
        return None


def new_key() -> str:
    """Return a key for a ring."""
    return fernet.Fernet.generate_key().decode("ascii")
