"""Keys and tokens that were entered on the page or by `interpreter-bot setup`, encrypted on disk.

Their names are those of environment variables. Variables that are set take precedence over them.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Final

import pydantic

from interpreter_bot import encryption, errors, logs, private_files, settings
from interpreter_bot.wording import storage_words

_FILE_NAME: Final = "credentials"


class StoredCredentials:
    """The credentials in a data directory."""

    def __init__(self, config: settings.Settings) -> None:
        self._file = config.paths.data / _FILE_NAME
        self._keys = encryption.KeyRing.from_settings(config)

    def load(self) -> dict[str, str]:
        """Return all of them by name, and let the log redact them.

        Raises:
            SettingsError: they cannot be read or decrypted.
        """
        stored_texts = self._read()
        try:
            values = {name: self._keys.decrypt(text) for name, text in stored_texts.items()}
        except errors.SettingsError as error:
            # Nothing can be added to a file that cannot be decrypted, and no bot starts with it.
            advice = storage_words.delete_if_key_is_lost(self._file)
            raise errors.SettingsError(f"{error} {advice}") from error
        logs.add_secrets(_find_secrets(values))
        return values

    def save(self, changes: Mapping[str, str]) -> None:
        """Add, replace or, if empty, remove some of them.

        Raises:
            SettingsError: they cannot be written.
        """
        logs.add_secrets(_find_secrets(changes))
        # The users of kernels pass through this directory, and cannot list it.
        self._file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        with private_files.locked_for_change(self._file):
            encrypted_values = self._read() | {
                name: self._keys.encrypt(value) for name, value in changes.items() if value
            }
            remaining = {
                name: text for name, text in encrypted_values.items() if changes.get(name, text)
            }
            private_files.replace(self._file, json.dumps(remaining))

    def reencrypt(self) -> int:
        """Encrypt all of them with the first key; return how many there are."""
        if not self._read():
            return 0
        with private_files.locked_for_change(self._file):
            values = self.load()
            encrypted_values = {name: self._keys.encrypt(value) for name, value in values.items()}
            private_files.replace(self._file, json.dumps(encrypted_values))
        return len(values)

    def _read(self) -> dict[str, str]:
        text = private_files.read(self._file)
        try:
            encrypted_values = json.loads(text or "{}")
            if not isinstance(encrypted_values, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            raise errors.SettingsError(storage_words.credentials_damaged(self._file)) from error
        return {str(name): str(value) for name, value in encrypted_values.items()}


def _find_secrets(values: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts that no log may show: keys and tokens, also within addresses."""
    for name, value in values.items():
        if name.endswith(("_KEY", "_TOKEN")):
            yield value
        elif name.endswith("_URL"):
            parts = urllib.parse.urlsplit(value)
            yield from (parts.username or "", parts.password or "")
            yield from (pair.split("=", 1)[-1] for pair in parts.query.split("&"))


def with_stored_tokens(
    config: settings.Settings, variables: Mapping[str, str]
) -> settings.Settings:
    """Return settings with the stored tokens of platforms without tokens in the settings."""
    changes: dict[str, object] = {}
    tokens = {
        name: pydantic.SecretStr(variables[variable])
        for name, variable in (("bot_token", "SLACK_BOT_TOKEN"), ("app_token", "SLACK_APP_TOKEN"))
        if variables.get(variable)
    }
    if tokens and not config.slack.bot_token.get_secret_value():
        changes["slack"] = config.slack.model_copy(update=tokens)
    if variables.get("DISCORD_TOKEN") and not config.discord.token.get_secret_value():
        token = pydantic.SecretStr(variables["DISCORD_TOKEN"])
        changes["discord"] = config.discord.model_copy(update={"token": token})
    return config.model_copy(update=changes)
